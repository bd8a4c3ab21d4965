"""Translates the upstream's questions and results between the revisions on the two sides of a proxy."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import ValidationError

from trio_mcp.client.answers.sources import Answers, InputSources
from trio_mcp.convert import brief
from trio_mcp.eras.rules import rules_of
from trio_mcp.errors import McpError
from trio_mcp.proxy.unanswered import CALL, UnansweredCalls
from trio_mcp.server.context import ServedContext
from trio_mcp.server.input.questions import InputRequest
from trio_mcp.server.revisions import downgraded_block, wire_for
from trio_mcp.session.client import ClientSession
from trio_mcp.session.handlers import RequestContext
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS
from trio_mcp.types.methods import method_spec, methods_of

__all__ = ["ASKING", "PASSED_ON", "HandedOn", "handed_on", "in_words_of"]

ASKING = ("elicitation/create", "sampling/createMessage", "roots/list")
"""The methods by which a server asks its client something."""

# For each kind of question, the capability that the client must have declared: see `InputRequest`.
_NEEDS = {
    "form": "elicitation.form",
    "url": "elicitation.url",
    "sampling/createMessage": "sampling",
    "tools": "sampling.tools",
    "roots/list": "roots",
}

Answer = Callable[[str, Any, ServedContext[Any] | None], Awaitable[dict[str, Any]]]


class HandedOn(InputSources):
    """Declares that every question can be answered, and passes the questions on to the proxy's clients.

    Args:
        answer: ``async (method, params, call) -> answer``, which answers a question from a legacy-era server; the call
            is the client's call that the question is about, or None if it is unknown.
        calls: The calls that the server has not responded to.
    """

    def __init__(self, answer: Answer, calls: UnansweredCalls) -> None:
        def unused(params: object) -> None:
            raise AssertionError("questions are passed on, never answered by a callback")

        # The callbacks are passed only to make the base class declare every capability. The capabilities that apply
        # depend on each client.
        super().__init__(
            Answers(
                elicitation=unused,
                sampling=unused,  # type: ignore[arg-type]  # declares the capability, but is never called
                sampling_features=("tools", "context"),
                roots=(),
            )
        )
        self._answer_with = answer
        self._calls = calls

    def attach(self, session: ClientSession) -> None:
        """Handle the questions of a legacy-era server, and watch what arrives from a server of either era."""
        session.on_arrival = self._calls.arrived

        async def answer(params: dict[str, Any], context: RequestContext) -> dict[str, Any]:
            # The call was looked up on arrival, because it may have ended by the time this task runs.
            return await self._answer_with(context.method, params, context.transport_metadata[CALL])

        for method in ASKING:
            session.add_request_handler(method, answer)


def handed_on(context: ServedContext[Any], method: str, params: Any, spoken: str) -> InputRequest[dict[str, Any]]:
    """Return an upstream server's question, addressed to the client of a request.

    Args:
        context: The context of the request.
        method: The method of the question.
        params: The parameters of the question, as received.
        spoken: The upstream's revision.

    Raises:
        McpError: If the question is unknown or malformed: -32602.
    """
    spec = method_spec(spoken, method) if isinstance(method, str) and method in ASKING else None
    if spec is None:
        raise McpError(INVALID_PARAMS, f"the upstream server sent the unknown request {str(method)[:100]!r}")
    plain = {} if params is None else params
    try:
        # The question is checked even if it is passed on unchanged, because the client must not be blamed for the
        # upstream's mistake.
        question: Any = spec.message.from_wire({"method": method, "params": plain})
    except ValidationError as exc:
        raise McpError(INVALID_PARAMS, f"the upstream server's {method!r} request is malformed: {brief(exc)}") from None
    # `_meta` is left out, because it belongs to the link between the upstream and the proxy.
    plain = {name: value for name, value in plain.items() if name != "_meta"}
    keys = [method]
    identity = None
    if method == "elicitation/create":
        keys = ["url" if plain.get("mode") == "url" else "form"]
        if keys == ["url"]:
            # If the upstream's question has no elicitation id, one is made, because the client's revision may require
            # it.
            identity = plain.get("elicitationId") or str(uuid.uuid4())
    elif "tools" in plain or "toolChoice" in plain:
        keys.append("tools")

    def words(revision: str) -> dict[str, Any] | None:
        if method == "roots/list":
            return None
        # If both sides have the same revision, nothing is translated, so that unknown fields are kept.
        wire = dict(plain) if revision == spoken else wire_for(question.params, revision)
        wire.pop("_meta", None)
        if identity is not None and rules_of(revision).elicitation_ids:
            wire["elicitationId"] = identity
        return wire

    request = InputRequest(
        context, method, tuple(_NEEDS[key] for key in keys), words, lambda answer: answer, None, None, identity
    )
    # The question is marked as taken, so that it does not warn that it was never awaited: it stays unasked only if
    # another question from the upstream was refused.
    return request.take()


PASSED_ON = (
    *("tools/list", "tools/call"),
    *("resources/list", "resources/templates/list", "resources/read"),
    *("prompts/list", "prompts/get"),
    "completion/complete",
)
"""The methods that the proxy passes on to the upstream; every revision has them."""

# The fields of a result that exist only in the modern era.
_MODERN = ("resultType", "ttlMs", "cacheScope")


def in_words_of(
    revision: str, method: str, result: dict[str, Any], spoken: str, hints: dict[str, Any]
) -> dict[str, Any]:
    """Return a result in the form that the client's revision defines.

    Args:
        revision: The client's revision.
        method: The method of the request.
        result: The result, as received.
        spoken: The upstream's revision.
        hints: The cache hints for a result that has none.

    Raises:
        McpError: If the result is malformed, and so can't be translated: -32603.
    """
    # If both sides have the same revision, the result stays unchanged, so that unknown fields are kept and nothing is
    # validated twice.
    if revision == spoken:
        return result
    rules = rules_of(revision)
    try:
        wire = wire_for(methods_of(spoken)[method].results[0].from_wire(result), revision)
    except ValidationError as exc:
        raise McpError(
            INTERNAL_ERROR, f"the upstream server's result for {method!r} is malformed: {brief(exc)}"
        ) from None
    if method == "tools/call":
        wire["content"] = [downgraded_block(block, revision) for block in wire.get("content", ())]
        if not rules.any_structured_content and type(wire.get("structuredContent", {})) is not dict:
            del wire["structuredContent"]
    elif method == "tools/list" and not rules.any_structured_content:
        # Revisions without `any_structured_content` require that an output schema describe an object.
        for tool in wire["tools"]:
            if tool.get("outputSchema", {}).get("type", "object") != "object":
                del tool["outputSchema"]
    elif method == "prompts/get":
        for message in wire["messages"]:
            message["content"] = downgraded_block(message["content"], revision)
    if not rules.modern:
        # Clients of the legacy era may refuse fields that their revision does not define.
        for name in _MODERN:
            wire.pop(name, None)
        return wire
    # The upstream's own hints take precedence.
    return hints | wire
