"""The steps of a plan: what the kit does next, as data that can be kept in a file.

A step never names what is only known when it runs, such as the id of a request that is open then: it says "the open
request number n", counted round. So a plan is made before it runs, and what is left when steps are taken out still runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

__all__ = [
    "Ask",
    "Await",
    "Break",
    "Cancel",
    "Continue",
    "Http",
    "NextPage",
    "Open",
    "Pause",
    "Plan",
    "Resume",
    "Step",
    "Tell",
    "Write",
]

Headers: TypeAlias = Mapping[str, str | None]
"""What differs from the headers of a valid request: a value replaces or adds a header, None removes it."""


@attrs.frozen
class Ask:
    """Send a request, with what its era demands in ``_meta`` and in the headers. Its response is not waited for.

    Attributes:
        method: The method.
        params: The parameters.
        token: Whether it asks for progress.
        id: Its id; None for a new one.
        headers: What differs from the headers of a valid request, over HTTP.
        meta: What differs from the ``_meta`` of a valid request; None removes a key.
        connection: The connection, counted round among those that are open.
    """

    method: str
    params: Mapping[str, Any] | None = None
    token: bool = False
    id: Any = None
    headers: Headers = attrs.Factory(dict)
    meta: Mapping[str, Any] = attrs.Factory(dict)
    connection: int = 0


@attrs.frozen
class Tell:
    """Send a notification."""

    method: str
    params: Mapping[str, Any] | None = None
    headers: Headers = attrs.Factory(dict)
    connection: int = 0


@attrs.frozen
class Write:
    """Send texts in place of messages; each is framed as a message of the transport, or not at all.

    Attributes:
        texts: The texts.
        fault: What is wrong with them; empty if they are valid.
        framed: Whether each is framed as a message (a line, a POST, a frame); otherwise they are written as they are.
        headers: What differs from the headers of a valid request, over HTTP.
    """

    texts: tuple[bytes, ...]
    fault: str = ""
    framed: bool = True
    headers: Headers = attrs.Factory(dict)
    connection: int = 0


@attrs.frozen
class Http:
    """Make an HTTP request of one's own; ignored by other transports.

    Attributes:
        method: The HTTP method.
        headers: What differs from the headers of a valid request with this method and body.
        body: The body.
        path: The path; None for that of the endpoint.
        hold: Seconds for which the response is read, at most.
    """

    method: str
    headers: Headers = attrs.Factory(dict)
    body: bytes = b""
    path: str | None = None
    hold: float = 1.0
    connection: int = 0


@attrs.frozen
class Cancel:
    """Cancel the open request number ``which``, counted round, as the era and the transport want."""

    which: int = 0
    reason: str | None = None
    connection: int = 0


@attrs.frozen
class NextPage:
    """Ask for the next page of the list request number ``which`` that has one, counted round."""

    which: int = 0
    connection: int = 0


@attrs.frozen
class Continue:
    """Send the request number ``which`` that was answered with questions again, with responses to them.

    Attributes:
        how: ``valid`` responses, ``wrong`` ones, ``none`` at all, or a request ``state`` that was tampered with.
    """

    which: int = 0
    how: Literal["valid", "wrong", "none", "state"] = "valid"
    connection: int = 0


@attrs.frozen
class Await:
    """Wait until every open request that is bound to end is answered, or is overdue."""


@attrs.frozen
class Pause:
    """Wait."""

    seconds: float = 0.05


@attrs.frozen
class Open:
    """Open another connection, in the same revision unless another is named."""

    revision: str | None = None


@attrs.frozen
class Break:
    """End a connection, or over HTTP the open response number ``which``.

    Attributes:
        how: Close it, reset it, or close only the sending side.
    """

    how: Literal["close", "reset", "half"] = "close"
    which: int = 0
    connection: int = 0


@attrs.frozen
class Resume:
    """Resume the broken stream number ``which`` after the last event that came of it; ignored by other transports."""

    which: int = 0
    connection: int = 0


Step: TypeAlias = Ask | Tell | Write | Http | Cancel | NextPage | Continue | Await | Pause | Open | Break | Resume
Plan: TypeAlias = tuple[Step, ...]
