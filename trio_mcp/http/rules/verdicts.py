"""What the rules for a server's HTTP endpoint work on: its settings, a request, and the two verdicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import attrs

from trio_mcp.http.headers import Headers
from trio_mcp.http.param_headers import ParameterHeader
from trio_mcp.http.rules.guard import HostGuard
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE, encode
from trio_mcp.jsonrpc.messages import Batch, ErrorData, ErrorResponse, Incoming, Malformed, Request, RequestId
from trio_mcp.types.error_codes import INVALID_REQUEST
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS, REVISIONS, Era

__all__ = ["Accept", "Exchange", "HttpSettings", "Kind", "Ladder", "Opening", "Refusal", "Rule", "refuse"]

Kind: TypeAlias = Literal["request", "initialize", "notification", "answer", "batch", "garbage"]


@attrs.frozen
class HttpSettings:
    """What a server has decided about its endpoint.

    Attributes:
        revisions: The revisions it serves.
        guard: Whose requests it takes.
        stateless: It keeps no sessions in the legacy era either: no GET, no DELETE, every POST stands alone.
        json_only: It answers with one JSON text, never with a stream.
        max_message_size: The longest body that is taken, in bytes.
        tool_headers: Gives the `ParameterHeader` list of a tool by name; empty for a tool that is not known.
    """

    revisions: tuple[str, ...] = REVISIONS
    guard: HostGuard = attrs.Factory(lambda: HostGuard(None))
    stateless: bool = False
    json_only: bool = False
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    tool_headers: Callable[[str], tuple[ParameterHeader, ...]] = lambda name: ()

    legacy: tuple[str, ...] = attrs.field(init=False)
    modern: tuple[str, ...] = attrs.field(init=False)
    supported: list[str] = attrs.field(init=False)
    """Newest first, as errors name them."""

    @legacy.default
    def _legacy(self) -> tuple[str, ...]:
        return tuple(revision for revision in LEGACY_REVISIONS if revision in self.revisions)

    @modern.default
    def _modern(self) -> tuple[str, ...]:
        return tuple(revision for revision in MODERN_REVISIONS if revision in self.revisions)

    @supported.default
    def _supported(self) -> list[str]:
        return [*reversed(self.modern), *reversed(self.legacy)]

    def __attrs_post_init__(self) -> None:
        if not self.supported:
            raise ValueError(f"revisions must name one of {', '.join(REVISIONS)}, got {self.revisions!r}")
        if self.max_message_size < 1:
            raise ValueError(f"max_message_size must be at least 1 byte, got {self.max_message_size}")

    @property
    def has_sessions(self) -> bool:
        return bool(self.legacy) and not self.stateless


@attrs.define
class Exchange:
    """One HTTP request on its way through the rules.

    Attributes:
        settings: What the server has decided.
        session_revision: Gives the revision of a session by its id; None for an id that is not known.
        method: The HTTP method.
        headers: The fields.
        message: What the body was decoded to; None before it has been read.
        kind: What the message is.
        era: Whose rules apply.
        revision: The revision spoken, as soon as a rule has found out.
    """

    settings: HttpSettings
    session_revision: Callable[[str], str | None]
    method: str
    headers: Headers
    message: Incoming | None = None
    kind: Kind = "garbage"
    era: Era = Era.LEGACY
    revision: str | None = None


@attrs.frozen
class Opening:
    """The head of a request is in order.

    Attributes:
        kind: ``"message"``: read the body, decode it and go on with `judge_message`. ``"stream"``: open the session's
            own stream. ``"end"``: end the session.
        session: The session's id, where it is known already (``"stream"``, ``"end"``).
        revision: The session's revision, likewise.
        last_event_id: Where a stream resumes (``"stream"``).
    """

    kind: Literal["message", "stream", "end"]
    session: str | None = None
    revision: str | None = None
    last_event_id: str | None = None


@attrs.frozen
class Accept:
    """A message is in order.

    Attributes:
        kind: What the message is. What owes no answer (see `owes_answer`) is answered with status 202 and no body, as
            soon as it has been handed on.
        message: What to hand on.
        era: Whose rules it follows.
        revision: The revision it speaks; None for ``"initialize"``, which is yet to find out.
        session: The id of the session it belongs to; None in the modern era, for ``"initialize"`` and without sessions.
        may_stream: The answer may be an event stream; else it must be one JSON text.
    """

    kind: Kind
    message: Incoming
    era: Era
    revision: str | None
    session: str | None = None
    may_stream: bool = True

    @property
    def owes_answer(self) -> bool:
        """Whether the body of the HTTP answer is the message's own answer."""
        if type(self.message) is Batch:
            items = self.message.items
            return any(type(item) is Request or (type(item) is Malformed and item.expects_answer) for item in items)
        return type(self.message) is Request


@attrs.frozen
class Refusal:
    """A request is refused.

    Attributes:
        status: The HTTP status.
        error: What the body says, as JSON-RPC has it; without an id where the request has none.
        headers: The fields of the answer.
        rule: The name of the rule that refused it.
    """

    status: int
    error: ErrorResponse
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    rule: str = attrs.field(default="", eq=False)

    @property
    def body(self) -> bytes:
        """The body of the answer."""
        return encode(self.error)


@attrs.frozen
class Rule:
    """One rung of a ladder.

    Attributes:
        name: What the rule is called in logs and tests.
        section: Where it comes from.
        check: Refuses the request, or lets it pass with None. It may note the revision.
        era: Whose messages it looks at; None for both.
        kinds: What it looks at; None for everything.
    """

    name: str
    section: str
    check: Callable[[Exchange], Refusal | None]
    era: Era | None = None
    kinds: frozenset[Kind] | None = None

    def applies(self, era: Era, kind: Kind) -> bool:
        return (self.era is None or self.era is era) and (self.kinds is None or kind in self.kinds)


class Ladder:
    """Rules in the order in which they are asked; the first that refuses decides.

    Args:
        rules: The rules.
    """

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules
        self._applying: dict[tuple[Era, Kind], list[Rule]] = {}

    def climb(self, exchange: Exchange) -> Refusal | None:
        """Hold a request against one rule after the other that applies to it."""
        applying = self._applying.get((exchange.era, exchange.kind))
        if applying is None:
            applying = [rule for rule in self.rules if rule.applies(exchange.era, exchange.kind)]
            self._applying[exchange.era, exchange.kind] = applying
        for rule in applying:
            if (refusal := rule.check(exchange)) is not None:
                return attrs.evolve(refusal, rule=rule.name)
        return None


def refuse(
    status: int,
    error: ErrorData | str,
    id: RequestId | None = None,
    *,
    data: Any = None,
    headers: tuple[tuple[str, str], ...] = (),
) -> Refusal:
    """Make a refusal; a text alone is an invalid request."""
    if isinstance(error, str):
        error = ErrorData(INVALID_REQUEST, error, data)
    return Refusal(status, ErrorResponse(id, error), (("Content-Type", "application/json"), *headers))
