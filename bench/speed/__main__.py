"""`python -m bench.speed`, from the root of the repository."""

import sys

from bench.speed import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
