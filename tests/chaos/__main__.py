"""``python -m tests.chaos --minutes 20 --seed 1``: see docs/explanation/reliability.md for what it promises."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import trio

from tests.chaos.judge import Judge
from tests.chaos.planted import PLANTED
from tests.chaos.run import STORES, Plan, run
from tests.long_runs import folder_of_run, report


def main() -> int:
    """Run the command; its exit status is 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--stores", choices=[*STORES], default="sqlite", help="what the processes share")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long things happen")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=200.0, help="calls a second, in all")
    parser.add_argument("--listeners", type=int, default=200)
    parser.add_argument("--pause", type=float, default=2.0, help="seconds between two events of a lane, at most")
    parser.add_argument("--plant", choices=[*PLANTED], help="a fault to put into the library, which has to be found")
    parser.add_argument("--out", type=Path, help="a new folder for the ledger, the logs and the file")
    given = parser.parse_args()
    out = folder_of_run(given.out, "chaos", given.seed)
    judge = Judge(trio.run(run, Plan(**{**vars(given), "out": out})))
    (out / "events.log").write_text("".join(f"{line}\n" for line in judge.happened()))
    return report(judge, out, given.seed)


if __name__ == "__main__":
    sys.exit(main())
