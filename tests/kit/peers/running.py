"""Runs of the kit on the peers, and what is known of each: its baseline."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs

from trio_mcp import StdioServerParameters
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.conformance.baseline import read_baseline
from trio_mcp.conformance.clients import check_client
from trio_mcp.conformance.engine import check_server
from trio_mcp.conformance.outcomes import CheckReport

from .table import CLIENTS, SERVERS, Server

BASELINES = Path(__file__).parents[1] / "baselines"

AUTHORIZATION = "section:basic/authorization"
KEPT_APART = ("*-of-its-user", "metadata-agrees")
"""The rules for protected servers that are in other sections, or in none."""


@attrs.frozen
class Run:
    """A run of the kit on a peer.

    Attributes:
        peer: The peer's name: that of a server or of a client.
        transport: How it is reached.
        revision: The revision spoken.
    """

    peer: str
    transport: str
    revision: str

    async def check(
        self, examples: int, time: float, seed: int = 1, rules: Collection[str] | None = None
    ) -> CheckReport:
        """Check the peer, by all rules or by these, and mark what its baseline knows.

        A protected server, and a client that signs in, are checked by the rules for authorization alone: the other
        rules are for the peers without, which do more.
        """
        settings: dict[str, Any] = {"revisions": [self.revision], "baseline": baseline(self.peer)}
        settings |= {"examples": examples, "time": time, "seed": seed, "rules": rules}
        if (client := CLIENTS.get(self.peer)) is not None:
            if client.signs_in:
                settings |= {"rules": rules or [AUTHORIZATION], "protected": True}
            return await check_client(client.for_revision(self.revision), **settings)
        server = SERVERS[self.peer]
        if server.protected:
            authority = AuthorizationServer()
            settings |= {"rules": rules or [AUTHORIZATION, *KEPT_APART], "authority": authority}
            async with authority.served() as issuer:
                with server.over_http(issuer) as url:
                    return await check_server(url, **settings)
        with server.over_http() if self.transport == "http" else nullcontext(_process(server)) as target:
            return await check_server(target, **settings)


def _process(server: Server) -> StdioServerParameters:
    command, environment = server.over_stdio(Path(tempfile.mkdtemp()))
    return StdioServerParameters(command[0], command[1:], env=environment)


def baseline(peer: str) -> dict[str, str]:
    """Return the rules that a peer is known to break, with the reasons."""
    file = BASELINES / f"{peer}.yml"
    return read_baseline(file) if file.exists() else {}


def runs(peers: Iterable[str] = ()) -> list[Run]:
    """Return all runs of these peers, or of all."""
    chosen = set(peers)
    found = [Run(name, *each) for name, server in SERVERS.items() for each in server.runs]
    found += [Run(name, "http", revision) for name, client in CLIENTS.items() for revision in client.revisions]
    return [run for run in found if not chosen or run.peer in chosen]


MOST_SEEDS = 5
"""How often a peer is checked for what is known of it. Chosen: each time finds most of what the last one has missed."""


async def check_all(peer: str, examples: int, time: float, seed: int = 1) -> list[CheckReport]:
    """Check a peer in all ways; look for what is known and was not found again, by these rules alone."""
    of_peer = runs([peer])
    reports = [await run.check(examples, time, seed) for run in of_peer]
    for another in range(seed + 1, seed + MOST_SEEDS):
        # What a seed draws depends on the constants in this package's code, too, which Hypothesis looks for: so
        # another commit may miss what this one finds.
        if not (lost := lost_of(reports, baseline(peer))):
            break
        # Only the moves of these rules are made now, so that few examples are enough.
        reports += [await run.check(examples, time, another, lost) for run in of_peer]
    return reports


def lost_of(reports: Iterable[CheckReport], known: dict[str, str]) -> list[str]:
    """Return the rules that are known to be broken, and were not found broken; not the rare ones, such as races."""
    broken = {outcome.rule.id for report in reports for outcome in report.broken}
    return [rule for rule, reason in known.items() if rule not in broken and not reason.startswith("rare ")]


def differences(reports: Sequence[CheckReport], known: dict[str, str]) -> list[str]:
    """Compare what was found with what is known, both ways; return a line for each difference."""
    # Without what was seen once and never again.
    broken = {
        outcome.rule.id: outcome
        for report in reports
        for outcome in report.broken
        if outcome.failure is None or outcome.failure.seen
    }
    new = [
        f"{rule} is broken, which the baseline does not know: {outcome.failure.problem if outcome.failure else ''}"
        for rule, outcome in broken.items()
        if rule not in known
    ]
    return new + [f"{rule} is in the baseline, and was not found broken" for rule in lost_of(reports, known)]
