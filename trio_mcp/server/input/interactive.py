"""Runs a function that may ask the client, until it returns or needs an answer that comes with another request.

Parked functions keep waiting where they asked; the request that brings the answer resumes them (modern era).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import trio

from trio_mcp._log import logger
from trio_mcp.errors import McpError
from trio_mcp.server.functions.function import Call, single
from trio_mcp.server.input.options import InputRequired
from trio_mcp.server.input.questions import InputRequest, UrlElicitationRequired
from trio_mcp.server.input.request_state import Question, RequestState
from trio_mcp.server.input.rounds import (
    AskingContext,
    HandshakeRounds,
    ReplayedRounds,
    RoundEnded,
    Rounds,
    earlier_rounds,
)
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS, OVERLOADED

__all__ = ["ParkedRounds", "run_interactive"]


class ParkedRounds(Rounds):
    """The rounds of input of a parked function, which runs only once and waits where it asks, even between requests.

    The function runs in the nursery of the server's run, for one request at a time. The request being served waits for
    the function; if the request is cancelled, so is the function. Between two requests the function is only cancelled
    at a deadline, or when the run ends.
    """

    # Two tasks share this object: the function's, which runs in the run's nursery, and that of the current request.
    # `_changed` wakes the request (the function asks or has ended), `_answered` wakes the function. The function's task
    # keeps its outcome until a request has taken it (`_taken`); `_ended` is set when the function's task has ended.

    def __init__(self, context: AskingContext, earlier: RequestState | None, responses: Mapping[str, Any]) -> None:
        super().__init__(context, earlier, responses)
        self._scope = trio.CancelScope()
        self._id: str | None = None
        self._live = True  # whether a request is waiting for the function
        self._waiting: dict[str, tuple[InputRequest[Any], Question]] = {}
        self._answered = trio.lowlevel.ParkingLot()
        self._changed = trio.Event()
        self._done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._taken = trio.Event()
        self._ended = trio.Event()

    # --- in the function's tasks ---------------------------------------------------------------------------------

    async def _obtain(self, missing: dict[str, InputRequest[Any]], questions: dict[str, Question]) -> None:
        self._check_round()
        if self._id is None:  # an id exists if another task has asked in this round
            # The limit is checked again, because other functions may have begun to wait since `serve` checked it.
            self._check_room()
            self._enter()
        self._waiting.update({key: (request, questions[key]) for key, request in missing.items()})
        self._changed.set()

        async def answered() -> None:
            while any(key in self._waiting for key in missing):
                await self._answered.park()

        try:
            await self._wait(answered)
        finally:
            for key in missing:
                self._waiting.pop(key, None)  # a key is left only if the function has given up waiting
            # The entry in the table stays while no request waits for the function: the client has the id, and may still
            # come for the outcome.
            if not self._waiting and self._live:
                self._leave()

    async def _run(self, call: Call) -> None:
        """Run the function to its end, and keep the outcome until a request has taken it."""
        # No exception of the function may escape from here: the functions of all clients share the nursery.
        try:
            with self._scope:
                try:
                    self._value = await call()
                except RoundEnded:
                    self._error = _unanswered()
                except BaseExceptionGroup as group:
                    rest = group.split(RoundEnded)[1]
                    # If a Cancelled or a KeyboardInterrupt remains in the group, it belongs to Trio, and must not
                    # become the outcome of a request.
                    if rest is not None and not isinstance(rest, Exception):
                        raise rest from None
                    self._error = rest or _unanswered()
                except Exception as exc:
                    self._error = exc
                finally:
                    self._close()
                self._done = True
                self._changed.set()
                # The wait is inside the scope, so that an outcome that no request takes is dropped at the deadline.
                await self._taken.wait()
        except Exception as exc:
            logger.error("a parked handler of %r failed when cancelled", self.context.method, exc_info=exc)
        except BaseExceptionGroup as group:
            # Cancellation must reach the nursery, but failures must not: they are logged instead.
            cancelled, failures = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(failures, ExceptionGroup):
                raise
            logger.error("a parked handler of %r failed when cancelled", self.context.method, exc_info=failures)
            raise cancelled from None
        finally:
            # The function has ended, so later requests must not find it in the table.
            self._leave()
            self._changed.set()
            self._ended.set()

    # --- in the request's task -----------------------------------------------------------------------------------

    async def serve(self, call: Call) -> Any:
        # The limit is checked now, and not only when the function asks: by then the function may have done work, which
        # would be lost.
        self._check_room()
        self._open()
        self.run.nursery.start_soon(self._run, call, name=f"parked {self.context.method}")
        return await self._wait_for_function()

    async def _wait_for_function(self) -> Any:
        """Wait until the function returns, raises or asks. When cancelled, cancel the function and wait for its end."""
        parked = False
        try:
            while not self._done and not self._waiting:
                if self._ended.is_set():
                    raise McpError(INTERNAL_ERROR, "the handler was cancelled because the server is shutting down")
                await self._changed.wait()
                # The event is replaced before the conditions are checked again, without a checkpoint in between, so
                # that no change is missed.
                self._changed = trio.Event()
            if self._done:
                if self._error is not None:
                    raise self._error
                return self._value
            requests = {key: request for key, (request, _) in self._waiting.items()}
            asked = self.asked(requests, self._id)
            # Only this deadline ends a function whose client never comes back. The token expires at the same time.
            self._scope.deadline = trio.current_time() + self._seconds(requests)
            parked, self._live = True, False
            return asked
        except trio.Cancelled as exc:
            # The reason tells the function why it was cancelled, as it does for any handler.
            self._scope.cancel(exc.reason)
            raise
        finally:
            if not parked:
                self._taken.set()
                if not self._done:
                    self._scope.cancel("its request has ended")
                # Like any handler, the function ends before its request does: a handler that outlives the cancellation
                # of its request would not count towards any limit.
                with trio.CancelScope(shield=True):
                    await self._ended.wait()

    @property
    def waits(self) -> bool:
        """Whether a request may still resume the function."""
        return not self._scope.cancel_called

    async def resume(self, context: AskingContext, responses: Mapping[str, Any]) -> Any:
        """Continue the function under another request, and wait as `serve` does.

        Raises:
            McpError: If a response is malformed (-32602); the function is not resumed then.
        """
        # Malformed responses are refused before anything changes, so the client may try again with the same state.
        for key, data in responses.items():
            if key in self._waiting:
                self._take(key, self._waiting[key][1], data)
        # A requestState resumes its function only once: a second request with it, even at the same time, finds nothing.
        self._leave()
        self.context.go_on_as(context)
        self._live = True
        # The client is back: from here on, the new request limits the function, and the deadline for answers does not.
        self._scope.deadline = math.inf
        for key in responses:
            self._waiting.pop(key, None)
        if self._waiting:
            self._enter()  # some responses are missing: ask for them again, under a new id
        self._answered.unpark_all()
        return await self._wait_for_function()

    # --- the run's table -----------------------------------------------------------------------------------------

    def _check_room(self) -> None:
        most = self.run.options.max_parked
        if len(self.run.parked) >= most:
            raise McpError(OVERLOADED, f"{most} handlers are waiting for input, which is the limit; try again later")

    def _enter(self) -> None:
        # 128 random bits can't be guessed. What precedes them tells other processes that the function waits elsewhere.
        self._id = f"{self.run.place}.{secrets.token_urlsafe(16)}"
        self.run.parked[self._id] = self

    def _leave(self) -> None:
        if self._id is not None:
            self.run.parked.pop(self._id, None)
            self._id = None


def _unanswered() -> McpError:
    return McpError(INTERNAL_ERROR, "the handler waited for input that no request can provide any more")


async def run_interactive(context: AskingContext, bind: Callable[[], Call], *, park: bool) -> Any:
    """Call a user's function, and obtain answers to its questions.

    Args:
        context: The context of the function.
        bind: Binds the function to its arguments, once for each run.
        park: Whether, in the modern era, the function keeps waiting where it asks instead of running again.

    Returns:
        The function's return value, or `Asked`.
    """
    call = bind()  # raises if the arguments are invalid, before anything happens
    if not context.rules.input_in_results:
        return await HandshakeRounds(context, bind).serve(call)
    params = context.request.params or {}
    # Even the first request may contain responses, to questions that the client knows it will be asked.
    earlier: RequestState | None = None
    responses: dict[str, Any] = {}
    if "requestState" in params or "inputResponses" in params:
        earlier, responses = earlier_rounds(context)
    rounds: Rounds
    if earlier is not None and earlier.parked is not None and not _is_parked_here(context, earlier.parked):
        # The function waits in another process, or did before that ended. It begins again here, and asks again. All
        # rounds count together, so that this ends.
        earlier, responses = RequestState(earlier.round), {}
    if earlier is not None and earlier.parked is not None:
        # `call` stays unused: the function is already running, with the arguments of its first request. The token
        # guarantees that this request has the same arguments.
        rounds = parked = _parked(context, earlier.parked)
        serving = parked.resume(context, responses)
    else:
        rounds = (ParkedRounds if park else ReplayedRounds)(context, earlier, responses)
        serving = rounds.serve(call)
    # The modern era does not have the error -32042, so the pages are asked for like any other question.
    try:
        value = await serving
    except Exception as exc:
        pages = single(exc)
        if not isinstance(pages, UrlElicitationRequired):
            raise
        value = pages
    if isinstance(value, (InputRequired, UrlElicitationRequired)):
        return rounds.asked(rounds.explicit(value))
    return value


def _is_parked_here(context: AskingContext, identity: str) -> bool:
    return identity.partition(".")[0] == context.connection.input.place


def _parked(context: AskingContext, identity: str) -> ParkedRounds:
    """Return the rounds of the parked function that a request resumes.

    Raises:
        McpError: If no such function is waiting (-32602).
    """
    rounds = context.connection.input.parked.get(identity)
    if not isinstance(rounds, ParkedRounds) or not rounds.waits:
        raise McpError(
            INVALID_PARAMS,
            "no handler is waiting for this requestState: it was used before, or has expired; make the request again "
            "without it",
        )
    return rounds
