"""The systemd unit that is printed for a root."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from platform_worker.cli.unit_text import Service, fits, unit_name, unit_text
from platform_worker.config import worker_settings

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
SERVICE = Service("/srv/app", ("/srv/app/.venv/bin/worker",), "app", 10_000, 10_000, 1_000)


def settings(service: Service = SERVICE, instance: bool = False) -> dict[str, str]:
    """Key and value of everything in it; no key is there twice."""
    parsed = configparser.RawConfigParser(delimiters="=", comment_prefixes="#", strict=True)
    parsed.optionxform = str  # type: ignore[method-assign,assignment]
    parsed.read_string(unit_text(service, instance))
    return {key: value for name in parsed.sections() for key, value in parsed.items(name)}


@pytest.mark.parametrize("instance", [False, True])
def test_the_units_in_deploy_are_what_the_command_prints_for_the_default_settings(instance: bool) -> None:
    assert unit_text(SERVICE, instance) == (DEPLOY / unit_name(instance)).read_text()


def test_only_the_supervisor_speaks_and_is_told_to_stop() -> None:
    found = settings()
    expected = {"Type": "notify", "NotifyAccess": "main", "KillMode": "mixed", "Restart": "on-failure"}
    assert expected == {key: found[key] for key in expected}
    assert "2" == found["RestartPreventExitStatus"]
    assert "/srv/app/.venv/bin/worker --root /srv/app start" == found["ExecStart"]
    assert ("/srv/app", "app") == (found["WorkingDirectory"], found["User"])


@pytest.mark.parametrize(
    ("start", "stop", "force", "times"),
    [(10_000, 10_000, 1_000, ("25", "17")), (1, 1, 1, ("6", "6")), (60_000, 3_600_000, 1_500, ("125", "3608"))],
)
def test_the_timeouts_are_longer_than_the_budgets(start: int, stop: int, force: int, times: tuple[str, str]) -> None:
    found = settings(SERVICE.replace(start_timeout_ms=start, stop_timeout_ms=stop, force_kill_timeout_ms=force))
    assert times == (found["TimeoutStartSec"], found["TimeoutStopSec"])


def test_only_var_can_be_written_to_and_control_groups_are_ours() -> None:
    found = settings()
    assert ("strict", "/srv/app/var") == (found["ProtectSystem"], found["ReadWritePaths"])
    assert "yes" == found["NoNewPrivileges"] == found["PrivateTmp"] == found["Delegate"]
    assert "ProtectControlGroups" not in found
    assert "" == found["CapabilityBoundingSet"]


def test_a_template_runs_the_root_that_is_named_as_the_instance() -> None:
    """Whatever lies inside of the root moves with it; what lies elsewhere stays."""
    found = settings(instance=True)
    assert "/srv/%i" == found["WorkingDirectory"]
    assert "/srv/%i/.venv/bin/worker --root /srv/%i start" == found["ExecStart"]
    assert "/srv/%i/var" == found["ReadWritePaths"]
    elsewhere = settings(SERVICE.replace(command=("/opt/venv/bin/worker",)), instance=True)
    assert "/opt/venv/bin/worker --root /srv/%i start" == elsewhere["ExecStart"]
    beside = settings(SERVICE.replace(command=("/srv/app-tools/bin/worker",)), instance=True)
    assert "/srv/app-tools/bin/worker --root /srv/%i start" == beside["ExecStart"]


def test_a_path_is_one_word_and_no_specifier() -> None:
    found = settings(SERVICE.replace(root="/srv/my app 100%", command=("/opt/w",)))
    assert '/opt/w --root "/srv/my app 100%%" start' == found["ExecStart"]
    assert "/srv/my app 100%%" == found["WorkingDirectory"]
    assert '"/srv/my app 100%%/var"' == found["ReadWritePaths"]


@pytest.mark.parametrize("path", ['/a"b', "/a'b", "/a\\b", "/a$b", "/a;b", "/a\nb", "/a\tb", "/a\x7f", "/a "])
def test_what_a_unit_cannot_say_gets_none(path: str) -> None:
    assert not fits(path)


def test_a_root_that_belongs_to_root_names_no_user_and_keeps_its_capabilities() -> None:
    found = settings(SERVICE.replace(user=""))
    assert {"User", "CapabilityBoundingSet"}.isdisjoint(found)


def test_a_root_below_tmp_stays_visible() -> None:
    assert "PrivateTmp" not in settings(SERVICE.replace(root="/tmp/x"))


def test_the_default_budgets_are_those_of_the_settings() -> None:
    """What ``deploy`` was made for is what ``worker.toml`` has where it says nothing."""
    from platform_worker.building.models import Worker

    given = worker_settings({"worker": Worker().model_dump(mode="json")}, {})
    for key in ("start_timeout_ms", "stop_timeout_ms", "force_kill_timeout_ms"):
        assert getattr(given, key) == getattr(SERVICE, key)
