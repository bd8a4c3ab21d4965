"""Follow one task of a server: poll and listen for its state, and answer its questions.

See ``io.modelcontextprotocol/tasks``, sections Task Polling, Task Update Requests and Task Status Notifications.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery
from trio_mcp.client.access import ClientAccess
from trio_mcp.client.subscriptions import Subscription
from trio_mcp.errors import (
    AuthorizationError,
    McpError,
    RemoteProtocolError,
    RequestTimeout,
    TransportError,
)
from trio_mcp.extensions.tasks.errors import TaskExpired
from trio_mcp.extensions.tasks.wire import TaskState, read_state
from trio_mcp.session.calls import USE_SESSION, CallLimits
from trio_mcp.types.error_codes import METHOD_NOT_FOUND

if TYPE_CHECKING:
    from trio_mcp.client.client import Client

__all__ = ["FollowedTask", "TaskCalls"]

# The bounds of the interval between two polls, in seconds. They are arbitrary choices: a server can neither keep a
# client busy with polls, nor make it notice the end of a task hours late.
SHORTEST_INTERVAL: Final = 0.05
LONGEST_INTERVAL: Final = 60.0
USUAL_INTERVAL: Final = 1.0
"""The interval if the server suggests none, in seconds (arbitrary)."""
SLOW_INTERVAL: Final = 30.0
"""The shortest interval while the server announces changes, in seconds (arbitrary): a notification may get lost."""
MAX_STUCK: Final = 60
"""The polls for which a task may still need input although all of its questions were answered (arbitrary)."""
MAX_FAILED: Final = 3
"""How many polls must fail in a row, with the connection open, before waiting fails (arbitrary)."""
MAX_ATTEMPTS_TO_HEAR: Final = 3
"""How many times a client listens for changes of one task before it only polls (arbitrary)."""
LISTEN_TIMEOUT: Final = 10.0
"""Seconds to wait for the first poll, and for the acknowledgement of the subscription (arbitrary)."""
LINGER: Final = 5.0
"""Seconds for which a client goes on listening for changes after the last wait for them (arbitrary)."""
CANCEL_TIMEOUT: Final = 10.0
"""Seconds to wait for the response to a cancellation for which no caller waits (arbitrary)."""
LONGEST_TTL_MS: Final = 1e15
"""A longer time to live, over 30,000 years, counts as no limit (arbitrary)."""


@attrs.define(eq=False)
class TaskCalls:
    """The requests and settings that the tasks of one client share.

    Attributes:
        client: The client.
        access: The parts of the client that extensions use.
        listens: Whether to listen for changes; False once the server has turned out not to announce them.
    """

    client: Client
    access: ClientAccess
    listens: bool = True

    async def request(self, method: str, task: FollowedTask, limits: CallLimits, **params: Any) -> dict[str, Any]:
        """Send a request about a task. A client with several ways to the server may repeat it on another way."""
        of_one = CallLimits(
            timeout=limits.get("timeout", USE_SESSION),
            total_timeout=None,
            retry=True,
            urgent=limits.get("urgent", False),
            headers=task.headers,
        )
        return await self.client.request(method, {"taskId": task.id, **params}, **of_one)


class FollowedTask:
    """The state of a task of a server, shared by all functions that wait for it, so that each poll is sent once.

    Args:
        calls: The requests and settings that the tasks of the client share.
        task_id: The task's id.
        seed: The state with which the task was created; None if only its id is known.
        headers: The HTTP headers that each request about the task has for itself.
        apart: Whether the requests may have such headers; the object is then for one handle alone, and does not listen.

    Attributes:
        id: The task's id.
        headers: The argument.
        state: The newest known state; None before the first one.
        whole: Whether the state includes the outcome and the questions, which the result that creates a task lacks.
        version: How many states have been recorded.
    """

    def __init__(
        self,
        calls: TaskCalls,
        task_id: str,
        seed: TaskState | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        apart: bool = False,
    ) -> None:
        self.id = task_id
        self.headers = headers
        self._apart = apart
        self.state = seed
        self.whole = False
        self.version = 0
        self._calls = calls
        self._began = trio.current_time()
        self._polled = -math.inf
        self._polls = self._failed = 0
        # How much has been heard of the task; and whether there was something during the last poll, whose response may
        # therefore be older, for example because another process of the server has given it.
        self._heard = 0
        self._overtaken = False
        self._turn = trio.Lock()  # held by the function that waits for the next state, on behalf of all others
        self._news = trio.lowlevel.ParkingLot()
        # The keys of the questions that have been passed to the callbacks, and of those whose answers have been sent;
        # and the answers that have not been sent yet.
        self._asked: set[str] = set()
        self._sent: set[str] = set()
        self._unsent: dict[str, Any] = {}
        self._answering = self._rounds = self._answered_at = 0
        self._waiting = 0
        self._left = self._began
        self._listens = 0
        self._hearing: trio.CancelScope | None = None
        self._honored = False

    @property
    def ended(self) -> bool:
        """Whether the task has ended and its outcome is known."""
        return self.whole and self.state is not None and self.state.is_final

    # --- the state ---------------------------------------------------------------------------------------------------

    async def get(self, limits: CallLimits) -> TaskState:
        """Poll the state once.

        Raises:
            McpError: If the server does not know the task, for example.
            RemoteProtocolError: If the state is malformed, or the server has changed a final status.
        """
        before, heard = self.ended, self._heard
        state = read_state(await self._calls.request("tasks/get", self, limits), self.id)
        self._polled, self._overtaken = trio.current_time(), self._heard > heard
        self._polls += 1
        if before and self.state is not None and state.status != self.state.status:
            raise RemoteProtocolError(
                f"the server changed the status of a task from {self.state.status!r}, which is final,"
                f" to {state.status!r}"
            )
        self.note(state)
        return state

    def note(self, state: TaskState) -> None:
        """Record a whole state, from a result or a notification."""
        # A notification or the response to another poll may arrive late, so a final status is never replaced.
        if self.ended:
            return
        self.state, self.whole = state, True
        self.version += 1
        self._heard += 1
        if state.is_final and self._hearing is not None:
            self._hearing.cancel("the task has ended")
        self._news.unpark_all()

    async def observe(self, seen: int, limits: CallLimits) -> None:
        """Wait until a state newer than the version ``seen`` is known.

        Raises:
            TaskExpired: If the task's time to live has ended.

        Further errors are those of `get`.
        """
        with self._being_waited_for():
            while self.version == seen:
                async with self._turn:
                    if self.version == seen:
                        await self._wait_and_poll(limits)

    async def _wait_and_poll(self, limits: CallLimits) -> None:
        version = self.version
        while self.version == version:
            wait = self._due() - trio.current_time()
            if wait > 0:
                with trio.move_on_after(wait):
                    await self._news.park()
            else:
                await self._poll(limits)

    async def _poll(self, limits: CallLimits) -> None:
        try:
            await self.get(limits)
        except TransportError as exc:
            # The task does not depend on the connection, so one broken exchange must not end the wait for it.
            self._failed += 1
            if self._failed >= MAX_FAILED or self._calls.client.session.closed or isinstance(exc, AuthorizationError):
                raise
            self._polled = trio.current_time()
            return
        self._failed = 0
        seconds = self._time_to_live()
        if not self.ended and trio.current_time() >= self._began + seconds:
            raise TaskExpired(seconds)

    def _due(self) -> float:
        """Return the time of the next poll, on Trio's clock."""
        stated = None if self.state is None else self.state.poll_interval_ms
        # The bounds apply before the division, because an integer in JSON may be too large for a float.
        interval = USUAL_INTERVAL if stated is None else min(stated, LONGEST_INTERVAL * 1000) / 1000
        interval = max(interval, SLOW_INTERVAL if self._honored else SHORTEST_INTERVAL)
        if self._overtaken:
            interval = SHORTEST_INTERVAL
        # The last poll comes when the time to live ends.
        return min(self._polled + interval, max(self._began + self._time_to_live(), self._polled + SHORTEST_INTERVAL))

    def _time_to_live(self) -> float:
        # The time counts from when this client first knew of the task, which is after its creation, so the clocks of
        # the two sides need not agree.
        ttl = None if self.state is None else self.state.ttl_ms
        return math.inf if ttl is None or ttl > LONGEST_TTL_MS else ttl / 1000

    def _poll_now(self) -> None:
        self._polled = -math.inf
        self._heard += 1
        self._news.unpark_all()

    # --- the end -----------------------------------------------------------------------------------------------------

    async def outcome(self, limits: CallLimits) -> TaskState:
        """Wait until the task has ended, and answer its questions; return the final state.

        Raises:
            InputError: If a callback provides no answer.
            RemoteProtocolError: If the server breaks the protocol, or if the task still needs input `MAX_STUCK` polls
                after all of its questions were answered.
            TaskExpired: If the task's time to live has ended.

        Further errors are those of `get`.
        """
        async with background_nursery() as nursery:
            with self._being_waited_for():
                while not self.ended:
                    state = self.state
                    if self.whole and state is not None and state.status == "input_required":
                        self._take_up(state.input_requests or {}, nursery, limits)
                    await self.observe(self.version, limits)
        assert self.state is not None
        return self.state

    def _take_up(self, requests: Mapping[str, Any], nursery: trio.Nursery, limits: CallLimits) -> None:
        """Pass new questions to the callbacks in the caller's nursery, so that polling continues meanwhile."""
        fresh = {key: request for key, request in requests.items() if key not in self._asked}
        if fresh:
            self._asked |= fresh.keys()
            self._rounds += 1
        if fresh or (self._unsent and not self._answering):
            self._answering += 1
            nursery.start_soon(self._answer, fresh, limits)
        elif not self._answering and self._polls - self._answered_at >= MAX_STUCK:
            raise RemoteProtocolError(
                f"a task still needed input {MAX_STUCK} polls after all of its questions had been answered"
            )

    async def _answer(self, questions: dict[str, Any], limits: CallLimits) -> None:
        try:
            if questions:
                self._unsent |= await self._calls.access.answer("tools/call", questions, rounds=self._rounds)
            await self._send_answers(limits)
        finally:
            self._answering -= 1
            self._answered_at = self._polls
            # The next function that waits for the task passes questions without answers to the callbacks again.
            self._asked -= questions.keys() - self._unsent.keys() - self._sent
        self._poll_now()

    async def _send_answers(self, limits: CallLimits) -> None:
        answers, self._unsent = self._unsent, {}
        try:
            await self._calls.request("tasks/update", self, limits, inputResponses=answers)
        except BaseException:
            # The server may have got the answers already; it then ignores them.
            self._unsent = {**answers, **self._unsent}
            raise
        self._sent |= answers.keys()

    # --- cancelling --------------------------------------------------------------------------------------------------

    async def cancel(self, limits: CallLimits) -> None:
        """Ask the server to cancel the task."""
        await self._calls.request("tasks/cancel", self, limits)

    def abandon(self) -> None:
        """Cancel the task in a background task of the session, unless it has ended; do not wait."""
        if not self.ended:
            self._calls.client.session.start_soon(self._cancel_quietly)

    async def _cancel_quietly(self) -> None:
        try:
            await self.cancel(CallLimits(timeout=CANCEL_TIMEOUT))
        except Exception as exc:
            # No caller waits for the cancellation, and the server deletes the task when it expires.
            logger.info("cancelling a task failed: %s", type(exc).__name__)

    # --- listening ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _being_waited_for(self) -> Iterator[None]:
        """Listen for changes while the block runs, and for `LINGER` seconds after it."""
        self._waiting += 1
        if (
            self._calls.listens
            and not self._apart
            and not self.ended
            and self._hearing is None
            and self._listens < MAX_ATTEMPTS_TO_HEAR
            and self._calls.client.session.start_soon(self._hear)
        ):
            self._listens += 1
            self._hearing = trio.CancelScope()
        try:
            yield
        finally:
            self._waiting -= 1
            self._left = trio.current_time()

    # A background task of the session listens, because an iterator over states may be dropped without notice.
    async def _hear(self) -> None:
        assert self._hearing is not None
        try:
            with self._hearing:
                await self._first_look()
                async with self._calls.access.listen({"taskIds": [self.id]}, LISTEN_TIMEOUT) as subscription:
                    if self.id in (subscription.honored.model_extra or {}).get("taskIds", ()):
                        self._honored = True
                        # The state may have changed before the server began to announce changes.
                        self._poll_now()
                        await self._linger(subscription)
                    else:
                        self._calls.listens = False
        except Exception as exc:
            # Without announcements, the state is polled.
            if isinstance(exc, RequestTimeout) or (isinstance(exc, McpError) and exc.code == METHOD_NOT_FOUND):
                self._calls.listens = False
            logger.debug("listening for the changes of a task ended: %s", type(exc).__name__)
        finally:
            self._hearing, self._honored = None, False
            self._news.unpark_all()

    async def _first_look(self) -> None:
        # If the first poll finds that the task has ended, no stream is opened: `note` cancels the scope around this.
        if not self.whole:
            with trio.move_on_after(LISTEN_TIMEOUT):
                await self._news.park()

    async def _linger(self, subscription: Subscription) -> None:
        """Wait until the subscription ends, or no function has waited for the task for `LINGER` seconds."""
        while self._waiting or trio.current_time() < self._left + LINGER:
            with trio.move_on_after(LINGER):
                # The subscription yields nothing: its notifications go to `note`.
                async for _ in subscription:
                    pass
                return
