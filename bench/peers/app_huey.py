"""The benchmark's application on Huey."""

import os
import time

from huey import SqliteHuey
from huey.storage import SqliteStorage


class NormalStorage(SqliteStorage):
    """Huey knows FULL and OFF; the comparison is at NORMAL."""

    def _create_connection(self):
        connection = super()._create_connection()
        connection.execute("pragma synchronous = 1")
        return connection


path = os.path.join(os.environ["BENCH_FOLDER"], "huey.db")
huey = SqliteHuey("bench", filename=path, results=False, storage_class=NormalStorage)


@huey.task()
def noop():
    pass


@huey.task()
def stamp(label):
    descriptor = os.open(os.environ["BENCH_TIMES"], os.O_WRONLY)
    os.write(descriptor, b"%s %d\n" % (label.encode(), time.monotonic_ns()))
    os.close(descriptor)


def enqueue(kind, argument):
    if kind == "stamp":
        stamp(argument)
        return
    stamp("first")
    for _ in range(int(argument)):
        noop()
    stamp("last")
