"""The benchmark's application on SAQ: one job at a time in each process."""

import asyncio
import os

import app_rq
from saq import Queue

queue = Queue.from_url(os.environ["BENCH_URL"])


async def noop(_ctx):
    pass


async def stamp(_ctx, *, label):
    app_rq.stamp(label)


settings = {"queue": queue, "functions": [noop, stamp], "concurrency": 1}


def enqueue(_kind, count):
    async def put():
        await queue.connect()
        await queue.enqueue("stamp", label="first", ttl=-1)
        for _ in range(int(count)):
            await queue.enqueue("noop", ttl=-1)
        await queue.enqueue("stamp", label="last", ttl=-1)
        await queue.disconnect()

    asyncio.run(put())
