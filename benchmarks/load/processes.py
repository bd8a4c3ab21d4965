"""The load of a server with several processes: calls on connections spread over them, and listeners in one of them."""

from __future__ import annotations

import bisect
import contextlib
import json
import re
import selectors
import signal
import time
from collections import Counter
from typing import Any

from benchmarks.load import wire
from benchmarks.load.http import Connection, HttpLoad, HttpServer, post
from benchmarks.measure.processes import DEADLINE, ProcessFailed, cpu_time_of
from benchmarks.servers.commands import server_command

TRIES = 200
"""How many connections may be opened until each process has one more (arbitrary)."""

TOPICS = 20
"""How many resources change, one after the other."""

CHANGES = 10
"""How many changes there are in a second."""

PATIENCE = 20.0
"""Seconds after the last change in which all must have heard of it (arbitrary)."""


class SingleLoad(HttpLoad):
    """A server in one process, without a supervisor.

    Args:
        settings: The settings of the program.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(server_command("processes", json.dumps(settings)))

    def wait_ready(self) -> None:
        super().wait_ready()
        self.url = self.url.split()[0]


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

    def waits(self) -> list[int]:
        """Return how often each process has waited, as its server counts: with a call on a kept connection to each."""
        return [self.call(each, "waits", {}) for each in self._connections]

    def close(self) -> None:
        """Let the server end gracefully, so that no process of it is left."""
        self._hang_up()
        self.process.send_signal(signal.SIGTERM)
        with self.process.deadline():
            self.process.wait()
        super().close()


def waits_of(pid: int) -> int:
    """Return how often the main thread of a process has waited so far, as the kernel counts; Linux only."""
    with open(f"/proc/{pid}/task/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("voluntary_ctxt_switches:"))


_CHANGE = re.compile(rb'"uri":"doc://(\d+)"')


class FarListeners:
    """Listeners of one process, each on a connection of its own, while changes are announced in another.

    Args:
        file: The file that both share, or the URL of an engine.
    """

    def __init__(self, file: str) -> None:
        self._listened, self._announcing = SingleLoad(file=file), SingleLoad(file=file)

    def wait_ready(self) -> None:
        """Wait until both servers serve."""
        self._listened.wait_ready()
        self._announcing.wait_ready()

    def delays(self, count: int, topics: int, changes: int) -> list[float]:
        """Announce changes, and return the seconds after which each of its listeners heard of each of them.

        Args:
            count: How many listeners there are.
            topics: To how many resources of `TOPICS` each one listens. The resources change one after the other.
            changes: How many changes there are, `CHANGES` a second.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._listened.process.deadline(changes / CHANGES + DEADLINE))
            listeners = [_Listener(self._listened, number, topics) for number in range(count)]
            for each in listeners:
                stack.callback(each.connection.close)
                each.wait_acknowledged()
            caller = stack.enter_context(contextlib.closing(self._announcing.connect()))
            announced = self._announce(caller, listeners, changes, stack.enter_context(selectors.DefaultSelector()))
        return [delay for each in listeners for delay in each.delays(announced)]

    def _announce(
        self, caller: Connection, listeners: list[_Listener], changes: int, selector: selectors.BaseSelector
    ) -> list[float]:
        """Announce changes until all who listen have heard of the last ones, and return when each was announced."""
        for each in listeners:
            selector.register(each.connection.socket, selectors.EVENT_READ, each)
        selector.register(caller.socket, selectors.EVENT_READ)
        begun, sent, announced = time.perf_counter(), 0, list[float]()
        give_up = begun + changes / CHANGES + PATIENCE
        while (now := time.perf_counter()) < give_up:
            if sent < changes and now >= begun + sent / CHANGES:
                caller.send(self._announcing.request_of(sent, "touch", {"number": sent % TOPICS}))
                sent += 1
            elif len(announced) == changes and all(each.has_heard(announced) for each in listeners):
                return announced
            for key, _ in selector.select(max(0.0, begun + sent / CHANGES - now) if sent < changes else PATIENCE):
                if key.data is not None:
                    key.data.hear()
                elif (answer := caller.take()) is not None:
                    announced.append(wire.result_of(answer, len(announced))["structuredContent"]["result"])
        raise wire.WrongAnswer(f"some of {len(listeners)} listeners have not heard of the last change of a resource")

    def close(self) -> None:
        self._listened.close()
        self._announcing.close()


class _Listener:
    """A stream of notifications.

    Attributes:
        connection: The connection that carries it.
    """

    def __init__(self, server: HttpServer, number: int, topics: int) -> None:
        self.connection = server.connect()
        self._heard: dict[int, list[float]] = {(number + each) % TOPICS: [] for each in range(topics)}
        self._rest = b""
        head = server.head(f"MCP-Protocol-Version: {wire.MODERN_VERSION}", "Mcp-Method: subscriptions/listen")
        wanted = {"notifications": {"resourceSubscriptions": [f"doc://{topic}" for topic in self._heard]}}
        self.connection.send(post(head, wire.request(number, "subscriptions/listen", wanted, "modern")))

    def wait_acknowledged(self) -> None:
        while b"acknowledged" not in self._rest or not self._rest.endswith(b"\n"):
            self._read()
        self._rest = b""

    def hear(self) -> None:
        """Take note of when the notifications that have arrived did so."""
        self._read()
        now = time.perf_counter()
        complete, _, self._rest = self._rest.rpartition(b"\n")
        for topic in _CHANGE.findall(complete):
            self._heard[int(topic)].append(now)

    def _read(self) -> None:
        if not (data := self.connection.socket.recv(65536)):
            raise ProcessFailed(f"a server ended the stream of a listener: {self._rest[:300]!r}")
        self._rest += data

    def has_heard(self, announced: list[float]) -> bool:
        """Return whether it has heard of the last change of each of its resources."""
        return all(
            not when or (heard and heard[-1] > when[-1])
            for topic, heard in self._heard.items()
            for when in [announced[topic::TOPICS]]
        )

    def delays(self, announced: list[float]) -> list[float]:
        """Return for each change how long it took to hear of it; one notification may tell of several changes."""
        return [
            heard[bisect.bisect(heard, when)] - when
            for topic, heard in self._heard.items()
            for when in announced[topic::TOPICS]
        ]
