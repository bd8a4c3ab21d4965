"""Answer the questions with which a modern server responds to a request, and send the request again with the answers.

See 2026-07-28 `basic/patterns/mrtr`. Each round is a separate request, which has a new id and passes through
the middleware.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from trio_mcp.client.connection import ClientConnection
from trio_mcp.convert import as_object, as_result
from trio_mcp.errors import InputError, LocalProtocolError, RemoteProtocolError, RequestTimeout
from trio_mcp.session.calls import USE_SESSION, CallLimits
from trio_mcp.types._base import WireModel
from trio_mcp.types.common import COMPLETE, INPUT_REQUIRED

if TYPE_CHECKING:  # few servers ask for input, so the module is imported only when one does
    from trio_mcp.types.input_required import InputRequiredResult

__all__ = ["InputRounds", "read_input_required"]

# This limit is an arbitrary choice: no user answers more questions in one go, and each question may occupy a callback.
MAX_INPUT_REQUESTS = 32
"""How many questions a server may ask in one round; all of them are passed to the callbacks at the same time."""

# The pauses before retries without answers are short enough for a server that needs a moment, and long enough not to
# load a server that needs minutes.
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 2.0
"""The longest wait, in seconds, before a request is sent again although the server asked no questions.

The first such wait of a call is `FIRST_PAUSE`; each further one is twice as long.
"""

ModelT = TypeVar("ModelT", bound=WireModel)
GetAnswer = Callable[[], Awaitable[dict[str, Any]]]


class InputRounds:
    """Answers the questions with which a server responds to a client's calls, and sends the calls again, in rounds.

    Args:
        connection: The client's connection.
        max_rounds: How many times the server may ask during one call.
    """

    def __init__(self, connection: ClientConnection, max_rounds: int) -> None:
        self._connection = connection
        self._max_rounds = max_rounds

    async def finish(
        self,
        method: str,
        params: dict[str, Any],
        result: dict[str, Any],
        started: float,
        limits: CallLimits,
        *,
        whole: bool = True,
    ) -> dict[str, Any]:
        """Answer the server's questions until it returns a final result.

        Args:
            method: The method of the request.
            params: The parameters of the request as first sent.
            result: The server's first result.
            started: The clock time at which the request was first sent.
            limits: The limits of the call. ``total_timeout`` covers all rounds; the other limits apply to each request,
                so the time that the user takes does not count towards ``timeout``.
            whole: Whether a result of a type that an extension has added is finished by that extension.

        Raises:
            InputError: If a callback provides no answer.
            RemoteProtocolError: If the server asks for something that it must not ask for, or for too much.
            RequestTimeout: If a time limit runs out.
        """
        session = self._connection.session
        if not session.modern:
            return result  # in the legacy era, `resultType` has no meaning
        total = limits.get("total_timeout", USE_SESSION)
        total = session.options.calls.total_timeout if total is USE_SESSION else total
        # One cancel scope limits all requests together, so no single request has a `total_timeout`.
        of_a_round = CallLimits(**{**limits, "total_timeout": None})
        with trio.CancelScope(deadline=inf if total is None else started + total):
            if result.get("resultType") == INPUT_REQUIRED:
                result = await self._ask_and_repeat(method, params, result, of_a_round)
            return await self._finished(method, params, result, of_a_round) if whole else result
        # The block either returns or raises, so only the scope's deadline can have ended it.
        assert total is not None
        raise RequestTimeout(method, total, "total_timeout")

    async def _ask_and_repeat(
        self, method: str, params: dict[str, Any], result: dict[str, Any], limits: CallLimits
    ) -> dict[str, Any]:
        """Answer questions and send the request again, until the server asks no more."""
        pause = FIRST_PAUSE
        # The number of rounds is limited as well as the time: without `total_timeout`, the server could keep a call
        # busy forever.
        for _ in range(self._max_rounds):
            requests, state = read_input_required(method, result)
            answers = None if requests is None else await self._answer(method, requests)
            if not requests:  # without questions, nothing else would delay the next round
                await trio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            # Each round is a new request, through the middleware and with a new id (2026-07-28 `basic/patterns/mrtr`).
            result = await self._connection.request(method, _retry(params, answers, state), limits)
            if result.get("resultType") != INPUT_REQUIRED:
                return result
        raise RemoteProtocolError(
            f"the server still asked for input for {method!r} after max_input_rounds={self._max_rounds} rounds"
        )

    async def _finished(
        self, method: str, params: dict[str, Any], result: dict[str, Any], limits: CallLimits
    ) -> dict[str, Any]:
        """Let the extension that has added the type of a result finish the result."""
        extensions, kind = self._connection.extensions, result.get("resultType")
        # A middleware may have returned anything, so the type may not even be a string.
        finish = extensions.finishers.get(kind) if extensions is not None and isinstance(kind, str) else None
        if extensions is None or finish is None:
            return result
        final = await finish(extensions.client, method, params, result, limits)
        if final.get("resultType", COMPLETE) != COMPLETE:
            # Otherwise a server could have a call finished again and again.
            raise RemoteProtocolError(f"the final result of {method!r} must have the resultType {COMPLETE!r}")
        return final

    async def answer(self, method: str, requests: Mapping[str, Any], rounds: int) -> dict[str, Any]:
        """Answer questions that did not arrive in an input_required result; see `ClientAccess.answer`."""
        if len(requests) > MAX_INPUT_REQUESTS:
            raise RemoteProtocolError(_too_many(len(requests)))
        if rounds > self._max_rounds:
            raise RemoteProtocolError(
                f"the server still asked for input for {method!r} after max_input_rounds={self._max_rounds} rounds"
            )
        return await self._answer(method, requests)

    async def _answer(self, method: str, requests: Mapping[str, Any]) -> dict[str, Any]:
        """Check every question before passing any to a callback; then call all callbacks at the same time."""
        ready: dict[str, tuple[str, GetAnswer]] = {}
        for key, request in requests.items():
            asked = request.get("method") if isinstance(request, dict) else None
            if not isinstance(asked, str):
                # The key is shortened, because the server chose it and it must not flood a log.
                raise RemoteProtocolError(f"the input request {key[:100]!r} of {method!r} is malformed")
            try:
                ready[key] = asked, self._connection.prepare(key, asked, request.get("params"))
            except RemoteProtocolError as exc:
                raise RemoteProtocolError(
                    f"the input request {key[:100]!r} of {method!r} can't be answered: {exc}", exc.code
                ) from None
        if len(ready) == 1:  # a single question, the usual case, needs no nursery
            ((key, (asked, get_answer)),) = ready.items()
            return {key: await _get(key, asked, get_answer)}
        return await _get_all(ready)

    async def once(
        self,
        method: str,
        model: type[ModelT],
        params: dict[str, Any],
        input_responses: Mapping[str, Any] | None,
        request_state: str | None,
        limits: CallLimits,
    ) -> tuple[dict[str, Any], ModelT | InputRequiredResult]:
        """Send one request for a caller that answers questions itself; return the result as received and as a model.

        A result of a type that an extension has added is finished by that extension.
        """
        session, started = self._connection.session, trio.current_time()
        if input_responses is not None or request_state is not None:
            if not session.modern:
                raise LocalProtocolError(
                    "input_responses and request_state belong to rounds of input, which revision "
                    f"{session.server.revision} does not have"
                )
            params = _retry(params, _responses(input_responses), request_state)
        result = await self._connection.request(method, params, limits)
        if result.get("resultType") == INPUT_REQUIRED and session.modern:
            from trio_mcp.types.input_required import InputRequiredResult

            # The return value is not used: this call only checks the result, because the caller answers the questions.
            read_input_required(method, result)
            return result, as_result(result, InputRequiredResult, method)
        if result.get("resultType", COMPLETE) != COMPLETE:
            result = await self.finish(method, params, result, started, limits)
        return result, as_result(result, model, method)


async def _get(key: str, method: str, get_answer: GetAnswer) -> dict[str, Any]:
    try:
        return await get_answer()
    except Exception as exc:
        # If a callback fails, nothing is sent to the server: in the modern era a response to a single question can't be
        # an error. Instead the client's call fails, and the server's state expires.
        raise InputError(method, key, f"{type(exc).__name__}: {exc}") from exc


async def _get_all(ready: Mapping[str, tuple[str, GetAnswer]]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    failures: list[InputError] = []

    async def get(key: str, method: str, get_answer: GetAnswer) -> None:
        try:
            answers[key] = await _get(key, method, get_answer)
        except InputError as exc:
            # The error is collected, not raised, so that the caller gets this exception itself and not an exception
            # group.
            failures.append(exc)
            # The call fails with the first failure, so the other questions of this round need no answer.
            nursery.cancel_scope.cancel("another question of the same round failed")

    async with trio.open_nursery() as nursery:
        for key, (method, get_answer) in ready.items():
            nursery.start_soon(get, key, method, get_answer)
    if failures:
        raise failures[0]
    return answers


def read_input_required(method: str, result: dict[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
    """Return the questions in a result that asks for input, and the state to send back.

    Raises:
        RemoteProtocolError: If the result is malformed, or asks for too much.
    """
    requests, state = result.get("inputRequests"), result.get("requestState")
    # If there are neither questions nor a state, each retry would be the same request, forever.
    if requests is None and state is None:
        raise RemoteProtocolError(
            f"the server asked for input for {method!r}, but sent neither inputRequests nor requestState"
        )
    if not isinstance(requests, (dict, type(None))) or not isinstance(state, (str, type(None))):
        raise RemoteProtocolError(f"the server's input_required response to {method!r} is malformed")
    if requests is not None and len(requests) > MAX_INPUT_REQUESTS:
        raise RemoteProtocolError(_too_many(len(requests)))
    return requests, state


def _too_many(count: int) -> str:
    return f"the server asked for {count} inputs at once; the limit is {MAX_INPUT_REQUESTS}"


def _retry(params: dict[str, Any], answers: dict[str, Any] | None, state: str | None) -> dict[str, Any]:
    """Return the parameters for the next round, with the given answers and state, but nothing from earlier rounds."""
    # The parameters are made from those of the first request each time, because the state of an earlier round must not
    # be sent again.
    again = dict(params)
    # The answers are left out if the server asked no questions and only wants its state back.
    if answers is not None:
        again["inputResponses"] = answers
    if state is not None:
        again["requestState"] = state
    return again


def _responses(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise TypeError(f"input_responses must be a mapping, got {type(given).__name__}")
    return {key: as_object(value, f"the response to the input {key!r}") for key, value in given.items()}
