"""A bare loop on Redis: the least that a queue can do. bare_redis ONE|TWO, the server in BENCH_URL.

ONE: the last job is settled and the next one claimed in one script call. TWO: a script call each.
"""

import os
import sys
import time

import redis

CLAIM = """
local id = redis.call('LPOP', KEYS[1])
if not id then return nil end
local job = 'job:' .. id
local token = redis.call('HINCRBY', job, 'token', 1)
redis.call('HSET', job, 'status', 1)
redis.call('ZADD', KEYS[2], ARGV[1], id)
return {id, token, redis.call('HGET', job, 'data')}
"""
SETTLE = """
local job = 'job:' .. ARGV[2]
if redis.call('HGET', job, 'token') ~= ARGV[3] then return 0 end
redis.call('HSET', job, 'status', 2)
return redis.call('ZREM', KEYS[2], ARGV[2])
"""
BOTH = f"if ARGV[2] then (function() {SETTLE} end)() end {CLAIM}"


def create(url, count):
    client = redis.Redis.from_url(url)
    pipe = client.pipeline(transaction=False)
    for n, data in enumerate(["first", *[""] * count, "last"]):
        pipe.hset(f"job:{n}", mapping={"status": 0, "token": 0, "data": data})
        pipe.rpush("waiting", n)
        if n % 1000 == 0:
            pipe.execute()
    pipe.execute()


def work(url, shape):
    client = redis.Redis.from_url(url)
    both, claim, settle = (client.script_load(script) for script in (BOTH, CLAIM, SETTLE))
    job = None
    while True:
        lease = time.time() + 60
        if shape == "ONE":
            job = client.evalsha(both, 2, "waiting", "leases", lease, *(job[:2] if job else ()))
        else:
            if job:
                client.evalsha(settle, 2, "waiting", "leases", lease, *job[:2])
            job = client.evalsha(claim, 2, "waiting", "leases", lease)
        if job is None:
            return
        if job[2]:
            descriptor = os.open(os.environ["BENCH_TIMES"], os.O_WRONLY)
            os.write(descriptor, b"%s %d\n" % (job[2], time.monotonic_ns()))
            os.close(descriptor)


if __name__ == "__main__":
    work(os.environ["BENCH_URL"], sys.argv[1])
