"""What a service manager is told, and when: one row for each thing that can be seen of a pool."""

from __future__ import annotations

import pytest

from platform_worker.host.notify import SERVICE_VARIABLES, Service, take_service
from platform_worker.pool.notices import Notices, Outlook
from platform_worker.pool.shutdown import Budgets, Ladder, Phase
from platform_worker.pool.states import PoolStatus

STARTING, RUNNING, STOPPING = PoolStatus.STARTING, PoolStatus.RUNNING, PoolStatus.STOPPING


def outlook(status: PoolStatus, ready: int = 0, **changes: object) -> Outlook:
    fields = {"workers": 2, "announced": status is RUNNING, "failure": None, "until": None}
    return Outlook(status=status, ready=ready, **{**fields, **changes})


def said(notices: Notices, seen: Outlook, now: float = 0.0) -> list[list[str]]:
    """Every message that is due, all of them handed over."""
    messages = []
    while (text := notices.due(seen, now)) is not None:
        messages.append(text.split("\n"))
        notices.told(now)
    return messages


ROWS = [
    ("a start says how far it is", outlook(STARTING, 1), [["STATUS=Starting: 1 of 2 workers ready"]]),
    (
        "a start asks for the time that its own budget gives it",
        outlook(STARTING, until=4.0),
        [["STATUS=Starting: 0 of 2 workers ready", "EXTEND_TIMEOUT_USEC=9000000"]],
    ),
    (
        "ready when every slot has been ready",
        outlook(RUNNING, 2),
        [["READY=1", "MAINPID=7", "STATUS=Running: 2 of 2 workers ready"]],
    ),
    (
        "a slot that is refilled changes the status only",
        outlook(RUNNING, 1),
        [["READY=1", "MAINPID=7", "STATUS=Running: 1 of 2 workers ready"]],
    ),
    (
        "a stop asks for no more than a stride at once",
        outlook(STOPPING, until=3600.0),
        [["STOPPING=1", "STATUS=Stopping", "EXTEND_TIMEOUT_USEC=15000000"]],
    ),
    (
        "a stop beyond its budgets asks for nothing",
        outlook(STOPPING, until=-1.0),
        [["STOPPING=1", "STATUS=Stopping"]],
    ),
    (
        "a failure is named",
        outlook(STOPPING, failure="worker-child-exited"),
        [["STOPPING=1", "STATUS=Stopping: worker-child-exited"]],
    ),
    (
        "ready and stopping in the same moment are two messages: of two such words in one the last counts",
        outlook(STOPPING, announced=True),
        [["READY=1", "MAINPID=7"], ["STOPPING=1", "STATUS=Stopping"]],
    ),
]


@pytest.mark.parametrize(("claim", "seen", "messages"), ROWS, ids=[row[0] for row in ROWS])
def test_what_is_said_of_what_is_seen(claim: str, seen: Outlook, messages: list[list[str]]) -> None:
    notices = Notices(7, None)
    assert messages == said(notices, seen)
    assert [] == said(notices, seen), "and it is said once"


def test_ready_and_stopping_are_said_once_and_each_status_when_it_changes() -> None:
    notices = Notices(7, None)
    said(notices, outlook(RUNNING, 2))
    assert [["STATUS=Running: 1 of 2 workers ready"]] == said(notices, outlook(RUNNING, 1))
    assert [["STATUS=Running: 2 of 2 workers ready"]] == said(notices, outlook(RUNNING, 2))
    assert [["STOPPING=1", "STATUS=Stopping"]] == said(notices, outlook(STOPPING, announced=True))
    failing = outlook(STOPPING, announced=True, failure="worker-shutdown-failed")
    assert [["STATUS=Stopping: worker-shutdown-failed"]] == said(notices, failing)


def test_time_is_asked_for_again_and_again_until_the_budgets_are_over() -> None:
    """Each time for a stride, or for what is left of the budgets with a little beyond; then never again."""
    notices = Notices(7, None)
    seen = outlook(STOPPING, until=12.0)
    asked = []
    now: float | None = 0.0
    while now is not None:
        for message in said(notices, seen, now):
            asked += [(now, line) for line in message if line.startswith("EXTEND")]
        now = notices.next_deadline(seen)
    assert [
        (0.0, "EXTEND_TIMEOUT_USEC=15000000"),
        (5.0, "EXTEND_TIMEOUT_USEC=12000000"),
        (10.0, "EXTEND_TIMEOUT_USEC=7000000"),
    ] == asked


def test_a_stop_asks_at_once_though_the_start_has_just_asked() -> None:
    notices = Notices(7, None)
    said(notices, outlook(STARTING, until=100.0), 0.0)
    message = said(notices, outlook(STOPPING, until=20.0), 0.5)
    assert [["STOPPING=1", "STATUS=Stopping", "EXTEND_TIMEOUT_USEC=15000000"]] == message


def test_a_running_pool_asks_for_no_time_and_wakes_nobody_without_a_watchdog() -> None:
    notices = Notices(7, None)
    said(notices, outlook(RUNNING, 2))
    assert notices.next_deadline(outlook(RUNNING, 2)) is None


def test_signs_of_life_come_at_half_the_interval() -> None:
    notices = Notices(7, 3.0)
    seen = outlook(RUNNING, 2)
    assert "WATCHDOG=1" not in said(notices, seen, 10.0)[0], "the first message is of readiness"
    assert 11.5 == notices.next_deadline(seen)
    assert [] == said(notices, seen, 11.4)
    assert [["WATCHDOG=1"]] == said(notices, seen, 11.5)
    assert 13.0 == notices.next_deadline(seen)


def test_a_watchdog_below_any_sense_does_not_make_us_spin() -> None:
    notices = Notices(7, 0.000001)
    seen = outlook(RUNNING, 2)
    said(notices, seen, 1.0)
    assert 1.01 == notices.next_deadline(seen)


def test_what_could_not_be_handed_over_is_due_again_in_its_newest_form() -> None:
    notices = Notices(7, None)
    assert notices.due(outlook(RUNNING, 1), 0.0) is not None
    notices.missed(0.0)
    assert notices.due(outlook(RUNNING, 1), 0.05) is None
    assert 0.1 == notices.next_deadline(outlook(RUNNING, 1))
    assert [["READY=1", "MAINPID=7", "STATUS=Running: 2 of 2 workers ready"]] == said(notices, outlook(RUNNING, 2), 0.1)


def test_the_first_process_of_a_container_does_not_give_its_number() -> None:
    """It means another process to whoever is outside."""
    assert [["READY=1", "STATUS=Running: 2 of 2 workers ready"]] == said(Notices(1, None), outlook(RUNNING, 2))


@pytest.mark.parametrize(
    ("immediate", "skip", "until"), [(False, None, 14.0), (True, None, 2.0), (False, Phase.TERMINATE, 4.0)]
)
def test_the_budgets_of_a_stop_end_with_its_kill_phase(immediate: bool, skip: Phase | None, until: float) -> None:
    ladder = Ladder(Budgets(10_000, 2_000))
    assert ladder.last_deadline() is None
    ladder.begin(0.0, immediate)
    if skip is not None:
        ladder.skip_to(skip, 0.0)
    assert until == ladder.last_deadline()
    while (at := ladder.next_deadline()) is not None:
        ladder.advance(at)
    assert ladder.last_deadline() is None


GIVEN = [
    ({}, Service(None, None)),
    ({"NOTIFY_SOCKET": ""}, Service(None, None)),
    ({"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "7"}, Service("@x", 2.0)),
    ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "2000000"}, Service("/x", 2.0)),
    ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": "8"}, Service("/x", None)),
    ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"}, Service("/x", None)),
    ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "-1"}, Service("/x", None)),
    ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "soon"}, Service("/x", None)),
    ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "9" * 5000}, Service("/x", None)),
]


@pytest.mark.parametrize(("given", "service"), GIVEN)
def test_the_managers_variables_are_read_and_taken_out(given: dict[str, str], service: Service) -> None:
    environ = {**dict.fromkeys(set(SERVICE_VARIABLES) - {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}, "1")}
    environ |= {**given, "PATH": "/bin"}
    assert service == take_service(environ, 7)
    assert {"PATH": "/bin"} == environ
