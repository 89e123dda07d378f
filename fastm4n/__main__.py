"""``python -m fastm4n``."""

import sys

from fastm4n.cli import main

if __name__ == "__main__":
    sys.exit(main())
