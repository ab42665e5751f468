"""``python -m platform_worker.child``: what a guardian starts with the spawn driver; of no use to a person."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Makes the process what one of the fork driver is, then lives its life."""
    # -m puts the working directory first, which is the root: an application's own json.py must not be taken for the
    # standard library's while the child boots. The application gets its folders (app.path) when it is imported.
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]
    from platform_worker.wiring_child import run_child

    run_child(arm=True)


if __name__ == "__main__":
    main()
