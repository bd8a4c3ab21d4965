"""Calls leave nothing behind: no memory, task, timer, thread or descriptor, on either side (docs/design.md, rule 7).

Two million of them are made by ``python -m tests.growth``, a step of ``.ci/long``.
"""

from __future__ import annotations

import pytest

from tests.growth.run import MODES, TRANSPORTS, make_calls


@pytest.mark.again
@pytest.mark.parametrize("era", MODES)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_calls_leave_nothing_behind(transport: str, era: str) -> None:
    outcome = await make_calls(transport, era, 3_000, 1_000, lambda text: None)
    assert not outcome.left, outcome
