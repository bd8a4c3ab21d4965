"""Runs the rounds of input for one request: takes questions to the client, and answers to the handler, in each era.

In the legacy era, a question is a request to the client, and the handler waits for the response. In the modern era, an
unanswered question ends the round: the function's scope is cancelled, and the client gets the question as the result of
its request. When it comes back with the answer, the function runs again (2026-07-28 `basic/patterns/mrtr`), unless it
was parked.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import trio
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from trio_mcp import _attrs as attrs
from trio_mcp._log import logger
from trio_mcp.convert import brief, call_back
from trio_mcp.errors import LocalProtocolError, McpError
from trio_mcp.jsonrpc.messages import Request, RequestId
from trio_mcp.principal import Principal
from trio_mcp.server.functions.function import Call, single
from trio_mcp.server.functions.surroundings import Surroundings
from trio_mcp.server.input.options import Asked, InputRequired, InputRun
from trio_mcp.server.input.questions import InputRequest, QuestionContext, UrlElicitationRequired
from trio_mcp.server.input.request_state import (
    Answer,
    Question,
    RequestState,
    StateRefused,
    StateSealer,
    digest_of,
)
from trio_mcp.types.error_codes import INVALID_PARAMS

if TYPE_CHECKING:  # most servers never ask
    from trio_mcp.types.input_required import InputResponse

__all__ = [
    "AskedClient",
    "AskingContext",
    "HandshakeRounds",
    "ReplayedRounds",
    "RoundEnded",
    "Rounds",
    "earlier_rounds",
]


class RoundEnded(BaseException):
    """Unwinds code that waits for an answer where cancellation can't reach it: in a thread, or in a shielded scope."""

    # Like trio.Cancelled, this is a BaseException, so that `except Exception` in a user's function does not catch it.


class PartOfRun(Protocol):
    """The part of a request's connection that the rounds use, in either era."""

    @property
    def input(self) -> InputRun: ...


class AskedClient(Protocol):
    """The recipient of questions in the legacy era: the client's `ServedSession`."""

    def note_elicitation(self, elicitation_id: str) -> None: ...

    async def ask(self, wire: dict[str, Any], timeout: float | None, related: RequestId) -> Any: ...


class AskingSettings(Protocol):
    """The part of a server's settings that a function uses to let the client's model call other functions."""

    @property
    def surroundings(self) -> Surroundings: ...

    def describe_failure(self, context: Any, text: str, exc: Exception, ours: type[Exception]) -> str: ...


class AskingContext(QuestionContext, Protocol):
    """The part of a `Context` that the rounds of its request use.

    Attributes:
        principal: On whose behalf the request is made, if known; the state between its rounds is bound to it.
        rounds: The rounds in which the function may ask now; the rounds set this attribute themselves.
        settings: The settings of the server whose function runs.
        failure: The unexpected exception that the function raised, if any.
    """

    principal: Principal | None
    rounds: Rounds | None
    settings: AskingSettings
    failure: Exception | None
    method: str

    @property
    def request(self) -> Request: ...

    @property
    def request_id(self) -> RequestId: ...

    @property
    def connection(self) -> PartOfRun: ...

    @property
    def asking(self) -> Rounds: ...

    @property
    def cancelled(self) -> bool: ...

    @property
    def session(self) -> AskedClient: ...

    def go_on_as(self, other: Any) -> None: ...


class _Branch(NamedTuple):
    """A part of a function that asks in its own order, independently of other parts."""

    rounds: object
    prefix: str


_BRANCH: contextvars.ContextVar[_Branch | None] = contextvars.ContextVar("trio_mcp branch", default=None)


class Rounds:
    """The questions of one request and their answers so far. Subclasses define how to obtain an answer.

    Args:
        context: The context of the function.
        earlier: The state of the earlier rounds; None in the first one.
        responses: The responses that came with the request: to the questions of the previous round; or, in the first
            one, to questions that the function has yet to ask, under keys that it has chosen.

    Attributes:
        answers: The answers, by key.
        state: The function's own state, from its last `InputRequired`.
        limit: The scope that limits the function's time, and the number of seconds, counted again after each answer.
    """

    def __init__(
        self, context: AskingContext, earlier: RequestState | None = None, responses: Mapping[str, Any] | None = None
    ) -> None:
        self.context = context
        self.run = context.connection.input
        self.answers: dict[str, Answer] = {} if earlier is None else dict(earlier.answers)
        self.state = None if earlier is None else earlier.state
        self._memory: dict[str, Any] = {} if earlier is None else dict(earlier.memory)
        self._round = 0 if earlier is None else earlier.round
        self._offered: dict[str, Any] = {}  # responses to questions that have not been asked yet
        # The keys of the questions that this run of the function has asked, each with the prefix of its branch.
        self._used: set[tuple[str, str]] = set()
        self._waits: set[trio.CancelScope] = set()
        self._over = False
        self.limit: tuple[trio.CancelScope, float] | None = None
        # In later rounds, all responses belong to questions that were asked: `earlier_rounds` has dropped any others.
        if earlier is None:
            self._offered = dict(responses or {})
        else:
            for key, data in (responses or {}).items():
                self._take(key, earlier.questions[key], data)

    async def serve(self, call: Call) -> Any:
        """Call the function, and obtain answers to its questions.

        Returns:
            The function's return value, or `Asked`.
        """
        raise NotImplementedError

    # --- for the context -----------------------------------------------------------------------------------------

    async def ask(self, requests: tuple[InputRequest[Any], ...]) -> list[Any]:
        """Ask some questions, all in one round, and return the answers."""
        await trio.lowlevel.checkpoint_if_cancelled()  # a cancelled function must not ask
        # All questions are checked before any is asked: no user should answer one question for a request that then
        # fails.
        for request in requests:
            request.check(self.context)
        # Only code in a thread or a shielded scope can ask after the round has ended, too late for its question to be
        # sent with the others.
        if self._over:
            await self._end()
        if self.context.cancelled:
            await trio.lowlevel.checkpoint_if_cancelled()  # raises, except in a shielded scope or a thread
            raise LocalProtocolError(
                f"can't ask the client any more: the client has cancelled {self.context.method!r}, or has disconnected"
            )
        prefix = self._prefix()
        keyed = {prefix + self.claim(request.key, "input"): request for request in requests}
        questions = self._questions_of(keyed)
        missing = {}
        for key, question in questions.items():
            # Only a key that the handler chose can match: a client can't know the numbers of questions in advance.
            if keyed[key].key is not None and key in self._offered:
                self._take(key, question, self._offered.pop(key))
            if key not in self.answers:
                missing[key] = keyed[key]
            # If a replay took another path than the run before, the answer under this key belongs to another question.
            elif self.answers[key].question != question:
                raise self._another_question(key)
        if missing:
            await self._obtain(missing, questions)
        else:
            await trio.lowlevel.checkpoint()
        return [self._read(key, request) for key, request in keyed.items()]

    async def once(self, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function once per request; see `Context.once`."""
        if not isinstance(key, str):
            raise TypeError(f"key must be a string, got {type(key).__name__}")
        await trio.lowlevel.checkpoint()
        if self._over:
            await self._end()
        key = self._prefix() + key
        if key not in self._memory:
            # Nothing is stored if the function fails or is cancelled, so the next run tries again.
            await self._before_step()
            value = _plain(await call_back(function, *arguments), f"the value of once({key!r})")
            await self._remember(key, value)
        return self._memory[key]

    async def _before_step(self) -> None:
        """Wait until a function that is to be called once may be called."""

    async def _remember(self, key: str, value: Any) -> None:
        """Keep the value of a function that is called once."""
        self._memory[key] = value

    def claim(self, key: str | None, kind: str) -> str:
        """Return the key of a question or a loop of questions: the handler's own, or one numbered in order of asking.

        The number is the same in a replay.

        Raises:
            ValueError: If the key is used already.
        """
        prefix = self._prefix()
        key = key or f"{kind}-{1 + sum(used == prefix for used, _ in self._used)}"
        if (prefix, key) in self._used:
            raise ValueError(f"the key {key!r} is already used by another question of this request")
        self._used.add((prefix, key))
        return key

    def branch(self, name: str) -> None:
        """Give this task its own keys for `ask` and `once`, so that the order of other tasks does not matter.

        Args:
            name: The name of the branch, unique among the branches within this task's branch.
        """
        _BRANCH.set(_Branch(self, f"{self._prefix()}{name}/"))

    def _prefix(self) -> str:
        branch = _BRANCH.get()
        # A task may have inherited the branch of another request, if a tool calls a server in memory.
        return branch.prefix if branch is not None and branch.rounds is self else ""

    @property
    def responses(self) -> Mapping[str, InputResponse]:
        """The answers so far, as wire models."""
        return {key: _response(each.question.method, each.data) for key, each in self.answers.items()}

    # --- for the subclasses --------------------------------------------------------------------------------------

    async def _obtain(self, missing: dict[str, InputRequest[Any]], questions: dict[str, Question]) -> None:
        """Obtain the missing answers, or end this run of the function that asks."""
        raise NotImplementedError

    async def _wait(self, wait: Callable[[], Awaitable[object]]) -> None:
        """Wait for an answer, but not longer than the function runs."""
        # A wait started with trio.from_thread.run is not inside the function's cancel scope, and a thread may continue
        # after its call was cancelled. So each wait has its own scope, which _close cancels.
        with trio.CancelScope() as scope:
            self._waits.add(scope)
            # The time that a person takes to answer does not count towards the limit. In the modern era, unless the
            # function is parked, that time passes between two runs of the function.
            if self.limit is not None:
                self.limit[0].deadline = math.inf
            try:
                await wait()
            finally:
                self._waits.discard(scope)
                if self.limit is not None and not self._waits:
                    self.limit[0].deadline = trio.current_time() + self.limit[1]
        if scope.cancelled_caught:
            raise RoundEnded

    async def _end(self) -> None:
        """Unwind a caller that asks in a round that has ended."""
        await trio.lowlevel.checkpoint_if_cancelled()  # usually raises, because the round's scope is cancelled
        raise RoundEnded

    def _open(self) -> None:
        """Allow questions: the function is about to run."""
        self._over = False
        self.context.rounds = self

    def _close(self) -> None:
        """Refuse further questions, and cancel all waits: the function has ended."""
        self._over = True
        self.context.rounds = None
        for scope in tuple(self._waits):
            scope.cancel("the function that asked has ended")

    def _questions_of(self, requests: Mapping[str, InputRequest[Any]]) -> dict[str, Question]:
        """Return the `Question` that each request for input asks, by key."""
        questions = {}
        for key, request in requests.items():
            wire = request.wire(self.context.protocol_version)
            if request.elicitation_id is not None:  # a random id differs each time the function runs
                wire["params"].pop("elicitationId", None)
            questions[key] = Question(request.method, digest_of(wire))
        return questions

    def _take(self, key: str, question: Question, data: Any) -> None:
        """Store an answer.

        Raises:
            McpError: If ``data`` is not a valid response to the question's method (-32602).
        """
        try:
            _response(question.method, data)
        except ValidationError as exc:
            raise McpError(
                INVALID_PARAMS, f"the response to {key!r} is not a valid answer to {question.method!r}: {brief(exc)}"
            ) from None
        self.answers[key] = Answer(question, data)

    def _read(self, key: str, request: InputRequest[Any]) -> Any:
        try:
            # On arrival the answer was only checked against its method: the state does not contain the form, which is
            # known here.
            return request.read(self.answers[key].data)
        except ValidationError as exc:
            raise McpError(INVALID_PARAMS, f"the response to {key!r} does not fit the form: {brief(exc)}") from None

    def _another_question(self, key: str) -> McpError:
        """Return the error for a question that is not the one that was answered under its key."""
        # This is a bug in the handler, which only the server's operator can understand; the client learns how to
        # recover.
        logger.error(
            "a handler asks a different question under the key %r than in the previous round: it must ask the same "
            "questions in the same order each time it runs, or give them keys (docs: One handler, both eras)",
            key,
        )
        return McpError(
            INVALID_PARAMS,
            f"the question {key!r} is not the one that was answered; make the request again without its requestState",
        )

    def _check_round(self) -> None:
        """Refuse a round of input beyond ``max_rounds``.

        Raises:
            McpError: If the limit is reached (-32602).
        """
        most = self.run.options.max_rounds
        if self._round >= most:
            raise McpError(INVALID_PARAMS, f"the request needs more than {most} rounds of input, which is the limit")

    # --- ends of a round -----------------------------------------------------------------------------------------

    def explicit(self, outcome: InputRequired | UrlElicitationRequired) -> dict[str, InputRequest[Any]]:
        """Return the questions that the function returned or raised, and forget earlier answers under their keys."""
        if isinstance(outcome, InputRequired):
            requests = outcome.requests
            # The state is converted to JSON and back even in the legacy era, where it never leaves the server: handlers
            # should see the same types in both eras.
            self.state = _plain(outcome.state, "the state of InputRequired")
        else:
            requests = {each.key or f"url-{number}": each for number, each in enumerate(outcome.requests, 1)}
        self._check_round()
        for key, request in requests.items():
            request.check(self.context)
            # The question is asked once more on purpose: otherwise an answer from an earlier round would count as the
            # new one.
            self.answers.pop(key, None)
        return requests

    def asked(self, requests: Mapping[str, InputRequest[Any]], parked: str | None = None) -> Asked:
        """Make the result that asks the client questions.

        Args:
            requests: The questions, by key.
            parked: The id of the parked function; None if the function is to run again.

        Raises:
            McpError: If the state is too large (-32602).
        """
        # The token is bound to the method and the parameters of this request, so no other request can use its answers.
        request = self.context.request
        self._round += 1
        state = RequestState(self._round, self._questions_of(requests), parked=parked)
        if parked is None:  # a parked function has its answers in memory
            state = attrs.evolve(state, answers=self.answers, memory=self._memory, state=self.state)
        try:
            sealer: StateSealer = self.run.sealer()
            token = sealer.seal(
                state, request.method, request.params or {}, self.context.principal, self._seconds(requests)
            )
        except ValueError as exc:
            raise McpError(INVALID_PARAMS, str(exc)) from None
        wire = {key: each.wire(self.context.protocol_version) for key, each in requests.items()}
        return Asked({"resultType": "input_required", "inputRequests": wire, "requestState": token})

    def _seconds(self, requests: Mapping[str, InputRequest[Any]]) -> float:
        """Return how many seconds the client has for its answers: the lowest of all limits."""
        # All questions of a round have one expiry time, since the client answers them in one request.
        limits = [each.timeout for each in requests.values() if each.timeout is not None]
        return min([self.run.options.ttl, *limits])


class HandshakeRounds(Rounds):
    """The rounds of the legacy era: questions are requests over the session, related to the request being served.

    Args:
        context: The context of the function.
        bind: Binds the arguments to the function again, so that it can run once more.
    """

    def __init__(self, context: AskingContext, bind: Callable[[], Call]) -> None:
        super().__init__(context)
        self._bind = bind

    async def serve(self, call: Call) -> Any:
        while True:
            self._open()
            try:
                value = await call()
            except Exception as exc:
                pages = single(exc)
                if isinstance(pages, UrlElicitationRequired):
                    # The error itself goes to the client, which must support URLs, show the pages and call again.
                    for request in pages.requests:
                        request.check(self.context)
                        self.context.session.note_elicitation(request.elicitation_id or "")
                raise
            finally:
                # The rounds are closed before the answers are awaited below: a thread that the call left behind must
                # not ask between two runs.
                self._close()
            if not isinstance(value, InputRequired):
                return value
            # `InputRequired` works the same in both eras: the questions are asked now, and then the function runs
            # again, as it would for a modern client.
            requests = self.explicit(value)
            await self._send(requests, self._questions_of(requests))
            # As in a new request of the modern era, keys are counted from the start and the arguments are bound again.
            self._used.clear()
            # The rounds are counted only for `max_rounds`, which stops a function that would ask forever.
            self._round += 1
            call = self._bind()

    async def _obtain(self, missing: dict[str, InputRequest[Any]], questions: dict[str, Question]) -> None:
        await self._wait(lambda: self._send(missing, questions))

    async def _send(self, requests: dict[str, InputRequest[Any]], questions: dict[str, Question]) -> None:
        """Send questions concurrently, and store the answers."""
        # A single question needs no nursery, so its exception arrives unchanged and not in a group.
        if len(requests) == 1:
            ((key, request),) = requests.items()
            await self._send_one(key, request, questions[key])
            return
        failures: list[Exception] = []

        async def send(key: str, request: InputRequest[Any]) -> None:
            try:
                await self._send_one(key, request, questions[key])
            except Exception as exc:
                failures.append(exc)
                nursery.cancel_scope.cancel("another question failed")

        # Failures are collected instead of raised in the nursery: the caller gets the exception, not a group.
        async with trio.open_nursery() as nursery:
            for key, request in requests.items():
                nursery.start_soon(send, key, request)
        # Several questions may fail before the cancellation reaches them. The caller gets the first failure, which
        # caused it.
        if failures:
            raise failures[0]

    async def _send_one(self, key: str, request: InputRequest[Any], question: Question) -> None:
        context = self.context
        # The id is noted before the question is sent, as the user may be done with the page before the client responds.
        if request.elicitation_id is not None:
            context.session.note_elicitation(request.elicitation_id)
        wire = request.wire(context.protocol_version)
        self._take(key, question, await context.session.ask(wire, request.timeout, context.request_id))


class ReplayedRounds(Rounds):
    """The rounds of the modern era: an unanswered question ends the round and the function, which runs again later."""

    def __init__(self, context: AskingContext, earlier: RequestState | None, responses: Mapping[str, Any]) -> None:
        super().__init__(context, earlier, responses)
        self._scope = trio.CancelScope()
        self._questions: dict[str, InputRequest[Any]] = {}  # the questions that ended the round

    async def serve(self, call: Call) -> Any:
        value = None  # stays None if the scope is cancelled because the round ends
        self._open()
        try:
            with self._scope:
                value = await call()
        # The function asked in a thread or a shielded scope, which the cancellation of the scope above can't reach.
        except RoundEnded:
            pass
        except BaseExceptionGroup as group:  # the function asked in a child task
            rest = group.split(RoundEnded)[1]
            if rest is not None:
                raise rest from None
        finally:
            self._close()
        # A function may still return a value after its question, if it asked in a thread or a shielded scope and caught
        # the end of the round. The question has been asked, so the value is dropped.
        return self.asked(self._questions) if self._questions else value

    async def _obtain(self, missing: dict[str, InputRequest[Any]], questions: dict[str, Question]) -> None:
        # The limit is checked before the round ends, when the function can still handle the error.
        self._check_round()
        self._questions = missing
        # From here on, any other task of the function that asks is unwound, too: its question belongs to the next run.
        self._over = True
        self._scope.cancel("the round is over: the client is being asked for input")
        await self._end()


def _plain(value: Any, what: str) -> Any:
    # The value is encoded and decoded, so that it looks the same in the run that made it as in a replay.
    try:
        # Infinity and NaN are kept, too: the text is signed, and only read by this parser, which accepts them.
        return from_json(to_json(value, by_alias=True, inf_nan_mode="constants"))
    except (PydanticSerializationError, ValueError) as exc:
        raise TypeError(f"{what} can't be turned into JSON: {exc}") from None


def _response(method: str, data: Any) -> InputResponse:
    from trio_mcp.types.input_required import input_response_from_wire

    return input_response_from_wire(method, data)


def earlier_rounds(context: AskingContext) -> tuple[RequestState | None, dict[str, Any]]:
    """Read the state of the earlier rounds from a request, and its responses to the questions of the last round.

    Without a state, the responses are to questions that have not been asked yet.

    Raises:
        McpError: If the state or the responses are invalid (-32602).
    """
    # These are the request's own parameters, not context.params, which a middleware may have replaced: the token is
    # bound to the parameters that the client sent.
    params = context.request.params or {}
    token, responses = params.get("requestState"), params.get("inputResponses")
    if responses is not None and type(responses) is not dict:
        raise McpError(
            INVALID_PARAMS, "inputResponses must be an object that maps the keys of input requests to responses"
        )
    if token is None:
        return None, responses or {}
    sealer: StateSealer = context.connection.input.sealer()
    try:
        state = sealer.open(token, context.method, params, context.principal)
    except StateRefused as exc:
        raise McpError(INVALID_PARAMS, str(exc)) from None
    # Responses to questions that were not asked are ignored (2026-07-28 `basic/patterns/mrtr`, Error Handling).
    return state, {key: data for key, data in (responses or {}).items() if key in state.questions}
