"""The responses of the authorization server, and the parameters of the requests that it gets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import urlencode, urlsplit, urlunsplit

import attrs

from trio_mcp.auth.rules.steps import Fetched
from trio_mcp.http.headers import JSON, Headers

__all__ = [
    "Ending",
    "Parameters",
    "Refused",
    "ServerResponse",
    "answer",
    "in_json",
    "read_object",
    "redirection",
    "with_query",
]

Ending: TypeAlias = Literal["whole", "cut", "endless", "silent"]


@attrs.frozen
class ServerResponse(Fetched):
    """A response, and how it ends.

    Attributes:
        ending: ``"whole"`` for a normal end; ``"cut"`` if the connection breaks half-way; ``"endless"`` if the body is
            repeated without end; ``"silent"`` if nothing is sent, not even the head.
    """

    ending: Ending = "whole"


class Refused(Exception):
    """Raised to refuse a request with an OAuth error.

    Args:
        error: The error code.
        description: What is wrong with the request.
        status: The HTTP status.
        fields: Further header fields.
    """

    def __init__(
        self, error: str, description: str, status: int = 400, fields: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(error, description)
        self.error = error
        self.description = description
        self.status = status
        self.fields = dict(fields or {})

    def answer(self) -> ServerResponse:
        """Return the response that reports this error."""
        return in_json({"error": self.error, "error_description": self.description}, self.status, self.fields)


def answer(status: int, body: bytes = b"", fields: Mapping[str, str] | None = None) -> ServerResponse:
    """Return a response, which must not be cached unless the fields say otherwise."""
    # RFC 6749, section 5.1, requires `no-store` in responses that contain tokens.
    given = {"Cache-Control": "no-store", **(fields or {})}
    return ServerResponse(status, Headers(given.items()), body)


def in_json(value: object, status: int = 200, fields: Mapping[str, str] | None = None) -> ServerResponse:
    """Return a response whose body is a value in JSON."""
    return answer(status, json.dumps(value).encode(), {"Content-Type": JSON, **(fields or {})})


def with_query(url: str, parameters: Mapping[str, str | None]) -> str:
    """Return a URL with parameters added to its query; those that are None are left out."""
    parts = urlsplit(url)
    added = urlencode({name: value for name, value in parameters.items() if value is not None})
    # The query of a redirect URI is kept (RFC 6749, section 3.1.2).
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, added)))))


def redirection(url: str, parameters: Mapping[str, str | None]) -> ServerResponse:
    """Return a response that redirects the browser to a URL with these parameters added."""
    return answer(302, fields={"Location": with_query(url, parameters)})


class Parameters:
    """The parameters of a request: each at most once, except ``resource`` (RFC 6749, section 3.2).

    Raises:
        Refused: If a parameter other than ``resource`` is repeated.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._values: dict[str, str] = {}
        self.resources: tuple[str, ...] = ()
        for name, value in pairs:
            # `resource` is the only parameter that may be repeated (RFC 8707, section 2).
            if name == "resource":
                self.resources += (value,)
            elif name in self._values:
                raise Refused("invalid_request", f"{name} was sent more than once")
            self._values[name] = value

    def get(self, name: str) -> str | None:
        """Return a parameter; None if it is missing or empty, which means the same (RFC 6749, section 3.1)."""
        return self._values.get(name) or None

    def __getitem__(self, name: str) -> str:
        """Return a required parameter.

        Raises:
            Refused: If the parameter is missing or empty.
        """
        value = self.get(name)
        if value is None:
            raise Refused("invalid_request", f"{name} is missing")
        return value


def read_object(body: bytes, error: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        Refused: With the given error code, if the body is not a JSON object.
    """
    try:
        value = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Refused(error, "the body is not a JSON object")
    return value
