"""Rounds of input for one request: how a question reaches the client in each era, and the answer the handler.

Legacy: the question is a request to the client, and the handler waits for the answer. Modern: an unanswered question
ends the round. The function's own scope is cancelled, the client gets the question as the result of its request, and
when it comes back with the answer the function runs again (2026-07-28 `basic/patterns/mrtr`), unless it was parked.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
import trio
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from trio_mcp.convert import brief
from trio_mcp.errors import LocalProtocolError, McpError
from trio_mcp.server.input.asking import InputRequest, InputRequired, UrlElicitationRequired
from trio_mcp.server.input.request_state import Answer, Question, RequestState, StateRefused, digest_of
from trio_mcp.types.error_codes import INVALID_PARAMS

if TYPE_CHECKING:
    from trio_mcp.server.connection import Connection
    from trio_mcp.server.context import Context
    from trio_mcp.server.core import ServerCore
    from trio_mcp.types.input_required import InputResponse

__all__ = [
    "Asked",
    "LegacyRounds",
    "ReplayedRounds",
    "RoundEnded",
    "Rounds",
    "connection_of",
    "earlier_rounds",
    "no_asking",
    "principal_of",
]

logger = logging.getLogger("trio_mcp")


class RoundEnded(BaseException):
    """Unwinds code that waits for an answer where no cancellation reaches it: a thread, or a shielded scope."""


@attrs.frozen
class Asked:
    """The outcome of a function that has asked instead of returning: the result to answer the request with."""

    result: dict[str, Any]


class Rounds:
    """What one request has asked so far, and what was answered. Subclasses know how to get an answer.

    Attributes:
        context: The handler's.
        answers: By key.
        memory: What is done once only, by key.
        state: The handler's own, of the last `InputRequired`.
        round: How often the request has been answered with questions.
        offered: Responses that came without a state, before anything was asked: they answer questions that the handler
            has given these keys.
    """

    def __init__(self, server: ServerCore, context: Context[Any], earlier: RequestState | None = None) -> None:
        earlier = earlier or RequestState()
        self.server = server
        self.host = connection_of(context).serving.server  # whose settings hold, if that one is mounted in it
        self.context = context
        self.answers = dict(earlier.answers)
        self.memory = dict(earlier.memory)
        self.state = earlier.state
        self.round = earlier.round
        self.offered: dict[str, Any] = {}
        self._used: set[str] = set()
        self._waits: set[trio.CancelScope] = set()
        self.over = False

    # --- for the context -----------------------------------------------------------------------------------------

    async def ask(self, requests: tuple[InputRequest[Any], ...]) -> list[Any]:
        """Get the answers to some questions, in one round."""
        revision = self.context.protocol_version
        for request in requests:
            request.check(self.context)
        if self.over:
            await self._end()
        keyed = self._keyed(requests)
        questions = {key: _question(request, revision) for key, request in keyed.items()}
        missing = {}
        for key, question in questions.items():
            if keyed[key].key in self.offered:
                self._take(key, question, self.offered.pop(key))
            if key not in self.answers:
                missing[key] = keyed[key]
            elif self.answers[key].question != question:
                raise _another_question(key)
        if missing:
            await self._obtain(missing, questions)
        else:
            await trio.lowlevel.checkpoint()
        return [self._read(key, request) for key, request in keyed.items()]

    async def once(self, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """See `Context.once`."""
        if not isinstance(key, str):
            raise TypeError(f"key must be a string, got {type(key).__name__}")
        if self.over:
            await self._end()
        if key not in self.memory:
            value = function(*arguments)
            if isinstance(value, Awaitable):
                value = await value
            self.memory[key] = _plain(value, f"the value of once({key!r})")
        await trio.lowlevel.checkpoint()
        return self.memory[key]

    @property
    def responses(self) -> Mapping[str, InputResponse]:
        """The answers so far, as models of the wire."""
        return {key: _response(each.question.method, each.data) for key, each in self.answers.items()}

    # --- for the subclasses --------------------------------------------------------------------------------------

    async def _obtain(self, missing: dict[str, InputRequest[Any]], questions: dict[str, Question]) -> None:
        """Fill in the answers that are missing, or unwind the caller."""
        raise NotImplementedError

    async def _wait(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Wait for an answer, no longer than the function runs: a thread's wait is not in the function's scope."""
        with trio.CancelScope() as scope:
            self._waits.add(scope)
            try:
                await wait()
            finally:
                self._waits.discard(scope)
        if scope.cancelled_caught:
            raise RoundEnded

    async def _end(self) -> None:
        """Unwind whoever asks in a round that is over."""
        await trio.lowlevel.checkpoint_if_cancelled()
        raise RoundEnded

    def close(self) -> None:
        """The function has ended: nobody may ask any more, and nobody waits for an answer."""
        self.over = True
        self.context._rounds = None
        for scope in tuple(self._waits):
            scope.cancel("the function that asked has ended")

    def _keyed(self, requests: tuple[InputRequest[Any], ...]) -> dict[str, InputRequest[Any]]:
        """Questions by key: the handler's, or their number in the order of asking, which a replay repeats."""
        keyed = {}
        for request in requests:
            key = request.key or f"input-{len(self._used) + 1}"
            if key in self._used:
                raise ValueError(f"the key {key!r} has been used for a question of this request already")
            self._used.add(key)
            keyed[key] = request
        return keyed

    def _take(self, key: str, question: Question, data: Any) -> None:
        """Enter an answer.

        Raises:
            McpError: It is none: -32602.
        """
        try:
            _response(question.method, data)
        except ValidationError as exc:
            text = f"the response to {key!r} is no valid answer to {question.method!r}: {brief(exc)}"
            raise McpError(INVALID_PARAMS, text) from None
        self.answers[key] = Answer(question, data)

    def _read(self, key: str, request: InputRequest[Any]) -> Any:
        try:
            return request.read(self.answers[key].data)
        except ValidationError as exc:
            raise McpError(INVALID_PARAMS, f"the response to {key!r} does not fit the form: {brief(exc)}") from None

    def check_round(self) -> None:
        """Refuse one round too many.

        Raises:
            McpError: It is.
        """
        most = self.host.max_input_rounds
        if self.round >= most:
            raise McpError(INVALID_PARAMS, f"the request needs more than {most} rounds of input; that is the limit")

    # --- ends of a round -----------------------------------------------------------------------------------------

    def explicit(self, outcome: InputRequired | UrlElicitationRequired) -> dict[str, InputRequest[Any]]:
        """The questions that the function gave itself; what was answered under their keys before is forgotten."""
        if isinstance(outcome, InputRequired):
            requests = outcome.requests
            self.state = _plain(outcome.state, "the state of InputRequired")
        else:
            requests = {each.key or f"url-{number}": each for number, each in enumerate(outcome.requests, 1)}
        self.check_round()
        for key, request in requests.items():
            request.check(self.context)
            self.answers.pop(key, None)
        return requests

    def asked(self, requests: Mapping[str, InputRequest[Any]], parked: str | None = None) -> Asked:
        """Answer the request with questions."""
        revision, server = self.context.protocol_version, self.host
        self.round += 1
        state = RequestState(
            round=self.round,
            questions={key: _question(request, revision) for key, request in requests.items()},
            answers={} if parked else self.answers,
            memory={} if parked else self.memory,
            state=None if parked else self.state,
            parked=parked,
        )
        request = self.context.request
        try:
            token = server.sealer.seal(
                state, request.method, request.params or {}, principal_of(server, self.context), self.seconds(requests)
            )
        except ValueError as exc:
            raise McpError(INVALID_PARAMS, str(exc)) from None
        questions = {key: request.wire(revision) for key, request in requests.items()}
        return Asked({"resultType": "input_required", "inputRequests": questions, "requestState": token})

    def seconds(self, requests: Mapping[str, InputRequest[Any]]) -> float:
        """How long the client has for its answers."""
        limits = [each.timeout for each in requests.values() if each.timeout is not None]
        return min([self.host.request_state_ttl, *limits])


class LegacyRounds(Rounds):
    """Questions are requests over the session, tied to the request that is being served."""

    async def _obtain(self, missing: dict[str, InputRequest[Any]], questions: dict[str, Question]) -> None:
        await self._wait(lambda: self.send(missing, questions))

    async def send(self, requests: dict[str, InputRequest[Any]], questions: dict[str, Question] | None = None) -> None:
        """Send questions, all at once, and enter the answers."""
        revision = self.context.protocol_version
        questions = questions or {key: _question(request, revision) for key, request in requests.items()}
        if len(requests) == 1:
            ((key, request),) = requests.items()
            await self._send(key, request, questions[key])
            return
        failures: list[Exception] = []

        async def send_one(key: str, request: InputRequest[Any], question: Question) -> None:
            try:
                await self._send(key, request, question)
            except Exception as exc:
                failures.append(exc)
                nursery.cancel_scope.cancel("another question failed")

        async with trio.open_nursery() as nursery:
            for key, request in requests.items():
                nursery.start_soon(send_one, key, request, questions[key])
        if failures:
            raise failures[0]

    async def _send(self, key: str, request: InputRequest[Any], question: Question) -> None:
        context = self.context
        connection = connection_of(context)
        if request.elicitation_id is not None:
            connection.note_elicitation(request.elicitation_id)
        answer = await connection.send_request(
            request.method,
            request.wire(context.protocol_version).get("params"),
            timeout=request.timeout,
            total_timeout=None,
            related_request_id=context.request_id,
        )
        self._take(key, question, answer)

    def again(self) -> None:
        """The function is about to run once more."""
        self._used.clear()
        self.round += 1
        self.over = False
        self.context._rounds = self


class ReplayedRounds(Rounds):
    """A question that has no answer yet ends the round, and the function.

    Attributes:
        scope: The function's.
        open_questions: What ended the round.
    """

    def __init__(self, server: ServerCore, context: Context[Any], earlier: RequestState | None) -> None:
        super().__init__(server, context, earlier)
        self.scope = trio.CancelScope()
        self.open_questions: dict[str, InputRequest[Any]] = {}

    async def _obtain(self, missing: dict[str, InputRequest[Any]], questions: dict[str, Question]) -> None:
        self.check_round()
        self.open_questions = missing
        self.over = True
        self.scope.cancel("the round ends: the client is asked for input")
        await self._end()


def _question(request: InputRequest[Any], revision: str) -> Question:
    wire = request.wire(revision)
    if request.elicitation_id is not None:  # only one revision has it, and it is another one each time
        wire["params"].pop("elicitationId", None)
    return Question(request.method, digest_of(wire))


def _another_question(key: str) -> McpError:
    logger.error(
        "a handler asks something else under %r than in the round before: it must ask the same questions in the same "
        "order each time it runs, or give them keys (docs: One handler, both eras)",
        key,
    )
    return McpError(
        INVALID_PARAMS,
        f"the question {key!r} is not the one that was answered; make the request again without its requestState",
    )


def _plain(value: Any, what: str) -> Any:
    try:
        return from_json(to_json(value, by_alias=True, inf_nan_mode="constants"))
    except (PydanticSerializationError, ValueError) as exc:
        raise TypeError(f"{what} can't be turned into JSON: {exc}") from None


def _response(method: str, data: Any) -> InputResponse:
    from trio_mcp.types.input_required import input_response_from_wire  # most servers ask nothing

    return input_response_from_wire(method, data)


def connection_of(context: Context[Any]) -> Connection:
    """The client's connection."""
    connection: Any = context.connection
    return connection  # type: ignore[no-any-return]


def principal_of(server: ServerCore, context: Context[Any]) -> str | None:
    """On whose behalf a request is made."""
    if server.principal is None:
        return None
    principal = server.principal(context)
    if principal is not None and not isinstance(principal, str):
        raise TypeError(f"principal must give a string or None, got {type(principal).__name__}")
    return principal


def earlier_rounds(server: ServerCore, context: Context[Any]) -> tuple[RequestState | None, dict[str, Any]]:
    """What the request brings back: the state of the rounds before, and the responses to the questions of the last.

    Without a state, the responses are to questions that have not been asked yet.

    Raises:
        McpError: It is not in order: -32602.
    """
    params = context.request.params or {}
    token, responses = params.get("requestState"), params.get("inputResponses")
    if responses is not None and type(responses) is not dict:
        raise McpError(INVALID_PARAMS, "inputResponses must be an object: the responses by the keys of the requests")
    if token is None:
        return None, responses or {}
    try:
        state = server.sealer.open(token, context.method, params, principal_of(server, context))
    except StateRefused as exc:
        raise McpError(INVALID_PARAMS, str(exc)) from None
    # Responses to what nobody has asked are ignored (Error Handling).
    return state, {key: data for key, data in (responses or {}).items() if key in state.questions}


def no_asking(method: str) -> LocalProtocolError:
    """Why there is nobody to ask."""
    return LocalProtocolError(
        f"nothing can be asked here: only the function of a tool, a prompt or a resource, or what it depends on, may "
        f"ask the client, and only until it has returned (the request is {method!r})"
    )
