"""`python -m accelrt`: see `accelrt.cli`."""

import sys

from accelrt.cli import main

if __name__ == "__main__":
    sys.exit(main())
