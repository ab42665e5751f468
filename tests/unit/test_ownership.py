"""The ownership channel's messages."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from platform_worker.protocol import ownership
from platform_worker.protocol.ownership import (
    Busy,
    Claim,
    Claimed,
    Exited,
    Failed,
    Hello,
    Kill,
    OwnershipViolation,
    Release,
    Released,
    Said,
    Start,
    Started,
    StartFailed,
    Tell,
    Terminate,
    decode_command,
    decode_event,
    encode,
)

CLAIM = Claim("/srv/app", "/usr/bin/python3", None, "fork", 1200, 10000, 10000, 1000)
EVENTS = [
    (Hello("ab" * 32), b'{"type":"hello","credential":"' + b"ab" * 32 + b'"}\n'),
    (Claimed(7), b'{"type":"claimed","generation":7}\n'),
    (Busy(), b'{"type":"busy"}\n'),
    (Failed("worker-lifecycle-lock-failed"), b'{"type":"failed","reason":"worker-lifecycle-lock-failed"}\n'),
    (Started(0, 1), b'{"type":"started","slot":0,"incarnation":1}\n'),
    (
        StartFailed(0, 1, "worker-fork-failed"),
        b'{"type":"start-failed","slot":0,"incarnation":1,"reason":"worker-fork-failed"}\n',
    ),
    (Said(0, 1, "ready"), b'{"type":"said","slot":0,"incarnation":1,"line":"ready"}\n'),
    (Exited(0, 1, 0, None), b'{"type":"exited","slot":0,"incarnation":1,"code":0,"signal":null}\n'),
    (Exited(0, 1, None, 9), b'{"type":"exited","slot":0,"incarnation":1,"code":null,"signal":9}\n'),
    (Released(), b'{"type":"released"}\n'),
]
COMMANDS = [
    (
        CLAIM,
        (
            b'{"type":"claim","root":"/srv/app","python":"/usr/bin/python3","command":null,"driver":"fork",'
            b'"lock_wait_ms":1200,"start_timeout_ms":10000,"stop_timeout_ms":10000,"force_kill_timeout_ms":1000}\n'
        ),
    ),
    (Start(0, 1, {"slot": 0}), b'{"type":"start","slot":0,"incarnation":1,"boot":{"slot":0}}\n'),
    (Tell(0, 1, "go on"), b'{"type":"tell","slot":0,"incarnation":1,"word":"go on"}\n'),
    (Terminate(0, 1), b'{"type":"terminate","slot":0,"incarnation":1}\n'),
    (Kill(0, 1), b'{"type":"kill","slot":0,"incarnation":1}\n'),
    (Release(), b'{"type":"release"}\n'),
]


@pytest.mark.parametrize(("message", "line"), EVENTS)
def test_event_on_the_wire(message, line):
    """Every event is the documented line, and comes back as it was."""
    assert line == encode(message)
    assert message == decode_event(line)


@pytest.mark.parametrize(("message", "line"), COMMANDS)
def test_command_on_the_wire(message, line):
    """Every command is the documented line, and comes back as it was."""
    assert line == encode(message)
    assert message == decode_command(line)


def test_every_message_is_shown():
    """The tables above have every message of the two unions."""
    assert set(ownership.EVENTS.values()) == {type(message) for message, _ in EVENTS}
    assert set(ownership.COMMANDS.values()) == {type(message) for message, _ in COMMANDS}


def test_a_command_of_ones_own():
    """A command given as a list comes back as a tuple of the same words."""
    command = ("@python", "-m", "platform_worker.child")
    assert command == decode_command(encode(CLAIM.replace(command=command))).command


def test_a_root_that_is_no_text():
    """Paths that are not UTF-8 reach the guardian unharmed."""
    assert "/srv/\udcff" == decode_command(encode(CLAIM.replace(root="/srv/\udcff"))).root


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"{}",
        b'{"type":[]}',
        b'{"type":"nope"}',
        b'{"type":"busy","more":1}',
        b'{"type":"busy","type":"busy"}',
        b'{"type":"claimed"}',
        b'{"type":"claimed","generation":-1}',
        b'{"type":"claimed","generation":true}',
        b'{"type":"claimed","generation":1.0}',
        b'{"type":"claimed","generation":9007199254740993}',
        b'{"type":"hello","credential":"AB"}',
        b'{"type":"said","slot":0,"incarnation":1,"line":"a\\nb"}',
        b'{"type":"said","slot":0,"incarnation":1,"line":""}',
        b'{"type":"said","slot":0,"incarnation":1,"line":"\\ud800"}',
        b'{"type":"said","slot":0,"incarnation":1,"line":"' + b"x" * 4096 + b'"}',
        b'{"type":"exited","slot":0,"incarnation":1,"code":null,"signal":null}',
        b'{"type":"exited","slot":0,"incarnation":1,"code":0,"signal":9}',
        b'{"type":"release"}',
        b"[" * 60000,
        b" " * 65537,
    ],
)
def test_an_event_that_is_off_is_refused(line):
    """Whatever is not exactly an event raises, also a command."""
    with pytest.raises(OwnershipViolation):
        decode_event(line)


@pytest.mark.parametrize(
    "change",
    [
        {"driver": "zygote"},
        {"command": []},
        {"command": "python"},
        {"command": [""]},
        {"command": ["a\0b"]},
        {"root": ""},
        {"root": "a\0b"},
        {"lock_wait_ms": 0},
        {"stop_timeout_ms": 86_400_001},
        {"stop_timeout_ms": "1"},
    ],
)
def test_a_claim_that_is_off_is_refused(change):
    """Each field has its bounds, and they hold at both ends."""
    fields = {"type": "claim", **CLAIM.__dict__, **change}
    with pytest.raises(OwnershipViolation):
        decode_command(json.dumps(fields).encode())
    with pytest.raises(OwnershipViolation):
        encode(CLAIM.replace(**change))


def test_a_line_is_bounded_where_it_is_written():
    """What its reader would refuse is not written."""
    with pytest.raises(OwnershipViolation):
        encode(Start(0, 1, {"x": "y" * 65536}))


@given(st.binary(max_size=200))
def test_noise_only_ever_raises_the_one_error(line):
    """Any bytes are a message or an ``OwnershipViolation``."""
    for decode in (decode_event, decode_command):
        with contextlib.suppress(OwnershipViolation):
            decode(line)


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1, max_size=900))
def test_any_line_of_a_child_passes(line):
    """What a child says is carried, not judged."""
    assert line == decode_event(encode(Said(3, 4, line))).line
