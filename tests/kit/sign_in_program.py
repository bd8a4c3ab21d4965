"""Our client that signs in, as a program: ``python -m tests.kit.sign_in_program URL``, run in a fork."""

import os
import sys

import trio

from tests.kit.mutants.sign_in import Program, run

if __name__ == "__main__":
    trio.run(run, Program, sys.argv[1])
    os._exit(0)
