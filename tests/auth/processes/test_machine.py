"""Anything that may happen to a login that several processes share: real ones, with a real store, over loopback.

Hypothesis draws what happens. What the processes did wrong shows in what the authorization server was asked for.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import attrs
import pytest
import trio
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from tests.effort import examples
from trio_mcp import Server
from trio_mcp.auth import Claims, FileTokens, InvalidToken
from trio_mcp.auth.rules.login import Login
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing import AuthorizationServer, protected
from trio_mcp.auth.testing.answers import ServerResponse
from trio_mcp.auth.testing.faults import Fault, cut, status

PROCESSES = 4
LONGEST = 60
"""Seconds for a round: each call ends, and nothing here waits for a time limit."""

FAULTS: dict[str, Fault] = {"the server is busy": status(503), "the server's answer is cut": cut}
"""What goes wrong with the next request for tokens."""


@attrs.frozen
class Call:
    """A call of a process.

    Attributes:
        process: Of which one.
        tool: Which tool it calls, which is also the scope that it needs.
        patience: After how many seconds it is cancelled; None never.
        end: What happens when its process next asks for tokens: it is cancelled, or the process killed, right before
            it asks or right after it got the answer.
    """

    process: int
    tool: str = "read"
    patience: float | None = None
    end: str | None = None

    @property
    def dies(self) -> bool:
        return (self.end or "").startswith("killed")

    @property
    def leaves(self) -> bool:
        return self.patience is not None or (self.end or "").startswith("cancelled")


@attrs.frozen
class Round:
    """What happens to the servers, and the calls that are then made at once."""

    events: list[str]
    calls: list[Call]


ENDS = ["cancelled asking", "cancelled answered", "killed asking", "killed answered"]
calls = st.builds(
    Call,
    st.integers(0, PROCESSES - 1),
    st.sampled_from(["read", "read", "write"]),
    st.sampled_from([None, None, None, 0.0, 0.01, 0.03, 0.1]),
    st.sampled_from([None, None, *ENDS]),
)
events = st.sampled_from(["tokens expire", "tokens expire", "logins are revoked", *FAULTS])
rounds = st.builds(Round, st.lists(events, max_size=3), st.lists(calls, min_size=1, max_size=6))
plans = st.lists(rounds, min_size=1, max_size=6)

ALL = [Call(process) for process in range(PROCESSES)]
PLAN = [
    Round([], ALL),
    Round(["tokens expire"], [*ALL, Call(0, "write"), Call(1, "write")]),
    Round(["tokens expire", "the server's answer is cut"], ALL),
    Round(["tokens expire"], [Call(0, end="killed answered"), Call(1), Call(2, patience=0.01)]),
    Round(["tokens expire"], [Call(1, end="cancelled answered"), Call(2, end="cancelled asking")]),
    Round(["logins are revoked", "the server is busy"], ALL),
]
"""Something of everything."""


class Authority(AuthorizationServer):
    """The authorization server, which watches what it is asked for.

    Attributes:
        newest: The refresh token of the newest login.
        deadly: Whether a process is being killed, and answers die with it.
        wrong: What the processes did that they must not do.
    """

    def __init__(self, folder: Path, grace: float) -> None:
        super().__init__(tokens="opaque", grace=grace)
        self._folder = folder
        self.newest: str | None = None
        self.deadly = False
        self.wrong: list[str] = []
        self._used_up: set[str] = set()
        self.pending: list[Fault] = []
        self.faults["token"] = self.pending

    def handle(self, request: Fetch) -> ServerResponse:
        if urlsplit(request.url).path == "/authorize":
            self._look(frozenset(dict(parse_qsl(urlsplit(request.url).query)).get("scope", "").split()))
        form = dict(parse_qsl(request.body.decode()))
        used = form.get("refresh_token")
        if used in self._used_up and not self.deadly:
            self.wrong.append("a refresh token was sent again although its answer had arrived")
        given = super().handle(request)
        if "grant_type" in form and given.status == 200 and given.ending == "whole":
            new = json.loads(given.body)["refresh_token"]
            if used is not None:
                self._used_up.add(used)
            if used in (None, self.newest):
                self.newest = new
        return given

    def _look(self, wanted: frozenset[str]) -> None:
        for path in self._folder.glob("*.json"):
            login = Login.from_json(json.loads(path.read_text())["text"])
            family = self.issued.owner(login.refresh_token or "")
            if family is not None and not family.revoked and wanted <= family.scopes:
                self.wrong.append("a person was asked although a refresh would have done")

    async def verify(self, token: str) -> Claims:
        """Check a token for the server."""
        await trio.lowlevel.checkpoint()
        said = self.claims_of(token)
        if said is None:
            raise InvalidToken("it does not hold")
        return Claims(said["iss"], said["sub"], said["aud"], said["exp"], said["client_id"], said["scope"])

    def check(self, login: Login | None) -> None:
        """Check what is in the store when nothing is under way."""
        assert self.wrong == []
        stored = None if login is None else login.refresh_token
        family = self.issued.owner(self.newest or "")
        if self.deadly:  # what a process had, and had not stored, is lost with it
            self.newest = stored
            self._used_up.discard(stored or "")
        elif family is not None and not family.revoked:
            assert stored == self.newest, "the tokens that arrived last were lost"


class Process:
    """A process, as the test sees it."""

    def __init__(self, stream: trio.SocketStream, folder: Path, url: str) -> None:
        self._stream, self._buffer = stream, b""
        self._first = {"folder": str(folder), "url": url}

    async def start(self) -> None:
        await self._send([self._first])

    async def _send(self, lines: Sequence[Mapping[str, object]]) -> None:
        await self._stream.send_all(b"".join(json.dumps(line).encode() + b"\n" for line in lines))

    async def play(self, calls: dict[int, Call], outcomes: dict[int, str]) -> None:
        """Make calls, and add to the outcomes how each ended."""
        await self._send([
            {"number": number, **attrs.asdict(call, filter=attrs.filters.exclude("process"))}
            for number, call in calls.items()
        ])  # fmt: skip
        while not calls.keys() <= outcomes.keys():
            try:
                data = await self._stream.receive_some()
            except trio.BrokenResourceError:
                data = b""
            if not data:
                outcomes |= dict.fromkeys(calls.keys() - outcomes.keys(), "killed")
                return
            *whole, self._buffer = (self._buffer + data).split(b"\n")
            outcomes |= dict(map(json.loads, whole))

    def close(self) -> None:
        self._stream.socket.close()


def _nothing() -> None:
    """Do nothing."""


class Run:
    """One run of a plan."""

    def __init__(self, folder: Path, grace: float, listening: trio.SocketListener) -> None:
        self._listening, self._folder = listening, folder
        self._authority = Authority(folder, grace)
        self._store = FileTokens(folder)
        self._processes: list[Process] = []
        self._url = ""

    async def play(self, plan: list[Round]) -> None:
        server = Server("shared", version="1")
        for name in ("read", "write"):
            server.tool(name=name, scopes=[name])(_nothing)
        at = self._authority
        settings = {"verifier": at.verify, "scopes": ["read"], "dpop": "off", "remember": 0}
        async with protected(server, at, **settings) as self._url:
            try:
                await self._all(plan)
            finally:
                for process in self._processes:
                    process.close()

    async def _all(self, plan: list[Round]) -> None:
        at = self._authority
        for _ in range(PROCESSES):
            self._processes.append(await self._fresh())
        for each in plan:
            await self._round(each)
        at.pending.clear()
        await self._round(Round(["tokens expire"], ALL))
        refreshed, asked = self._refreshes(), at.count("authorize")
        await self._round(Round(["tokens expire"], ALL))
        assert (self._refreshes() - refreshed, at.count("authorize") - asked) == (1, 0)

    async def _fresh(self) -> Process:
        process = Process(await self._listening.accept(), self._folder, self._url)
        await process.start()
        return process

    def _refreshes(self) -> int:
        return self._authority.count("token", grant_type="refresh_token")

    async def _round(self, round: Round) -> None:
        at = self._authority
        for event in round.events:
            match event:
                case "tokens expire":
                    at.issued.expire()
                case "logins are revoked":
                    at.issued.revoke_all()
                case _:
                    at.pending.append(FAULTS[event])
        well, before = not at.pending, self._refreshes()
        at.deadly = any(call.dies for call in round.calls)
        outcomes: dict[int, str] = {}
        numbered = dict(enumerate(round.calls))
        with trio.fail_after(LONGEST):
            async with trio.open_nursery() as nursery:
                for place, process in enumerate(self._processes):
                    mine = {number: call for number, call in numbered.items() if call.process == place}
                    if mine:
                        nursery.start_soon(process.play, mine, outcomes)
            # A request for tokens that was sent goes on, under these locks, though its caller was cancelled.
            async with self._store.lock(f"{self._url}#login"), self._store.lock(self._url):
                text = await self._store.load(self._url)
        at.check(None if text is None else Login.from_json(text))
        killed = {call.process for call in round.calls if call.dies}
        for number, call in numbered.items():
            allowed = {"answered"}
            allowed |= {"refused"} if not well else set()
            allowed |= {"cancelled"} if call.leaves else set()
            allowed |= {"killed"} if call.process in killed else set()
            assert outcomes[number] in allowed
        if well and not at.deadly:
            assert self._refreshes() - before <= 1
        for place in {numbered[number].process for number, outcome in outcomes.items() if outcome == "killed"}:
            self._processes[place].close()
            self._processes[place] = await self._fresh()


@pytest.fixture(scope="module")
def listening() -> Iterator[socket.socket]:
    """Return a socket that processes connect to, which are there to be told what to do."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as at:
        at.bind(path := f"{folder}/socket")
        at.listen(2 * PROCESSES)
        program = [sys.executable, "-m", "tests.auth.processes.workers", path, str(PROCESSES)]
        with subprocess.Popen(program, start_new_session=True) as workers:
            try:
                yield at
            finally:
                os.killpg(workers.pid, signal.SIGKILL)


@pytest.mark.again
@settings(max_examples=examples(300, daily=1), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@example(PLAN, 0)
@example(PLAN, 60)
@given(plans, st.sampled_from([0, 60]))
def test_processes_share_a_login_whatever_happens(listening: socket.socket, plan: list[Round], grace: float) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as folder:
            at = trio.SocketListener(trio.socket.from_stdlib_socket(listening.dup()))
            async with at:
                await Run(Path(folder) / "logins", grace, at).play(plan)

    trio.run(play)
