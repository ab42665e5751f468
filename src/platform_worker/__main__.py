"""``python -m platform_worker``: the command ``worker``, where its folder is not on the path."""

import sys

from platform_worker.cli import main

sys.exit(main())
