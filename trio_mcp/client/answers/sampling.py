"""Answer a server that asks the client's language model (`client/sampling`)."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Literal, TypeAlias

from pydantic import ValidationError

from trio_mcp._checks import check_choices, check_hook
from trio_mcp.convert import brief, call_back
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.types._base import class_span, field_span
from trio_mcp.types.capabilities import SamplingCapability
from trio_mcp.types.content import TextContent, ToolResultContent, ToolUseContent
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.sampling import CreateMessageRequestParams, CreateMessageResult

__all__ = ["SamplingCallback", "SamplingFeature", "SamplingSource"]

SamplingFeature = Literal["tools", "context"]
FEATURES: tuple[SamplingFeature, ...] = ("tools", "context")

UNNAMED_MODEL = "unknown"
"""The model's name in the response if the callback returns just a string: the protocol requires a name."""

SamplingAnswer: TypeAlias = CreateMessageResult | Mapping[str, Any] | str
SamplingCallback: TypeAlias = Callable[[CreateMessageRequestParams], Awaitable[SamplingAnswer] | SamplingAnswer]


class SamplingSource:
    """The source of a language model's messages: the callback ``sampling=`` of `Answers`.

    Args:
        callback: Takes the parameters of each request, and returns the model's message.
        features: What the callback supports beyond plain messages.

    Raises:
        TypeError: If the callback is not callable.
        ValueError: If a feature does not exist.
    """

    def __init__(self, callback: SamplingCallback, features: Collection[SamplingFeature] = ()) -> None:
        check_hook("sampling", callback)
        check_choices("sampling_features", features, FEATURES)
        self._callback = callback
        self._features = tuple(feature for feature in FEATURES if feature in features)

    def capability(self, revision: str) -> dict[str, Any]:
        """Return the capability that the client declares in a revision."""
        return {name: {} for name in self._features if revision in field_span(SamplingCapability, name).revisions}

    def prepare(
        self, params: CreateMessageRequestParams, plain: dict[str, Any], revision: str
    ) -> Callable[[], Awaitable[Any]]:
        """Check a request; return the function that asks the model.

        Raises:
            RemoteProtocolError: If the server may not ask this question.
        """
        wants_tools = params.tools is not None or params.tool_choice is not None
        if wants_tools and "tools" not in self.capability(revision):
            raise RemoteProtocolError(
                "the request has tools or toolChoice, but the client has not declared sampling.tools", INVALID_PARAMS
            )
        try:
            # Each tool_use must be followed by its tool_result: a model's API would refuse the messages otherwise.
            params.check_tool_uses()
        except ValueError as exc:
            raise RemoteProtocolError(
                f"the messages of the sampling request are invalid: {exc}", INVALID_PARAMS
            ) from None
        return functools.partial(self._ask, params, revision)

    async def _ask(self, params: CreateMessageRequestParams, revision: str) -> dict[str, Any]:
        result = _result(await call_back(self._callback, params))
        blocks = result.content_as_list
        if any(isinstance(block, ToolResultContent) for block in blocks):
            raise ValueError(
                "the sampling callback returned a tool_result, which only the server's messages may contain"
            )
        uses_tools = any(isinstance(block, ToolUseContent) for block in blocks)
        # The callback's use of tools is checked here rather than left to the server, because the author of this program
        # can fix the callback, but the server's author can't.
        if uses_tools and not params.tools:
            raise ValueError("the sampling callback returned a tool_use, but the server offers the model no tools")
        if uses_tools and params.tool_choice is not None and params.tool_choice.mode == "none":
            raise ValueError("the sampling callback returned a tool_use, but the server's toolChoice is 'none'")
        wire = result.to_wire()
        # Revisions without tool use allow a single block, not a list.
        if isinstance(result.content, list) and revision not in class_span(ToolUseContent):
            if len(blocks) != 1:
                raise ValueError(
                    f"in revision {revision} the sampling callback must return one content block, got {len(blocks)}"
                )
            wire["content"] = wire["content"][0]
        return wire


def _result(given: object) -> CreateMessageResult:
    if isinstance(given, CreateMessageResult):
        return given
    if isinstance(given, str):
        return CreateMessageResult(
            role="assistant", content=TextContent(text=given), model=UNNAMED_MODEL, stop_reason="endTurn"
        )
    if isinstance(given, Mapping):
        try:
            return CreateMessageResult.from_wire(dict(given))
        except ValidationError as exc:
            raise ValueError(f"the sampling callback returned an invalid CreateMessageResult: {brief(exc)}") from None
    raise TypeError(f"the sampling callback must return a CreateMessageResult or a string, got {type(given).__name__}")
