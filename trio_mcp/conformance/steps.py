"""The steps of a plan, as data that can be kept in a file.

A step never names anything that is known only when it runs, for example the id of an open request. Instead it refers to
"the open request number n", modulo the number of open requests. So a plan can be made before it runs, and still runs
when some of its steps are removed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

__all__ = [
    "Ask",
    "AwaitResponses",
    "Break",
    "Cancel",
    "Compare",
    "Continue",
    "Follow",
    "Http",
    "NextPage",
    "OnTask",
    "Open",
    "Pause",
    "Plan",
    "Repeat",
    "Resume",
    "Step",
    "TakenValue",
    "Tell",
    "Write",
    "plan_from_json",
    "plan_to_json",
]

Headers: TypeAlias = Mapping[str, str | None]
"""The differences from the headers of a valid request: a value replaces or adds a header, None removes it.

Placeholders are filled in when the step runs: ``{session}`` is the session's id, ``{event}`` is the last event id of
the session's streams, and ``{other session}`` and ``{other event}`` are those of another connection to the same
server. ``{token NAME}`` is a token; see `trio_mcp.conformance.credentials`.

The pseudo-header ``:path`` (RFC 9113, section 8.3.1) replaces the path. In a path, ``{endpoint}`` is that of the
endpoint, without a query or a slash at its end, ``{endpoint?}`` is all of it, ready for another parameter of the query,
and ``{metadata}`` is the path of the resource metadata that the last challenge has named."""


Place: TypeAlias = tuple[str | int, ...]
"""Names and indexes that lead to a place in a JSON value; `trio_mcp.conformance.offers` says how into a text."""


@attrs.frozen
class TakenValue:
    """A value that a request takes from the result of an earlier call in the same plan, on the same connection.

    Attributes:
        into: The place in the request's parameters that gets the value. What stands there otherwise decides whether the
            value becomes a number or a text.
        method: The method of the earlier call.
        name: The name or the URI that it was about.
        place: The place of the value in its result.
        before: What to put in front of the value. With this or ``after``, the value is percent-encoded, unless it
            begins and ends like this already.
        after: What to put behind the value.
    """

    into: Place
    method: str
    name: str
    place: Place
    before: str = ""
    after: str = ""

    def __attrs_post_init__(self) -> None:
        # The step may come from a file that was edited by hand.
        texts = (self.method, self.name, self.before, self.after)
        paths = all(isinstance(path, tuple) for path in (self.into, self.place))
        steps = (*self.into, *self.place) if paths else (None,)
        is_usable = all(isinstance(each, (str, int)) for each in steps) and all(isinstance(each, str) for each in texts)
        if not is_usable or not self.into:
            raise TypeError("what is taken must have 'into', 'method', 'name' and 'place', the first and last as lists")


def _taken(found: Any) -> tuple[TakenValue, ...]:
    if not isinstance(found, tuple):
        raise TypeError("'taken' must be a list")
    made = []
    for each in found:
        if isinstance(each, Mapping):
            fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in each.items()}
            each = TakenValue(**fields)
        if not isinstance(each, TakenValue):
            raise TypeError("'taken' must be a list of objects")
        made.append(each)
    return tuple(made)


@attrs.frozen
class Ask:
    """Send a request, with the ``_meta`` and the headers that its era requires, without waiting for its response.

    Attributes:
        method: The method.
        params: The parameters.
        token: Whether the request asks for progress notifications.
        id: The id of the request; None for a new one.
        headers: The differences from the headers of a valid request, over HTTP.
        meta: The differences from the ``_meta`` of a valid request; None removes a key.
        connection: The number of the connection, modulo the number of those that are open.
        style: The kind of id that the request gets, see `trio_mcp.conformance.run.STYLES`; 0 for a small number.
        taken: The values that replace some of the parameters. Without one of them, because the earlier call is missing
            or was refused, nothing is sent.
    """

    method: str
    params: Mapping[str, Any] | None = None
    token: bool = False
    id: Any = None
    headers: Headers = attrs.Factory(dict)
    meta: Mapping[str, Any] = attrs.Factory(dict)
    connection: int = 0
    style: int = 0
    taken: tuple[TakenValue, ...] = attrs.field(default=(), converter=_taken)


@attrs.frozen
class Tell:
    """Send a notification."""

    method: str
    params: Mapping[str, Any] | None = None
    headers: Headers = attrs.Factory(dict)
    connection: int = 0


@attrs.frozen
class Write:
    """Send raw texts in place of messages, each framed as a message of the transport, or not framed at all.

    In a text, ``"$id"`` and ``"$id2"``, with the quotes, are replaced by new ids, which are the same in the whole step,
    and ``"$meta"`` is replaced by the ``_meta`` of a valid request.

    Attributes:
        texts: The texts.
        fault: The fault in them; empty if they are valid.
        framed: Whether each is framed as a message (a line, a POST, a frame); otherwise they are written as they are.
        headers: The differences from the headers of a valid request, over HTTP.
    """

    texts: tuple[bytes, ...]
    fault: str = ""
    framed: bool = True
    headers: Headers = attrs.Factory(dict)
    connection: int = 0


@attrs.frozen
class Http:
    """Make any HTTP request; other transports ignore the step.

    Attributes:
        method: The HTTP method.
        headers: The differences from the headers of a valid request with this method and body.
        body: The body.
        path: The path; None for the endpoint's own.
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
    """Cancel open request number ``which``, modulo their number, in the way that the era and the transport require.

    Attributes:
        answered: Whether to choose among the requests that already have a response, instead of the open ones.
    """

    which: int = 0
    reason: str | None = None
    connection: int = 0
    answered: bool = False


@attrs.frozen
class NextPage:
    """Request the next page of list number ``which`` among those that have one, modulo their number."""

    which: int = 0
    connection: int = 0


@attrs.frozen
class OnTask:
    """Send a request about task number ``which`` of the connection, modulo the number of its tasks.

    Attributes:
        method: The method: ``tasks/get``, ``tasks/result``, ``tasks/update``, ``tasks/cancel``, or
            ``subscriptions/listen``.
        which: The number of the task.
        meta: The differences from the ``_meta`` of a valid request; None removes a key.
        more: Further input responses for ``tasks/update``, which otherwise answers what the task last asked.
        headers: The differences from the headers of a valid request, over HTTP.
    """

    method: str
    which: int = 0
    meta: Mapping[str, Any] = attrs.Factory(dict)
    connection: int = 0
    more: Mapping[str, Any] = attrs.Factory(dict)
    headers: Headers = attrs.Factory(dict)


@attrs.frozen
class Follow:
    """Poll task number ``which`` and respond to its input requests, until it ends or a short time has passed.

    Attributes:
        which: The number of the task, modulo the number of the connection's tasks.
        meta: The differences from the ``_meta`` of a valid request, for each request about the task.
    """

    which: int = 0
    meta: Mapping[str, Any] = attrs.Factory(dict)
    connection: int = 0


@attrs.frozen
class Continue:
    """Retry a request whose result asked for input, with answers to the questions in that result.

    Attributes:
        how: ``valid`` answers, ``wrong`` ones, ``none`` at all, or a request ``state`` that was tampered with.
        headers: The differences from the headers of a valid request, over HTTP.
    """

    which: int = 0
    how: Literal["valid", "wrong", "none", "state"] = "valid"
    connection: int = 0
    headers: Headers = attrs.Factory(dict)


@attrs.frozen
class AwaitResponses:
    """Wait until every open request that is bound to end has its response, or is overdue."""


@attrs.frozen
class Pause:
    """Wait, and respond to the server's requests meanwhile."""

    seconds: float = 0.05


@attrs.frozen
class Open:
    """Open another connection.

    Attributes:
        revision: The revision; None for that of the main connection.
        capabilities: The capabilities that the kit declares as a client; None for the default.
        user: The name of the token that its requests have, over HTTP; empty for that of the main connection.
    """

    revision: str | None = None
    capabilities: Mapping[str, Any] | None = None
    user: str = ""


@attrs.frozen
class Break:
    """End a connection, or over HTTP the open response number ``which``, modulo their number.

    Attributes:
        how: Whether to close it, to reset it, or to close only the sending side.
    """

    how: Literal["close", "reset", "half"] = "close"
    which: int = 0
    connection: int = 0


@attrs.frozen
class Resume:
    """Resume the broken HTTP stream number ``which`` after the last event that came on it."""

    which: int = 0
    connection: int = 0


@attrs.frozen
class Repeat:
    """Make a request again and again, one after the other, and note what the process uses meanwhile.

    Only a process that the kit has started can be measured; for any other, the step does nothing.
    """

    method: str
    params: Mapping[str, Any] | None = None
    connection: int = 0


@attrs.frozen
class Compare:
    """Make requests twice, and once more after each of the calls that the server should refuse.

    Attributes:
        requests: The method and the parameters of each request that shows something of the server's state.
        refused: The method and the parameters of each call that should be refused.
    """

    requests: tuple[tuple[str, Mapping[str, Any] | None], ...]
    refused: tuple[tuple[str, Mapping[str, Any] | None], ...]
    connection: int = 0

    def __attrs_post_init__(self) -> None:
        # The step may come from a file that was edited by hand.
        is_listed = isinstance(self.requests, tuple) and isinstance(self.refused, tuple)
        each = [*self.requests, *self.refused] if is_listed else [None]
        if not all(isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in each):
            raise TypeError("'requests' and 'refused' must be lists of pairs of a method and its parameters")


Step: TypeAlias = (
    Ask
    | Tell
    | Write
    | Http
    | Cancel
    | NextPage
    | OnTask
    | Follow
    | Continue
    | AwaitResponses
    | Pause
    | Open
    | Break
    | Resume
    | Repeat
    | Compare
)
Plan: TypeAlias = tuple[Step, ...]


_WORDS: Final[dict[type, str]] = {kind: kind.__name__.lower() for kind in get_args(Step)} | {AwaitResponses: "await"}
_KINDS: Final[dict[str, Any]] = {word: kind for kind, word in _WORDS.items()}


def plan_to_json(plan: Iterable[Step]) -> list[dict[str, Any]]:
    """Return a plan as JSON data, without the fields that have their defaults."""
    return [
        {"do": _WORDS[type(step)]}
        | {
            field.name: _written(getattr(step, field.name))
            for field in attrs.fields(type(step))
            # Leaving out defaults keeps a file short enough to be read and edited; and the file stays valid when the
            # code adds a field to a step.
            if getattr(step, field.name) != _default(field)
        }
        for step in plan
    ]


def plan_from_json(data: Any) -> Plan:
    """Return a plan from the JSON data that `plan_to_json` returns.

    Raises:
        ValueError: If the data is not a plan.
    """
    if not isinstance(data, list):
        raise ValueError(f"a plan must be a list of steps, not {type(data).__name__}")
    plan = []
    for number, each in enumerate(data):
        # The value is converted to a string, because in a file that was edited by hand it may be a list or an object,
        # which can't be looked up in a dictionary.
        kind = _KINDS.get(str(each.get("do"))) if isinstance(each, dict) else None
        if kind is None:
            raise ValueError(f"step {number}: 'do' must be one of {', '.join(_KINDS)}")
        try:
            plan.append(kind(**{name: _read(value) for name, value in each.items() if name != "do"}))
        except TypeError as exc:
            raise ValueError(f"step {number}: {exc}") from None
    return tuple(plan)


def _default(field: Any) -> Any:
    return field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]


# Bytes are the only values of steps that JSON lacks. Bytes that are UTF-8 are written as text, so that they are
# legible.
def _written(value: Any) -> Any:
    if isinstance(value, bytes):
        try:
            return {"$text": value.decode()}
        except UnicodeDecodeError:
            return {"$base64": base64.b64encode(value).decode()}
    if isinstance(value, TakenValue):
        # Like a step, without the fields that have their defaults.
        fields = attrs.fields(TakenValue)
        return {f.name: _written(v) for f in fields if (v := getattr(value, f.name)) != f.default}
    return [_written(each) for each in value] if isinstance(value, tuple) else value


def _read(value: Any) -> Any:
    match value:
        # `$text` and `$base64` are special only if they are an object's sole member: parameters belong to the target,
        # and may have a member with such a name among others.
        case {"$text": str(text), **rest} if not rest:
            return text.encode()
        case {"$base64": str(text), **rest} if not rest:
            return base64.b64decode(text)
        case list():
            # Lists in the fields of a step were tuples before they were written, and become tuples again, so that the
            # plan that is read equals the plan that was written. Lists within parameters stay lists.
            return tuple(map(_read, value))
    return value
