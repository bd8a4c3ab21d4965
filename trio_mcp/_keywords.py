"""Refuses unknown keyword arguments, and says what to write instead.

A function that takes them declares ``**unknown: Never``, so type checkers refuse them too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, Final

__all__ = ["FOREIGN", "refuse_unknown"]

_TAGS = "write meta={'com.example/tags': […]}"
_VERSION = "the protocol knows no versions of it; write meta={'com.example/version': …}"
_TASK = "tasks are not implemented"
_AUTH = "authorization is not implemented"

_TOOL = {
    "tags": _TAGS,
    "version": _VERSION,
    "task": _TASK,
    "auth": _AUTH,
    "enabled": "call server.remove_tool() to hide it",
    "exclude_args": "annotate such a parameter as a dependency: Annotated[…, Depends(…)]",
    "serializer": "return the text, or a types.CallToolResult",
    "structured_output": "it follows from the return type: a return type of Any, or no return type, means unstructured",
    "timeout": "use trio.fail_after() in the function",
}
_RESOURCE = {
    "tags": _TAGS,
    "version": _VERSION,
    "task": _TASK,
    "auth": _AUTH,
    "enabled": "call server.remove_resource() to hide it",
    "security": "use trio_mcp.safe_join() for paths",
}
_PROMPT = {
    "tags": _TAGS,
    "version": _VERSION,
    "task": _TASK,
    "auth": _AUTH,
    "enabled": "call server.remove_prompt() to hide it",
}
_ONE_ROUND = {
    "progress_callback": "write on_progress=…",
    "progress_handler": "write on_progress=…",
    "read_timeout_seconds": "write timeout=…, in seconds",
    "cache_mode": "the cache belongs to the client: Client(cache=…)",
    "raise_on_error": "nothing is raised: look at is_error of the result",
    "task": _TASK,
    "version": _VERSION,
}
_REQUEST = _ONE_ROUND | dict.fromkeys(
    ("allow_input_required", "input_responses", "request_state"), "call the method whose name ends in _once"
)

FOREIGN: Final[dict[str, dict[str, str]]] = {
    "Server.tool": _TOOL,
    "Server.add_tool": _TOOL,
    "Server.resource": _RESOURCE,
    "Server.add_resource": _RESOURCE,
    "Server.prompt": _PROMPT,
    "Server.add_prompt": _PROMPT,
    "Client.call_tool": _REQUEST,
    "Client.call_tool_once": _ONE_ROUND,
    "Client.read_resource": _REQUEST,
    "Client.read_resource_once": _ONE_ROUND,
    "Client.get_prompt": _REQUEST,
    "Client.get_prompt_once": _ONE_ROUND,
}
"""For each public function: keywords of FastMCP and the official SDK (`mcp`), and what to write here."""


def refuse_unknown(
    function: Callable[..., Any], given: Iterable[str], details: type | None = None, owner: type | None = None
) -> None:
    """Refuse keyword arguments that a function does not take.

    Args:
        function: The public function, method or class that was called.
        given: The names that its ``**`` parameter has taken.
        details: The `typing.TypedDict` of those that it takes there; without it, none.
        owner: The class to name, for a method that is defined in a base class.

    Raises:
        TypeError: If one is unknown.
    """
    known = () if details is None else details.__annotations__
    for name in given:
        if name not in known:
            called = function.__qualname__ if owner is None else f"{owner.__qualname__}.{function.__name__}"
            advice = _advice(function, called, name, [*_parameters(function), *known])
            raise TypeError(f"{called}() got an unexpected keyword argument {name!r}{advice}")


def _advice(function: Callable[..., Any], called: str, name: str, known: list[str]) -> str:
    bases = getattr(function, "__mro__", ())  # a user's subclass of a class has the rows of the class
    for each in (called, *(base.__qualname__ for base in bases)):
        if (advice := FOREIGN.get(each, {}).get(name)) is not None:
            return f": {advice}"
    if close := get_close_matches(name, known, 1):
        return f"; did you mean {close[0]!r}?"
    return f"; it takes {', '.join(known)}"


def _parameters(function: Callable[..., Any]) -> list[str]:
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind in kinds and each.name != "self"]  # methods are unbound
