"""Provides strategies of streams: messages in pieces, with blank lines, from several senders, or cut off."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

__all__ = ["chunks", "cut_off", "interleaved", "lines"]

# Most entries add no blank line: such a line would hide the fault of a reader that loses a message only if the next one
# follows at once.
_BLANKS = (b"", b"", b"", b"\n", b"\r\n", b" \n", b"\t\r\n", b"\n\n\n")


def chunks(data: bytes, *, most: int = 50) -> st.SearchStrategy[list[bytes]]:
    """Return a strategy that cuts bytes into pieces, as a network may deliver them.

    The cuts may be anywhere, even within a character; or all pieces but the last have the same size: any size from a
    single byte to all the bytes, as long as there are no more than ``most`` pieces.

    Args:
        data: The bytes.
        most: The maximum number of pieces.
    """
    if len(data) < 2:
        return st.just([data] if data else [])
    cuts = st.sets(st.integers(1, len(data) - 1), max_size=most - 1).map(sorted)
    sizes = st.integers(max(1, -(-len(data) // most)), len(data))
    even = sizes.map(lambda size: list(range(size, len(data), size)))
    return (cuts | even).map(lambda at: _cut(data, at))


def _cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    return [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]


@st.composite
def lines(draw: st.DrawFn, messages: Sequence[bytes], *, final_newline: bool = True) -> list[bytes]:
    """Draw pieces of a stream with one message in each line, in the given order.

    The pieces begin and end anywhere. Lines may end in CRLF, and there may be blank ones: the receiver of a line-based
    transport must still read the same messages.

    Args:
        draw: Passed by Hypothesis.
        messages: The messages, without line breaks.
        final_newline: Whether the last line ends with a line break.
    """
    ends = [draw(st.sampled_from([b"\n", b"\n", b"\r\n"])) for _ in messages]
    blanks = [draw(st.sampled_from(_BLANKS)) for _ in messages]
    parts = [part for message, end, blank in zip(messages, ends, blanks, strict=True) for part in (blank, message, end)]
    if not final_newline and parts:
        parts.pop()
    return draw(chunks(b"".join(parts)))


@st.composite
def interleaved(draw: st.DrawFn, streams: Sequence[Sequence[bytes]]) -> list[tuple[int, bytes]]:
    """Draw an order of the messages, or pieces, of several senders. Each sender's order stays the same.

    Args:
        draw: Passed by Hypothesis.
        streams: The messages or pieces of each sender.

    Returns:
        Pairs of a sender's index and a message or piece.
    """
    # Permuting the turns of the senders keeps each sender's order; filtering permutations of the messages would reject
    # nearly all of them.
    turns = draw(st.permutations([sender for sender, stream in enumerate(streams) for _ in stream]))
    waiting = [iter(stream) for stream in streams]
    return [(sender, next(waiting[sender])) for sender in turns]


@st.composite
def cut_off(draw: st.DrawFn, messages: Sequence[bytes]) -> tuple[list[bytes], int]:
    """Draw pieces of a stream of lines that a lost connection ends within a message.

    Args:
        draw: Passed by Hypothesis.
        messages: The messages, at least one.

    Returns:
        The pieces, and the number of complete messages. The text after those messages is cut off within a message.
    """
    complete = draw(st.integers(0, len(messages) - 1))
    last = messages[complete]
    whole = b"".join(message + b"\n" for message in messages[:complete])
    # At least one byte of the message is missing: many readers accept a message that lacks only its line end.
    return draw(chunks(whole + last[: draw(st.integers(1, len(last) - 1))])), complete
