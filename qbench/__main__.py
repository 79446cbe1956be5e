"""`python -m qbench`: the command line, as `torchrun -m qbench` starts it on each rank."""

import sys

from qbench.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
