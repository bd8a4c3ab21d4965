"""The stage that rules run on: connections whose every wait is bounded, and what they leave behind."""

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
"""Seconds without progress after which a sender counts as waiting, and in which what should not come may still come.

Chosen: on a busy machine a sender may be found waiting that is only slow, which breaks no rule.
"""


class Broken(Exception):
    """The rule that is being checked is broken; the text says what happened."""


@attrs.frozen
class End:
    """One end of a connection; each of its operations is bounded.

    Attributes:
        stage: The stage of the rule.
        name: ``client`` or ``server``, for what is reported.
        link: The link.
    """

    stage: Stage
    name: str
    link: Link

    async def send(self, message: Any) -> None:
        """Send a message."""
        with self.stage.within(f"the {self.name}'s send"):
            try:
                await self.link.write.send(SessionMessage(message))
            # Encoders raise the last two for content that is not JSON, which a transport has to report instead.
            except (trio.BrokenResourceError, trio.ClosedResourceError, ValueError, TypeError) as exc:
                raise self.stage.broken(f"the {self.name}'s send of {shown(message)} raised {exc!r}") from exc

    async def send_all(self, messages: Iterable[Any]) -> None:
        """Send messages, one after the other."""
        for message in messages:
            await self.send(message)

    async def receive(self) -> Incoming:
        """Take the next message."""
        with self.stage.within(f"the {self.name}'s receive"):
            try:
                return (await self.link.read.receive()).message
            except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                raise self.stage.broken(f"the {self.name}'s receive raised {exc!r} where a message was due") from exc
        # Type checkers need this: they can't know that a wait that `within` has cut off raises at the end of its block.
        raise AssertionError("unreachable")

    async def take(self, sent: Incoming, what: str = "") -> None:
        """Take the next message, which must be this one."""
        arrived = await self.receive()
        if not _same(sent, arrived):
            text = f"the {self.name} got {shown(arrived)} for {shown(sent)}"
            raise self.stage.broken(f"{what}: {text}" if what else text)

    async def collect(self, count: float, seconds: float | None = None) -> list[Incoming]:
        """Take as many messages as come, up to this number; wait so many seconds for each, or the timeout."""
        taken: list[Incoming] = []
        with contextlib.suppress(trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError):
            # Each message has its own timeout: a transport that is slow is not broken.
            while len(taken) < count:
                with trio.move_on_after(self.stage.timeout if seconds is None else seconds) as scope:
                    taken.append((await self.link.read.receive()).message)
                if scope.cancelled_caught:
                    break
        return taken

    async def more(self) -> list[Incoming]:
        """Take what comes within a moment, although nothing is due."""
        return await self.collect(math.inf, QUIET)

    async def rest(self) -> list[Incoming]:
        """Take everything up to the end of the channel, which must come."""
        taken: list[Incoming] = []
        with self.stage.within(f"the end of what the {self.name} reads"):
            try:
                async for item in self.link.read:
                    taken.append(item.message)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                raise self.stage.broken(f"the {self.name}'s receive raised {exc!r} where the end was due") from exc
        return taken

    async def ends(self) -> bool:
        """Return whether the channel ends."""
        with trio.move_on_after(self.stage.timeout):
            # An error is an end, too. Whether it was the right one is for other rules.
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for _ in self.link.read:
                    pass
            return True
        return False

    async def close(self) -> None:
        """Close the sending half."""
        with self.stage.within(f"the {self.name}'s write.aclose()"):
            await self.link.write.aclose()

    async def attempt(self, half: str, when: str, value: object = None) -> BaseException | None:
        """Receive (``read``) or send (``write``) where that may raise anything that a channel raises, but must end.

        Args:
            half: Which.
            when: The circumstances, for what is reported.
            value: The content of the message to send.

        Returns:
            What it raised.
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
    """The transport that is checked, and what the check knows about it.

    Attributes:
        traits: The promises that it does not make.
        timeout: Seconds for anything that must happen.
        places: How many places each operation is cancelled at.
        max_waiting: How many bytes may wait between a writer and a reader that does not read.
        max_message_size: The limit of the link that `raw` yields, if one is known.
        frame: Turns a JSON text into the bytes that carry it over the raw stream.
        found: The findings about the rule that runs, in order.
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
        # The number is never set back, so a message that comes up again on a later connection is found out.
        self._last = 0

    def broken(self, text: str) -> Broken:
        """Record that the rule is broken, and return the exception to raise."""
        # The text is recorded, because a transport that swallows exceptions, or wraps them, must not hide it.
        self.found.append(text)
        return Broken(text)

    @contextlib.contextmanager
    def within(self, what: str) -> Iterator[None]:
        """Bound a wait."""
        # `fail_after` won't do: a `TooSlowError` could be the transport's own, which is another fault.
        with trio.move_on_after(self.timeout) as scope:
            yield
        if scope.cancelled_caught:
            raise self.broken(f"{what} did not end within {self.timeout:g} seconds")

    @contextlib.asynccontextmanager
    async def _opened(self, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        # One scope surrounds all of it: one around the opening alone would end inside the manager's nursery.
        phase = "opening"
        with trio.CancelScope(deadline=trio.current_time() + self.timeout) as scope:
            async with manager as ends:
                # A rule bounds its own waits, and may have any number of them.
                scope.deadline = math.inf
                try:
                    yield ends
                finally:
                    # This runs even if the rule has raised: leaving must be bounded in any case, or a broken rule would
                    # hang.
                    phase = "leaving"
                    scope.deadline = trio.current_time() + self.timeout
        if scope.cancelled_caught:
            raise self.broken(f"{phase} the block did not end within {self.timeout:g} seconds")

    @contextlib.asynccontextmanager
    async def pair(self) -> AsyncIterator[tuple[End, End]]:
        """Open a connection, and yield its two ends: the client's and the server's."""
        async with self._opened(self._pair()) as (client, server):
            yield End(self, "client", client), End(self, "server", server)

    def bare(self) -> AbstractAsyncContextManager[tuple[Link, Link]]:
        """Return a context manager that opens a connection, without any bounds; for rules about the opening itself."""
        return self._pair()

    @contextlib.asynccontextmanager
    async def raw(self) -> AsyncIterator[tuple[End, trio.abc.Stream]]:
        """Open a connection with bytes at its other end."""
        assert self._raw is not None
        async with self._opened(self._raw()) as (link, stream):
            yield End(self, "link", link), stream

    @contextlib.asynccontextmanager
    async def cut(self) -> AsyncIterator[tuple[End, Callable[[], Awaitable[None]]]]:
        """Open a connection that can be cut."""
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
        """Return a number that no message has had."""
        self._last += 1
        return self._last

    def note(self, value: object = None) -> Notification:
        """Return a notification unlike all others."""
        return Notification("check/note", {"n": self.number(), "value": value})

    def call(self, value: object = None) -> Request:
        """Return a request unlike all others."""
        # The number serves as the id, too: MCP forbids using an id twice within a session (Base protocol, Requests).
        return Request(number := self.number(), "check/call", {"n": number, "value": value})

    def answer(self, request: Request, value: object = None) -> Response:
        """Return the response to a request, unlike all other messages."""
        return Response(request.id, {"n": self.number(), "value": value})

    async def talk(self, client: End, server: End, value: object = None, what: str = "") -> None:
        """Let a value travel to the server in a request, and back in its response."""
        request = self.call(value)
        await client.send(request)
        await server.take(request, what)
        response = self.answer(request, value)
        await server.send(response)
        await client.take(response, what)

    # --- what is left behind ------------------------------------------------------------------------------------------

    async def nothing_left(self, now: Callable[[], dict[Any, str]], before: Collection[Any]) -> list[str]:
        """Wait until nothing is there that was not there before; return what does not go away."""
        deadline = trio.current_time() + self.timeout
        pause = 0.01
        # This polls, because no event says that the system has closed a descriptor.
        while (left := [name for key, name in now().items() if key not in before]) and trio.current_time() < deadline:
            await trio.sleep(pause)
            pause *= 2
        return sorted(left)

    @contextlib.contextmanager
    def warned(self) -> Iterator[list[str]]:
        """Record the warnings about resources that were not closed; the list is filled when the block ends."""
        texts: list[str] = []
        gc.collect()  # what is lost already is not this transport's
        with warnings.catch_warnings(record=True) as caught:
            # By default Python ignores these warnings, and reports one place only once.
            warnings.simplefilter("always", ResourceWarning)
            yield texts
            # A resource in a reference cycle warns only once the collector has found it.
            gc.collect()
            texts += [str(each.message) for each in caught if issubclass(each.category, ResourceWarning)]


async def settled(cushion: float = 0.0) -> None:
    """Wait until every other task waits, for this many seconds."""
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
    """Return the open descriptors of this process, with what they lead to where the system tells."""
    found: dict[Any, str] = {}
    # Only Linux has /proc/self/fd.
    for number in os.listdir("/dev/fd"):
        with contextlib.suppress(OSError):  # the folder's own is closed meanwhile
            status = os.fstat(int(number))
            target = "open"
            with contextlib.suppress(OSError):  # on Linux alone these are links
                target = os.readlink(f"/dev/fd/{number}")
            # The system gives a number again once it is free, so the number alone would hide a leak.
            found[number, status.st_dev, status.st_ino] = f"{number}: {target}"
    return found


def number_of(message: Incoming) -> int | None:
    """Return the number that a message got from `Stage.number`."""
    content = message.result if isinstance(message, Response) else getattr(message, "params", None)
    number = content.get("n") if isinstance(content, dict) else None
    return number if isinstance(number, int) else None


def shown(message: object) -> str:
    """Return a message as text, shortened."""
    text = (
        f"TransportFailure({message.error!r}, {message.request_id!r})"
        if isinstance(message, TransportFailure)
        else repr(message)
    )
    return text if len(text) <= 200 else f"{text[:120]}…{text[-60:]}"


def _same(sent: Incoming, arrived: Incoming) -> bool:
    # The JSON is compared, too, because 1, 1.0 and True are equal in Python.
    return sent is arrived or (sent == arrived and encode(sent) == encode(arrived))
