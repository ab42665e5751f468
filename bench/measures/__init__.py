"""The benchmarks by name: each is a module with ``run(runs)``, which gives rows."""

NAMES = (
    "health",
    "child",
    "start",
    "stop",
    "kill",
    "throughput",
    "throughput_redis",
    "throughput_postgres",
    "peers_redis",
    "peers_postgres",
    "recycle",
    "latency",
    "latency_redis",
    "latency_postgres",
    "memory",
    "outlive",
    "replace",
    "slow_clients",
    "steady",
    "survivors",
)
