"""NDJSON: lines out of any chunks, bounded in memory and in work."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trio_mcp.jsonrpc.codec import LineDecoder, decode, encode
from trio_mcp.jsonrpc.messages import Malformed, Notification, Request
from trio_mcp.testing.strategies import json_texts, messages


def all_of(decoder: LineDecoder, *chunks: bytes) -> list[Any]:
    out = [message for chunk in chunks for message in decoder.feed(chunk)]
    last = decoder.finish()
    return out if last is None else [*out, last]


def line_of(size: int, request_id: object = 1) -> bytes:
    """Return a request of exactly that many bytes, its id first."""
    empty = json.dumps({"id": request_id, "jsonrpc": "2.0", "method": "x", "params": {"a": ""}}, separators=(",", ":"))
    return empty.encode().replace(b'""', b'"' + b"x" * (size - len(empty)) + b'"')


lines = st.one_of(
    messages().map(encode),
    json_texts().map(lambda text: text.replace(b"\n", b" ")),
    st.sampled_from([b"", b" ", b"\r", b"\t \r", line_of(100), line_of(200)]),
)


@given(st.lists(lines, max_size=6), st.booleans(), st.data())
def test_any_chunks_give_what_the_lines_give(texts: list[bytes], newline_at_end: bool, data: st.DataObject) -> None:
    limit = 120
    stream = b"\n".join(texts) + (b"\n" if newline_at_end else b"")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    got = all_of(LineDecoder(limit), *chunks)
    assert got == all_of(LineDecoder(limit), *(bytes([byte]) for byte in stream))
    expected = [text for text in stream.split(b"\n") if (text.strip() or len(text) > limit)]
    assert len(got) == len(expected)
    for message, text in zip(got, expected, strict=True):
        if len(text) > limit:
            assert isinstance(message, Malformed)
            assert message.limit == limit
        else:
            assert message == decode(text)


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_line_endings(ending: bytes) -> None:
    """A line feed ends a message, a carriage return before it is white space, the end of the stream ends it as well."""
    text = b'{"jsonrpc":"2.0","method":"x"}'
    assert all_of(LineDecoder(), text + ending) == [Notification("x")]


def test_a_line_separator_inside_a_string_ends_no_line() -> None:
    """JSON may hold U+2028 and U+0085, at which Python's own line splitting would cut."""
    text = '{"jsonrpc":"2.0","method":"a\u2028b\u0085c"}\n'.encode()
    assert all_of(LineDecoder(), text) == [Notification("a\u2028b\u0085c")]


@pytest.mark.parametrize("chunk", [1, 7, 64, 10_000])
@pytest.mark.parametrize(("size", "fits"), [(99, True), (100, True), (101, False)])
def test_the_limit_is_exact(size: int, fits: bool, chunk: int) -> None:
    """`max_message_size` is the longest line taken, its newline aside, however it arrives."""
    line = line_of(size) + b"\n"
    assert len(line) == size + 1
    (message,) = all_of(LineDecoder(100), *(line[i : i + chunk] for i in range(0, len(line), chunk)))
    assert isinstance(message, Request if fits else Malformed)


@pytest.mark.parametrize("chunk", [1, 1000, 100_000])
def test_an_oversize_line_costs_only_itself(chunk: int) -> None:
    """It is skipped and answered by its own id, and the lines around it are read."""
    good = b'{"jsonrpc":"2.0","method":"x"}\n'
    stream = good + line_of(20_000, "big") + b"\n" + good
    before, big, after = all_of(LineDecoder(1000), *(stream[i : i + chunk] for i in range(0, len(stream), chunk)))
    assert before == after == Notification("x")
    assert isinstance(big, Malformed)
    assert (big.id, big.expects_answer, big.code, big.limit) == ("big", True, -32600, 1000)


LONG = "x" * 9000


@pytest.mark.parametrize(
    ("text", "request_id", "expects_answer"),
    [
        # The TypeScript SDK writes the id last; braces and ids inside of the content don't mislead.
        (
            json.dumps({"params": {"id": 3, "a": '"id":4}' * 3000}, "method": "x", "jsonrpc": "2.0", "id": 7}) + "\n",
            7,
            True,
        ),
        # The id of an answer is ours, so an error sent with it would hit a request that the peer never made.
        (json.dumps({"jsonrpc": "2.0", "id": 7, "result": {"a": LONG}}) + "\n", 7, False),
        # What ends a text that was cut off need not end the message: here it ends an object inside of it.
        ('{"method":"x","params":{"a":"' + LONG + '","b":{"id":7}', None, True),
    ],
)
def test_the_id_of_an_oversize_message_is_its_own_or_none(
    text: str, request_id: int | None, expects_answer: bool
) -> None:
    (big,) = all_of(LineDecoder(1000), text.encode())
    assert (big.id, big.expects_answer) == (request_id, expects_answer)


@pytest.mark.parametrize("size", [0, -1])
def test_a_limit_that_takes_nothing_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        LineDecoder(size)


class CountingDecoder(LineDecoder):
    """Counts the bytes that are put into its buffer."""

    appended = 0

    def _append(self, piece: bytes) -> None:
        self.appended += len(piece)
        super()._append(piece)


@pytest.mark.parametrize("size", [1 << 20, 16 << 20])
def test_a_long_line_takes_linear_work(size: int) -> None:
    """In 64 KiB chunks every byte is put away once, and nothing is put together before the newline."""
    decoder, line = CountingDecoder(), line_of(size) + b"\n"
    out = [message for i in range(0, len(line), 1 << 16) for message in decoder.feed(line[i : i + (1 << 16)])]
    assert len(out) == 1
    assert decoder.appended == size


def peak_while(decoder: LineDecoder, chunk: bytes, times: int) -> int:
    tracemalloc.start()
    try:
        for _ in range(times):
            assert not list(decoder.feed(chunk))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_skipping_an_oversize_line_takes_no_memory() -> None:
    assert peak_while(LineDecoder(10_000), b"x" * 10_000, 1000) < 200_000


def test_a_line_that_arrives_byte_by_byte_takes_memory_of_its_own_size() -> None:
    """Not that of a Python object for each byte."""
    assert peak_while(LineDecoder(), b"x", 50_000) < 250_000


def test_a_finished_line_leaves_no_memory_behind() -> None:
    """A link that has carried one large message is as light as before."""
    decoder = LineDecoder()
    line = line_of(4 << 20)
    list(decoder.feed(line[:-5]))
    assert len(list(decoder.feed(line[-5:] + b"\n"))) == 1
    assert peak_while(decoder, b" ", 1) < 10_000
