"""``many.py COUNT COMMAND ...``: so many processes of a command that starts one worker; they end with this one."""

import signal
import subprocess
import sys

processes = [subprocess.Popen(sys.argv[2:]) for _ in range(int(sys.argv[1]))]
signal.signal(signal.SIGTERM, lambda *_: [process.terminate() for process in processes])
for process in processes:
    process.wait()
