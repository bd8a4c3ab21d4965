"""``python -m tests.growth``: two million calls, a quarter of them for each transport and era."""

from __future__ import annotations

import argparse
import sys
from functools import partial

import trio

from tests.growth.run import MODES, TRANSPORTS, make_calls


def main() -> int:
    """Make the calls; return 1 if they leave anything behind."""
    parser = argparse.ArgumentParser(prog="python -m tests.growth", description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000_000, help="in all (default 2,000,000)")
    parser.add_argument("--warm-up", type=int, default=20_000, help="before each quarter (default 20,000)")
    given = parser.parse_args()
    cases = [(transport, era) for transport in TRANSPORTS for era in MODES]
    failed = False
    for transport, era in cases:
        calls = given.calls // len(cases)
        tell = partial(print, file=sys.stderr)
        outcome = trio.run(make_calls, transport, era, calls, given.warm_up, tell)
        print(outcome, flush=True)
        failed = failed or bool(outcome.left)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
