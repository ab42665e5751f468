"""The command ``worker``. A command's module is imported only when it runs: a probe pays for nothing else."""

from __future__ import annotations

import os
import sys

from platform_worker.errors import EXIT_FAILED, EXIT_OK, WorkerError, WorkerUsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

#: Command, what it does; each is a module of this folder with ``run(root, args, json_output)``.
COMMANDS = {
    "init": "write a worker.toml and a tasks.py to begin with",
    "build": "compile worker.toml into an artifact generation and select it",
    "start": "run the pool in the foreground",
    "status": "ask the live supervisor for its state",
    "health": "ask the live supervisor whether it can take work",
    "stop": "stop the pool and wait until it is gone",
    "doctor": "say what is wrong or risky here, and what to do about it",
    "enqueue": "put jobs on the queue",
    "jobs": "list, show, retry, cancel, purge jobs",
    "queues": "list, pause, resume queues",
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    json_output = "--json" in arguments
    try:
        root, command, rest, json_output = _split(arguments)
        if command is None:
            _say(_usage())
            return EXIT_OK
        return _run(root, command, rest, json_output)
    except WorkerError as error:
        return _fail(error, json_output)
    except SystemExit as end:
        if end.code in (0, None):
            return EXIT_OK
        return _fail(_usage_error("see `worker COMMAND --help`"), json_output)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Who read our output has gone; the interpreter must not complain of it once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return EXIT_FAILED


def _split(arguments: list[str]) -> tuple[str, str | None, list[str], bool]:
    """Takes ``--root`` and ``--json`` out, wherever they stand; the command is the first plain word."""
    root = os.environ.get("WORKER_ROOT") or os.getcwd()
    command: str | None = None
    rest: list[str] = []
    json_output = False
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word == "--json":
            json_output = True
        elif word == "--root":
            found = next(words, None)
            if found is None:
                raise _usage_error("--root needs a directory")
            root = found
        elif word.startswith("--root="):
            root = word.removeprefix("--root=")
        elif command is None and word in ("--help", "-h"):
            return root, None, [], json_output
        elif command is None and word == "--version":
            from importlib.metadata import version

            _say(f"worker {version('platform-worker')}")
            raise SystemExit(0)
        elif command is None and word.startswith("-"):
            raise _usage_error(f"unknown option {word.partition('=')[0]}; see `worker --help`")
        elif command is None:
            command = word
        else:
            rest.append(word)
    if command is None:
        raise _usage_error("a command is missing; see `worker --help`")
    if not root or "\0" in root:
        raise _usage_error("--root must be a directory")
    return os.path.abspath(root), command, rest, json_output


def _run(root: str, command: str, rest: list[str], json_output: bool) -> int:
    if command not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(command, COMMANDS, 1)
        raise _usage_error(
            f"no such command; did you mean {near[0]}?" if near else "no such command; see `worker --help`"
        )
    if os.name != "posix":
        raise _usage_error("platform_worker runs on Linux and other POSIX systems; Windows is not supported yet")
    if command != "init" and not os.path.isdir(root):
        raise _usage_error("--root: no such directory")
    return _load(command)(root, rest, json_output)


def _load(command: str) -> Callable[[str, list[str], bool], int]:
    if command in ("status", "health", "stop"):
        from platform_worker.cli import ask

        return {"status": ask.status, "health": ask.health, "stop": ask.stop}[command]
    import importlib

    run: Callable[[str, list[str], bool], int] = importlib.import_module(f"platform_worker.cli.{command}").run
    return run


def _fail(error: WorkerError, json_output: bool) -> int:
    lines = [str(error), *(f"hint: {hint}" for hint in error.hints)]
    try:
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
        if json_output:
            import json

            body = {"code": error.code, "reason": error.reason, "status": "error"}
            _say(json.dumps(body, sort_keys=True, separators=(",", ":")))
    except (OSError, AttributeError):  # nobody to tell; the exit code still does
        pass
    return error.exit_code


def _usage_error(hint: str) -> WorkerUsageError:
    return WorkerUsageError("worker-usage-invalid", hints=[hint])


def _usage() -> str:
    width = max(map(len, COMMANDS))
    listed = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return (
        "usage: worker [--root DIR] [--json] COMMAND [OPTIONS]\n"
        "       worker --version\n\n"
        f"{listed}\n\n"
        "--root DIR  the application directory, else $WORKER_ROOT, else the current directory\n"
        "--json      JSON objects on stdout, one a line\n\n"
        "example: worker --root /srv/app start\n"
        "`worker COMMAND --help` says more."
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
