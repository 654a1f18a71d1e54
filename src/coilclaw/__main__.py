"""``python -m coilclaw`` is the same program as ``coilclaw``."""

import sys

from coilclaw.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
