"""A child that speaks the lifeline and does what its one argument says. Not the product's child: as simple as can be.

idle: answers go with ready, stop with done. busy: ignores stop and SIGTERM for ever. deaf: ignores everything, the end
of the lifeline included. quit:N: exits with N once booted. garble: says a line that is too long.
family: has three descendants: one in its group, one in a session of its own, one that was forked twice.
threads: as idle, with threads of its own.
"""

import os
import signal
import subprocess
import sys


def lines():
    buffer = b""
    while data := os.read(0, 4096):
        buffer += data
        *whole, buffer = buffer.split(b"\n")
        yield from whole


def say(word):
    os.write(0, word.encode() + b"\n")


def descend():
    """Three ways to get away from one's parent."""
    subprocess.Popen(["sh", "-c", "sleep 1000 & exec sleep 1000"], stdin=subprocess.DEVNULL)
    subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL, start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "1000"])
        os._exit(0)
    os.wait()


def main():
    how = sys.argv[1]
    if how in ("busy", "deaf"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for line in lines():
        if line.startswith(b"boot "):
            if how.startswith("quit:"):
                say("booted")
                say("done")
                os._exit(int(how[5:]))
            if how == "garble":
                say("x" * 5000)
            if how == "family":
                descend()
            if how == "threads":
                import threading

                for _ in range(4):
                    thread = threading.Thread(target=lambda: None)
                    thread.start()
                    thread.join()
            say("booted")
        elif line == b"go":
            say("ready")
        elif line == b"stop" and how not in ("busy", "deaf"):
            say("done")
            os._exit(0)
    while how == "deaf":
        signal.pause()


main()
