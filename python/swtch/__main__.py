"""`python -m swtch`: see `query`."""

import sys

from .query import main

sys.exit(main())
