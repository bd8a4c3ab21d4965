"""``python -m tests.failover --minutes 10 --seed 1``: see docs/how-to/failover.md for what it promises."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import trio

from tests.failover.judge import Judge
from tests.failover.run import Plan, Run
from tests.long_runs import folder_of_run, report


def main() -> int:
    """Run the command; its exit status is 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.failover", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long ways break")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=200.0, help="calls a second, in all")
    parser.add_argument("--every", type=float, default=8.0, help="seconds between two faults of a way, on average")
    parser.add_argument("--longest", type=float, default=6.0, help="seconds that a way is broken at most")
    parser.add_argument("--out", type=Path, help="a new folder for the ledger and the logs; by default one below /tmp")
    given = parser.parse_args()
    out = folder_of_run(given.out, "failover", given.seed)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    run = Run(Plan(**{**vars(given), "out": out}))
    trio.run(run.run)
    return report(Judge(run), out, given.seed)


if __name__ == "__main__":
    sys.exit(main())
