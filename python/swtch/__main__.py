"""`python -m swtch`, which `swtch lake` starts: see `query`."""

import sys

from .query import main

sys.exit(main())
