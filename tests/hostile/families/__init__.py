"""The families of cases, by the layer in which something is broken."""

from __future__ import annotations

from collections.abc import Mapping

from tests.hostile.case import Case, Kind, make
from tests.hostile.families import bodies, framings, headers, heads, http2, sessions, sockets, stdio, tls, websocket

FAMILIES: Mapping[str, Mapping[str, Kind]] = {
    "heads": heads.KINDS,
    "framings": framings.KINDS,
    "bodies": bodies.KINDS,
    "headers": headers.KINDS,
    "sessions": sessions.KINDS,
    "tls": tls.KINDS,
    "http2": http2.KINDS,
    "stdio": stdio.KINDS,
    "websocket": websocket.KINDS,
    "sockets": sockets.KINDS,
}


def shares(requests: int) -> dict[str, int]:
    """Return how many of a number of cases each family gets: in proportion to its kinds."""
    kinds = sum(map(len, FAMILIES.values()))
    return {family: -(-requests * len(given) // kinds) for family, given in FAMILIES.items()}


def suits(case: Case, runner: str) -> bool:
    """Return whether a case is for a server on some runner: only hypercorn speaks HTTP/2, and lines need none."""
    return (case.wire != "h2" or runner == "hypercorn") and (case.family != "sockets" or runner == "h11")


def cases(family: str, seed: int, count: int) -> list[Case]:
    """Return the first cases of a family."""
    return [make(family, FAMILIES[family], seed, number) for number in range(count)]
