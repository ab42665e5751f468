"""The machine's clocks, as the store uses them."""

from __future__ import annotations

import time

#: Goes on while the machine sleeps and is not moved by steps of the wall clock; elsewhere the nearest there is.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def wall_ms() -> int:
    """The wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def boot_ms() -> int:
    """The boot clock, in milliseconds."""
    return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000


def boot_id() -> str:
    """Names this boot of the machine: boot clocks of two boots do not compare."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            # The start is enough to tell two boots apart, and is written with every claim.
            return file.read(13).strip()
    except OSError:
        return ""
