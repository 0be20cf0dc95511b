"""`python -m deniable` is the `deniable` command."""

import sys

from deniable.cli import main

if __name__ == "__main__":
    sys.exit(main())
