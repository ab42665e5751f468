"""A bare loop of claim and settle in SQL: the least that a queue on SQLite can do. bare_sql FILE ONE|TWO

ONE: the last job is settled and the next one claimed in one transaction. TWO: a transaction each.
"""

import os
import sqlite3
import sys
import time

CLAIM = """UPDATE job SET status = 1, token = token + 1 WHERE id = (
    SELECT id FROM job WHERE status = 0 ORDER BY id LIMIT 1) RETURNING id, token, data"""
SETTLE = "UPDATE job SET status = 2 WHERE id = ? AND token = ?"


def create(path, count):
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE job (id INTEGER PRIMARY KEY, status INTEGER, token INTEGER DEFAULT 0, data TEXT)")
        db.execute("CREATE INDEX waiting ON job (id) WHERE status = 0")
        rows = [("first",), *[("",)] * count, ("last",)]
        db.executemany("INSERT INTO job (status, data) VALUES (0, ?)", rows)


def work(path, shape):
    db = sqlite3.connect(path, isolation_level=None, timeout=60)
    db.execute("PRAGMA synchronous = NORMAL")
    job = None
    while True:
        if shape == "ONE":
            db.execute("BEGIN IMMEDIATE")
        if job is not None:
            db.execute(SETTLE, job[:2])
        job = db.execute(CLAIM).fetchone()
        if shape == "ONE":
            db.execute("COMMIT")
        if job is None:
            return
        if job[2]:
            descriptor = os.open(os.environ["BENCH_TIMES"], os.O_WRONLY)
            os.write(descriptor, b"%s %d\n" % (job[2].encode(), time.monotonic_ns()))
            os.close(descriptor)


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2])
