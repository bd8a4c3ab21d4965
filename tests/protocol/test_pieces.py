"""Bytes that arrive in pieces: joined in order, and not held in memory more often than needed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from hypothesis import given, strategies as st

from trio_mcp.http.sse import EventDecoder, ServerSentEvent
from trio_mcp.jsonrpc.codec import Pieces

SIZE = 4 << 20
PIECE = b"x" * (64 << 10)


def peak_of(work: Callable[[], object]) -> float:
    """Return the most memory taken at a time, in messages of `SIZE` bytes."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / SIZE
    finally:
        tracemalloc.stop()


@given(st.lists(st.binary(max_size=20)))
def test_the_pieces_are_joined_in_their_order(given: list[bytes]) -> None:
    pieces = Pieces()
    for piece in given:
        pieces.add(piece)
    assert pieces.joined() == b"".join(given)
    assert type(pieces.joined()) is bytes  # `from_json` would copy anything else


def test_a_single_piece_is_not_copied() -> None:
    pieces = Pieces()
    pieces.add(PIECE)
    assert pieces.joined() is PIECE


def test_a_long_message_is_joined_without_a_copy() -> None:
    def join() -> None:
        pieces = Pieces()
        for _ in range(SIZE // len(PIECE)):
            pieces.add(PIECE)
        assert len(pieces.joined()) == SIZE

    assert peak_of(join) < 1.3  # it grows by an eighth


def test_the_data_of_a_long_event_is_copied_once_out_of_its_line() -> None:
    def decode() -> None:
        decoder = EventDecoder()
        assert not list(decoder.feed(b"data: "))
        for _ in range(SIZE // len(PIECE)):
            assert not list(decoder.feed(PIECE))
        (event,) = decoder.feed(b"\n\n")
        assert isinstance(event, ServerSentEvent)
        assert len(event.data) == SIZE

    assert peak_of(decode) < 2.3
