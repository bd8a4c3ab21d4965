"""The load of a server with several processes: calls on connections spread over them, and listeners in one of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from benchmarks.load import wire
from benchmarks.load.http import Connection, HttpLoad, HttpServer, post
from benchmarks.measure.processes import DEADLINE, ProcessFailed, cpu_time_of
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Collection

TRIES = 200
"""How many connections may be opened until each process has one more (arbitrary)."""

TOPICS = 20
"""How many resources change, one after the other: at 10 changes a second, each one every two seconds."""


class ProcessesLoad(HttpLoad):
    """A server with a supervisor, whose processes answer ``add`` calls on kept connections.

    Args:
        processes: How many there are.
        each: How many of the connections each process gets when connections are opened, as a fraction of all.
        settings: The settings of the program.

    Attributes:
        pids: The ids of the processes that serve.
    """

    def __init__(self, processes: int, each: float = 1.0, **settings: Any) -> None:
        super().__init__(server_command("processes", json.dumps({"processes": processes, **settings})))
        self.pids: list[int] = []
        self._count = processes
        self._each = each

    def wait_ready(self) -> None:
        with self.process.deadline():
            for _ in range(self._count):
                self.url, pid = self.process.read_line().decode().split()
                self.pids.append(int(pid))

    def used(self) -> float:
        return sum(map(cpu_time_of, self.pids))

    def add(self, count: int) -> None:
        """Open so many connections for each process, or the fraction of them, and make a call on each."""
        missing = Counter({pid: max(1, round(count * self._each)) for pid in self.pids})
        tries = 0
        while +missing:
            connection = self.connect()
            pid = self.call(connection, "pid", {})
            if missing[pid] > 0:
                missing[pid] -= 1
                tries = 0
                self._connections.append(connection)
            else:
                connection.close()
                tries += 1
                if tries > TRIES:
                    raise ProcessFailed(f"of {TRIES} connections in turn, none went to the processes {set(+missing)}")

    def shares(self, count: int) -> Counter[int]:
        """Open so many connections at once, and return how many of them each process has."""
        with contextlib.ExitStack() as stack, self.process.deadline():
            connections = [stack.enter_context(contextlib.closing(self.connect())) for _ in range(count)]
            for connection in connections:
                connection.send(self.request_of(self._take_id(), "pid", {}))
            return Counter(json.loads(each.answer())["result"]["structuredContent"]["result"] for each in connections)

    def close(self) -> None:
        """Let the server end gracefully, so that no process of it is left."""
        self._hang_up()
        self.process.send_signal(signal.SIGTERM)
        with self.process.deadline():
            self.process.wait()
        super().close()


def woken(pids: Collection[int]) -> dict[int, int]:
    """Return how many times the main thread of each process has waited so far; Linux only."""
    return {pid: _waits(pid) for pid in pids}


def _waits(pid: int) -> int:
    with open(f"/proc/{pid}/task/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches:"))


_CHANGE = re.compile(rb'"uri":"doc://(\d+)"')


class FarListeners:
    """Listeners of one process, while changes are announced in another.

    Args:
        file: The file that both share.
        count: How many listeners there are, each on a connection of its own.
    """

    def __init__(self, file: str, count: int) -> None:
        command = server_command("processes", json.dumps({"file": file}))
        self._listened, self._announcing = HttpLoad(command), HttpLoad(command)
        self._count = count
        self._connections: list[Connection] = []

    def open(self) -> None:
        """Start the servers and the listeners."""
        for server in (self._listened, self._announcing):
            with server.process.deadline():
                server.url = server.process.read_line().decode().split()[0]
        revision = f"MCP-Protocol-Version: {wire.MODERN_VERSION}"
        head = self._listened.head(revision, "Mcp-Method: subscriptions/listen")
        wanted = {"notifications": {"resourceSubscriptions": [f"doc://{number}" for number in range(TOPICS)]}}
        with self._listened.process.deadline():
            for number in range(self._count):
                connection = self._listened.connect()
                self._connections.append(connection)
                connection.send(post(head, wire.request(number, "subscriptions/listen", wanted, "modern")))
            for connection in self._connections:
                _read_acknowledgement(connection)

    def delays(self, changes: int, rate: float) -> list[float]:
        """Announce so many changes, and return the seconds until each listener heard of each of them."""
        announced: list[tuple[int, float]] = []
        heard: list[tuple[int, float]] = []
        rests = {connection: b"" for connection in self._connections}
        with (
            contextlib.closing(self._announcing.connect()) as caller,
            selectors.DefaultSelector() as selector,
            self._listened.process.deadline(changes / rate + DEADLINE),
        ):
            for connection in self._connections:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
            selector.register(caller.socket, selectors.EVENT_READ, caller)
            begun, sent = time.perf_counter(), 0
            while len(heard) < changes * self._count or len(announced) < changes:
                if sent < changes and time.perf_counter() >= begun + sent / rate:
                    caller.send(self._announcing.request_of(sent, "touch", {"number": sent % TOPICS}))
                    sent += 1
                next_one = begun + sent / rate - time.perf_counter()
                for key, _ in selector.select(max(0.0, next_one) if sent < changes else None):
                    connection = key.data
                    if connection is caller:
                        if (answer := caller.take()) is not None:
                            number = len(announced)
                            result = wire.result_of(answer, number)["structuredContent"]["result"]
                            announced.append((number, result))
                        continue
                    data = rests[connection] + connection.socket.recv(65536)
                    now = time.perf_counter()
                    complete, _, rests[connection] = data.rpartition(b"\n")
                    heard += [(int(found), now) for found in _CHANGE.findall(complete)]
        return _matched(announced, heard)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._listened.close()
        self._announcing.close()


def _matched(announced: list[tuple[int, float]], heard: list[tuple[int, float]]) -> list[float]:
    """Return for each time at which a change was heard how long ago it was announced.

    Raises:
        WrongAnswer: If a change was heard by too many or too few.
    """
    told: Counter[int] = Counter()
    delays = []
    for topic, now in heard:
        number, when = max(each for each in announced if each[0] % TOPICS == topic and each[1] <= now)
        told[number] += 1
        delays.append(now - when)
    if len(set(told.values())) != 1 or len(told) != len(announced):
        raise wire.WrongAnswer(f"some listeners were not told of each change: {sorted(told.items())}")
    return delays


def _read_acknowledgement(connection: Connection) -> None:
    data = b""
    while b"acknowledged" not in data or not data.endswith(b"\n"):
        if not (found := connection.socket.recv(65536)):
            raise ProcessFailed(f"a server refused a listener: {data[:300]!r}")
        data += found
