"""The benchmarks by name: each is a module with ``run(runs)``, which gives rows."""

NAMES = (
    "health",
    "child",
    "start",
    "stop",
    "kill",
    "throughput",
    "throughput_redis",
    "recycle",
    "latency",
    "latency_redis",
    "memory",
)
