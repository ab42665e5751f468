"""``python -m platform_worker.cli``."""

import sys

from platform_worker.cli import main

sys.exit(main())
