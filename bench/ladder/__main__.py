"""`python -m bench.ladder`, from the root of the repository."""

import sys

from bench.ladder import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
