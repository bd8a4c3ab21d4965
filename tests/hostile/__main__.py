"""`python -m tests.hostile --requests 12000 --seed 1`, or one case: `--family heads --case 123`."""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

import trio

from tests.hostile.campaign import GROWTH, LATENCY, Report, Victim, attack
from tests.hostile.case import Case
from tests.hostile.families import FAMILIES, cases, shares, suits
from trio_mcp.http.server.options import RUNNERS


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--requests", type=int, default=12_000, help="how many cases, over all families")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runner", choices=RUNNERS, default="hypercorn", help="what speaks HTTP")
    parser.add_argument("--family", choices=FAMILIES)
    parser.add_argument("--case", type=int, help="one case of that family alone")
    parser.add_argument("--attackers", type=int, default=16, help="how many cases run concurrently")
    parser.add_argument("--show", type=int, default=20, help="how many faults are shown")
    return parser.parse_args()


def chosen(given: argparse.Namespace, seed: int, requests: int) -> list[Case]:
    """Return the cases, of all families in turn."""
    if given.case is not None:
        return [cases(given.family, seed, given.case + 1)[-1]]
    found = []
    for family, count in shares(requests).items():
        if given.family in (None, family):
            found += cases(family, seed, requests if given.family else count)
    found = [case for case in found if suits(case, given.runner)]
    return sorted(found, key=lambda case: (case.number / len(FAMILIES[case.family]), case.family))


def show(report: Report, most: int) -> None:
    for family, outcomes in report.outcomes.items():
        counts = ", ".join(f"{outcome}: {count}" for outcome, count in sorted(outcomes.items(), key=str))
        print(f"{family:9} {outcomes.total():6}  {counts}")
    if report.latencies:
        times = ", ".join(
            f"{name} {report.quantile(part) * 1000:.1f} ms" for name, part in (("p50", 0.5), ("p99", 0.99))
        )
        print(f"good clients: {len(report.latencies)} calls, {times}, max {report.latencies[-1] * 1000:.0f} ms")
    for failure in report.failures:
        print(f"A GOOD CLIENT FAILED: {failure}")
    kinds: dict[str, int] = {}
    for case, _ in report.faults:
        kinds[f"{case.family}.{case.name}"] = kinds.get(f"{case.family}.{case.name}", 0) + 1
    print(f"{len(report.faults)} faults {kinds or ''}")
    for case, why in report.faults[:most]:
        print(f"\n{case}\n  {why}\n  {case.rule}\n  {case.shown(600)}\n  {case.replay}")


def main() -> int:
    given = arguments()
    alone = given.case is not None
    with Victim(given.runner) as victim:
        if not alone:
            warm = chosen(given, given.seed + 1000, max(given.requests // 10, 300))
            trio.run(partial(attack, victim.target, warm, attackers=given.attackers))
        before = trio.run(victim.rest)
        began = time.monotonic()
        todo = chosen(given, given.seed, given.requests)
        report = trio.run(partial(attack, victim.target, todo, attackers=given.attackers, witnesses=not alone))
        print(f"{len(todo)} cases in {time.monotonic() - began:.1f} s, seed {given.seed}, on {given.runner}")
        if len(todo) < (drawn := sum(shares(given.requests).values())) and given.family is None:
            print(f"{drawn - len(todo)} of {drawn} left out: HTTP/2 is for hypercorn alone, lines are for h11")
        if alone:
            print(todo[0].shown(10_000), "->", report.outcomes)
        after = trio.run(victim.rest)
        show(report, given.show)
        grown = after["rss"] - before["rss"]
        print(f"memory {before['rss'] / 2**20:.1f} -> {after['rss'] / 2**20:.1f} MiB", end="; ")
        print(*(f"{name} {before[name]} -> {after[name]}" for name in ("tasks", "descriptors", "sessions")), sep="; ")
        print(f"{after['marks']} calls behind what ends a connection")
        status, complaints = victim.end(), victim.complaints() + report.complaints
        print(f"status {status}; {len(complaints)} lines of complaint on standard error")
        print("\n".join(complaints[: given.show]))
    level = alone or all(after[name] <= before[name] for name in ("tasks", "descriptors", "sessions"))
    slow = report.latencies and report.latencies[-1] > LATENCY
    bad = report.faults or report.failures or complaints or status or slow or after["marks"]
    return int(bool(bad or not level or grown > GROWTH))


if __name__ == "__main__":
    sys.exit(main())
