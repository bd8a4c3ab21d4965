"""The bookkeeping about requests, step by step: what the state machine test reaches only now and then."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.failover.test_machine import FakeLink
from trio_mcp.client.failover.carrier import Carrier
from trio_mcp.client.failover.traffic import Traffic
from trio_mcp.jsonrpc.messages import Notification, Request, SessionMessage


@pytest.mark.parametrize("taken", [True, False])
def test_a_subscription_that_is_half_sent_stays_until_its_link_has_taken_it(taken: bool) -> None:
    """If it moved before, it would be sent twice: its sender still hands it over."""
    traffic, link = Traffic(), FakeLink()
    carrier = Carrier(0, "first", link)  # type: ignore[arg-type]
    settled, half_sent = (SessionMessage(Request(number, "subscriptions/listen", {})) for number in (1, 2))
    assert traffic.begin_sending(carrier, settled, waits=False)
    traffic.end_sending(carrier, settled, taken=True, waits=False)
    link.receive(settled)
    assert traffic.begin_sending(carrier, half_sent, waits=False)
    traffic.move_subscriptions(carrier)
    assert list(traffic.waiting) == [1]
    assert list(carrier.in_flight) == [2]
    assert link.received == {}  # the link was told that the first one is cancelled
    traffic.end_sending(carrier, half_sent, taken=taken, waits=False)
    assert list(carrier.in_flight) == ([2] if taken else [])
    assert list(traffic.waiting) == [1]


def test_a_request_that_has_not_left_goes_back_to_those_that_wait() -> None:
    traffic = Traffic()
    carrier = Carrier(0, "first", FakeLink())  # type: ignore[arg-type]
    item = SessionMessage(Request(1, "tools/list"))
    traffic.repeat(item)
    assert traffic.begin_sending(carrier, item, waits=True)
    assert (list(traffic.waiting), list(carrier.in_flight), carrier.half_sent) == ([], [1], 1)
    traffic.end_sending(carrier, item, taken=False, waits=True)
    assert (list(traffic.waiting), list(carrier.in_flight), carrier.half_sent) == ([1], [], None)
    traffic.waiting.clear()  # its caller has cancelled it
    assert not traffic.begin_sending(carrier, item, waits=True)


def test_what_is_no_request_is_sent_without_a_record() -> None:
    traffic = Traffic()
    carrier: Any = Carrier(0, "first", FakeLink())  # type: ignore[arg-type]
    item = SessionMessage(Notification("notifications/roots/list_changed"))
    assert traffic.begin_sending(carrier, item, waits=False)
    traffic.end_sending(carrier, item, taken=True, waits=False)
    assert carrier.in_flight == {}
