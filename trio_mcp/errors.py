"""Every exception that trio_mcp raises, in one tree under `TrioMcpError`.

There are three error paths:

* the response to a request is an error: `McpError`, with the peer's ``code``, ``message`` and ``data``;
* the link failed: `TransportError` or a subclass, raised by every call that was waiting;
* a message that belongs to no request was malformed: reported to the session's ``on_error`` as `RemoteProtocolError`.
"""

# The classes pass their arguments on to `super().__init__`, because `convert.another` copies exceptions with
# `copy.copy`, which calls the class with `args`. The text of an exception is made on demand, because a `ClientGroup`
# sets `server` after the exception has been raised.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

__all__ = [
    "AuthorizationError",
    "CapabilityError",
    "ConfigError",
    "Disconnected",
    "HttpError",
    "HttpTrouble",
    "InputError",
    "LocalProtocolError",
    "LoginRequired",
    "McpError",
    "MessageTooLarge",
    "NegotiationError",
    "OutcomeUnknown",
    "ProcessExited",
    "RemoteProtocolError",
    "RequestTimeout",
    "SamplingError",
    "SessionClosed",
    "ToolError",
    "ToolNotApproved",
    "TransportError",
    "TrioMcpError",
    "UnknownTool",
]


class TrioMcpError(Exception):
    """The base class of this library's own exceptions.

    Attributes:
        server: The name of the server concerned, if a `ClientGroup` raised the exception; otherwise None.
    """

    # The default is a class attribute, so that no subclass has to set it.
    server: str | None = None

    def __str__(self) -> str:
        return self._text() if self.server is None else f"server {self.server!r}: {self._text()}"

    def _text(self) -> str:
        """Return a text that says what went wrong and what to do; subclasses make it from their own attributes."""
        return super().__str__()


class McpError(TrioMcpError):
    """The peer's response to a request was a JSON-RPC error; or, raised in a handler, the error to respond with.

    Attributes:
        code: The JSON-RPC error code, for example -32602 (see `trio_mcp.types.error_codes`).
        message: The peer's short description.
        data: Any further data that the peer sent, or None.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def _text(self) -> str:
        return f"{self.message} (error {self.code})"


class UnknownTool(McpError):
    """A call named a tool that the server, or the `ClientGroup`, does not have: models invent names.

    The text of the exception suggests the most similar name, if there is one. The code is always -32602.

    Args:
        name: The name that was called.
        suggestions: Similar names of tools, the most similar first.
        message: The server's own message, or None.
        data: Any further data that the server sent.

    Attributes:
        name: The name that was called.
        suggestions: Similar names of tools, the most similar first; empty if there are none, or the tools can't be
            listed.
    """

    def __init__(
        self, name: str, suggestions: tuple[str, ...] = (), message: str | None = None, data: Any = None
    ) -> None:
        # The code is INVALID_PARAMS (`server/tools`, Error Handling), even if the server sent another code.
        super().__init__(-32602, f"unknown tool: {name[:200]!r}" if message is None else message, data)
        # `copy.copy` calls this constructor with `args` (see the top of the file), but the base class has set them for
        # its own constructor.
        self.args = (name, suggestions, message, data)
        self.name = name
        self.suggestions = suggestions

    def _text(self) -> str:
        hint = f"; did you mean {self.suggestions[0]!r}?" if self.suggestions else ""
        return f"{self.message}{hint} (error {self.code})"


class ToolNotApproved(UnknownTool):
    """A call named a tool that is new, or that has changed since it was approved: see ``pins`` of `GroupOptions`.

    The text says what has changed without quoting it, since it may be passed to a model, which might obey.

    Args:
        name: The server's own name for the tool.
        fields: The members of the tool that have changed, such as ``description``; empty if the tool is new.
        diff: How they have changed.

    Attributes:
        fields: The members of the tool that have changed; empty if the tool is new.
        diff: How they have changed, line by line, in printable ASCII, for a person to read.
    """

    def __init__(self, name: str, fields: tuple[str, ...] = (), diff: tuple[str, ...] = ()) -> None:
        # The names of members are the server's, too, so only those of the specification are shown.
        shown = ", ".join(sorted({each if each in _TOOL else "other members" for each in fields}))
        changed = f"it has changed since it was approved ({shown})" if fields else "it is new"
        super().__init__(name, (), f"the tool {name[:200]!a} is not approved: {changed}")
        self.args = (name, fields, diff)
        self.fields = fields
        self.diff = diff


_TOOL = frozenset(
    {"annotations", "description", "execution", "icons", "inputSchema", "_meta", "name", "outputSchema", "title"}
)


class ToolError(TrioMcpError):
    """An error for a tool to raise: the client gets its text as a result with ``isError``, for the model to act on.

    On the client, reading the ``data`` of such a result raises a `ToolError`, too, if the call had a ``result_type``.
    """


class SamplingError(ToolError):
    """The client's model gave no response that `Context.sample` could use."""


# The class is a `TimeoutError` as well, so that code unaware of MCP can handle it.
class RequestTimeout(TrioMcpError, TimeoutError):
    """No response came in time; the peer has been told that the request is cancelled.

    Attributes:
        method: The method of the request.
        seconds: The limit that was exceeded, in seconds.
        limit: Which limit: ``"timeout"`` or ``"total_timeout"``.
    """

    def __init__(self, method: str, seconds: float, limit: str = "timeout") -> None:
        super().__init__(method, seconds, limit)
        self.method = method
        self.seconds = seconds
        self.limit = limit

    def _text(self) -> str:
        return f"no response to {self.method!r} within {self.limit}={self.seconds:g} seconds; the request was cancelled"


class TransportError(TrioMcpError):
    """The link to the peer failed; every call in flight raises this.

    Attributes:
        sent: Whether the peer may have acted on the request; False if the peer certainly has not, because it did not
            get the request, or refused the request without reading it.
    """

    sent: bool = True


class Disconnected(TransportError):
    """The connection to a server over HTTP could not be made, or broke before the end of the response."""


class OutcomeUnknown(TransportError):
    """The connection failed before the response to a call arrived: the server may or may not have acted on the call.

    Raised only by a client with several ways to reach its server (`FailoverParameters`), for a call that must not be
    repeated.

    Attributes:
        method: The method of the request.
        way: The name of the way to the server that failed.
        reason: Why that way failed.
    """

    def __init__(self, method: str, way: str, reason: str) -> None:
        super().__init__(method, way, reason)
        self.method = method
        self.way = way
        self.reason = reason

    def _text(self) -> str:
        return (
            f"the outcome of {self.method!r} is unknown: {self.way} failed before the response came ({self.reason}),"
            " and the client must not repeat the call; find out what the server has done, or allow a repetition with"
            " retry=True"
        )


class SessionClosed(TransportError):
    """The session is closed, or was closed while the call waited for its response."""


class ProcessExited(TransportError):
    """The server process ended while it was still needed.

    Attributes:
        returncode: The exit status, negative for the signal that killed it; None if it is not known.
        stderr_tail: The last lines that the process wrote to standard error, if they were captured.
        answered: Whether the opening of the connection was complete before the process ended.
    """

    answered: bool = True

    def __init__(self, command: str, returncode: int | None, stderr_tail: str = "") -> None:
        super().__init__(command, returncode, stderr_tail)
        self.command = command
        self.returncode = returncode
        self.stderr_tail = stderr_tail

    def _text(self) -> str:
        if self.returncode is None:
            status = "closed its standard output"
        # `subprocess` reports a signal as its number, negated.
        elif self.returncode < 0:
            status = f"was killed by signal {-self.returncode}"
        else:
            status = f"exited with status {self.returncode}"
            if not self.answered:
                status += " before it responded"
                # Status 0 means that the program ended without an error, so it may not be a server at all.
                status += "; is it an MCP server, and was it started the right way?" if self.returncode == 0 else ""
        tail = f"; its standard error ends with:\n{self.stderr_tail}" if self.stderr_tail else ""
        return f"the server process {self.command!r} {status}{tail}"


# `trio_mcp.http.client.heads` decides which kind of failure a response is, and `trio_mcp.http.client.posting` decides
# what the client does about the failure.
HttpTrouble: TypeAlias = Literal[
    "busy",
    "forbidden",
    "gateway",
    "header_mismatch",
    "not_modern",
    "not_streamable",
    "not_websocket",
    "refused",
    "session_lost",
    "too_large",
    "unauthorized",
]
"""The meaning of a failed HTTP exchange, which decides what to do next: see `HttpError`."""


class HttpError(TransportError):
    """A server's HTTP response carried no result, because of its status or its form.

    Attributes:
        target: The HTTP method and the URL.
        status: The HTTP status.
        headers: The header fields of the response, with names in lower case.
        excerpt: The beginning of the response's body.
        retry_after: How long the server asks the client to wait, in seconds, or None.
        trouble: What the failure means:
            ``"unauthorized"``: the server wants credentials, or different ones;
            ``"forbidden"``: the server does not admit this client;
            ``"busy"``: the server has not processed the request, but may process it later;
            ``"gateway"``: something between client and server failed, and it is not known how far the request got;
            ``"too_large"``: the request is too large for the server;
            ``"session_lost"``: the server has forgotten the session (open a new one);
            ``"header_mismatch"``: the tool requires headers that the client does not know (list the tools again);
            ``"not_modern"``: the server supports no modern revision (try ``initialize``);
            ``"not_streamable"``: the server does not support Streamable HTTP either (try HTTP+SSE);
            ``"not_websocket"``: the server has no WebSocket at this URL (try a URL that begins with ``http``);
            ``"refused"``: anything else.
    """

    def __init__(
        self,
        target: str,
        status: int,
        reason: str,
        headers: Mapping[str, str],
        excerpt: str,
        trouble: HttpTrouble = "refused",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(target, status, reason, headers, excerpt, trouble, retry_after)
        self.target = target
        self.status = status
        self.reason = reason
        self.headers = headers
        self.excerpt = excerpt
        self.trouble = trouble
        self.retry_after = retry_after

    def _text(self) -> str:
        # Control characters are replaced, because the server chose the text, and they could hide the rest of the
        # message on a terminal.
        shown = "".join(character if character.isprintable() else " " for character in self.excerpt[:500])
        body = f": {shown}" if shown.strip() else ""
        advice = f" ({_ADVICE[self.trouble]})" if self.trouble in _ADVICE else ""
        return f"{self.target} got status {self.status} {self.reason}{body}{advice}"


_ADVICE: dict[HttpTrouble, str] = {
    "session_lost": "the server has forgotten the session; make a new Client",
    "unauthorized": "the server wants credentials, or different ones",
    "not_streamable": "is this the URL of an MCP server?",
    "not_websocket": "is this the URL of a WebSocket? The URL of a server over HTTP begins with http:// or https://",
}


class AuthorizationError(TransportError):
    """A client could not get, or use, the authorization that a server asks for; see `trio_mcp.auth`.

    Attributes:
        step: The step that failed, such as ``"resource metadata"``, ``"registration"``, ``"authorization"`` or
            ``"refresh"``.
        problem: What went wrong, and with what.
        issuer: The authorization server concerned, if it was known.
        error: The OAuth error code in the server's response, such as ``"access_denied"``, or None.
        advice: What to do about the problem; empty if there is no advice.
    """

    # The server refused the request, if the request reached it at all.
    sent = False

    def __init__(
        self, step: str, problem: str, *, issuer: str | None = None, error: str | None = None, advice: str = ""
    ) -> None:
        super().__init__(step, problem)
        self.step = step
        self.problem = problem
        self.issuer = issuer
        self.error = error
        self.advice = advice

    def _text(self) -> str:
        code = f" ({self.error})" if self.error else ""
        where = f" at {self.issuer}" if self.issuer else ""
        return f"{self.step}{where} failed: {self.problem}{code}" + (f"; {self.advice}" if self.advice else "")


class LoginRequired(AuthorizationError):
    """A person would have to sign in, but the client has no way to ask a person."""


class LocalProtocolError(TrioMcpError):
    """The caller asked for something that the protocol does not allow now; nothing was sent."""


class CapabilityError(LocalProtocolError):
    """A method needs a capability that the peer (or this side) has not declared; nothing was sent.

    Attributes:
        method: The method that needs the capability.
        capability: The capability's dotted path, for example ``"resources.subscribe"``.
        side: The side that would have to declare the capability: ``"server"`` or ``"client"``.
    """

    def __init__(self, method: str, capability: str, side: str) -> None:
        super().__init__(method, capability, side)
        self.method = method
        self.capability = capability
        self.side = side

    def _text(self) -> str:
        side, capability = self.side, self.capability
        return f"{self.method!r} needs the {side} capability {capability!r}, which the {side} has not declared"


class RemoteProtocolError(TrioMcpError):
    """The peer sent something that the protocol does not allow.

    Attributes:
        code: The JSON-RPC error code that describes the fault best.
    """

    # -32600 is "Invalid Request" (JSON-RPC 2.0, section 5.1).
    def __init__(self, message: str, code: int = -32600) -> None:
        super().__init__(message, code)
        self.message = message
        self.code = code

    def _text(self) -> str:
        return self.message


class InputError(TrioMcpError):
    """The server asked for input during a call, and the callback supplied none; ``__cause__`` says why.

    Attributes:
        method: The server's request: ``"elicitation/create"``, ``"sampling/createMessage"`` or ``"roots/list"``.
        key: The key that the server gave the request.
        reason: The type and text of the callback's exception, or what is wrong with its return value.
    """

    def __init__(self, method: str, key: str, reason: str) -> None:
        super().__init__(method, key, reason)
        self.method = method
        self.key = key
        self.reason = reason

    def _text(self) -> str:
        # The key is shortened, because the server chose it, and it may be very long.
        return f"no answer to {self.method!r} (the server's key: {self.key[:100]!r}): {self.reason}"


class MessageTooLarge(RemoteProtocolError):
    """A message was longer than the limit; the message was skipped, and the messages after it are read as usual.

    Attributes:
        limit: The limit, in bytes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"a message is longer than max_message_size={limit} bytes and was skipped")
        self.args = (limit,)  # `copy.copy` calls this constructor with these arguments
        self.limit = limit


class NegotiationError(TrioMcpError):
    """The two sides share no protocol revision.

    Attributes:
        supported: The revisions that the peer said it supports.
    """

    def __init__(self, message: str, supported: tuple[str, ...] = ()) -> None:
        super().__init__(message, supported)
        self.message = message
        self.supported = supported

    def _text(self) -> str:
        return self.message


class ConfigError(TrioMcpError):
    """A configuration of servers can't be used.

    Attributes:
        source: The file or other source that the configuration was read from.
        problems: A line for each problem, which names its location in the configuration.
    """

    def __init__(self, source: str, problems: tuple[str, ...]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems

    def _text(self) -> str:
        return "\n".join(self.problems)
