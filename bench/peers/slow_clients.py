"""``slow_clients.py ROOT COUNT``: so many clients of a pool's control socket that send a byte a second, for ever."""

import os
import socket
import sys
import time

root, count = sys.argv[1], int(sys.argv[2])
os.chdir(root)
clients = [None] * count


def connect():
    client = socket.socket(socket.AF_UNIX)
    client.connect("var/tmp/worker.sock")
    return client


first = True
while True:
    for at in range(count):
        try:
            clients[at].send(b"{")
        except (AttributeError, OSError):  # not there yet, or closed by the pool: another one comes
            clients[at] = connect()
        if not first:
            time.sleep(1 / count)
    if first:
        print("connected", flush=True)
        first = False
    if not count:
        time.sleep(1)
