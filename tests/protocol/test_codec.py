"""Bytes to messages and back; whatever a peer sends is a value, and what leaves is always JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from tests.strategies import envelopes
from tests.tables import by_outcome, each_of
from trio_mcp.jsonrpc.codec import MAX_BATCH, decode, encode, encode_or_replace, parse
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    SessionMessage,
    is_request_id,
)
from trio_mcp.testing.strategies import batches, json_texts, messages

PARSE_ERROR, INVALID_REQUEST, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32602, -32603


def strict_json(data: bytes) -> Any:
    """Parse as a peer of another make would: no NaN, no infinity, no invalid UTF-8."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(data.decode(), parse_constant=refuse)


# --- round trips -------------------------------------------------------------------------------------------------


@given(messages() | batches())
def test_every_message_survives_the_wire(message: Message) -> None:
    data = encode(message)
    assert b"\n" not in data
    strict_json(data)
    assert decode(data) == message
    assert decode(bytearray(data)) == message


@given(json_texts() | st.binary(max_size=20))
def test_no_bytes_raise(data: bytes) -> None:
    """Garbage is a value, and an error answer to it can be written."""
    message = decode(data)
    if isinstance(message, Malformed):
        assert encode(ErrorResponse(message.id, ErrorData(message.code, message.reason)))


def test_absent_and_null_are_told_apart_in_answers_only() -> None:
    """``data`` of an error is optional: None leaves it out. Some peers write ``params: null`` for no params."""
    assert encode(ErrorResponse(1, ErrorData(-1, "x"))) == b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"x"}}'
    assert decode(b'{"jsonrpc":"2.0","method":"x","params":null}') == Notification("x", None)


def test_an_id_that_is_not_known_is_left_out() -> None:
    """2025-11-25 schema, JSONRPCErrorResponse: ``id`` is optional and never null."""
    assert "id" not in strict_json(encode(ErrorResponse(None, ErrorData(PARSE_ERROR, "x"))))
    null = decode(b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}')
    assert null == ErrorResponse(None, ErrorData(1, "x"))


# --- broken shapes -----------------------------------------------------------------------------------------------


@by_outcome(
    "text",
    "code, request_id",
    {
        (PARSE_ERROR, None): ' | { | nonsense | {"jsonrpc":"2.0","method":"x","id":NaN} | [1',
        (INVALID_REQUEST, None): (
            '1 | "x" | null | true | [] | {} | {"jsonrpc":"2.0"} | '
            '{"jsonrpc":"2.0","id":null,"method":"x"} | '
            '{"jsonrpc":"2.0","id":true,"method":"x"} | '
            '{"jsonrpc":"2.0","id":1.0,"method":"x"} | '
            '{"jsonrpc":"2.0","id":1e400,"method":"x"} | '
            '{"jsonrpc":"2.0","id":[1],"method":"x","params":[]}'
        ),
        (INVALID_REQUEST, 5): (
            '{"jsonrpc":"2.0","id":5} | {"jsonrpc":"1.0","id":5,"method":"x"} | '
            '{"jsonrpc":2.0,"id":5,"method":"x"} | {"jsonrpc":"2.0","id":5,"method":null} | '
            '{"jsonrpc":"2.0","id":5,"method":7}'
        ),
        (INVALID_REQUEST, "a"): '{"id":"a","method":"x"}',
        (INVALID_PARAMS, 5): (
            '{"jsonrpc":"2.0","id":5,"method":"x","params":[]} | '
            '{"jsonrpc":"2.0","id":5,"method":"x","params":"a"} | '
            '{"jsonrpc":"2.0","id":5,"method":"x","params":false}'
        ),
    },
)
def test_broken_requests(text: str, code: int, request_id: object) -> None:
    """JSON-RPC 2.0, section 5.1: each fault has its code, and an answer is due, with the id if there is a valid one."""
    message = decode(text.encode())
    assert isinstance(message, Malformed)
    assert (message.code, message.id, message.expects_answer) == (code, request_id, True)


@pytest.mark.parametrize("params", ["[]", "1", '"x"'])
def test_a_broken_notification_is_not_answered(params: str) -> None:
    """`basic`, Notifications: "The receiver MUST NOT send a response"."""
    message = decode(b'{"jsonrpc":"2.0","method":"x","params":%s}' % params.encode())
    assert isinstance(message, Malformed)
    assert (message.code, message.id, message.expects_answer) == (INVALID_PARAMS, None, False)


@by_outcome(
    "text",
    "request_id",
    {
        5: (
            '{"jsonrpc":"2.0","id":5,"result":[]} | {"jsonrpc":"2.0","id":5,"result":null} | '
            '{"jsonrpc":"1.0","id":5,"result":{}} | {"id":5,"result":{}} | '
            '{"jsonrpc":"2.0","id":5,"result":{},"error":{"code":1,"message":"x"}} | '
            '{"jsonrpc":"2.0","id":5,"error":null} | {"jsonrpc":"2.0","id":5,"error":{}} | '
            '{"jsonrpc":"2.0","id":5,"error":{"code":1.0,"message":"x"}} | '
            '{"jsonrpc":"2.0","id":5,"error":{"code":true,"message":"x"}} | '
            '{"jsonrpc":"2.0","id":5,"error":{"code":1,"message":null}}'
        ),
        "a": '{"jsonrpc":"2.0","id":"a","result":1}',
        None: '{"jsonrpc":"2.0","result":{}} | {"jsonrpc":"2.0","id":true,"result":{}}',
    },
)
def test_a_broken_answer_names_its_call_and_is_never_answered(text: str, request_id: object) -> None:
    """It fails one of our calls; an answer to an answer would be taken for one of the peer's requests."""
    message = decode(text.encode())
    assert isinstance(message, Malformed)
    assert (message.code, message.id, message.expects_answer) == (INVALID_REQUEST, request_id, False)


def test_unknown_members_are_ignored() -> None:
    """The schemas don't close the envelopes; a request is one by its method."""
    assert decode(b'{"jsonrpc":"2.0","id":1,"method":"x","result":{},"y":1}') == Request(1, "x")


# --- batches -----------------------------------------------------------------------------------------------------


def test_a_malformed_item_of_a_batch_does_not_affect_the_others() -> None:
    """JSON-RPC 2.0, section 6: each gets its own error; a batch within a batch is not a message."""
    batch = decode(b'[1,[{"jsonrpc":"2.0","id":9,"method":"x"}],{"jsonrpc":"2.0","id":1,"method":"x"}]')
    assert isinstance(batch, Batch)
    one, nested, good = batch.items
    assert isinstance(one, Malformed)
    assert isinstance(nested, Malformed)
    assert (one.code, nested.code, nested.id) == (INVALID_REQUEST, INVALID_REQUEST, None)
    assert good == Request(1, "x")


def test_the_size_of_a_batch_is_bounded() -> None:
    """One line must not stand for any number of requests."""
    item = {"jsonrpc": "2.0", "method": "x"}
    assert isinstance(parse([item] * MAX_BATCH), Batch)
    refused = parse([item] * (MAX_BATCH + 1))
    assert isinstance(refused, Malformed)
    assert (refused.code, refused.expects_answer) == (INVALID_REQUEST, True)


# --- numbers and characters at the border ------------------------------------------------------------------------


def test_a_number_beyond_a_double_arrives_and_is_not_sent_on() -> None:
    """1e400 is JSON (RFC 8259, section 6), Infinity is not."""
    message = decode(b'{"jsonrpc":"2.0","method":"x","params":{"a":1e400,"b":-1e400}}')
    assert message == Notification("x", {"a": float("inf"), "b": float("-inf")})
    with pytest.raises(ValueError, match="infinity"):
        encode(message)  # type: ignore[arg-type]


def test_integers_of_any_size_keep_their_value() -> None:
    """Up to what Python turns into text and back, 4300 digits; beyond that the text is refused, not the link."""
    for number in (2**53 + 1, 2**64, -(2**200), 10**4299):
        message = Notification("x", {"a": number})
        assert decode(encode(message)) == message
    assert isinstance(decode(b'{"jsonrpc":"2.0","method":"x","params":{"a":%s}}' % (b"1" * 4301)), Malformed)


def broken_iterator() -> Iterator[int]:
    yield 1
    raise KeyError("broken")


def circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def deep() -> Any:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    return value


class SubFloat(float):
    pass


UNWRITABLE: dict[str, Callable[[], Any]] = {
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "negative infinity": lambda: -float("inf"),
    "nested NaN": lambda: [{"a": float("nan")}],
    "NaN of a class of its own": lambda: SubFloat("nan"),
    "NaN in a tuple": lambda: (float("nan"),),
    "NaN among many": lambda: [0.5] * 1000 + [float("nan")],
    "lone surrogate": lambda: "\ud800",
    "lone surrogate as a key": lambda: {"\ud800": 1},
    "bytes": lambda: b"\xff",
    "object": object,
    "class": lambda: object,
    "iterator": broken_iterator,
    "circle": circle,
    "depth": deep,
}


@pytest.mark.parametrize("beside", ["", "x" * 200_000], ids=["short", "long"])
@pytest.mark.parametrize("kind", UNWRITABLE)
def test_a_value_that_is_not_json_is_refused_with_a_value_error(kind: str, beside: str) -> None:
    """And nothing else: the writer of a link survives whatever a handler returns.

    What surely holds no NaN is not searched for the word, which is told from the parts of a long message.
    """
    for make in (
        lambda value: Request(1, "x", value),
        lambda value: Notification("x", value),
        lambda v: Response(1, v),
    ):
        with pytest.raises(ValueError, match=r"\S"):
            encode(make({"a": UNWRITABLE[kind](), "b": beside}))


numbers_and_texts = st.floats() | st.text() | st.integers()


@given(
    st.recursive(numbers_and_texts, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
)
def test_whatever_is_written_is_json(value: Any) -> None:
    """The words NaN and Infinity may stand in strings, and only there."""
    for beside in ("", "x" * 100_000):
        try:
            data = encode(Notification("x", {"a": value, "b": beside}))
        except ValueError:
            continue
        strict_json(data)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "NaN, Infinity", '"NaN"'])
def test_the_words_are_free_in_strings(text: str) -> None:
    """Also deeper in the message than our parsers would go."""
    value: Any = {text: text}
    for _ in range(220):
        value = [value]
    assert text.encode() in encode(Notification("x", {"a": value})).replace(b'\\"', b'"')


@pytest.mark.parametrize("value", [float("nan"), "\ud800", object()])
def test_an_unwritable_result_is_replaced_by_an_error(value: Any) -> None:
    """The peer is owed an answer (JSON-RPC 2.0, section 5)."""
    for message in (Response(7, {"a": value}), ErrorResponse(7, ErrorData(1, "x", value))):
        data, problem = encode_or_replace(message)
        assert data is not None
        assert problem
        replaced = decode(data)
        assert isinstance(replaced, ErrorResponse)
        assert (replaced.id, replaced.error.code) == (7, INTERNAL_ERROR)


def test_what_can_not_be_replaced_is_not_written() -> None:
    """A request fails at its caller, a notification in the log; nor is a response whose very id can't be written."""
    bad = {"a": float("nan")}
    for message in (Request(1, "x", bad), Notification("x", bad), Response("\ud800", {})):
        data, problem = encode_or_replace(message)
        assert data is None
        assert problem


def test_one_unwritable_answer_of_a_batch_costs_only_itself() -> None:
    data, problem = encode_or_replace(Batch((Response(1, {}), Response(2, {"a": float("nan")}), Response(3, {}))))
    assert data is not None
    assert problem
    batch = decode(data)
    assert isinstance(batch, Batch)
    first, second, third = batch.items
    assert (first, third) == (Response(1, {}), Response(3, {}))
    assert isinstance(second, ErrorResponse)
    assert (second.id, second.error.code) == (2, INTERNAL_ERROR)


def test_encode_takes_messages_only() -> None:
    with pytest.raises(TypeError, match="expected a JSON-RPC message"):
        encode({"jsonrpc": "2.0"})  # type: ignore[arg-type]


# --- size and depth ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bomb", [b"[", b'{"a":', b'[{"a":[', b'{"id":'])
def test_a_depth_bomb_is_a_parse_error(bomb: bytes) -> None:
    """A megabyte of brackets neither overflows a stack nor is answered with a wrong id."""
    message = decode(bomb * 200_000)
    assert isinstance(message, Malformed)
    assert (message.code, message.id) == (PARSE_ERROR, None)


def test_the_reason_does_not_echo_the_text() -> None:
    """An error answer must not grow with the garbage that caused it."""
    for text in (
        b'{"jsonrpc":"2.0","method":"%s","id":1.5}' % (b"x" * 100_000),
        b"x" * 100_000,
        b'"%s"' % (b"x" * 100_000),
    ):
        message = decode(text)
        assert isinstance(message, Malformed)
        assert len(message.reason) < 300


# --- the id of what can't be read: the message's own or none, never a wrong one ----------------------------------


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


# --- the envelopes, and what may be an id ------------------------------------------------------------------------


@by_outcome("value", "valid", {True: [0, -1, 2**70, "", "1", "é"], False: [None, True, False, 1.0, b"1", [1], {}]})
def test_strings_and_integers_are_ids_and_nothing_else_is(value: object, valid: bool) -> None:
    """`basic`, Requests: "Requests MUST include a string or integer ID", and no null.

    Nor what Python or JavaScript take for a number: bool, float.
    """
    assert is_request_id(value) is valid


@pytest.mark.parametrize(
    "kind", [Request, Notification, Response, ErrorResponse, ErrorData, Malformed, Batch, SessionMessage]
)
def test_messages_are_immutable(kind: Any) -> None:
    """Both ends of a memory link share one message, so neither may change it."""
    for name in ("anything", attrs.fields(kind)[0].name):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(kind.__new__(kind), name, 2)
