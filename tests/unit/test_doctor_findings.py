"""What the doctor makes of what it was told."""

from __future__ import annotations

import pytest

from platform_worker.doctor import findings as judge


def levels(found: object) -> list[str]:
    return [one.level for one in found]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("20", 20.0),
        ("20s", 20.0),
        ("1min 30s", 90.0),
        ("1min30s", 90.0),
        ("2h", 7200.0),
        ("500ms", 0.5),
        ("1.5 s", 1.5),
        ("infinity", None),
        ("0", None),
    ],
)
def test_the_service_managers_notation_of_time(text: str, seconds: float | None) -> None:
    assert seconds == judge.time_span(text)


@pytest.mark.parametrize("text", ["", "soon", "5 fortnights", "-1", "1min?"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="no time span"):
        judge.time_span(text)


@pytest.mark.parametrize(
    ("texts", "seconds"),
    [
        (["[Service]\nExecStart=x"], 90.0),
        (["[Service]\nTimeoutStopSec=20"], 20.0),
        (["[Service]\nTimeoutSec=20"], 20.0),
        (["TimeoutStopSec=20", "TimeoutStopSec=5"], 5.0),
        (["TimeoutStopSec=20", "TimeoutStopSec="], 90.0),
        (["TimeoutStopSec=20\nTimeoutStopSec=nonsense"], 20.0),
        (["#TimeoutStopSec=20"], 90.0),
    ],
)
def test_the_last_word_of_a_unit_counts(texts: list[str], seconds: float) -> None:
    assert seconds == judge.unit_stop_seconds(texts)


@pytest.mark.parametrize(("seconds", "wrong"), [(11.0, True), (12.0, True), (12.1, False), (None, False)])
def test_a_unit_must_be_given_longer_than_the_budgets(seconds: float | None, wrong: bool) -> None:
    assert (["problem"] if wrong else []) == levels(judge.of_stop_timeout("a.service", seconds, 10_000, 1000))


@pytest.mark.parametrize(
    ("mode", "found"), [(0o700, []), (0o755, []), (0o775, ["note"]), (0o777, ["problem"]), (0o1777, ["problem"])]
)
def test_who_may_write(mode: int, found: list[str]) -> None:
    assert found == levels(judge.of_mode("var", mode))


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
def test_a_network_file_system_is_a_problem(kind: str) -> None:
    assert ["problem"] == levels(judge.of_file_system(kind))


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", ""])
def test_a_local_file_system_is_none(kind: str) -> None:
    assert [] == levels(judge.of_file_system(kind))


@pytest.mark.parametrize(("limit", "wrong"), [(64, True), (1024, False), (None, False)])
def test_open_files(limit: int | None, wrong: bool) -> None:
    assert (["problem"] if wrong else []) == levels(judge.of_descriptors(limit, 4))
    assert ["problem"] == levels(judge.of_descriptors(1024, 1000))


@pytest.mark.parametrize(
    ("limit", "started", "wrong"), [(109, False, True), (110, False, False), (103, True, True), (None, False, False)]
)
def test_processes(limit: int | None, started: bool, wrong: bool) -> None:
    assert (["problem"] if wrong else []) == levels(judge.of_processes(limit, 100, 4, started=started))


def test_a_missing_cgroup_is_a_note_and_all_else_a_problem() -> None:
    found = list(judge.missing_mechanisms({"pidfd": False, "cgroup": False, "members": True}, of_the_pool=False))
    assert ["problem", "note"] == levels(found)
    assert all(one.remedy for one in found)
