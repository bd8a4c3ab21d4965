"""The load of replicas, which share the sessions of the legacy era: a client's messages reach more than one of them."""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from benchmarks.load import wire
from benchmarks.load.http import HttpLoad, HttpServer, of_session, post
from benchmarks.load.moments import expect
from benchmarks.measure.processes import ProcessFailed
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from pathlib import Path

_EVENT = re.compile(rb"\bid: (\S+)")
_QUESTION = re.compile(rb'data: (\{.*"elicitation/create".*\})')
_RESULT = re.compile(rb'"structuredContent":\{"result":([\d.]+)\}')
_ERROR = re.compile(rb'data: (\{.*"error".*\})')


class Replica(HttpLoad):
    """A server as one of several, or by itself; its calls of ``add`` belong to one session.

    Args:
        url: The URL of the stores; None for sessions in memory.
    """

    def __init__(self, url: str | None = None) -> None:
        super().__init__(server_command("replicas", *([] if url is None else [url])), "legacy")

    def wait_ready(self) -> None:
        super().wait_ready()
        self.url = self.url.split()[0]


class Stream:
    """The events of a response that takes longer.

    Args:
        server: The server.
        request: The request to it.
    """

    def __init__(self, server: HttpServer, request: bytes) -> None:
        self._connection = server.connect()
        self._rest = b""
        self._connection.send(request)

    def find(self, pattern: re.Pattern[bytes]) -> bytes:
        """Return the first group of what matches next, once its line is complete."""
        while (found := pattern.search(self._rest)) is None or b"\n" not in self._rest[found.end() :]:
            if not (data := self._connection.socket.recv(65536)):
                raise ProcessFailed(f"a server ended the stream of a call: {self._rest[:300]!r}")
            self._rest += data
        self._rest = self._rest[found.end() :]
        return found[1]

    def close(self) -> None:
        self._connection.close()


class Client:
    """A client of one session, which talks to two replicas.

    Args:
        here: The one that runs its calls.
        there: The one that gets all its other messages.
    """

    def __init__(self, here: HttpServer, there: HttpServer) -> None:
        self._here = here
        self._there = there
        with closing(here.connect()) as first, here.process.deadline():
            session = here.open_session(first)
        self._head, self._other_head = (server.head(*of_session(session)) for server in (here, there))
        self._other = there.connect()
        self._number = 0

    def close(self) -> None:
        self._other.close()

    def answer(self) -> float:
        """Answer a question at the other replica, and return the seconds until the function that has asked goes on."""
        with self._here.process.deadline(), closing(self._begin("ask", {})) as stream:
            question = json.loads(stream.find(_QUESTION))
            result = {"action": "accept", "content": {"yes": True}}
            begun = time.perf_counter()
            self._tell({"id": question["id"], "result": result})
            return float(stream.find(_RESULT)) - begun

    def cancel(self, file: Path) -> float:
        """Cancel a call at the other replica, and return the seconds until its scope is cancelled.

        Args:
            file: The file in which the tool notes that; it is replaced.
        """
        file.write_bytes(b"")
        number = self._number + 1
        call = {"number": number, "file": str(file)}
        with self._here.process.deadline(), file.open() as lines, closing(self._begin("wait", call)) as stream:
            stream.find(_EVENT)  # until then, the call might be too short to be worth a note for the other replicas
            expect(lines, number)
            begun = time.perf_counter_ns()
            self._tell({"method": "notifications/cancelled", "params": {"requestId": number}})
            return (expect(lines, number) - begun) / 1e9

    def lose(self, calls: int, file: Path) -> list[float]:
        """Kill the replica that runs calls, resume their streams, and return the seconds until each ends with an error.

        Args:
            calls: How many calls there are.
            file: A file that the calls may write.
        """
        file.touch()
        with ExitStack() as stack:
            stack.enter_context(self._there.process.deadline())
            events = []
            for number in range(1, calls + 1):
                begun = self._begin("wait", {"number": number, "file": str(file)})
                events.append(stack.enter_context(closing(begun)).find(_EVENT))
            self._here.process.kill()
            killed = time.perf_counter()
            resumed = []
            for event in events:
                head = self._other_head.replace(b"POST", b"GET", 1) + b"Last-Event-ID: %b\r\n\r\n" % event
                resumed.append(stack.enter_context(closing(Stream(self._there, head))))
            found = []
            for number, each in enumerate(resumed, 1):
                if json.loads(each.find(_ERROR))["id"] != number:
                    raise wire.WrongAnswer(f"the stream of call {number} ends with the response to another one")
                found.append(time.perf_counter() - killed)
            return found

    def _begin(self, tool: str, arguments: dict[str, Any]) -> Stream:
        self._number += 1
        return Stream(self._here, post(self._head, wire.call(self._number, tool, arguments, "legacy")))

    def _tell(self, message: dict[str, Any]) -> None:
        """Send a message to which there is no response to the other replica, and wait until it has it."""
        self._other.send(post(self._other_head, wire.line({"jsonrpc": "2.0", **message})))
        self._other.answer()
