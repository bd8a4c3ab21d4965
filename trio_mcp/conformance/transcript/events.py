"""The events of a transcript, each of which is one thing that happened between a client and a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import attrs

__all__ = ["Event", "Kind", "Sender"]

Sender: TypeAlias = Literal["client", "server", "kit"]
"""Who caused an event; ``kit`` for a note of the kit itself."""

Kind: TypeAlias = Literal["open", "message", "text", "request", "response", "end", "close", "mark"]
"""The kind of an event:

* ``open``: a connection was opened; over HTTP, a client appeared, and its exchanges follow. Facts: ``transport``; if
  the kit sends tokens, the ``url`` of the endpoint.
* ``message``: a JSON value arrived or was sent, whether it is a valid message or not; ``message`` contains it. Facts:
  over server-sent events ``event_id``, ``event`` and ``retry`` (in seconds) if the event has them; ``repeated``, the
  keys that ``inputRequests`` has more than once in the text, if there are any.
* ``text``: bytes that are not JSON; ``text`` contains them.
* ``request``: an HTTP request was sent. Facts: ``method``, ``path``, ``headers``. Its body is an event of its own.
  If the kit sends tokens, ``whose`` is the name of the token, empty for none, and None for malformed credentials; and
  ``aside`` says that the request is for another path than the endpoint's.
* ``response``: the head of an HTTP response arrived. Facts: ``status``, ``headers``.
* ``end``: an HTTP response ended. Facts: ``cut`` if it did not end as HTTP requires; ``by`` is who ended it.
* ``close``: a connection ended. Facts: ``reason``; ``status`` of a process, ``code`` of a WebSocket.
* ``mark``: a note of the kit itself. Facts: ``what``, see `MARKS`, and the facts that are named there.
"""

MARKS = {
    "overdue": "no response to the request with this `id` came within `seconds`; `by` is who asked, if not the client",
    "quiet": "nothing more came for `seconds`, though nothing prevented it",
    "begin": "an example begins here; what came before is its prologue",
    "again": "the kit repeats requests from here on: an overdue one, or what is measured or compared",
    "repeated": "the kit has repeated `requests` requests; if they are `compared`, the next one should be refused",
    "usage": "after `calls` calls in run number `run`, the process uses `memory`, `descriptors` and `threads`, and "
    "half of the last calls took `seconds` at most",
    "alive": "a probe of the kit got its response after `seconds`",
    "dead": "a probe of the kit got no response within `seconds`",
    "unsent": "the kit could not send something: `reason`",
    "half closed": "the client has closed its sending side, and still reads",
    "flood": "the target sent more than is kept, so the kit closed the connection: `reason`",
    "unrecorded": "what `by` sends is passed on, but not recorded any more: `reason`",
    "fetched": "the client requested something other than MCP from the kit's server, at `path`, with `secret` headers",
    "login": "the client had to sign in before what it requested, or requested something for that, at `url`, and got "
    "`status`; `to` says what it is, `sent_form` and `answer` what passed, `redirected_with` where it was led; in a "
    "check of authorization servers, `issuer` says which, `trial` what is tried, `problem` why there is no response",
    "document": "the body of the response was a JSON value, `document`, and not a message",
    "unended": "the target has sent `text`, and not ended the line",
    "stderr": "the process wrote `text` to its standard error",
}
"""The meaning of each mark, by its word."""


@attrs.frozen
class Event:
    """One thing that happened between a client and a server.

    Attributes:
        kind: See `Kind`.
        sender: Who caused it.
        connection: The number of the connection, from 0; over HTTP the number of the client.
        exchange: The number of the HTTP exchange that the event belongs to, if any.
        time: Seconds since the transcript began.
        message: The JSON value of a message.
        text: Bytes that are not JSON.
        facts: Further facts; their names depend on the kind.
    """

    kind: Kind
    sender: Sender
    connection: int = 0
    exchange: int | None = None
    time: float = 0.0
    message: Any = None
    text: bytes | None = None
    facts: Mapping[str, Any] = attrs.Factory(dict)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of an HTTP request or response by lower-case name; if a name is repeated, the last value."""
        return {name.lower(): value for name, value in self.facts.get("headers", ())}
