"""Every exception that trio_mcp raises, in one tree under `TrioMcpError`.

The three error paths:

* the answer to one request was an error: `McpError`, with the peer's ``code``, ``message`` and ``data``;
* the link failed: `TransportError` and its kin, raised by every call that was waiting on it;
* a message that belongs to no request was broken: reported to the session's ``on_error`` as a `RemoteProtocolError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

__all__ = [
    "CapabilityError",
    "ConfigError",
    "HttpError",
    "HttpTrouble",
    "InputError",
    "LocalProtocolError",
    "McpError",
    "MessageTooLarge",
    "NegotiationError",
    "ProcessExited",
    "RemoteProtocolError",
    "RequestTimeout",
    "SessionClosed",
    "ToolError",
    "TransportError",
    "TrioMcpError",
]


class TrioMcpError(Exception):
    """The base of everything that this library raises on its own account.

    Attributes:
        server: The name of the server that it is about, where it was raised by a `ClientGroup`; otherwise None.
    """

    server: str | None = None

    def __str__(self) -> str:
        return self._text() if self.server is None else f"server {self.server!r}: {self._text()}"

    def _text(self) -> str:
        """What happened, to what, and what to do; subclasses with data of their own make it from that."""
        return super().__str__()


class McpError(TrioMcpError):
    """The peer answered one request with a JSON-RPC error, or a handler wants its request answered with one.

    Attributes:
        code: The JSON-RPC error code, for example -32602 (see `trio_mcp.types.error_codes`).
        message: The peer's short description.
        data: Whatever else the peer sent along, or None.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(code, message, data)
        self.code = code
        self.message = message
        self.data = data

    def _text(self) -> str:
        return f"{self.message} (error {self.code})"


class ToolError(TrioMcpError):
    """Raise it in a tool: the text reaches the client as a result with ``isError``, for the model to react to."""


class RequestTimeout(TrioMcpError, TimeoutError):
    """No answer came in time; the peer has been told that the request is cancelled.

    Attributes:
        method: The method of the request.
        seconds: The limit that ran out, in seconds.
        limit: Which limit it was: ``"timeout"`` or ``"total_timeout"``.
    """

    def __init__(self, method: str, seconds: float, limit: str = "timeout") -> None:
        super().__init__(method, seconds, limit)
        self.method = method
        self.seconds = seconds
        self.limit = limit

    def _text(self) -> str:
        return f"no answer to {self.method!r} within {self.limit}={self.seconds:g} seconds; the request was cancelled"


class TransportError(TrioMcpError):
    """The link to the peer failed; every call that was in flight settles with this."""


class SessionClosed(TransportError):
    """The session is closed, or was closed while the call was waiting for its answer."""


class ProcessExited(TransportError):
    """The server process ended while it was still needed.

    Attributes:
        returncode: The exit status; negative for the signal that killed it; None when it could not be learned.
        stderr_tail: The last lines that it wrote to standard error, if they were captured.
    """

    def __init__(self, command: str, returncode: int | None, stderr_tail: str = "") -> None:
        super().__init__(command, returncode, stderr_tail)
        self.command = command
        self.returncode = returncode
        self.stderr_tail = stderr_tail

    def _text(self) -> str:
        if self.returncode is None:
            status = "closed its standard output"
        elif self.returncode < 0:
            status = f"was killed by signal {-self.returncode}"
        else:
            status = f"exited with status {self.returncode}"
        tail = f"; its standard error ends with:\n{self.stderr_tail}" if self.stderr_tail else ""
        return f"the server process {self.command!r} {status}{tail}"


HttpTrouble: TypeAlias = Literal[
    "busy",
    "forbidden",
    "gateway",
    "header_mismatch",
    "not_modern",
    "not_streamable",
    "refused",
    "session_lost",
    "too_large",
    "unauthorized",
]
"""What a failed HTTP exchange means, and so how to go on: see `HttpError`."""


class HttpError(TransportError):
    """A server answered with an HTTP status, or in a form, that carries no result.

    Attributes:
        target: The HTTP method and the URL.
        status: The HTTP status.
        headers: The fields of the answer, by names in lower case.
        excerpt: The beginning of its body.
        retry_after: How long the server asks to wait, in seconds, or None.
        trouble: What it means:
            ``"unauthorized"``, ``"forbidden"``: the server wants other credentials, or takes no such client;
            ``"busy"``: it did nothing with the request and will later; ``"gateway"``: something on the way failed, and
            nobody knows how far the request came; ``"too_large"``: the request was;
            ``"session_lost"``: the server has forgotten the session, open a new one;
            ``"header_mismatch"``: the tool wants other headers than the client knows of, list the tools again;
            ``"not_modern"``: the server speaks no modern revision, try ``initialize``;
            ``"not_streamable"``: nor Streamable HTTP, try HTTP+SSE; ``"refused"``: anything else.
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
        # Control characters could hide the rest of a message on a terminal.
        shown = "".join(character if character.isprintable() else " " for character in self.excerpt[:500])
        body = f": {shown}" if shown.strip() else ""
        advice = f" ({_ADVICE[self.trouble]})" if self.trouble in _ADVICE else ""
        return f"{self.target} was answered with status {self.status} {self.reason}{body}{advice}"


_ADVICE: dict[HttpTrouble, str] = {
    "session_lost": "the server has forgotten the session; make a new Client",
    "unauthorized": "the server wants credentials, or others",
    "not_streamable": "is this the URL of an MCP server?",
}


class LocalProtocolError(TrioMcpError):
    """This side was asked for something that the protocol does not allow now; nothing was sent."""


class CapabilityError(LocalProtocolError):
    """A method was used whose capability the other side (or this one) has not declared; nothing was sent.

    Attributes:
        method: The method that needs it.
        capability: The capability's dotted path, for example ``"resources.subscribe"``.
        side: Who would have to declare it: ``"server"`` or ``"client"``.
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
        code: The JSON-RPC error code that names the fault best.
    """

    def __init__(self, message: str, code: int = -32600) -> None:
        super().__init__(message, code)
        self.message = message
        self.code = code

    def _text(self) -> str:
        return self.message


class InputError(TrioMcpError):
    """In the course of a call the server asked for input, and the callback for it gave none; ``__cause__`` says why.

    Attributes:
        method: What the server asked for: ``"elicitation/create"``, ``"sampling/createMessage"`` or ``"roots/list"``.
        key: The server's name for it.
        reason: Type and text of what the callback raised, or what is wrong with its answer.
    """

    def __init__(self, method: str, key: str, reason: str) -> None:
        super().__init__(method, key, reason)
        self.method = method
        self.key = key
        self.reason = reason

    def _text(self) -> str:
        return f"no answer to {self.method!r}, which the server asks for as {self.key[:100]!r}: {self.reason}"


class MessageTooLarge(RemoteProtocolError):
    """A message was longer than the limit; it was skipped, and what follows it is read as usual.

    Attributes:
        limit: The limit, in bytes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"a message is longer than max_message_size={limit} bytes and was skipped")
        self.limit = limit


class NegotiationError(TrioMcpError):
    """The two sides share no protocol revision.

    Attributes:
        supported: What the other side said it supports.
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
        source: The file, or what else it was read from.
        problems: Everything that is wrong with it, one line for each, with its place.
    """

    def __init__(self, source: str, problems: tuple[str, ...]) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems

    def _text(self) -> str:
        return "\n".join(self.problems)
