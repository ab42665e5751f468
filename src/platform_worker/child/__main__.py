"""``python -m platform_worker.child``: what a guardian starts; of no use to a person."""

from __future__ import annotations

from platform_worker.wiring_child import run_child

if __name__ == "__main__":
    run_child()
