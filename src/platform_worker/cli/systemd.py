"""``worker systemd``: prints a unit for this root."""

from __future__ import annotations

from platform_worker import wiring_systemd
from platform_worker.cli.job_arguments import parser, say, say_json
from platform_worker.cli.unit_text import Service, fits, unit_name, unit_text
from platform_worker.errors import EXIT_OK, WorkerUsageError


def run(root: str, args: list[str], json_output: bool) -> int:
    """Prints it, changes nothing; 0, or a ``WorkerError`` where ``worker.toml`` says nothing sound."""
    own = parser(
        "systemd",
        "Prints a hardened systemd unit for this root, with timeouts that fit the budgets of worker.toml's [worker]. "
        "Changes nothing.",
        "worker --root /srv/app systemd | sudo tee /etc/systemd/system/worker.service\n"
        "  worker --root /srv/app systemd --instance | sudo tee /etc/systemd/system/worker@.service",
    )
    own.add_argument(
        "--instance",
        action="store_true",
        help="a template: worker@NAME runs the root NAME that lies beside this one",
    )
    own.add_argument("--user", help="whom the pool runs as; without it, whom the root belongs to")
    options = own.parse_args(args)
    place = wiring_systemd.place(root)
    user = place.owner if options.user is None else options.user
    if not all(fits(word) for word in (place.root, *place.command)) or place.root == "/":
        raise _unfit("the root's path, or the interpreter's, has a character that cannot stand in a unit")
    if user and not (fits(user) and " " not in user):
        raise _unfit("--user must be the name or the number of a user")
    settings = wiring_systemd.worker_settings_of(root)
    service = Service(
        root=place.root,
        command=place.command,
        user=user,
        start_timeout_ms=settings.start_timeout_ms,
        stop_timeout_ms=settings.stop_timeout_ms,
        force_kill_timeout_ms=settings.force_kill_timeout_ms,
    )
    text = unit_text(service, options.instance)
    if json_output:
        say_json({"name": unit_name(options.instance), "status": "ok", "unit": text})
    else:
        say(text.rstrip("\n"))
    return EXIT_OK


def _unfit(hint: str) -> WorkerUsageError:
    return WorkerUsageError("worker-usage-invalid", hints=[hint])
