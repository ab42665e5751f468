"""The benchmark's application on Celery."""

import os
import time

import app_minute
from celery import Celery

app = Celery("app_celery", broker=os.environ["BENCH_URL"])
app.conf.update(
    task_ignore_result=True, worker_prefetch_multiplier=1, task_acks_late=True, broker_connection_retry_on_startup=True
)


@app.task(name="stamp")
def stamp(label):
    descriptor = os.open(os.environ["BENCH_TIMES"], os.O_WRONLY)
    os.write(descriptor, b"%s %d\n" % (label.encode(), time.monotonic_ns()))
    os.close(descriptor)


@app.task(name="minute")
def minute():
    app_minute.minute()


@app.task(name="noop")
def noop():
    pass


def enqueue(kind, argument):
    if kind == "noop":
        stamp.delay("first")
        for _ in range(int(argument)):
            noop.delay()
        stamp.delay("last")
    elif kind == "minute":
        minute.delay()
    else:
        stamp.delay(argument)
