"""The harness itself: a pool is started, seen, and leaves nobody."""

from __future__ import annotations

from collections.abc import Callable

from harness import Application, eventually


def test_a_pool_is_seen_whole_and_leaves_only_the_files_that_stay(application: Callable[..., Application]) -> None:
    """Supervisor, guardian and children are found by their mark; after a stop nobody is, and three files are left."""
    app = application()
    pool = app.start()

    assert 4 == len(pool.census())
    assert {pool.supervisor, pool.guardian(), *pool.children().values()} == set(pool.census())
    assert [0, 1] == list(pool.children())
    assert not app.fence_free()

    jobs = app.enqueue("nap", 20)
    eventually(lambda: {"completed": 20} == app.statuses())
    app.ledger.assert_once(jobs)
    pool.stop()

    app.assert_clean()
    assert [] == app.leftovers()
