"""The text of a systemd unit for one root, and of a template for all roots beside it. Pure."""

from __future__ import annotations

from platform_worker.value import Value

#: What these stand for is systemd's own matter in some places and not in others: such a root gets no unit.
_UNFIT = frozenset("\"'\\$;`")
#: How long a supervisor may be silent: it says that it lives twice in that time.
_WATCHDOG_SECONDS = 30
#: Beyond the budgets: files, fence, the last of telemetry.
_SLACK_SECONDS = 5


class Service(Value):
    """What a unit is made for; ``user`` is empty where nobody can be named."""

    root: str
    command: tuple[str, ...]
    user: str
    start_timeout_ms: int
    stop_timeout_ms: int
    force_kill_timeout_ms: int


def fits(text: str) -> bool:
    """Whether a path can stand in a unit."""
    return text.isprintable() and not _UNFIT & set(text) and text == text.strip()


def unit_name(instance: bool) -> str:
    """The file's name."""
    return "worker@.service" if instance else "worker.service"


def unit_text(service: Service, instance: bool) -> str:
    """The whole file. With ``instance`` the last segment of the root is the instance's name."""
    parent, _, last = service.root.rpartition("/")
    root = _escaped(parent) + "/%i" if instance else _escaped(service.root)

    def placed(path: str) -> str:
        inside = path == service.root or path.startswith(service.root + "/")
        return root + _escaped(path[len(service.root) :]) if inside else _escaped(path)

    command = " ".join(_word(placed(word)) for word in (*service.command, "--root", service.root, "start"))
    name = f"worker@{last}" if instance else "worker"
    start = _seconds(2 * service.start_timeout_ms)
    stop = _seconds(service.stop_timeout_ms + 2 * service.force_kill_timeout_ms)
    user = f"User={_escaped(service.user)}" if service.user else _NOBODY
    lines = _UNIT.format(
        file=unit_name(instance),
        name=name,
        what=" %i" if instance else "",
        user=user,
        root=root,
        command=command,
        var=_word(root + "/var"),
        start=start,
        stop=stop,
        watchdog=_WATCHDOG_SECONDS,
        tmp="" if service.root.startswith(("/tmp/", "/var/tmp/")) else "PrivateTmp=yes\n",
    )
    return lines if service.user else lines.replace("CapabilityBoundingSet=\n", "")


def _seconds(milliseconds: int) -> int:
    return -(-milliseconds // 1000) + _SLACK_SECONDS


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _word(text: str) -> str:
    return f'"{text}"' if " " in text else text


_NOBODY = "# User=: this root belongs to root; run it as a user of its own if you can."
_UNIT = """\
# /etc/systemd/system/{file}, as `worker systemd` prints it. First run `worker build` as the unit's user, which makes
# var/; then: systemctl daemon-reload && systemctl enable --now {name}

[Unit]
Description=platform_worker pool{what}
Documentation=man:systemd.service(5)
After=network-online.target
Wants=network-online.target
# A pool whose queue is away is tried again for as long as it takes.
StartLimitIntervalSec=0

[Service]
# Active once every child is ready. Only the supervisor speaks for the unit; no child has NOTIFY_SOCKET.
Type=notify
NotifyAccess=main
{user}
WorkingDirectory={root}
ExecStart={command}

# SIGTERM goes to the supervisor alone, which stops the children in order; what is left at the end is killed.
KillMode=mixed
# From the budgets of worker.toml's [worker]: 2 x start_timeout_ms, and stop_timeout_ms + 2 x force_kill_timeout_ms,
# each with some seconds beyond. Where the budgets are longer by then, the supervisor asks for the time it needs.
TimeoutStartSec={start}
TimeoutStopSec={stop}
WatchdogSec={watchdog}
Restart=on-failure
RestartSec=2
# A wrong configuration does not get better by trying again. Exit code 4, a pool that runs already, may: after a crash
# the last processes of the old one need a moment.
RestartPreventExitStatus=2
# A task that is killed for its memory is one child's end, which the pool survives.
OOMPolicy=continue
# Each worker generation gets a control group of its own. ProtectControlGroups= would take that away again.
Delegate=yes

UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={var}
{tmp}PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectClock=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
"""
