"""Text frames that are read without the parser: the same messages and verdicts as with it alone, whatever arrives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import trio
from hypothesis import example, given, settings, strategies as st
from wsproto.frame_protocol import FrameProtocol, Opcode, ParseFailed

from tests.effort import examples
from trio_mcp.websocket.stream import WatchedStream
from trio_mcp.websocket.text_frames import read_text_frame, text_frame

HEADS = {False: b"GET / HTTP/1.1\r\n\r\n", True: b"HTTP/1.1 101 Switching Protocols\r\n\r\n"}
LIMIT = 1 << 20


class Pieces(trio.abc.Stream):
    """A stream on which these pieces arrive."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = [piece for piece in pieces if piece]

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        return self._pieces.pop(0) if self._pieces else b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()  # the answer to the handshake

    wait_send_all_might_not_block = aclose = trio.lowlevel.checkpoint


class Judge:
    """The parser, the control frames that it has found, and its verdict."""

    def __init__(self, is_client: bool) -> None:
        self.control: list[tuple[str, object]] = []
        self.over = False
        self._parser = FrameProtocol(is_client, [])
        self._parts: list[str | bytes] = []

    def see(self, data: bytes) -> list[tuple[str, object]]:
        """Take bytes, and return the messages that they complete, and the verdict; what else is found is kept."""
        self._parser.receive_bytes(data)
        messages: list[tuple[str, object]] = []
        try:
            for frame in self._parser.received_frames():
                if frame.opcode not in (Opcode.TEXT, Opcode.BINARY):
                    self.control.append((frame.opcode.name, frame.payload))
                    continue
                self._parts.append(frame.payload)  # type: ignore[arg-type]
                if frame.message_finished:
                    whole: object = type(self._parts[0])().join(self._parts)  # type: ignore[arg-type]
                    messages.append((frame.opcode.name, whole))
                    self._parts.clear()
        except ParseFailed as exc:
            self.control.append(("refused", exc.code))
            self.over = True
        return messages


Found = tuple[list[tuple[str, object]], list[tuple[str, object]]]


async def with_short_cut(pieces: Sequence[bytes], is_client: bool) -> tuple[Found, int]:
    """Return the messages and the control frames that arrive in pieces, and how many messages needed no parser."""
    judge, short = Judge(is_client), 0
    messages: list[tuple[str, object]] = []

    async def accept(message: bytes) -> None:
        nonlocal short
        short += 1
        messages.append(("TEXT", message.decode()))
        await trio.lowlevel.checkpoint()

    stream = WatchedStream(Pieces([HEADS[is_client], *pieces]), max_message_size=LIMIT, is_client=is_client)
    assert await stream.receive_some() == HEADS[is_client]
    await stream.send_all(HEADS[not is_client])
    stream.accept = accept
    late: list[tuple[str, object]] = []
    while not judge.over and (data := await stream.receive_some()):
        # What comes out of the parser is handed on by another task, so it may be late.
        for message in late:
            messages.append(message)
            stream.parsed()
        late = judge.see(bytes(data))
    return (messages + late, judge.control), short


def without(pieces: Sequence[bytes], is_client: bool) -> Found:
    """Return the same with the parser alone."""
    judge = Judge(is_client)
    return judge.see(b"".join(pieces)), judge.control


def frame(first: int, payload: bytes, masked: bool, width: int) -> bytes:
    """Return a frame whose length takes 0, 2 or 8 more bytes."""
    size = {0: bytes([min(len(payload), 125)]), 2: b"\x7e" + len(payload).to_bytes(2, "big")}.get(
        width, b"\x7f" + len(payload).to_bytes(8, "big")
    )
    head = bytes([first, size[0] | (0x80 if masked else 0)]) + size[1:]
    if not masked:
        return head + payload
    key = b"\x05\x00\xff\x80"
    return head + key + bytes(byte ^ key[i % 4] for i, byte in enumerate(payload))


def right(first: int, payload: bytes, masked: bool) -> bytes:
    return frame(first, payload, masked, 0 if len(payload) < 126 else 2 if len(payload) < 0x10000 else 8)


def frames(masked: bool) -> st.SearchStrategy[bytes]:
    """Whole text messages above all; and control frames, fragments, binary frames, and all kinds of wrong ones."""
    text = st.text(max_size=200).map(str.encode)
    whole = text.map(lambda payload: right(0x81, payload, masked))
    fragments = st.tuples(text, st.sampled_from([b"", right(0x89, b"?", masked)]), text).map(
        lambda parts: right(0x01, parts[0], masked) + parts[1] + right(0x80, parts[2], masked)
    )
    control = st.sampled_from(
        [right(0x89, b"ping", masked), right(0x8A, b"", masked), right(0x88, b"\x03\xe8", masked)]
    )
    wrong = st.builds(
        frame,
        st.sampled_from([0x81, 0x81, 0x81, 0x01, 0x80, 0x82, 0xC1, 0x83, 0x09]),
        st.binary(max_size=130) | text,
        st.booleans(),
        st.sampled_from([0, 2, 8]),
    )
    return st.one_of(whole, whole, whole, fragments, control, wrong, st.binary(max_size=4))


def pieces_of(data: bytes, cuts: Sequence[int]) -> Iterator[bytes]:
    places = sorted({min(cut, len(data)) for cut in cuts})
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        yield data[start:end]


@settings(max_examples=examples(400), deadline=None)
@given(st.data(), st.booleans())
def test_messages_and_verdict_are_those_of_the_parser(data: st.DataObject, is_client: bool) -> None:
    arrived = b"".join(data.draw(st.lists(frames(not is_client), max_size=8)))
    pieces = list(pieces_of(arrived, data.draw(st.lists(st.integers(0, len(arrived)), max_size=6))))
    assert trio.run(with_short_cut, pieces, is_client)[0] == without(pieces, is_client)


LONG = ("é🦊" * 50_000).encode()


@pytest.mark.parametrize("is_client", [True, False])
@pytest.mark.parametrize("size", [1, 1021, 65536])
async def test_a_long_message_needs_no_parser_however_it_is_cut(is_client: bool, size: int) -> None:
    sent = text_frame(LONG, not is_client)
    size = max(size, len(sent) // 100) if size == 1 else size
    around = text_frame(b"{}", not is_client)
    arrived = around + sent + sent + around
    pieces = [arrived[start : start + size] for start in range(0, len(arrived), size)]
    found, short = await with_short_cut(pieces, is_client)
    assert found == ([("TEXT", text) for text in ("{}", LONG.decode(), LONG.decode(), "{}")], [])
    assert short >= 2


@pytest.mark.parametrize("is_client", [True, False])
@pytest.mark.parametrize("place", [0, 65536, 131074, len(LONG) - 1])
async def test_a_long_message_that_is_not_utf_8_is_refused_where_the_parser_would(is_client: bool, place: int) -> None:
    sent = text_frame(LONG[:place] + b"\xff" + LONG[place + 1 :], not is_client)
    pieces = [sent[start : start + 65536] for start in range(0, len(sent), 65536)]
    seen = place // 65536 + 2  # pieces, after which there is more to come
    found, short = await with_short_cut(pieces[:seen], is_client)
    assert (found, short) == (([], [("refused", 1007)]), 0)


TEXT = text_frame(b"text", masked=True)
FRAGMENTS = right(0x01, b"a", True) + right(0x80, b"b", True)


@pytest.mark.parametrize(
    ("pieces", "short"),
    [
        pytest.param([TEXT + TEXT, TEXT], 3, id="whole"),
        pytest.param([TEXT, FRAGMENTS + TEXT, TEXT, TEXT], 1, id="none overtakes one in the parser"),
        pytest.param([TEXT[:3], TEXT[3:] + TEXT], 0, id="cut in the head"),
        pytest.param([TEXT[:8], TEXT[8:]], 1, id="cut in the payload"),
        pytest.param([right(0x88, b"\x03\xe8", True), TEXT], 0, id="after the close frame"),
        pytest.param([b"\x89\x8a\0\0\0\0", TEXT, TEXT], 1, id="the payload of a ping"),
        pytest.param([b"\x89", b"\x8a\0\0\0\0" + TEXT, TEXT], 1, id="the payload of a ping, cut in its head"),
    ],
)
async def test_the_parser_is_needed_where_a_message_is_not_one_text_frame(pieces: list[bytes], short: int) -> None:
    assert await with_short_cut(pieces, False) == (without(pieces, False), short)


@given(st.binary(max_size=300), st.booleans())
@example(b"\x81\x7e\x00\x05abcde", False)
@example(b"\x81\x02\xc3\x28", False)
def test_what_is_read_without_the_parser_is_what_the_parser_reads(data: bytes, masked: bool) -> None:
    data = b"\x81" + data
    if (found := read_text_frame(data, 0, masked, LIMIT)) is not None:
        assert without([data[: found[1]]], not masked) == ([("TEXT", found[0].decode())], [])


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 0xFFFF, 0x10000, LIMIT])
@pytest.mark.parametrize("masked", [True, False])
def test_a_frame_is_read_as_it_was_sent_up_to_the_limit(size: int, masked: bool) -> None:
    message = b"x" * size
    sent = text_frame(message, masked)
    assert without([sent], not masked) == ([("TEXT", message.decode())], [])
    assert read_text_frame(b"-" + sent + b"-", 1, masked, LIMIT) == (message, 1 + len(sent))
    assert read_text_frame(sent, 0, masked, size - 1) is None
    assert read_text_frame(sent[:-1], 0, masked, LIMIT) is None
