"""Unreadable texts give the message's own id or none, never a wrong one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import envelopes
from tests.tables import each_of
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import (
    Malformed,
)

PARSE_ERROR = -32700


@given(envelopes(), st.booleans(), st.data())
def test_a_text_cut_anywhere_gives_its_own_id_or_none(
    envelope: dict[str, Any], ascii_only: bool, data: st.DataObject
) -> None:
    """A wrong id would fail an unrelated call: no nested id, no half of a number."""
    text = json.dumps(
        envelope, ensure_ascii=ascii_only, separators=data.draw(st.sampled_from([(",", ":"), None]))
    ).encode()
    message = decode(text[: data.draw(st.integers(0, len(text) - 1))])
    assert isinstance(message, Malformed)
    assert message.id in (None, envelope["id"])
    if message.id is not None and "result" not in envelope:
        assert message.expects_answer


@given(envelopes(), st.data())
def test_a_text_corrupted_anywhere_gives_its_own_id_or_none(envelope: dict[str, Any], data: st.DataObject) -> None:
    """The same if one byte is flipped. (If the result is valid JSON again, the fault can't be detected.)"""
    text = bytearray(json.dumps(envelope, ensure_ascii=data.draw(st.booleans())).encode())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] = data.draw(st.sampled_from(list(b'{}[],:"\\ 0a\n\x00\xff')))
    message = decode(bytes(text))
    if isinstance(message, Malformed) and message.code == PARSE_ERROR:
        assert message.id in (None, envelope["id"])


@each_of(
    "broken",
    b'"\xff" | "\xe2\x82" | "a\nb" | "\\q" | "\\ud800" | "\\ud800\\u0041" | NaN | '
    b'-Infinity | tru3 | 01 | 1. | {"a" 1} | {a:1} | [1 2] | ',
    b"1" * 5000,
    b"[" * 300,
    b'{"a":' * 300,
)
@pytest.mark.parametrize("last", [False, True])
def test_the_id_of_a_broken_request_is_found(broken: bytes, last: bool) -> None:
    """So that the caller gets an error and need not wait for its timeout; some peers write the id last."""
    if last:
        text = b'{"method":"x","params":{"id":3,"a":%s},"jsonrpc":"2.0","id":15}' % broken
    else:
        text = b'{"jsonrpc":"2.0","id":15,"method":"x","params":{"id":3,"a":%s}}' % broken
    message = decode(text)
    assert isinstance(message, Malformed)
    assert (message.code, message.id, message.expects_answer) == (PARSE_ERROR, 15, True)


@pytest.mark.parametrize("broken", [b'{"a":"\xff"}', b"{,}", b"NaN", b"\xff", b'{"a":"x', b'{"a":', b""])
@pytest.mark.parametrize("member", [b"result", b"error"])
def test_a_broken_answer_is_known_for_one(broken: bytes, member: bytes) -> None:
    """It fails the call it answers, and is not answered itself."""
    message = decode(b'{"jsonrpc":"2.0","id":15,"%s":%s' % (member, broken))
    assert isinstance(message, Malformed)
    assert (message.code, message.id, message.expects_answer) == (PARSE_ERROR, 15, False)


@pytest.mark.parametrize(
    "text",
    [
        b'{"jsonrpc":"2.0","id":1',  # 1 or 15?
        b'{"jsonrpc":"2.0","id":1,,"method":"x"}',  # 1 or 15 with a byte damaged?
        b'{"params":{"id":7}',  # the brace that ends it is a nested one
        b'{"params":{"a":1},"id":7,"x":1},"id":5}',  # a brace too many: which id is it?
        b'["id",7,x]',
        b'[{"id":7,"method":x}]',
        b'{"jsonrpc":"2.0","id":7,"method":"x"}{"jsonrpc":"2.0","id":8,"method":"x"}',
        b'INFO: {"id":7}',
        b'{"a":x,"b\\"id":7}',
    ],
)
def test_a_doubtful_id_is_not_used(text: bytes) -> None:
    message = decode(text)
    assert isinstance(message, Malformed)
    assert message.id is None
