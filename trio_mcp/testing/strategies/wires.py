"""What becomes of messages on the wire: how their bytes are cut into pieces, and what may come between them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

__all__ = ["chunks", "cut_off", "interleaved", "lines"]

# Nothing counts three times, since a reader that loses a message only if the next one follows at once would often be
# saved by a blank line.
_BLANKS = (b"", b"", b"", b"\n", b"\r\n", b" \n", b"\t\r\n", b"\n\n\n")


def chunks(data: bytes, *, most: int = 50) -> st.SearchStrategy[list[bytes]]:
    """Return a strategy of ways to cut bytes into pieces, as a network may deliver them.

    Among them: all at once, byte by byte if there are not too many, and cuts anywhere, also within a character.

    Args:
        data: The bytes.
        most: The most pieces.
    """
    if len(data) < 2:
        return st.just([data] if data else [])
    cuts = st.sets(st.integers(1, len(data) - 1), max_size=most - 1).map(sorted)
    # Pieces of one size: one byte each is the smallest that a reader can get.
    sizes = st.integers(max(1, -(-len(data) // most)), len(data))
    even = sizes.map(lambda size: list(range(size, len(data), size)))
    return (cuts | even).map(lambda at: _cut(data, at))


def _cut(data: bytes, at: Sequence[int]) -> list[bytes]:
    return [data[start:end] for start, end in zip([0, *at], [*at, len(data)], strict=True)]


@st.composite
def lines(draw: st.DrawFn, messages: Sequence[bytes], *, final_newline: bool = True) -> list[bytes]:
    """Draw pieces of a stream of lines with some messages in this order, one in each line.

    The messages come as fast as they can, in pieces that begin and end anywhere. Lines may end in CRLF, and there may
    be blank ones: a receiver of a line-based transport has to get the same messages.

    Args:
        draw: What Hypothesis passes.
        messages: The messages, without line breaks.
        final_newline: Whether the last line has an end: false for a stream that ends there.
    """
    ends = [draw(st.sampled_from([b"\n", b"\n", b"\r\n"])) for _ in messages]
    blanks = [draw(st.sampled_from(_BLANKS)) for _ in messages]
    parts = [part for message, end, blank in zip(messages, ends, blanks, strict=True) for part in (blank, message, end)]
    if not final_newline and parts:
        parts.pop()
    return draw(chunks(b"".join(parts)))


@st.composite
def interleaved(draw: st.DrawFn, streams: Sequence[Sequence[bytes]]) -> list[tuple[int, bytes]]:
    """Draw an order for the messages, or pieces, of several senders; those of each keep theirs.

    Args:
        draw: What Hypothesis passes.
        streams: What each sender sends.

    Returns:
        The number of the sender, and what it sends.
    """
    # Only the senders are permuted, each as often as it has something to send: so one's own order is kept without a
    # filter that would reject nearly all permutations.
    turns = draw(st.permutations([sender for sender, stream in enumerate(streams) for _ in stream]))
    waiting = [iter(stream) for stream in streams]
    return [(sender, next(waiting[sender])) for sender in turns]


@st.composite
def cut_off(draw: st.DrawFn, messages: Sequence[bytes]) -> tuple[list[bytes], int]:
    """Draw pieces of a stream of lines that ends within a message, as a lost connection leaves it.

    Args:
        draw: What Hypothesis passes.
        messages: The messages, at least one.

    Returns:
        The pieces, and how many messages are complete. The last one is not, and its text is not JSON.
    """
    complete = draw(st.integers(0, len(messages) - 1))
    last = messages[complete]
    whole = b"".join(message + b"\n" for message in messages[:complete])
    # At least one byte less: a whole message without its line end is still complete to many readers, and is not this
    # fault.
    return draw(chunks(whole + last[: draw(st.integers(1, len(last) - 1))])), complete
