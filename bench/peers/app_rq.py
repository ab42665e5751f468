"""The benchmark's application on RQ."""

import os
import time


def noop():
    pass


def stamp(label):
    descriptor = os.open(os.environ["BENCH_TIMES"], os.O_WRONLY)
    os.write(descriptor, b"%s %d\n" % (label.encode(), time.monotonic_ns()))
    os.close(descriptor)


def enqueue(kind, count):
    import redis
    from rq import Queue

    queue = Queue("default", connection=redis.Redis.from_url(os.environ["BENCH_URL"]))
    if kind == "stamp":
        queue.enqueue(stamp, count)
        return
    options = {"result_ttl": 0}
    jobs = [Queue.prepare_data(stamp, ("first",), **options)]
    jobs += [Queue.prepare_data(noop, **options) for _ in range(int(count))]
    queue.enqueue_many([*jobs, Queue.prepare_data(stamp, ("last",), **options)])
