"""Handlers that change the process they run in: each job has its right outcome, and the next job of the child its own.

Whole pools with one child, on each of the stores.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness import Application, eventually
from harness.faults import stop_clean
from harness.stores import StoreKit

Make = Callable[..., Application]
TASKS = """
import decimal, gc, locale, multiprocessing, os, random, resource
import signal, socket, sys, tempfile, threading, time, warnings
from pathlib import Path
from platform_worker import task

HERE = Path(__file__).parent

def hostile(function):
    return task(function.__name__, max_attempts=1)(function)

@task("innocent")
def innocent() -> int:
    return os.getpid()

@hostile
def working_directory():
    os.chdir("/")

@hostile
def a_folder_that_is_gone():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)

@hostile
def the_locale():
    for name in ("C", "C.UTF-8", "POSIX"):
        locale.setlocale(locale.LC_ALL, name)
    os.environ["LC_ALL"] = "tr_TR.UTF-8"

@hostile
def the_umask():
    os.umask(0o777)

@hostile
def signal_handlers():
    for name in ("TERM", "INT", "HUP", "CHLD", "ALRM", "PIPE", "USR1"):
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN)
    signal.set_wakeup_fd(-1)

@hostile
def blocked_signals():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

@hostile
def an_alarm():
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)

@hostile
def the_start_method():
    multiprocessing.set_start_method("forkserver", force=True)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert 3 == pool.apply(abs, (-3,))

@hostile
def standard_streams():
    os.close(0); os.close(1); os.close(2)

@hostile
def standard_streams_for_a_file():
    for number in (0, 1, 2):
        os.dup2(os.open(HERE / "taken", os.O_RDWR | os.O_CREAT), number)

@hostile
def no_streams():
    sys.stdin = sys.stdout = sys.stderr = None

@hostile
def every_descriptor():
    os.closerange(3, 512)

@hostile
def a_fork():
    pid = os.fork()
    if pid == 0:
        return "the copy says so"
    os.waitpid(pid, 0)
    return "the parent says so"

@hostile
def a_fork_that_exits():
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

@hostile
def the_environment():
    os.environ.clear()

@hostile
def limits():
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
    sys.setrecursionlimit(120)
    socket.setdefaulttimeout(0.000001)

@hostile
def threads_and_collector():
    gc.disable()
    threading.settrace(lambda *_: None)
    threading.excepthook = None
    threading.stack_size(32768)
    sys.setswitchinterval(1.0)

@hostile
def warnings_as_errors():
    warnings.simplefilter("error")
    decimal.getcontext().prec = 1
    random.seed(0)

@hostile
def modules_and_path():
    sys.path.clear()
    sys.meta_path.clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "platform_worker" or name == "json"]:
        del sys.modules[name]

@hostile
def the_exit():
    sys.exit(0)

@hostile
def an_interrupt():
    raise KeyboardInterrupt

@hostile
def a_stop_of_its_own():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)

@hostile
def endless_recursion():
    return endless_recursion()

@hostile
def too_much_memory():
    raise MemoryError

@hostile
def no_json():
    return {1, 2}

@hostile
def endless_json():
    value = []
    value.append(value)
    return value

@hostile
def an_exception_without_a_text():
    class Mute(BaseException):
        def __str__(self):
            raise RuntimeError("no text")
    raise Mute

@hostile
def an_exception_group():
    raise BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError()])
"""
#: In this order: what one leaves behind (ignored signals of its own children, say) is there for the next one, as it is
#: in any process.
COMPLETED = {
    "a_fork": "the parent says so",
    "a_fork_that_exits": 0,
    "working_directory": None,
    "a_folder_that_is_gone": None,
    "the_locale": None,
    "the_umask": None,
    "signal_handlers": None,
    "blocked_signals": None,
    "an_alarm": None,
    "the_start_method": None,
    "standard_streams": None,
    "standard_streams_for_a_file": None,
    "no_streams": None,
    "the_environment": None,
    "limits": None,
    "threads_and_collector": None,
    "warnings_as_errors": None,
    "modules_and_path": None,
}
FAILED = {
    "the_exit": "SystemExit",
    "an_interrupt": "KeyboardInterrupt",
    "endless_recursion": "RecursionError",
    "too_much_memory": "MemoryError",
    "an_exception_without_a_text": "Mute",
    "an_exception_group": "BaseExceptionGroup",
}


@pytest.fixture
def app(application: Make, store: StoreKit) -> Application:
    return application(
        tasks=TASKS,
        app={"modules": [store.name]},
        worker={"workers": 1, "restart_intensity": 100},
        **{store.name: store.config()},
    )


def test_what_a_handler_does_to_its_process_is_no_matter_of_the_next_job(app: Application) -> None:
    """One after the other in the same child, and the pool stops in good order."""
    pool = app.start()
    (first,) = app.enqueue("innocent")
    pid = eventually(lambda: app.job(first).result)
    for name, result in COMPLETED.items():
        (job,) = app.enqueue(name)
        (after,) = app.enqueue("innocent")
        eventually(lambda id=after: "completed" == app.job(id).status, 10, f"the job after {name}")
        assert ("completed", result) == (app.job(job).status, app.job(job).result), name
        assert pid == app.job(after).result, f"{name} cost the child"
    stop_clean(app, pool)


def test_a_handler_that_ends_otherwise_than_by_an_exception_has_failed(app: Application) -> None:
    """The job says with what; the child goes on."""
    pool = app.start()
    (first,) = app.enqueue("innocent")
    pid = eventually(lambda: app.job(first).result)
    for name, kind in FAILED.items():
        (job,) = app.enqueue(name)
        (after,) = app.enqueue("innocent")
        eventually(lambda id=after: "completed" == app.job(id).status, 10, f"the job after {name}")
        error = app.job(job).error
        assert error is not None, name
        assert ("failed", kind) == (app.job(job).status, error["type"].rpartition(".")[2]), name
        assert pid == app.job(after).result, f"{name} cost the child"
    stop_clean(app, pool)


@pytest.mark.parametrize("name", ["no_json", "endless_json"])
def test_a_result_that_json_cannot_say_fails_the_job(app: Application, name: str) -> None:
    pool = app.start()
    (job,) = app.enqueue(name)
    (after,) = app.enqueue("innocent")
    eventually(lambda: "completed" == app.job(after).status)
    error = app.job(job).error
    assert error is not None
    assert ("failed", "result-invalid") == (app.job(job).status, error["reason"])
    stop_clean(app, pool)


def test_a_handler_that_closes_every_descriptor_costs_its_child_and_nothing_else(app: Application) -> None:
    """Its lifeline is closed with them: the child ends, its job is worker-lost, and another child takes the next."""
    pool = app.start()
    (job,) = app.enqueue("every_descriptor")
    eventually(lambda: "failed" == app.job(job).status)
    error = app.job(job).error
    assert error is not None
    assert "worker-lost" == error["reason"]
    (after,) = app.enqueue("innocent")
    eventually(lambda: "completed" == app.job(after).status)
    stop_clean(app, pool)


def test_a_signal_that_a_handler_sends_to_its_own_process_is_a_signal(app: Application) -> None:
    """SIGINT to a child alone is nobody's stop: the job goes on to its end, and the pool as well."""
    pool = app.start()
    (job,) = app.enqueue("a_stop_of_its_own")
    (after,) = app.enqueue("innocent")
    eventually(lambda: "completed" == app.job(after).status)
    assert "completed" == app.job(job).status, app.job(job)
    stop_clean(app, pool)
