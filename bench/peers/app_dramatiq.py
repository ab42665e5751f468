"""The benchmark's application on Dramatiq."""

import os

import app_minute
import dramatiq
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_URL"]))


@dramatiq.actor
def noop():
    pass


@dramatiq.actor(time_limit=120_000)
def minute():
    app_minute.minute()


def enqueue(_kind, _label):
    minute.send()
