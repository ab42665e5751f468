"""The benchmark's application on procrastinate."""

import os

import app_rq
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_URL"]))


@app.task(name="noop")
def noop():
    pass


@app.task(name="stamp")
def stamp(label):
    app_rq.stamp(label)


def enqueue(_kind, count):
    with app.open():
        app.schema_manager.apply_schema()
        stamp.defer(label="first")
        noop.batch_defer(*[{} for _ in range(int(count))])
        stamp.defer(label="last")
