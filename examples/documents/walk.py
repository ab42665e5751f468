"""Puts one job for each file of a folder on the queue: python walk.py [--print] FOLDER

With --print it writes one line of JSON a job instead, for `worker enqueue --lines FILE`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote


def is_skipped(folder: str) -> bool:
    """Folders that tools keep for themselves."""
    return folder in {".git", "__pycache__", "node_modules", "var"} or folder.startswith(
        (".venv", ".hypothesis", ".work")
    )


def files_of(folder: Path) -> Iterator[str]:
    """The absolute paths of the regular files under ``folder``, sorted; links and hidden tool folders are left out."""
    for where, folders, names in os.walk(folder.resolve(strict=True)):
        folders[:] = sorted(n for n in folders if not is_skipped(n))
        for name in sorted(names):
            path = Path(where, name)
            if path.is_file() and not path.is_symlink():
                yield str(path)


def data_of(path: str) -> dict[str, Any]:
    """A job's data. A name that is not UTF-8 cannot stand in JSON as it is, so its bytes are quoted."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return {"path": quote(os.fsencode(path)), "quoted": True}
    return {"path": path}


def enqueue(paths: Iterator[str], root: Path) -> list[str]:
    """One job a file, all in few round trips; the ids of the jobs."""
    from platform_worker import NewJob, Queue

    with Queue.open(root=root) as queue:
        return queue.enqueue_many(NewJob(task="inspect", data=data_of(path)) for path in paths)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Puts one job for each file of a folder on the queue.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--print", action="store_true", help="write one line of JSON a job instead")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        parser.error("not a folder")
    paths = files_of(arguments.folder)
    if arguments.print:
        for path in paths:
            print(json.dumps({"task": "inspect", "data": data_of(path)}))
    else:
        print(f"{len(enqueue(paths, Path(__file__).resolve().parent))} jobs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
