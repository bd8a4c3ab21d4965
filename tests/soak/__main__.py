"""``python -m tests.soak --minutes 60 --seed 1 --out DIR``."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

import trio

from tests.soak.report import report
from tests.soak.run import Plan, Soak
from trio_mcp.http.server.options import RUNNERS


def arguments() -> Plan:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0, help="how long the load lasts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="a new folder, for the ledger, samples, logs and plots")
    parser.add_argument("--runner", choices=RUNNERS, default="hypercorn", help="what speaks HTTP in the servers")
    parser.add_argument("--rate", type=float, default=40.0, help="calls a second, in all")
    parser.add_argument("--only", default="", help="lanes, separated by commas; all by default")
    parser.add_argument("--session-timeout", type=float, help="seconds; a twelfth of the time, 300 at most")
    parser.add_argument("--max-events", type=int, default=2000, help="of the event store")
    parser.add_argument("--restart-every", type=float, default=45.0, help="seconds, on average")
    given = parser.parse_args()
    timeout = given.session_timeout or min(300.0, given.minutes * 5)
    given.out.mkdir(parents=True)
    only = tuple(filter(None, given.only.split(",")))
    return Plan(**{**vars(given), "out": given.out.resolve(), "only": only, "session_timeout": timeout})


def main() -> int:
    plan = arguments()
    logging.basicConfig(
        filename=plan.out / "driver.log", level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    soak = Soak(plan)
    trio.run(soak.run)
    return report(soak)


if __name__ == "__main__":
    sys.exit(main())
