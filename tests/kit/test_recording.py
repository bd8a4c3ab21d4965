"""What passes between a client and a server is recorded whole; and replayed, it comes out the same, or says why not."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.kit.golden import FOLDER, MODES, WAYS, record_ours, served, shop
from trio_mcp import Server
from trio_mcp.conformance.replay import Replayed, replay_transcript
from trio_mcp.conformance.rules.catalogue import RULES, judge
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.transcript.files import FileTape, Transcript, TranscriptWriter, read_transcript
from trio_mcp.conformance.wires.targets import open_wire_for
from trio_mcp.sockets.addresses import read_address

# Matters of reading and faults that are known: docs/rough_edges.md and docs/reference/peers.md.
GOLDEN = {
    "ours": set(),
    "official": {"unknown-tool-refused"},
}


async def _transcript(folder: Path, way: str, mode: str) -> Transcript:
    await record_ours(folder / "said.jsonl", way, mode)
    return read_transcript(folder / "said.jsonl")


async def _replayed(transcript: Transcript, server: Server, way: str) -> Replayed:
    async with served(server, way) as url:
        return await replay_transcript(open_wire_for(url), transcript, deadline=5)


def _cases(cases: dict[str, tuple[Any, ...]]) -> list[Any]:
    """Mark those that need the legacy era over HTTP."""
    marked = {name: [pytest.mark.legacy] if "http-2025" in name else [] for name in cases}
    return [pytest.param(*values, id=name, marks=marked[name]) for name, values in cases.items()]


@pytest.mark.parametrize(("way", "mode"), _cases({f"{way}-{mode}": (way, mode) for way in WAYS for mode in MODES}))
async def test_a_recording_is_replayed(tmp_path: Path, way: str, mode: str) -> None:
    """Cursors, states and the ids of the server's own requests differ each time, and each time they fit."""
    transcript = await _transcript(tmp_path, way, mode)
    (connection, *_) = [each for each in History(transcript.events) if each.requests]
    assert connection.revision == mode
    methods = [asked.method for asked in connection.requests]
    assert methods.count("tools/list") == 2
    assert all(asked.answers or asked.cancelled for asked in connection.requests), methods
    assert "hunter2" not in (tmp_path / "said.jsonl").read_text()

    again = await _replayed(transcript, shop(secret="two"), way)
    assert (again.differences, dict(again.broken), again.status) == ((), {}, 0)
    assert again.masked == 1

    other = await _replayed(transcript, shop(sold_out=True), way)
    assert [line.partition(": ")[2] for line in other.differences] == [
        "a result before, a result with isError set to true now"
    ]
    assert other.status == 1


async def test_what_breaks_a_rule_only_now_is_told(tmp_path: Path) -> None:
    transcript = await _transcript(tmp_path, "tcp", MODES[0])

    async def answer_twice(near: trio.SocketStream, far_port: int) -> None:
        far = await trio.open_tcp_stream("127.0.0.1", far_port)
        async with near, far, trio.open_nursery() as nursery:

            async def back() -> None:
                async for data in far:
                    await near.send_all(b"".join(line * 2 for line in bytes(data).splitlines(keepends=True)))

            nursery.start_soon(back)
            async for data in near:
                await far.send_all(data)
            nursery.cancel_scope.cancel()

    async with served(shop(), "tcp") as url, trio.open_nursery() as nursery:
        far = read_address(url).port
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, lambda near: answer_twice(near, far), listeners)
        near = f"tcp://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        found = await replay_transcript(open_wire_for(near), transcript, deadline=5)
        nursery.cancel_scope.cancel()
    assert "answered-once" in found.broken
    assert found.status == 1


def test_a_recording_stays_when_the_program_ends_badly() -> None:
    """Each event is written as it happens."""
    file = io.BytesIO()
    tape_of = trio.run(_note_one, file)
    assert file.getvalue().count(b"\n") == 2
    assert (tape_of.count, tape_of.events) == (1, [])


async def _note_one(file: io.BytesIO) -> FileTape:
    tape = FileTape(TranscriptWriter(file))
    tape.note("mark", "kit", what="begin")
    await trio.lowlevel.checkpoint()
    return tape


@pytest.mark.parametrize("path", _cases({path.stem: (path,) for path in sorted(FOLDER.iterdir())}))
async def test_a_golden_transcript_is_judged_as_ever(path: Path) -> None:
    """Those of a foreign client and server, too: rules see nothing but what passed."""
    transcript = read_transcript(path)
    verdicts = [(rule.id, verdict.problem) for rule, verdict in judge(History(transcript.events), RULES.values())]
    assert len({id_ for id_, _ in verdicts}) > 20
    who, way, *_ = path.stem.split("-")
    assert {id_ for id_, problem in verdicts if problem is not None} == GOLDEN[who]
    if who == "ours":
        again = await _replayed(transcript, shop(), way)
        assert (again.differences, dict(again.broken)) == ((), {})
