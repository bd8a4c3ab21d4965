"""Check peers: ``python -m tests.kit.peers [PEER ...]``. The status is 1 if a baseline is wrong."""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path

import trio

from trio_mcp.conformance.report import form_of
from trio_mcp.conformance.report.table import table

from .page import page
from .running import baseline, differences, lost_of, runs
from .table import CLIENTS, SERVERS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kit.peers", description="Check the peers.")
    parser.add_argument(
        "peer", nargs="*", metavar="PEER", help=f"one of {', '.join((*SERVERS, *CLIENTS))}; all by default"
    )
    parser.add_argument("--transport", choices=("stdio", "http"))
    parser.add_argument("--revision")
    parser.add_argument("--examples", type=int, default=1000, help="for each run (%(default)s; a client gets a tenth)")
    parser.add_argument("--time", type=float, default=60, help="seconds for each run (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, help="a folder for a report of each run, as HTML")
    parser.add_argument("--page", type=Path, help="write the page of the docs")
    parser.add_argument("--brief", action="store_true", help="print only how the baselines and the findings differ")
    options = parser.parse_args()
    if unknown := set(options.peer) - {*SERVERS, *CLIENTS}:
        parser.error(f"no peer is called {min(unknown)}")
    chosen = [
        run
        for run in runs(options.peer)
        if options.transport in (None, run.transport) and options.revision in (None, run.revision)
    ]
    done = []
    wrong = 0
    for peer, of_peer in itertools.groupby(chosen, lambda run: run.peer):
        reports = []
        for run in of_peer:
            examples = options.examples // 10 if peer in CLIENTS else options.examples
            report = trio.run(run.check, examples, options.time, options.seed)
            print(f"{peer}, {run.transport}, {run.revision}: {summary(report)}", file=sys.stderr, flush=True)
            if not options.brief:
                print(table(report), flush=True)
            if options.report:
                options.report.mkdir(parents=True, exist_ok=True)
                file = options.report / f"{peer}-{run.transport}-{run.revision}.html"
                file.write_text(form_of(str(file))(report), encoding="utf-8")
            reports.append(report)
            done.append((run, report))
        known = baseline(peer)
        # Only all runs of a peer together can say that something is found no longer.
        if len(reports) < len(runs([peer])):
            lost = lost_of(reports, known)
            known = {rule: reason for rule, reason in known.items() if rule not in lost}
        for line in differences(reports, known):
            wrong += 1
            print(f"{peer}: {line}", flush=True)
    if options.page:
        options.page.write_text(page(done), encoding="utf-8")
    return int(wrong > 0)


def summary(report) -> str:
    counts = [f"{sum(each.status == status for each in report.outcomes)} {status}" for status in ("held", "broken")]
    return f"{report.examples} examples, {report.requests} requests, {report.seconds:.0f} s: {', '.join(counts)}"


if __name__ == "__main__":
    sys.exit(main())
