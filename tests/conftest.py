"""What every test may use. (Its being here also puts this folder on the import path: ``from harness... import``.)"""

import signal

from harness.fixtures import application, redis_server, servers, store

# A shell without job control starts what runs in the background with these two ignored; every process of a test's would
# inherit that, and tests of Ctrl-C would find a worker that does not hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

__all__ = ["application", "redis_server", "servers", "store"]
