"""The page of the docs about the peers, made from runs of the kit and from the baselines."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.rules.catalogue import RULES
from trio_mcp.conformance.rules.model import LEVELS

from .running import Run, baseline
from .table import CLIENTS, SERVERS

__all__ = ["page"]

HEAD = """\
# What `trio-mcp check` finds in other libraries

This page tells what `trio-mcp check` finds in the official SDKs, FastMCP and the reference servers: for each peer
how many rules hold, and which are broken. It is written by one run of all peers, of at most twenty seconds for each
line below; a shorter one of each is part of the tests, and fails if a finding is new, or is found no longer. Each kind
of finding was held by hand against the text of the specification and a transcript, for one of the peers that have it.

For an SDK a server speaks that has something of everything, or a client that does a bit of everything, written with
it: they are in `tests/kit/peers`. What such a program can't help is the SDK's, and that is what is told here.

Those called `-protected` take access tokens, and those called `-sign-in` sign in at protected servers. They are
checked by the rules for authorization alone.

To repeat a run, from a checkout:

```text
$ python -m tests.kit.peers                            # all of them
$ python -m tests.kit.peers typescript-v2 --transport http --revision 2026-07-28 --report reports
$ python -m tests.kit.peers python-v1-client --examples 500 --time 120
```

## Figures

Rules that are neither held nor broken had no occasion, or can't be checked: a server without prompts has none to check.
The number of broken ones may include what was seen once in that run, and could not be repeated.

| peer | what | transport | revision | requests | rules that hold | broken MUST | broken SHOULD | broken EXPECTED |
|---|---|---|---|---|---|---|---|---|
"""

FINDINGS = """
## Findings

A finding begins with what it is: a **fault** breaks the sentence as it is written; what is a matter of **reading**
breaks one that can be read otherwise, and the line says how. A **rare** one, such as a race, may be missed by a run.
"""


def page(done: Sequence[tuple[Run, CheckReport]]) -> str:
    """Return the page."""
    lines = [_row(run, report) for run, report in done]
    text = HEAD + "\n".join(lines) + "\n" + FINDINGS
    for peer, of_peer in itertools.groupby(done, lambda each: each[0].peer):
        text += f"\n### {_title(peer)} (`{peer}`)\n\n" + _findings(peer, list(of_peer))
    return text


def _title(peer: str) -> str:
    if (server := SERVERS.get(peer)) is not None:
        return f"{server.title}, protected" if server.protected else server.title
    client = CLIENTS[peer]
    return f"{client.title}, as client that signs in" if client.signs_in else f"{client.title}, as client"


def _row(run: Run, report: CheckReport) -> str:
    held = sum(outcome.status == "held" for outcome in report.outcomes)
    broken = [sum(outcome.rule.level == level for outcome in report.broken) for level in LEVELS]
    cells = [f"`{run.peer}`", _title(run.peer), run.transport, run.revision, f"{report.requests:,}", held, *broken]
    return f"| {' | '.join(map(str, cells))} |"


def _findings(peer: str, done: Sequence[tuple[Run, CheckReport]]) -> str:
    lines = []
    for rule, reason in baseline(peer).items():
        where = [run for run, report in done if any(outcome.rule.id == rule for outcome in report.broken)]
        revision = where[0].revision if where else None
        kind, _, why = reason.partition(": ")
        link = f"[`{rule}`]({RULES[rule].link(revision)})"
        lines.append(f"- {link} ({RULES[rule].level}; {_where(where)}), **{kind}**: {why}\n")
    return "".join(lines) or "Nothing.\n"


def _where(runs: Sequence[Run]) -> str:
    if not runs:
        return "not in this run"
    transports, revisions = sorted({run.transport for run in runs}), sorted({run.revision for run in runs})
    return f"{' and '.join(transports)}, {' and '.join(revisions)}"
