"""What docs/how-to/processes.md promises of sessions, with real processes: `test_promises.py` has the rows."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import trio

from tests.http_peer import Events, Raw
from tests.server.processes.test_promises import LAMP, Desk, desk_in, locked
from tests.waiting import eventually
from trio_mcp.http.server.legacy import sharing

pytestmark = [
    pytest.mark.legacy,
    # Leaving a stream of httpx early leaves its generators to the garbage collector.
    pytest.mark.filterwarnings(r"ignore:Async generator '(httpx|httpcore|tests\.http_peer):ResourceWarning"),
]

LEASE = 2.0
SHORT = {"sharing.LEASE": LEASE}
UPDATED = "notifications/resources/updated"


@contextlib.asynccontextmanager
async def client_of(desk: Desk, session: Raw | None = None, *, pid: int | None = None) -> AsyncIterator[Raw]:
    """Yield a client with one connection, to any process or a certain one; without a session it opens one."""
    parts = urlsplit(desk.run.url)
    while True:
        async with httpx.AsyncClient(base_url=f"http://{parts.netloc}", timeout=60) as http:
            raw = Raw(http)
            if session is None:
                await raw.initialize(elicitation={})
            else:
                raw.session, raw.revision = session.session, session.revision
            if pid is None or await pid_of(raw) == pid:
                yield raw
                return


async def messages_of(r: httpx.Response) -> list[Any]:
    if r.headers["content-type"] == "application/json":
        await r.aread()
        return [r.json()]
    return await Events(r).messages()


async def pid_of(raw: Raw) -> int:
    """Return the process that serves the client's connection."""
    async with raw.call("pid", id=1000) as r:
        assert r.status_code == 200, await r.aread()
        pid: int = (await messages_of(r))[-1]["result"]["structuredContent"]["result"]
        return pid


async def resumed(raw: Raw, last: str) -> list[Any]:
    """Return the messages that follow an event of a stream, once the stream has ended."""
    async with raw.listen(last) as r:
        assert r.status_code == 200, await r.aread()
        return await Events(r).messages()


async def hears(raw: Raw) -> None:
    """Check that a client that listens has been notified of a change of the lamp, and is of the next one."""
    async with raw.listen() as r:
        while (await Events(r).message())["method"] != UPDATED:
            pass


async def test_a_killed_process_ends_its_requests_with_errors_and_no_session(tmp_path: Path) -> None:
    """Its client resumes the streams in another process; an answer to a question of the dead one does no harm."""
    async with desk_in(tmp_path, stateless=False, constants=SHORT) as desk:
        async with client_of(desk) as raw:
            assert (await raw.post("resources/subscribe", {"uri": LAMP})).status_code == 200
            one = await pid_of(raw)
        (two,) = desk.run.pids() - {one}
        last: dict[str, str] = {}
        async with (
            client_of(desk, raw, pid=one) as calling,
            client_of(desk, raw, pid=one) as asking,
            client_of(desk, raw, pid=one) as listening,
            client_of(desk, raw, pid=two) as other,
        ):
            with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError):
                async with (
                    calling.call("wait", {"name": "long", "seconds": 100}, id=1) as long,
                    asking.call("ask", id=2) as ask,
                    listening.listen() as listened,
                ):
                    last["long"] = (await Events(long).next()).id
                    questions = Events(ask)
                    last["ask"] = (await questions.next()).id
                    question = await questions.message()
                    await desk.until_noted("began long")
                    os.kill(one, signal.SIGKILL)
                    await Events(listened).messages()
            answer = {"action": "accept", "content": {"text": "yes"}}
            sent = await other.send({"jsonrpc": "2.0", "id": question["id"], "result": answer})
            assert sent.status_code == 202
            (lost,) = await resumed(other, last["long"])
            asked, unanswered = await resumed(other, last["ask"])
            assert (lost["id"], lost["error"]["message"]) == (1, sharing.LOST)
            assert asked == question
            assert (unanswered["id"], unanswered["error"]["message"]) == (2, sharing.LOST)
            # The client hears later of changes that are announced while no process carries the stream.
            await desk.run.call("touch")
            await hears(other)
        await eventually(lambda: len(desk.run.pids()) == 2)
        for pid in desk.run.pids():
            async with client_of(desk, raw, pid=pid) as again:
                assert (await again.post("ping")).status_code == 200
        assert desk.noted()["began long"] == desk.noted()["began to ask"] == 1


async def test_a_stopped_process_gives_up_what_another_one_has_ended(tmp_path: Path) -> None:
    """What it sends afterwards reaches no client, and it serves the session again."""
    async with desk_in(tmp_path, stateless=False, constants=SHORT) as desk, client_of(desk) as calling:
        one = await pid_of(calling)
        (two,) = desk.run.pids() - {one}
        async with client_of(desk, calling, pid=two) as other:
            async with calling.call("wait", {"name": "long", "seconds": LEASE + 3}, id=1) as r:
                events = Events(r)
                last = (await events.next()).id
                await desk.until_noted("began long")
                os.kill(one, signal.SIGSTOP)
                (lost,) = await resumed(other, last)
                assert (lost["id"], lost["error"]["message"]) == (1, sharing.LOST)
                os.kill(one, signal.SIGCONT)
                await desk.run.until_said("this process was silent for so long that another one has ended the requests")
                assert not any("result" in message for message in await events.messages())
            assert await resumed(other, last) == [lost]
        async with client_of(desk, calling, pid=one) as again:
            assert (await again.post("ping")).status_code == 200


@pytest.mark.again
async def test_a_rolling_restart_ends_no_session_and_fails_none_of_its_calls(tmp_path: Path) -> None:
    """A call that takes longer than the grace ends with an error on its stream."""
    async with desk_in(tmp_path, stateless=False, grace=0.5) as desk, client_of(desk) as raw:
        old = desk.run.pids()
        assert (await raw.post("resources/subscribe", {"uri": LAMP})).status_code == 200
        served: list[int] = []

        async def call() -> None:
            while True:
                async with client_of(desk, raw) as client:
                    served.append(await pid_of(client))

        async with trio.open_nursery() as nursery, client_of(desk, raw) as calling:
            async with calling.call("wait", {"name": "long", "seconds": 100}, id=1) as r:
                events = Events(r)
                last = (await events.next()).id
                await desk.until_noted("began long")
                nursery.start_soon(call)
                desk.run.send(signal.SIGHUP)
                with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError):
                    await events.messages()
            await desk.run.until_said("all processes have been replaced")
            after = len(served)
            await eventually(lambda: len(served) > after + 2)
            nursery.cancel_scope.cancel()
        assert not old & desk.run.pids()
        async with client_of(desk, raw) as again:
            *_, lost = await resumed(again, last)
            assert lost["id"] == 1
            assert "outcome is unknown" in lost["error"]["message"]
            await desk.run.call("touch")
            await hears(again)
        assert desk.noted()["cancelled long"] == 1


async def test_a_delete_ends_a_session_in_all_processes(tmp_path: Path) -> None:
    async with desk_in(tmp_path, stateless=False) as desk, client_of(desk) as calling:
        one = await pid_of(calling)
        (two,) = desk.run.pids() - {one}
        async with (
            client_of(desk, calling, pid=one) as idle,
            client_of(desk, calling, pid=two) as other,
            calling.call("wait", {"name": "long", "seconds": 100}) as r,
        ):
            await Events(r).next()
            await desk.until_noted("began long")
            assert (await other.http.delete("/mcp", headers=other.headers())).status_code == 204
            for raw in (idle, other):
                assert (await raw.post("ping")).status_code == 404
            await desk.until_noted("cancelled long")


async def test_a_full_mailbox_refuses_a_message_and_nothing_else(tmp_path: Path) -> None:
    """What is refused may be repeated, and is accepted once the process reads its mailbox."""
    async with desk_in(tmp_path, stateless=False) as desk, client_of(desk) as asking:
        one = await pid_of(asking)
        (two,) = desk.run.pids() - {one}
        async with client_of(desk, asking, pid=two) as other, asking.call("ask") as r:
            events = Events(r)
            question = await events.message()
            content: dict[str, Any] = {"text": "yes", "note": "x" * 1_000_000}
            noise = {"jsonrpc": "2.0", "id": question["id"] + 1000, "result": {"action": "accept", "content": content}}
            os.kill(one, signal.SIGSTOP)
            statuses = [(await other.send(noise)).status_code for _ in range(5)]
            assert statuses == [202] * 4 + [503]
            refused = await other.send(noise)
            assert refused.headers["retry-after"] == "1"
            assert (await other.post("ping")).status_code == 200
            os.kill(one, signal.SIGCONT)
            answer = {**noise, "id": question["id"], "result": {"action": "accept", "content": {"text": "yes"}}}
            while (await other.send(answer)).status_code != 202:
                pass
            assert (await events.message())["result"]["structuredContent"]["result"] == [one, one]


async def test_a_locked_file_fails_requests_of_sessions_and_ends_no_session(tmp_path: Path) -> None:
    """The client of a request that needs no function learns so as well: its response can't be stored."""
    async with desk_in(tmp_path, stateless=False, timeout=0.5) as desk, client_of(desk) as raw:
        pids = desk.run.pids()
        with locked(desk):
            for method, params in (("resources/subscribe", {"uri": LAMP}), ("ping", None)):
                (failed,) = await messages_of(await raw.post(method, params))
                assert failed["error"]["message"] == "the request got no response: the event store failed"
        for pid in pids:
            async with client_of(desk, raw, pid=pid) as again:
                assert (await again.post("ping")).status_code == 200
