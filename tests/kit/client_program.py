"""Our client as a program: ``python -m tests.kit.client_program URL``, run in a fork."""

import os
import sys

import trio

from tests.kit.test_clients import use_everything

if __name__ == "__main__":
    trio.run(use_everything, sys.argv[1])
    os._exit(0)
