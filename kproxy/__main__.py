"""``python -m kproxy`` is the same as ``kproxy``."""

import sys

from kproxy.cli import main

sys.exit(main())
