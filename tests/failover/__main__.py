"""``python -m tests.failover --minutes 10 --seed 1``: see docs/how-to/failover.md for what it promises."""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import trio

from tests.failover.judge import Judge
from tests.failover.run import Plan, Run


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
    out = given.out or Path(tempfile.mkdtemp(prefix="failover-"))
    out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(
        filename=out / "driver.log", level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    run = Run(Plan(**{**vars(given), "out": out.resolve()}))
    print(f"seed {given.seed}, {out}", flush=True)
    trio.run(run.run)
    judge = Judge(run)
    broken = list(judge.broken())
    for name, value in judge.figures():
        print(f"| {name} | {value} |")
    (out / "broken.log").write_text("".join(f"{line}\n" for line in broken))
    (out / "not-succeeded.log").write_text("".join(f"{line}\n" for line in judge.not_succeeded()))
    for line in broken[:20]:
        print(line, file=sys.stderr)
    print(f"seed {given.seed}: {len(broken)} broken promises")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
