"""Compare the statements that we list with a checkout of the specification: ``python -m tests.statements PATH``.

It lists what is new, changed or gone; the exit status is 1 if there is anything. The rows to change are in
``trio_mcp/testing/statements``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.statements.compare import differences
from tests.statements.extract import statements as found_in
from trio_mcp.testing.statements.model import REVISIONS, statements


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.statements", description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path, help="where modelcontextprotocol/modelcontextprotocol is checked out")
    try:
        found = list(found_in(parser.parse_args().checkout, REVISIONS))
    except FileNotFoundError as error:
        parser.error(str(error))
    different = differences(found, statements())
    for each in different:
        print(each)
    kinds = Counter(each.kind for each in different)
    print(f"{len(found)} statements: " + ", ".join(f"{kinds[kind]} {kind}" for kind in ("new", "changed", "gone")))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
