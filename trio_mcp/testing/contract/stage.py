"""Provides the environment in which rules run: connections with a timeout on every wait, and checks for leaks."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import trio

from trio_mcp.jsonrpc.codec import encode
from trio_mcp.jsonrpc.messages import Incoming, Notification, Request, Response, SessionMessage, TransportFailure
from trio_mcp.link import Link

__all__ = [
    "QUIET",
    "Broken",
    "Cut",
    "End",
    "Pair",
    "Raw",
    "Stage",
    "descriptors",
    "number_of",
    "settled",
    "shown",
    "tasks",
]

T = TypeVar("T")

Pair: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[Link, Link]]]
Raw: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[Link, trio.abc.Stream]]]
Cut: TypeAlias = Callable[[], AbstractAsyncContextManager[tuple[Link, Callable[[], object]]]]

QUIET: Final = 0.25
"""Seconds without progress after which a sender counts as waiting, and for which checks wait for surplus messages.

An arbitrary choice. On a busy machine a sender that is merely slow may count as waiting, which breaks no rule.
"""


class Broken(Exception):
    """Raised when the rule being checked is broken; the message says what happened."""


@attrs.frozen
class End:
    """One end of a connection, with a timeout on each of its operations.

    Attributes:
        stage: The stage on which the rule runs.
        name: ``client``, ``server`` or ``link``, for reports.
        link: The link at this end.
    """

    stage: Stage
    name: str
    link: Link

    async def send(self, message: Any) -> None:
        """Send a message, which must succeed within the timeout."""
        with self.stage.within(f"the {self.name}'s send"):
            try:
                await self.link.write.send(SessionMessage(message))
            # Encoders raise `ValueError` and `TypeError` for content that is not JSON. A transport must not let these
            # out of `send`.
            except (trio.BrokenResourceError, trio.ClosedResourceError, ValueError, TypeError) as exc:
                raise self.stage.broken(f"the {self.name}'s send of {shown(message)} raised {exc!r}") from exc

    async def send_all(self, messages: Iterable[Any]) -> None:
        """Send the messages one after the other."""
        for message in messages:
            await self.send(message)

    async def receive(self) -> Incoming:
        """Receive the next message, which must arrive within the timeout."""
        with self.stage.within(f"the {self.name}'s receive"):
            try:
                return (await self.link.read.receive()).message
            except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                raise self.stage.broken(
                    f"the {self.name}'s receive raised {exc!r} instead of returning a message"
                ) from exc
        # Type checkers need this line: they can't know that `within` raises at the end of its block if it cuts the wait
        # off.
        raise AssertionError("unreachable")

    async def take(self, sent: Incoming, what: str = "") -> None:
        """Receive the next message, and check that it is the one that was sent."""
        arrived = await self.receive()
        if not _same(sent, arrived):
            text = f"the {self.name} got {shown(arrived)} instead of {shown(sent)}"
            raise self.stage.broken(f"{what}: {text}" if what else text)

    async def collect(self, count: float, seconds: float | None = None) -> list[Incoming]:
        """Receive up to ``count`` messages, and wait at most ``seconds`` for each; the default is the timeout."""
        taken: list[Incoming] = []
        with contextlib.suppress(trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
            # Each message has its own timeout: a slow transport is not broken.
            while len(taken) < count:
                with trio.move_on_after(self.stage.timeout if seconds is None else seconds) as scope:
                    taken.append((await self.link.read.receive()).message)
                if scope.cancelled_caught:
                    break
        return taken

    async def more(self) -> list[Incoming]:
        """Receive any further messages, although none is expected, until none has arrived for `QUIET` seconds."""
        return await self.collect(math.inf, QUIET)

    async def rest(self) -> list[Incoming]:
        """Receive everything up to the end of the channel, which must come within the timeout."""
        taken: list[Incoming] = []
        with self.stage.within(f"the {self.name}'s `read`"):
            try:
                async for item in self.link.read:
                    taken.append(item.message)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                raise self.stage.broken(
                    f"the {self.name}'s receive raised {exc!r} instead of ending the channel (trio.EndOfChannel)"
                ) from exc
        return taken

    async def ends(self) -> bool:
        """Return whether the receiving channel ends within the timeout; discard what arrives."""
        with trio.move_on_after(self.stage.timeout):
            # An error is an end, too; other rules check whether it was the right one.
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for _ in self.link.read:
                    pass
            return True
        return False

    async def close(self) -> None:
        """Close the sending half of the link."""
        with self.stage.within(f"the {self.name}'s write.aclose()"):
            await self.link.write.aclose()

    async def attempt(self, half: str, when: str, value: object = None) -> BaseException | None:
        """Try to receive (``read``) or send (``write``) where a channel may raise any of its errors, but must not hang.

        Args:
            half: The half of the link to use.
            when: The circumstances, for the report.
            value: The content of the message to send.

        Returns:
            The exception that was raised, or None.
        """
        with self.stage.within(f"a use of the {self.name}'s `{half}` {when}"):
            try:
                if half == "read":
                    await self.link.read.receive()
                else:
                    await self.link.write.send(SessionMessage(self.stage.note(value)))
            except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                return exc
        return None


class Stage:
    """The transport that is checked, with the settings and findings of the check.

    Attributes:
        traits: The promises that the transport does not make.
        timeout: How many seconds anything that must happen may take.
        places: The maximum number of steps at which each operation is cancelled.
        max_waiting: How many bytes may wait between a writer and a reader that does not read.
        max_message_size: The longest message that the link from `raw` accepts, if known.
        frame: Turns a JSON text into the bytes that carry it over the raw stream.
        found: The findings about the rule that is being checked, in order.
    """

    def __init__(
        self,
        pair: Pair,
        raw: Raw | None,
        cut: Cut | None,
        *,
        frame: Callable[[bytes], bytes],
        traits: Collection[str],
        timeout: float,
        places: int,
        max_waiting: int,
        max_message_size: int | None,
    ) -> None:
        self._pair = pair
        self._raw = raw
        self._cut = cut
        self.frame = frame
        self.traits = traits
        self.timeout = timeout
        self.places = places
        self.max_waiting = max_waiting
        self.max_message_size = max_message_size
        self.found: list[str] = []
        # The number is never reset, so a message that turns up again on a later connection is noticed.
        self._last = 0

    def broken(self, text: str) -> Broken:
        """Record that the rule is broken, and return the exception to raise."""
        # The text is recorded as well, because the transport may swallow the exception, or wrap it.
        self.found.append(text)
        return Broken(text)

    @contextlib.contextmanager
    def within(self, what: str) -> Iterator[None]:
        """Limit the time that a block may take to the timeout; if it takes longer, the rule is broken."""
        # `fail_after` won't do: its `TooSlowError` would look like one from the transport itself, which would be
        # another fault.
        with trio.move_on_after(self.timeout) as scope:
            yield
        if scope.cancelled_caught:
            raise self.broken(f"{what} did not end within {self.timeout:g} seconds")

    @contextlib.asynccontextmanager
    async def _opened(self, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        # One scope surrounds the whole block, because a scope around the opening alone would end inside the manager's
        # nursery.
        phase = "opening"
        with trio.CancelScope(deadline=trio.current_time() + self.timeout) as scope:
            async with manager as ends:
                # A rule bounds its own waits, and may have any number of them.
                scope.deadline = math.inf
                try:
                    yield ends
                finally:
                    # The deadline is set even if the rule has raised: leaving must always be bounded, or a broken rule
                    # would hang.
                    phase = "leaving"
                    scope.deadline = trio.current_time() + self.timeout
        if scope.cancelled_caught:
            raise self.broken(f"{phase} the block did not end within {self.timeout:g} seconds")

    @contextlib.asynccontextmanager
    async def pair(self) -> AsyncIterator[tuple[End, End]]:
        """Open a connection, and yield its two ends, the client's first."""
        async with self._opened(self._pair()) as (client, server):
            yield End(self, "client", client), End(self, "server", server)

    def bare(self) -> AbstractAsyncContextManager[tuple[Link, Link]]:
        """Return a context manager that opens a connection without timeouts, for rules about the opening itself."""
        return self._pair()

    @contextlib.asynccontextmanager
    async def raw(self) -> AsyncIterator[tuple[End, trio.abc.Stream]]:
        """Open a connection, and yield its link and the raw stream at its other end."""
        assert self._raw is not None
        async with self._opened(self._raw()) as (link, stream):
            yield End(self, "link", link), stream

    @contextlib.asynccontextmanager
    async def cut(self) -> AsyncIterator[tuple[End, Callable[[], Awaitable[None]]]]:
        """Open a connection, and yield its link and a function that cuts the connection."""
        assert self._cut is not None
        async with self._opened(self._cut()) as (link, cut):

            async def destroy() -> None:
                with self.within("cutting the connection"):
                    result = cut()
                    if isinstance(result, Awaitable):
                        await result

            yield End(self, "link", link), destroy

    # --- messages -----------------------------------------------------------------------------------------------------

    def number(self) -> int:
        """Return a number that no message has had yet."""
        self._last += 1
        return self._last

    def note(self, value: object = None) -> Notification:
        """Return a new notification, with a number and a value, that differs from all other messages."""
        return Notification("check/note", {"n": self.number(), "value": value})

    def call(self, value: object = None) -> Request:
        """Return a new request, with a number and a value, that differs from all other messages."""
        # The number serves as the id, too: MCP forbids using an id twice within a session (Base protocol, Requests).
        return Request(number := self.number(), "check/call", {"n": number, "value": value})

    def answer(self, request: Request, value: object = None) -> Response:
        """Return a new response to a request, with a number and a value, that differs from all other messages."""
        return Response(request.id, {"n": self.number(), "value": value})

    async def talk(self, client: End, server: End, value: object = None, what: str = "") -> None:
        """Send a value to the server in a request, and back in its response, and check that both arrive."""
        request = self.call(value)
        await client.send(request)
        await server.take(request, what)
        response = self.answer(request, value)
        await server.send(response)
        await client.take(response, what)

    # --- what is left behind ------------------------------------------------------------------------------------------

    async def nothing_left(self, now: Callable[[], dict[Any, str]], before: Collection[Any]) -> list[str]:
        """Wait until everything that is not in ``before`` is gone; return what has not gone within the timeout."""
        deadline = trio.current_time() + self.timeout
        pause = 0.01
        # The state is polled, because no event says that the system has closed a descriptor.
        while (left := [name for key, name in now().items() if key not in before]) and trio.current_time() < deadline:
            await trio.sleep(pause)
            pause *= 2
        return sorted(left)

    @contextlib.contextmanager
    def warned(self) -> Iterator[list[str]]:
        """Record warnings about resources that were not closed, in a list that is filled when the block ends."""
        texts: list[str] = []
        gc.collect()  # resources that were lost before the block are not the transport's fault
        with warnings.catch_warnings(record=True) as caught:
            # Python ignores these warnings by default, and other filters report each place only once.
            warnings.simplefilter("always", ResourceWarning)
            yield texts
            # A resource in a reference cycle warns only once the collector has found it.
            gc.collect()
            texts += [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)]


async def settled(cushion: float = 0.0) -> None:
    """Wait until every other task has been waiting for at least ``cushion`` seconds."""
    from trio.testing import wait_all_tasks_blocked  # deferred: it imports pytest, where that is installed

    await wait_all_tasks_blocked(cushion)


def tasks() -> dict[Any, str]:
    """Return all tasks of this run of Trio, with their names."""
    found: dict[Any, str] = {}
    # The search starts at the root, because a transport may have started tasks in Trio's own nursery for system tasks.
    waiting = [trio.lowlevel.current_root_task()]
    while waiting:
        if (task := waiting.pop()) is not None:
            found[task] = task.name
            waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
    return found


def descriptors() -> dict[Any, str]:
    """Return this process's open file descriptors, each with what it refers to, if the system says so."""
    found: dict[Any, str] = {}
    # macOS has /dev/fd, too; only Linux has /proc/self/fd.
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself is closed by now
            status = os.fstat(int(number))
            target = "open"
            with contextlib.suppress(OSError):  # the entries are links only on Linux
                target = os.readlink(f"/dev/fd/{number}")
            # The system reuses the number of a closed descriptor, so the number alone would hide a leak.
            found[number, status.st_dev, status.st_ino] = f"{number}: {target}"
    return found


def number_of(message: Incoming) -> int | None:
    """Return the number that `Stage.number` gave to a message, or None if the message has none."""
    content = message.result if isinstance(message, Response) else getattr(message, "params", None)
    number = content.get("n") if isinstance(content, dict) else None
    return number if isinstance(number, int) else None


def shown(message: object) -> str:
    """Return a message as text for a report, shortened in the middle if it is long."""
    text = (
        f"TransportFailure({message.error!r}, {message.request_id!r})"
        if isinstance(message, TransportFailure)
        else repr(message)
    )
    return text if len(text) <= 200 else f"{text[:120]}…{text[-60:]}"


def _same(sent: Incoming, arrived: Incoming) -> bool:
    # The JSON is compared, too, because 1, 1.0 and True are equal in Python.
    return sent is arrived or (sent == arrived and encode(sent) == encode(arrived))
