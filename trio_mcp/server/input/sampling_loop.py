"""Sampling with tools: runs the tools that the client's model calls, and asks the model again, until it answers.

Each question to the model is one round of the request. The results of tools are remembered across rounds, so that each
tool runs once, even if the function that samples runs again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import trio
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_count, check_text
from trio_mcp.convert import brief
from trio_mcp.errors import SamplingError
from trio_mcp.server.functions.function import Function, InvalidArguments, read_function
from trio_mcp.server.functions.schemas import adapter_for, json_schema_of
from trio_mcp.server.functions.surroundings import Surroundings
from trio_mcp.server.input.questions import can_be_asked
from trio_mcp.server.input.rounds import AskingContext, Rounds
from trio_mcp.server.input.sampling import Messages, as_messages, ask_model
from trio_mcp.server.outputs import (
    NAME,
    Output,
    describes_object,
    failure_result,
    read_output,
    text_result,
    wrapped_as,
)
from trio_mcp.types.content import TextContent, ToolResultContent, ToolUseContent
from trio_mcp.types.sampling import CreateMessageResult, SamplingMessage, ToolChoice
from trio_mcp.types.tools import Tool

__all__ = ["MAX_TOOL_USES", "sample_with_tools"]

# The limit is an arbitrary choice: models call a handful of tools at once. Each call takes a task and perhaps a thread,
# so a faulty reply must not be able to start any number of calls.
MAX_TOOL_USES = 32
"""How many tool calls one reply of the model may contain."""

FINAL = "final_response"
"""The name of the tool that a model calls to give an answer of the ``result_type``; FastMCP uses the same name."""

_FENCED = re.compile(r"\s*```\w*\n(.*)\n```\s*", re.DOTALL)


@attrs.frozen
class _Tool:
    """A function that the model may call."""

    definition: Tool
    function: Function
    output: Output


@attrs.frozen
class _Answer:
    """The form in which the model must give its final answer.

    Attributes:
        schema: The JSON Schema of the answer's type.
        by_tool: Whether the model gives the answer by calling a tool instead of as text.
        wrapped: Whether the answer is not an object, and so is given as ``value`` in the tool's arguments.
    """

    schema: dict[str, Any]
    by_tool: bool
    wrapped: bool
    _adapter: TypeAdapter[Any]

    def tool(self) -> Tool:
        """Return the tool with which the model gives the answer."""
        schema = wrapped_as("value", self.schema) if self.wrapped else self.schema
        return Tool(name=FINAL, description="Give the final answer.", input_schema={"type": "object", **schema})

    def read_call(self, arguments: dict[str, Any]) -> Any:
        """Return the answer that the arguments of the tool call contain.

        Raises:
            ValidationError: If the answer does not have the right type.
        """
        # The answer is validated as JSON text, because in strict mode pydantic accepts the JSON form of some types only
        # from JSON text.
        return self._adapter.validate_json(to_json(arguments.get("value") if self.wrapped else arguments))

    def read_text(self, text: str) -> Any:
        """Return the answer that the text of a reply contains, validated as in `read_call`."""
        fenced = _FENCED.fullmatch(text)  # models often put JSON into a code block
        return self._adapter.validate_json(fenced[1] if fenced else text)


def sample_with_tools(
    context: AskingContext,
    messages: Messages,
    *,
    functions: Iterable[Callable[..., Any]],
    result_type: Any,
    max_rounds: int,
    tool_choice: str | ToolChoice | None,
    system_prompt: str | None = None,
    stop_sequences: Iterable[str] | None = None,
    key: str | None = None,
    **details: Any,
) -> Coroutine[Any, Any, Any]:
    """Check the arguments, and return the sampling loop as a coroutine; see `Context.sample`."""
    check_count("max_rounds", max_rounds)
    if key is not None:
        check_text("key", key)
    rounds = context.asking
    tools: dict[str, _Tool] = {}
    for tool in (_read_tool(each, context.settings.surroundings) for each in functions):
        if tool.definition.name in (*tools, FINAL):
            raise ValueError(f"sample can't use {tool.definition.name!r} as the name of two tools; rename a function")
        tools[tool.definition.name] = tool
    answer = None
    if result_type is not None:
        if tool_choice is not None:
            raise TypeError(
                "sample takes tool_choice or result_type, not both: with result_type, the model must answer"
            )
        # A client that offers its model no tools can still be asked for text.
        answer = _read_answer(result_type, by_tool=bool(tools) or can_be_asked(context, "sampling.tools"))
        if not answer.by_tool:
            schema = to_json(answer.schema).decode()
            asked = f"Respond with JSON that conforms to this JSON Schema, and with nothing else:\n{schema}"
            system_prompt = asked if system_prompt is None else f"{system_prompt}\n\n{asked}"
    # The stop sequences are kept in a list, because an iterator would be empty in the second round.
    details |= {"system_prompt": system_prompt, "stop_sequences": stop_sequences and list(stop_sequences)}
    return _Loop(context, rounds, tools, answer, max_rounds, tool_choice, key, details).run(as_messages(messages))


def _read_tool(function: Callable[..., Any], surroundings: Surroundings) -> _Tool:
    name = getattr(function, "__name__", type(function).__name__)
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid tool name: pass sample a function that has a valid name")
    what = f"the tool {name!r} of sample"
    own = read_function(function, surroundings, what, read_texts=True)
    definition = Tool(name=name, description=own.description, input_schema=own.input_schema)
    # The results have no structured content: structured content would only repeat the content, and all results are sent
    # again in each round.
    return _Tool(definition, own, read_output(own.returns, None, False, surroundings.options, what))


def _read_answer(kind: Any, by_tool: bool) -> _Answer:
    what = "result_type of sample"
    adapter = adapter_for(kind, what)
    schema = json_schema_of(adapter, "validation", what)
    return _Answer(schema, by_tool, not describes_object(schema), adapter)


@attrs.frozen
class _Loop:
    context: AskingContext
    rounds: Rounds
    tools: dict[str, _Tool]
    answer: _Answer | None
    max_rounds: int
    tool_choice: str | ToolChoice | None
    key: str | None
    details: dict[str, Any]

    async def run(self, messages: list[SamplingMessage]) -> Any:
        """Ask the model until it gives its answer.

        Raises:
            SamplingError: If the model gives no answer in time, or a reply is not valid.
        """
        name = self.rounds.claim(self.key, "sample")
        for number in range(1, self.max_rounds + 1):
            last = number == self.max_rounds
            reply = await self._ask(messages, f"{name}.{number}", first=number == 1, last=last)
            uses = [block for block in reply.content_as_list if isinstance(block, ToolUseContent)]
            has_results = any(isinstance(block, ToolResultContent) for block in reply.content_as_list)
            # A SamplingError is raised, because the client is at fault, not the function that samples.
            if has_results or (uses and reply.role != "assistant"):
                raise SamplingError(
                    "the client's reply can't come from a model: it contains tool results, or tool uses by the user"
                )
            if not uses:
                if self.answer is None:
                    return reply
                try:
                    return self.answer.read_text(_text_of(reply))
                except ValidationError as exc:
                    more = as_messages(self._reminder(exc))
            else:
                if len(uses) > MAX_TOOL_USES:
                    raise SamplingError(f"the model called {len(uses)} tools at once; {MAX_TOOL_USES} is the limit")
                answered, results = self._final(uses)
                if answered is not None:
                    return answered[0]
                if last:  # the tools are not run, because the model would never see their results
                    break
                await self._run_tools(uses, results, f"{name}.{number}")
                more = [_results(uses, results)]
            messages = [*messages, as_messages(reply)[0], *more]
        raise SamplingError(f"the client's model gave no answer in {self.max_rounds} rounds")

    async def _ask(self, messages: Messages, key: str, *, first: bool, last: bool) -> CreateMessageResult:
        offered = [tool.definition for tool in self.tools.values()]
        choice = self.tool_choice if first else None
        if self.answer is not None and self.answer.by_tool:
            offered.append(self.answer.tool())
            choice = "required"
        elif last and offered:
            choice = "none"  # the model must reply with text
        return await ask_model(
            self.context, messages, tools=offered or None, tool_choice=choice, key=key, **self.details
        )

    def _final(self, uses: Sequence[ToolUseContent]) -> tuple[tuple[Any] | None, dict[int, Any]]:
        """Return the model's answer if it is valid; otherwise None, and an error result for each invalid attempt."""
        results = {}
        for index, use in enumerate(uses):
            if self.answer is not None and self.answer.by_tool and use.name == FINAL:
                try:
                    return (self.answer.read_call(use.input),), {}
                except ValidationError as exc:
                    results[index] = text_result(f"this is not a valid answer: {brief(exc)}", is_error=True)
        return None, results

    def _reminder(self, exc: ValidationError) -> str:
        assert self.answer is not None
        if self.answer.by_tool:
            return f"Give your answer by calling the tool {FINAL}."
        return (
            f"This is not a valid answer: {brief(exc)}. "
            "Respond with JSON that conforms to the schema, and with nothing else."
        )

    async def _run_tools(self, uses: Sequence[ToolUseContent], results: dict[int, Any], name: str) -> None:
        """Run the tools that the model has called, concurrently, and add their results to ``results``."""
        failures: list[Exception] = []

        async def run(index: int, use: ToolUseContent) -> None:
            try:
                results[index] = await self.rounds.once(f"{name}.{index}", self._call, use, f"{name}.{index}")
            except Exception as exc:
                failures.append(exc)
                nursery.cancel_scope.cancel("another tool failed")

        # Failures are collected instead of raised in the nursery, so that the caller gets the exception itself, not an
        # exception group.
        async with trio.open_nursery() as nursery:
            for index, use in enumerate(uses):
                if index not in results:
                    nursery.start_soon(run, index, use)
        if failures:
            raise failures[0]

    async def _call(self, use: ToolUseContent, branch: str) -> dict[str, Any]:
        """Call a tool; return its result, or its failure in the form of a result."""
        self.rounds.branch(branch)
        name, tool = use.name[:200], self.tools.get(use.name)
        if tool is None:
            return text_result(f"unknown tool: {name!r}; the tools are: {', '.join(self.tools)}", is_error=True)
        try:
            value = await tool.function.bind(use.input, self.context)()
            result = tool.output.result(value, self.context.protocol_version)
            return {key: result[key] for key in ("content", "isError") if key in result}
        except InvalidArguments as exc:
            return text_result(f"invalid arguments for the tool {name!r}: {exc}", is_error=True)
        except Exception as exc:
            before = self.context.failure
            result = failure_result(name, exc, self.context, self.context.settings.describe_failure)
            self.context.failure = before  # only the tool has failed, not the function that samples
            return result


def _text_of(reply: CreateMessageResult) -> str:
    return "\n".join(block.text for block in reply.content_as_list if isinstance(block, TextContent))


def _results(uses: Sequence[ToolUseContent], results: dict[int, Any]) -> SamplingMessage:
    """Return the message with the results of all tools that a reply calls; the protocol requires a single message."""
    blocks = [{"type": "tool_result", "toolUseId": use.id, **results[index]} for index, use in enumerate(uses)]
    return SamplingMessage.from_wire({"role": "user", "content": blocks})
