"""The benchmark's application on arq: one job at a time in each process."""

import asyncio
import os

import app_rq
from arq import create_pool
from arq.connections import RedisSettings


async def noop(_ctx):
    pass


async def stamp(_ctx, label):
    app_rq.stamp(label)


class WorkerSettings:
    functions = [noop, stamp]  # noqa: RUF012  as arq's documentation has it
    redis_settings = RedisSettings.from_dsn(os.environ["BENCH_URL"])
    max_jobs = 1
    keep_result = 0
    poll_delay = 0.001


def enqueue(_kind, count):
    async def put():
        pool = await create_pool(WorkerSettings.redis_settings)
        await pool.enqueue_job("stamp", "first")
        for _ in range(int(count)):
            await pool.enqueue_job("noop")
        await pool.enqueue_job("stamp", "last")
        await pool.aclose()

    asyncio.run(put())
