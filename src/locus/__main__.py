"""`python -m locus` is the command `locus`."""

import sys

from locus.cli import main

sys.exit(main())
