"""Server-sent events: what the standard asks of a reader, out of any chunks, bounded; and the writer's side."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.tables import by_outcome
from trio_mcp.http.sse import (
    EventDecoder,
    ServerSentEvent,
    encode_comment,
    encode_event,
    encode_priming_event,
    encode_retry,
)
from trio_mcp.jsonrpc.codec import decode, encode
from trio_mcp.jsonrpc.messages import Malformed, Notification
from trio_mcp.testing.strategies import messages


def events_of(*chunks: bytes, limit: int = 10_000) -> list[Any]:
    decoder = EventDecoder(limit)
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def in_pieces(stream: bytes, size: int) -> list[bytes]:
    return [stream[start : start + size] for start in range(0, len(stream), size)]


Event = ServerSentEvent

# One row for each rule of the standard's section "Interpreting an event stream".
ROWS: dict[str, tuple[bytes, list[Event]]] = {
    "a blank line dispatches": (b"data: a\n\n", [Event(b"a")]),
    "CR ends a line": (b"data: a\r\rdata: b\r\r", [Event(b"a"), Event(b"b")]),
    "CRLF is one line end": (b"data: a\r\ndata: b\r\n\r\n", [Event(b"a\nb")]),
    "CR LF LF is a line end and a blank line": (b"data: a\r\n\n", [Event(b"a")]),
    "LF CR is a line end and a blank line": (b"data: a\n\rdata: b\n\n", [Event(b"a"), Event(b"b")]),
    "data lines are joined by LF": (b"data: a\ndata: b\ndata:\n\n", [Event(b"a\nb\n")]),
    "one space after the colon is left out": (b"data:  a\ndata:b\n\n", [Event(b" a\nb")]),
    "a tab after the colon is kept": (b"data:\ta\n\n", [Event(b"\ta")]),
    "a value may hold a colon": (b"data: a: b:\n\n", [Event(b"a: b:")]),
    "a field name alone has an empty value": (b"data\n\n", [Event(b"")]),
    "two empty data lines are one LF": (b"data\ndata\n\n", [Event(b"\n")]),
    "an event without data is dropped": (b"event: x\n\ndata: a\n\n", [Event(b"a")]),
    "an id without data counts for later events": (b"id: 7\n\ndata: a\n\n", [Event(b"a", id="7")]),
    "an id holds until the next one": (b"id: 7\ndata: a\n\ndata: b\n\n", [Event(b"a", id="7"), Event(b"b", id="7")]),
    "an empty id resets it": (b"id: 7\ndata: a\n\nid\ndata: b\n\n", [Event(b"a", id="7"), Event(b"b")]),
    "an id with NUL is ignored": (b"id: 7\nid: 8\0\ndata: a\n\n", [Event(b"a", id="7")]),
    "a type is of one event only": (b"event: x\ndata: a\n\ndata: b\n\n", [Event(b"a", "x"), Event(b"b")]),
    "an empty type is message": (b"event:\ndata: a\n\n", [Event(b"a")]),
    "comments are ignored": (b": hi\n:\n:data: x\ndata: a\n: hi\n\n", [Event(b"a")]),
    "unknown fields are ignored": (b"foo: bar\ndata: a\nDATA: b\n data: c\n\n", [Event(b"a")]),
    "a byte order mark at the start is left out": (b"\xef\xbb\xbfdata: a\n\n", [Event(b"a")]),
    "a byte order mark elsewhere is not": (b"\n\xef\xbb\xbfdata: a\n\ndata: b\n\n", [Event(b"b")]),
    "only one byte order mark is left out": (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
    "an unfinished event is dropped": (b"data: a\n\ndata: b\n", [Event(b"a")]),
    "U+2028, U+0085 and form feed end no line": (
        "data: a\u2028b\u0085c\x0cd\x0be\x1ef\n\n".encode(),
        [Event("a\u2028b\u0085c\x0cd\x0be\x1ef".encode())],
    ),
}


@pytest.mark.parametrize("size", [1, 2, 3, 10_000])
@pytest.mark.parametrize("row", list(ROWS))
def test_the_standard(row: str, size: int) -> None:
    stream, expected = ROWS[row]
    assert events_of(*in_pieces(stream, size)) == expected


@by_outcome(
    "value",
    "seconds",
    {
        1.5: "1500",
        0: "0",
        0.007: ["007", "0" * 5000 + "7"],
        None: " | -1 | 1.5 | 1  | ٣",
        999_999.999: ["9" * 9],
        1_000_000: ["9" * 5000],
    },
)
def test_retry_is_digits_only(value: str, seconds: float | None) -> None:
    decoder = EventDecoder()
    assert list(decoder.feed(f"retry: {value}\n".encode())) == []
    assert decoder.retry == seconds


def test_the_last_event_id_is_that_of_a_whole_event() -> None:
    """The id of a cut-off event would resume after an event that never arrived."""
    decoder = EventDecoder()
    list(decoder.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n"))
    assert decoder.last_event_id == "1"
    list(decoder.feed(b"\nid: 3\n\n"))
    assert decoder.last_event_id == "3"


FIELDS = [b"data", b"data: ", b"data:x", b"event: e", b"id: 7", b"id", b"retry: 5", b":", b": c", b"x" * 25]
OTHERS = [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"\0", b"\xe2\x80\xa8", b"\xff", b" "]
streams = st.lists(st.sampled_from([*FIELDS, *OTHERS]) | st.binary(max_size=3), max_size=20).map(b"".join)


@given(streams, st.integers(1, 30), st.data())
def test_any_chunks_give_the_same_events(stream: bytes, limit: int, data: st.DataObject) -> None:
    whole = EventDecoder(limit)
    expected = list(whole.feed(stream))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    for pieces in (in_pieces(stream, 1), chunks):
        decoder = EventDecoder(limit)
        assert [event for piece in pieces for event in decoder.feed(piece)] == expected
        assert (decoder.last_event_id, decoder.retry) == (whole.last_event_id, whole.retry)
    assert all(len(event.data) <= limit for event in expected if isinstance(event, ServerSentEvent))


one_line = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=10)


@given(st.lists(st.tuples(st.binary(max_size=20), st.none() | one_line, st.none() | one_line), max_size=4))
def test_what_is_written_is_read(rows: list[tuple[bytes, str | None, str | None]]) -> None:
    stream, expected, last_id = encode_comment("hi") + encode_retry(2), [], ""
    for data, kind, event_id in rows:
        stream += encode_event(data, event=kind, id=event_id) + encode_comment()
        last_id = last_id if event_id is None else event_id
        lf = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        expected.append(ServerSentEvent(lf, kind or "message", last_id))
    assert events_of(stream) == expected


@given(messages())
def test_a_message_is_one_line_and_comes_back(message: Any) -> None:
    text = encode(message)
    stream = encode_event(text)
    assert stream == b"data: " + text + b"\n\n"
    (event,) = events_of(stream)
    assert decode(event.data) == decode(text)


def test_a_priming_event_gives_an_id_and_no_content() -> None:
    """2025-11-25 basic/transports, Sending Messages to the Server, rule 6: an event id and an empty data field."""
    decoder = EventDecoder()
    assert list(decoder.feed(encode_priming_event("s-1", 0.5))) == [ServerSentEvent(b"", id="s-1")]
    assert (decoder.last_event_id, decoder.retry) == ("s-1", 0.5)
    assert encode_priming_event("s-1") == b"id: s-1\ndata: \n\n"


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (lambda: encode_event(b"", event="a\nb"), "event must be a single line"),
        (lambda: encode_event(b"", id="a\rb"), "id must be a single line"),
        (lambda: encode_event(b"", id="a\0b"), "must not contain NUL"),
        (lambda: encode_comment("a\nb"), "comment must be a single line"),
        (lambda: encode_retry(-1), "between 0 and 1000000 seconds"),
        (lambda: encode_retry(float("nan")), "between 0 and 1000000 seconds"),
        (lambda: EventDecoder(0), "at least 1"),
    ],
)
def test_what_would_break_the_stream_is_refused(call: Any, fault: str) -> None:
    """A line end in a type or an id would inject fields."""
    with pytest.raises(ValueError, match=fault):
        call()


# --- the limit --------------------------------------------------------------------------------------------------

GOOD = encode_event(b'{"jsonrpc":"2.0","method":"x"}')


@pytest.mark.parametrize("piece", [1, 7, 10_000])
@pytest.mark.parametrize(
    ("stream", "fits"),
    [
        (b"data: " + b"x" * 100, True),
        (b"data:" + b"x" * 100, True),
        (b"data: " + b"x" * 101, False),
        (b"data:" + b"x" * 101, False),
        (b"data:" + b"x" * 49 + b"\ndata: " + b"x" * 50, True),
        (b"data:" + b"x" * 50 + b"\ndata: " + b"x" * 50, False),
        (b"\xef\xbb\xbfdata: " + b"x" * 100, True),
        (b"\xef\xbb\xbfdata: " + b"x" * 101, False),
    ],
)
def test_the_limit_is_exact(stream: bytes, fits: bool, piece: int) -> None:
    """`max_message_size` is the longest data taken, without what frames it, however it arrives."""
    (event,) = events_of(*in_pieces(stream + b"\n\n", piece), limit=100)
    assert isinstance(event, ServerSentEvent if fits else Malformed)
    if not fits:
        assert event.limit == 100
        assert "max_message_size=100" in event.reason


@pytest.mark.parametrize("piece", [1, 1000, 1_000_000])
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("field", [b"data: ", b"data:"])
def test_an_oversize_event_costs_only_itself(field: bytes, split: bool, piece: int) -> None:
    """The call whose answer it is fails by its id, and the events around it are read."""
    answer = json.dumps({"jsonrpc": "2.0", "result": {"a": "x" * 9000}, "id": 7}, indent=1 if split else None)
    stream = GOOD + encode_event(answer.encode()).replace(b"data: ", field) + GOOD
    before, big, after = events_of(*in_pieces(stream, piece), limit=1000)
    assert decode(before.data) == decode(after.data) == Notification("x")
    assert isinstance(big, Malformed)
    assert (big.id, big.expects_answer, big.limit) == (7, False, 1000)


@pytest.mark.parametrize("field", [b"event", b"id", b"foo"])
def test_a_field_that_is_too_long_breaks_its_event(field: bytes) -> None:
    """Its value is not kept, so what the event means is not known."""
    stream = field + b": " + b"x" * 2000 + b"\ndata: a\n\n" + GOOD
    for piece in (1, 10_000):
        broken, good = events_of(*in_pieces(stream, piece), limit=100)
        assert isinstance(broken, Malformed)
        assert broken.limit == 100
        assert isinstance(good, ServerSentEvent)


@pytest.mark.parametrize("piece", [1, 10_000])
def test_a_comment_of_any_length_means_nothing(piece: int) -> None:
    stream = b":" + b"x" * 2000 + b"\n" + GOOD
    assert events_of(*in_pieces(stream, piece), limit=100) == events_of(GOOD)


@pytest.mark.parametrize(
    ("opening", "chunk", "times", "most"),
    [
        *((opening, b"x" * 10_000, 1000, 200_000) for opening in (b"data: ", b": ", b"event: ", b"")),
        (b"", b"data\n" * 1000, 60, 300_000),  # each empty line is a line feed of the data
    ],
)
def test_what_is_skipped_takes_no_memory(opening: bytes, chunk: bytes, times: int, most: int) -> None:
    decoder = EventDecoder(10_000)
    tracemalloc.start()
    try:
        list(decoder.feed(opening))
        for _ in range(times):
            assert not list(decoder.feed(chunk))
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()
    assert [type(each) for each in decoder.feed(b"\n\n")] == ([] if opening == b": " else [Malformed])
