"""Our own server keeps every rule, over each transport; the long run is `.ci/long kit`."""

from __future__ import annotations

import pytest

from tests.kit.own import OWN, check

EXAMPLES = 80


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == "memory" else [pytest.mark.again]) for n in OWN])
async def test_our_own_server_keeps_every_rule(name: str) -> None:
    report = await check(OWN[name], EXAMPLES)
    assert [(o.rule.id, o.failure) for o in report.broken] == []
    assert (report.ended, report.examples, report.status) == ("complete", EXAMPLES, 0)
