"""The benchmark's application on PgQueuer."""

import asyncio
import os
import signal

import app_rq
import psycopg
from pgqueuer import PgQueuer, Queries
from pgqueuer.db import PsycopgDriver


async def connect():
    return PsycopgDriver(await psycopg.AsyncConnection.connect(os.environ["BENCH_URL"], autocommit=True))


async def main():
    queue = PgQueuer(await connect())

    @queue.entrypoint("noop")
    async def noop(_job):
        pass

    @queue.entrypoint("stamp")
    async def stamp(job):
        app_rq.stamp(job.payload.decode())

    return queue


def enqueue(_kind, count):
    async def put():
        queries = Queries(await connect())
        await queries.install()
        await queries.enqueue("stamp", b"first", 0)
        await queries.enqueue(["noop"] * int(count), [None] * int(count), [0] * int(count))
        await queries.enqueue("stamp", b"last", 0)

    asyncio.run(put())


async def work():
    """As ``pgq run`` does, whose command line does not start with the typer of today."""
    queue = await main()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
    await queue.run(batch_size=1)


if __name__ == "__main__":
    asyncio.run(work())
