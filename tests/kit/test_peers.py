"""A short run of the kit on each peer finds what its baseline says, no more and no less: docs/reference/peers.md."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.kit.peers.running import baseline, check_all, differences
from tests.kit.peers.table import CLIENTS, SERVERS

pytestmark = pytest.mark.interop

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "peers.md"

DEADLINE = 150.0
"""Seconds for each run, which takes a third of that beside other tests on two cores: the examples limit it."""

EVERY_DAY = {"memory"}
"""The peer that is checked with the other interop tests: a small server."""

BY_HAND = {"git", "time", "fetch", "fastmcp", "python-v2-client", "fastmcp-client"}
"""Peers on the same SDKs as others: three minutes for little news. `.ci/long peers` checks them."""

SLOW = {"python-v2-protected", "fastmcp-protected", "python-v2-sign-in", "typescript-v2-sign-in"}
"""Peers about authorization that take twenty seconds and more; others of their kind do not."""


def marks_of(peer: str) -> Sequence[pytest.MarkDecorator]:
    return [] if peer in EVERY_DAY else [pytest.mark.long if peer in SLOW else pytest.mark.again]


PEERS = [pytest.param(peer, marks=marks_of(peer)) for peer in (*SERVERS, *CLIENTS) if peer not in BY_HAND]


def examples_of(peer: str) -> int:
    # A client that signs in meets each trap once in the first eighteen.
    return 60 if peer in SERVERS else 30 if CLIENTS[peer].signs_in else 8


@pytest.mark.parametrize("peer", PEERS)
async def test_the_kit_finds_what_is_known(peer: str) -> None:
    reports = await check_all(peer, examples_of(peer), DEADLINE)
    assert not differences(reports, baseline(peer)), [(each.target, each.ended, each.examples) for each in reports]


def test_the_page_names_every_finding() -> None:
    page = PAGE.read_text(encoding="utf-8")
    told = {
        (peer, rule)
        for peer, findings in re.findall(r"^### [^\n]*\(`(\S+)`\)\n(.*?)(?=^### |\Z)", page, re.M | re.S)
        for rule in re.findall(r"^- \[`(\S+)`\]", findings, re.M)
    }
    assert told == {(peer, rule) for peer in (*SERVERS, *CLIENTS) for rule in baseline(peer)}
