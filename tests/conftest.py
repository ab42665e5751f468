"""What every test may use. (Its being here also puts this folder on the import path: ``from harness... import``.)"""

from harness.fixtures import application, redis_server, servers, store

__all__ = ["application", "redis_server", "servers", "store"]
