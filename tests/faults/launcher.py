"""``python launcher.py SPEC WORKER-ARGUMENTS…``: the command ``worker``, with one failpoint armed."""

import sys

import failpoints

if __name__ == "__main__":
    sys.exit(failpoints.launch(sys.argv[1], sys.argv[2:]))
