"""The benchmark's application on Dramatiq."""

import os

import app_minute
import app_rq
import dramatiq
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_URL"]))


@dramatiq.actor
def noop():
    pass


@dramatiq.actor(time_limit=120_000)
def minute():
    app_minute.minute()


@dramatiq.actor
def stamp(label):
    app_rq.stamp(label)


def enqueue(kind, argument):
    if kind == "minute":
        minute.send()
        return
    stamp.send("first")
    for _ in range(int(argument)):
        noop.send()
    stamp.send("last")
