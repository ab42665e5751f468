"""The two files that ``worker init`` writes. The settings come from the shipped defaults, so they cannot differ."""

from __future__ import annotations

import os

import platform_worker

WORKER_TOML_HEAD = """\
# The settings of this application. Keys that begin with # are at their defaults; take the # away to change one.
# After a change: worker build, or worker start --build.
# Any value may be { env = "NAME" } or { env = "NAME", default = … } instead.
"""

TASKS = '''\
"""The task handlers of this application; worker.toml names this module in app.handlers."""

from platform_worker import JobContext, task


@task("hello")
def hello(name: str, context: JobContext) -> dict[str, str]:
    """One job: its data are the keyword arguments, what it returns is kept as the result, what it raises is retried."""
    return {"greeting": f"Hello, {name}!", "job": context.id}
'''


def default_settings() -> str:
    """The text of the shipped ``worker.toml``: beside the package in a wheel, in ``config/`` in a checkout."""
    package = os.path.dirname(os.path.abspath(platform_worker.__file__))
    shipped = os.path.join(package, "worker.toml")
    checkout = os.path.join(package, os.pardir, os.pardir, "config", "worker.toml")
    with open(shipped if os.path.exists(shipped) else checkout, encoding="utf-8") as stream:
        return stream.read()


def starter_settings() -> str:
    """The defaults as comments, but for the one key that an application cannot do without."""
    lines = [WORKER_TOML_HEAD.rstrip("\n")]
    body = default_settings().splitlines()
    first = next(i for i, line in enumerate(body) if line.startswith("["))
    for line in ("", *body[first:]):
        if line.startswith("handlers = "):
            lines.append('handlers = ["tasks"]' + line.removeprefix("handlers = []").removesuffix(', e.g. ["tasks"]'))
        else:
            lines.append(f"# {line}" if line and not line.startswith("[") else line)
    return "\n".join(lines) + "\n"
