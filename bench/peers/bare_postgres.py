"""A bare loop on PostgreSQL: the least that a queue can do. bare_postgres ONE|TWO, the server in BENCH_URL.

ONE: the last job is settled and the next one claimed in one statement, which is prepared. TWO: a statement each.
"""

import os
import sys
import time

import psycopg

NEXT = """UPDATE job SET status = 1, token = token + 1 WHERE id = (
    SELECT id FROM job WHERE status = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, token, data"""
SETTLE = "UPDATE job SET status = 2 WHERE id = %s AND token = %s"
BOTH = f"WITH settled AS ({SETTLE}) {NEXT}"


def create(url, count):
    with psycopg.connect(url) as db:
        db.execute("CREATE TABLE job (id bigint PRIMARY KEY, status integer, token integer DEFAULT 0, data text)")
        db.execute("CREATE INDEX waiting ON job (id) WHERE status = 0")
        with db.cursor().copy("COPY job (id, status, data) FROM STDIN") as copy:
            for n, data in enumerate(["first", *[""] * count, "last"]):
                copy.write_row((n, 0, data))
        db.commit()
        db.autocommit = True
        db.execute("ANALYZE job")


def work(url, shape):
    db = psycopg.connect(url, autocommit=True, prepare_threshold=0)
    job = (None, None, None)
    while True:
        if shape == "ONE":
            job = db.execute(BOTH, job[:2]).fetchone()
        else:
            db.execute(SETTLE, job[:2])
            job = db.execute(NEXT).fetchone()
        if job is None:
            return
        if job[2]:
            descriptor = os.open(os.environ["BENCH_TIMES"], os.O_WRONLY)
            os.write(descriptor, b"%s %d\n" % (job[2].encode(), time.monotonic_ns()))
            os.close(descriptor)


if __name__ == "__main__":
    work(os.environ["BENCH_URL"], sys.argv[1])
