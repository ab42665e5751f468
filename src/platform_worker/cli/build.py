"""``worker build``: compiles ``worker.toml`` into an artifact generation and selects it."""

from __future__ import annotations

from platform_worker import wiring_build
from platform_worker.cli.job_arguments import parser, say, say_json
from platform_worker.errors import EXIT_FAILED, EXIT_OK


def run(root: str, args: list[str], json_output: bool) -> int:
    """Builds, or with ``--check`` compares; the exit code, or a ``WorkerError``."""
    own = parser(
        "build",
        "Compiles worker.toml and the enabled plugins into an artifact generation, selects it and prints its id. The "
        "same input gives the same id, on any machine and in any folder.",
        "worker build\n  worker build --check || worker build",
    )
    own.add_argument(
        "--check", action="store_true", help="change nothing, say whether what is selected is up to date: exit 0 or 1"
    )
    options = own.parse_args(args)
    if options.check:
        generation, fresh = wiring_build.check(root)
        status = "ok" if fresh else "stale"
        if json_output:
            say_json({"generation": generation, "status": status})
        else:
            say(status)
        return EXIT_OK if fresh else EXIT_FAILED
    result = wiring_build.build(root)
    if json_output:
        say_json({"generation": result.generation, "reused": result.reused, "status": "ok"})
    else:
        say(result.generation)
    return EXIT_OK
