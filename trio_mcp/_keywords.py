"""Refuses unknown keyword arguments and other unknown names, with advice on what to write instead.

A function that refuses unknown keyword arguments declares ``**unknown: Never``, so that type checkers refuse them, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

__all__ = ["FOREIGN", "did_you_mean", "refuse_unknown", "similar_names"]

LONGEST_COMPARED = 200
"""How many characters at the beginning of a name are compared; difflib takes quadratic time, so there is a limit."""

MOST_COMPARED = 1000
"""The maximum number of known names that a name is compared with (arbitrary): so many take milliseconds."""

_VERSION = "the protocol has no versions of tools, resources and prompts; write meta={'com.example/version': …}"
_TASK = "tasks are not implemented"
_SCOPES = "write scopes={…}; tokens are checked by run('http', auth=…)"
_AUTH = "write run('http', auth=…), with a ResourceServer from trio_mcp.auth"

# The table lists keywords of FastMCP and the official SDK, each with advice on what to write in this library instead.
_TOOL = {
    "version": _VERSION,
    "task": _TASK,
    "auth": _SCOPES,
    "exclude_args": "annotate each parameter to exclude as a dependency: Annotated[…, Depends(…)]",
    "serializer": "return the text, or a types.CallToolResult",
}
_RESOURCE = {
    "version": _VERSION,
    "task": _TASK,
    "auth": _SCOPES,
    "security": "use trio_mcp.safe_join() for paths",
}
_PROMPT = {
    "version": _VERSION,
    "task": _TASK,
    "auth": _SCOPES,
}
_SWITCH = {
    "names": "pass the names as positional arguments: disable('a', 'b')",
    "keys": "pass names and URIs as positional arguments: disable('a', 'config://b')",
    "components": "write kind=…, with 'tool', 'resource', 'template' or 'prompt'",
    "version": _VERSION,
    "only": "disable everything that is not to be offered",
}
_MOUNT = {
    "namespace": "write prefix=…",
    "as_proxy": "mount a Server, and serve a ProxyServer by itself",
}
_ONE_ROUND = {
    "progress_callback": "write on_progress=…",
    "progress_handler": "write on_progress=…",
    "read_timeout_seconds": "write timeout=…, in seconds",
    "cache_mode": "the cache belongs to the client: Client(cache=…)",
    "raise_on_error": "the error of a tool is not raised: check is_error of the result",
    "task": _TASK,
    "version": _VERSION,
}
_REQUEST = _ONE_ROUND | dict.fromkeys(
    ("allow_input_required", "input_responses", "request_state"), "call the method whose name ends in _once"
)
# The table includes the fields of bundles such as `Answers`, because callers may mistake the fields for keywords of the
# client itself.
_CLIENT = {
    **{each: f"write answers=Answers({each}=…)" for each in ("elicitation", "sampling", "roots", "max_input_rounds")},
    **dict.fromkeys(("elicitation_handler", "elicitation_callback"), "write answers=Answers(elicitation=…)"),
    **dict.fromkeys(("sampling_handler", "sampling_callback"), "write answers=Answers(sampling=…)"),
    "sampling_capabilities": "write answers=Answers(sampling=…, sampling_features=…)",
    "list_roots_callback": "write answers=Answers(roots=…)",
    "input_required_max_rounds": "write answers=Answers(max_input_rounds=…)",
    **dict.fromkeys(("log_handler", "logging_callback"), "write on_log=…"),
    **dict.fromkeys(("message_handler", "notification_bindings"), "write on_message=…"),
    "on_error": "write options=SessionOptions(on_error=…)",
    "read_timeout_seconds": "write timeout=…, in seconds",
    **dict.fromkeys(
        ("init_timeout", "connect_timeout"), "write options=SessionOptions(calls=CallOptions(connect_timeout=…))"
    ),
    "probe_timeout": "write options=SessionOptions(calls=CallOptions(probe_timeout=…))",
    **dict.fromkeys(
        ("result_types", "result_claims"), "write options=SessionOptions(calls=CallOptions(result_types=…))"
    ),
    **dict.fromkeys(("progress_handler", "progress_callback"), "pass on_progress=… to each call"),
    "extensions": 'write capabilities={"extensions": …}',
    "raise_exceptions": "a server logs the errors that it masks; write Server(expose_errors=True)",
    "auto_initialize": "async with Client(…) connects and negotiates",
    "verify": "write Client(lambda: streamable_http_client(url, http_client=…))",
    **dict.fromkeys(("oauth", "auth_provider", "authProvider"), "write auth=…, with an OAuth from trio_mcp.auth"),
}

# The table lists settings of an endpoint in the official SDK and FastMCP, each with its counterpart in this library.
_ENDPOINT = {
    "streamable_http_path": "path=…",
    "stateless_http": "stateless=True",
    "json_response": "json_only=True",
    "retry_interval": "retry=…, in seconds",
    "max_request_body_size": "max_message_size=…",
    "session_idle_timeout": "session_timeout=…",
    "transport_security": "allowed_hosts=[…], allowed_origins=[…]",
    "uvicorn_config": "config=…, for hypercorn",
}
_RUN = {name: f"write {ours}" for name, ours in _ENDPOINT.items()} | {
    "show_banner": "there is no banner",
    "middleware": "write Server(middleware=[…])",
    "mount_path": "mount the application of asgi_app()",
}
_SERVE = _RUN | {"log_level": "only run() takes log_level; use the logging module, with the logger 'trio_mcp'"}
# The settings in this list belong to an endpoint in this library, too. They are refused for a server, because in the
# official SDK and in early versions of FastMCP, the server's constructor took them.
_OURS = "host port path sse_path message_path allowed_hosts allowed_origins cors event_store stateless max_sessions"
_ANY_SERVER = (
    {name: f"give it to run('http', {ours})" for name, ours in _ENDPOINT.items()}
    | {name: f"give it to run('http', {name}=…)" for name in _OURS.split()}
    | {
        name: f"write name=types.Implementation(name=…, version=…, {name}=…)"
        for name in ("title", "description", "website_url", "icons")
    }
    | dict.fromkeys(("auth", "auth_server_provider", "token_verifier"), _AUTH)
    | dict.fromkeys(("log_level", "debug"), "give it to run(log_level=…)")
    | {
        "cache_hints": "write lists=ListOptions(cache_hints=…)",
        "request_state_security": "write input=InputOptions(key=…, ttl=…)",
        "mask_error_details": "errors are masked; expose_errors=True shows them",
    }
)
_KINDS = ("tools", "resources", "prompts")
_TWICE = "a second tool, resource or prompt of the same name is always an error"
_SERVER = (
    _ANY_SERVER
    | dict.fromkeys(("page_size", "list_page_size"), "write lists=ListOptions(page_size=…)")
    | {f"{what}_{each}": _TWICE for what in ("on_duplicate", "warn_on_duplicate") for each in _KINDS}
    | {each: f"call server.add_{each[:-1]}() for each function" for each in _KINDS}
    | {
        "on_duplicate": _TWICE,
        "dereference_schemas": "write functions=FunctionOptions(inline_definitions=…)",
        "strict_input_validation": "arguments are always validated, in pydantic's lax mode",
        "resource_security": "use trio_mcp.safe_join() for paths",
        "providers": "mount another Server, or serve a ProxyServer",
        "sampling_handler": "ctx.sample() asks the client's model",
        "include_tags": "call server.disable(tags={…}), or write visible=…",
        "exclude_tags": "call server.disable(tags={…}), or write visible=…",
    }
)
_PROXY = _ANY_SERVER | {
    "lifespan": "a run of the proxy is one connection to the upstream server, and has no lifespan of its own",
    "functions": "a proxy has no functions of its own",
    "visible": "the upstream server decides what is visible; a middleware may change the lists and refuse calls",
}

FOREIGN: Final[dict[str, dict[str, str]]] = {
    "Server": _SERVER,
    "ProxyServer": _PROXY,
    **{f"{server}.run": _RUN for server in ("Server", "ProxyServer")},
    **{
        f"{server}.{method}": _SERVE
        for server in ("Server", "ProxyServer")
        for method in ("serve_http", "serve_sse", "asgi_app")
    },
    "Server.tool": _TOOL,
    "Server.add_tool": _TOOL,
    "Server.resource": _RESOURCE,
    "Server.add_resource": _RESOURCE,
    "Server.prompt": _PROMPT,
    "Server.add_prompt": _PROMPT,
    "Context.sample": {
        "mask_error_details": "errors other than ToolError are masked; Server(expose_errors=True) shows them",
        "tool_concurrency": "the tools that the model calls in one reply run at the same time",
    },
    "Server.mount": _MOUNT,
    "Server.enable": _SWITCH,
    "Server.disable": _SWITCH,
    "Client": _CLIENT | {"name": "write client_info=types.Implementation(name=…, version=…)"},
    "ClientGroup": _CLIENT,
    "ClientGroup.add": _CLIENT,
    "Client.call_tool": _REQUEST,
    "Client.call_tool_once": _ONE_ROUND,
    "Client.read_resource": _REQUEST,
    "Client.read_resource_once": _ONE_ROUND,
    "Client.get_prompt": _REQUEST,
    "Client.get_prompt_once": _ONE_ROUND,
}
"""For each public function: keywords of FastMCP and the official SDK (`mcp`), and what to write instead of them."""


_FOR_THE_SERVER: Final = ("call_tool", "call_tool_once", "get_prompt", "get_prompt_once")
"""Methods to which callers may pass the arguments of a tool or prompt as keywords, by mistake."""


def refuse_unknown(
    function: Callable[..., Any], given: Iterable[str], details: type | None = None, owner: type | None = None
) -> None:
    """Refuse keyword arguments that a function does not take.

    Args:
        function: The public function, method or class that was called.
        given: The names that its ``**`` parameter received.
        details: The `typing.TypedDict` of the keywords that this parameter accepts; None if it accepts none.
        owner: The class to name in the error, for a method that is defined in a base class.

    Raises:
        TypeError: If a keyword is unknown.
    """
    # The known names come from the TypedDict itself, so that type checkers accept the same keywords as this function.
    known = () if details is None else details.__annotations__
    for name in given:
        if name not in known:
            called = function.__qualname__ if owner is None else f"{owner.__qualname__}.{function.__name__}"
            advice = _advice(function, called, name, [*_parameters(function), *known])
            raise TypeError(f"{called}() got an unexpected keyword argument {name!r}{advice}")


def _advice(function: Callable[..., Any], called: str, name: str, known: list[str]) -> str:
    bases = getattr(function, "__mro__", ())  # the rows of a base class apply to a user's subclass, too
    for each in (called, *(base.__qualname__ for base in bases)):
        if (advice := FOREIGN.get(each, {}).get(name)) is not None:
            return f": {advice}"
    from difflib import get_close_matches  # imported here, because only a wrong keyword needs difflib

    # The spelling is compared only if the table has no advice: a name from another library was not misspelt, even if it
    # resembles a known one.
    if close := get_close_matches(name, known, 1):
        return f"; did you mean {close[0]!r}?"
    if function.__name__ in _FOR_THE_SERVER:
        return f": pass the arguments as a dict, {function.__name__}(…, {{{name!r}: …}})"
    return f"; it takes {', '.join(known)}"


def _parameters(function: Callable[..., Any]) -> list[str]:
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = inspect.signature(function).parameters.values()
    # The methods are unbound, so `self` is one of their parameters.
    return [each.name for each in parameters if each.kind in kinds and each.name != "self"]


# The table lists words that other libraries use for choices that have quite different names in this library.
_RENAMED = {"streamable-http": "http"}


# Both the length of the name and the number of known names are limited, because the name may come from a language
# model, and the known names from a server.
def similar_names(name: str, known: Iterable[str], most: int = 3) -> tuple[str, ...]:
    """Return up to ``most`` known names that are similar to a name, the most similar first."""
    from difflib import get_close_matches

    return tuple(get_close_matches(name[:LONGEST_COMPARED], islice(known, MOST_COMPARED), most))


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: a suggestion of the most similar known name, if any."""
    if not isinstance(name, str):
        return ""
    ours = _RENAMED.get(name)
    near = (ours,) if ours is not None and ours in known else similar_names(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""
