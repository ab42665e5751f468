"""The benchmark's application on taskiq, with the broker that acknowledges."""

import asyncio
import os

import app_rq
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(url=os.environ["BENCH_URL"])


@broker.task(task_name="noop")
async def noop():
    pass


@broker.task(task_name="stamp")
async def stamp(label):
    app_rq.stamp(label)


def enqueue(_kind, count):
    async def put():
        await broker.startup()
        await stamp.kiq("first")
        for _ in range(int(count)):
            await noop.kiq()
        await stamp.kiq("last")
        await broker.shutdown()

    asyncio.run(put())
