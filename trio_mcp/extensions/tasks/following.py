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

# The bounds of the interval between two requests for the state, in seconds. They are arbitrary choices: a server can
# neither make a client busy nor make it miss the end of a task for hours.
SHORTEST_INTERVAL: Final = 0.05
LONGEST_INTERVAL: Final = 60.0
USUAL_INTERVAL: Final = 1.0
"""The interval if the server suggests none (arbitrary)."""
SLOW_INTERVAL: Final = 30.0
"""The shortest interval while the server announces changes: a lost announcement must not be waited for forever."""
MAX_STUCK: Final = 60
"""How many times a task may still need input although all of its questions have been answered (arbitrary)."""
MAX_FAILED: Final = 3
"""How many requests for the state may fail in a row, if the connection is open, before waiting fails (arbitrary)."""
MAX_ATTEMPTS_TO_HEAR: Final = 3
"""How many times a client listens for changes of one task, before it only polls (arbitrary)."""
LISTEN_TIMEOUT: Final = 10.0
LINGER: Final = 5.0
"""How many seconds a client goes on listening for changes while no task waits for them."""
CANCEL_TIMEOUT: Final = 10.0
LONGEST_TTL_MS: Final = 1e15
"""A longer time to live, about 30,000 years, does not limit anything."""


@attrs.define(eq=False)
class TaskCalls:
    """The things that the tasks of one client share.

    Attributes:
        client: The client.
        access: The parts of the client.
        listens: Whether the server may announce changes of tasks; False once it has turned out not to.
    """

    client: Client
    access: ClientAccess
    listens: bool = True

    async def request(self, method: str, task_id: str, limits: CallLimits, **params: Any) -> dict[str, Any]:
        """Send a request about a task; each of them may be repeated on another way to the server."""
        timeout, urgent = limits.get("timeout", USE_SESSION), limits.get("urgent", False)
        return await self.client.request(
            method, {"taskId": task_id, **params}, timeout=timeout, total_timeout=None, retry=True, urgent=urgent
        )


class FollowedTask:
    """A task of a server, for all functions that wait for it: they poll and ask only once.

    Args:
        calls: What the tasks of the client share.
        task_id: The task's id.
        seed: The state with which the task was created; None if the task is older.

    Attributes:
        id: The task's id.
        state: The newest known state; None if none is known.
        whole: Whether the state has the task's outcome and questions, which the result that creates a task lacks.
        version: How many states have been seen.
    """

    def __init__(self, calls: TaskCalls, task_id: str, seed: TaskState | None = None) -> None:
        self.id = task_id
        self.state = seed
        self.whole = False
        self.version = 0
        self._calls = calls
        self._began = trio.current_time()
        self._polled = -math.inf
        self._polls = self._failed = 0
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
        """Ask the server for the state.

        Raises:
            McpError: If the server does not know the task, for example.
            RemoteProtocolError: If the state is malformed, or the task has left a final status.
        """
        before = self.ended
        state = read_state(await self._calls.request("tasks/get", self.id, limits), self.id)
        self._polled = trio.current_time()
        self._polls += 1
        if before and self.state is not None and state.status != self.state.status:
            raise RemoteProtocolError(
                f"the server changed the status of a task from {self.state.status!r}, which is final,"
                f" to {state.status!r}"
            )
        self.note(state)
        return state

    def note(self, state: TaskState) -> None:
        """Take note of a whole state, from a result or a notification."""
        # A notification, and the response to another request, may arrive late; so nothing follows a final status.
        if self.ended:
            return
        self.state, self.whole = state, True
        self.version += 1
        if state.is_final and self._hearing is not None:
            self._hearing.cancel("the task has ended")
        self._news.unpark_all()

    async def observe(self, seen: int, limits: CallLimits) -> None:
        """Wait until a state after the version ``seen`` is known.

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
            # The task goes on without the connection, so one broken exchange must not end the wait for it.
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
        """Return when the server is to be asked next."""
        stated = None if self.state is None else self.state.poll_interval_ms
        # The bounds apply before the division, because an integer in JSON may be too large for a float.
        interval = USUAL_INTERVAL if stated is None else min(stated, LONGEST_INTERVAL * 1000) / 1000
        interval = max(interval, SLOW_INTERVAL if self._honored else SHORTEST_INTERVAL)
        # The last look comes when the time to live ends.
        return min(self._polled + interval, max(self._began + self._time_to_live(), self._polled + SHORTEST_INTERVAL))

    def _time_to_live(self) -> float:
        # The time is counted from when this client first knew of the task, never before its creation, so the clocks of
        # both sides need not agree.
        ttl = None if self.state is None else self.state.ttl_ms
        return math.inf if ttl is None or ttl > LONGEST_TTL_MS else ttl / 1000

    def _poll_now(self) -> None:
        self._polled = -math.inf
        self._news.unpark_all()

    # --- the end -----------------------------------------------------------------------------------------------------

    async def outcome(self, limits: CallLimits) -> TaskState:
        """Wait until the task has ended, and answer its questions; return the final state.

        Raises:
            InputError: If a callback provides no answer.
            RemoteProtocolError: If the server breaks the protocol, or the task still needs input `MAX_STUCK` polls
                after all of its questions have been answered.
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
        """Pass new questions to the callbacks, in a task of the caller, so that the state is watched meanwhile."""
        fresh = {key: request for key, request in requests.items() if key not in self._asked}
        if fresh:
            self._asked |= fresh.keys()
            self._rounds += 1
        if fresh or (self._unsent and not self._answering):
            self._answering += 1
            nursery.start_soon(self._answer, fresh, limits)
        elif not self._answering and self._polls - self._answered_at >= MAX_STUCK:
            raise RemoteProtocolError(
                f"a task still needed input after all of its questions had been answered and {MAX_STUCK} polls"
            )

    async def _answer(self, questions: dict[str, Any], limits: CallLimits) -> None:
        try:
            if questions:
                self._unsent |= await self._calls.access.answer("tools/call", questions, rounds=self._rounds)
            await self._send_answers(limits)
        finally:
            self._answering -= 1
            self._answered_at = self._polls
            # A question without an answer is asked again by the next function that waits for the task.
            self._asked -= questions.keys() - self._unsent.keys() - self._sent
        self._poll_now()

    async def _send_answers(self, limits: CallLimits) -> None:
        answers, self._unsent = self._unsent, {}
        try:
            await self._calls.request("tasks/update", self.id, limits, inputResponses=answers)
        except BaseException:
            # The server may have got the answers; it ignores those to questions that have been answered.
            self._unsent = {**answers, **self._unsent}
            raise
        self._sent |= answers.keys()

    # --- cancelling --------------------------------------------------------------------------------------------------

    async def cancel(self, limits: CallLimits) -> None:
        """Ask the server to cancel the task."""
        await self._calls.request("tasks/cancel", self.id, limits)

    def abandon(self) -> None:
        """Hand over the cancellation of the task to the session, without waiting, unless the task has ended."""
        if not self.ended:
            self._calls.client.session.start_soon(self._cancel_quietly)

    async def _cancel_quietly(self) -> None:
        try:
            await self.cancel(CallLimits(timeout=CANCEL_TIMEOUT))
        except Exception as exc:
            # No caller waits for it, and the server discards the task by itself some day.
            logger.info("cancelling a task failed: %s", type(exc).__name__)

    # --- listening ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _being_waited_for(self) -> Iterator[None]:
        """Listen for changes while the block runs, and for a moment after it."""
        self._waiting += 1
        if (
            self._calls.listens
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

    # A task of the session listens, because an iterator over states has no end at which it could stop to listen.
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
            # A server that does not announce changes is polled instead.
            if isinstance(exc, RequestTimeout) or (isinstance(exc, McpError) and exc.code == METHOD_NOT_FOUND):
                self._calls.listens = False
            logger.debug("listening for the changes of a task ended: %s", type(exc).__name__)
        finally:
            self._hearing, self._honored = None, False
            self._news.unpark_all()

    async def _first_look(self) -> None:
        # A task that has already ended costs one request and no stream: its end cancels the scope around this.
        if not self.whole:
            with trio.move_on_after(LISTEN_TIMEOUT):
                await self._news.park()

    async def _linger(self, subscription: Subscription) -> None:
        """Wait until the subscription ends, or no function has waited for the task for a while."""
        while self._waiting or trio.current_time() < self._left + LINGER:
            with trio.move_on_after(LINGER):
                # The subscription yields nothing: its notifications go to `note`.
                async for _ in subscription:
                    pass
                return
