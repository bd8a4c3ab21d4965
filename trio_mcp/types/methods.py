"""The method table: who may send which method in which revision, and with which models.

Code that needs to know whether a message is allowed looks it up in the table instead of comparing names. The table
refers to models by name and resolves the names on first use, so importing this module loads neither models nor
pydantic.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import trio_mcp.types
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS, REVISIONS

if TYPE_CHECKING:
    from trio_mcp.types._base import WireModel

__all__ = ["Lane", "MethodFacts", "MethodSpec", "Sender", "facts_of", "method_spec", "methods_of"]

Sender = Literal["client", "server"]
"""The side that sends a message."""

Lane = Literal["priority", "listening"]
"""A lane for requests that don't count towards the limit for ordinary requests; each lane has its own, equal limit."""

_CLIENT: Final[frozenset[Sender]] = frozenset({"client"})
_SERVER: Final[frozenset[Sender]] = frozenset({"server"})
_EITHER: Final[frozenset[Sender]] = frozenset({"client", "server"})
# The senders of embedded requests, which neither side sends as messages.
_NOBODY: Final[frozenset[Sender]] = frozenset()


class MethodSpec(NamedTuple):
    """The specification's facts about a method in one revision.

    Attributes:
        method: The method's name on the wire.
        senders: The sides that may send the message; empty for an ``embedded`` request.
        message_ref: The model of the whole message, by its name in ``trio_mcp.types``.
        params_ref: The model of the parameters; several are separated by ``|``.
        result_refs: The models of possible results; empty for a notification.
        params_required: Whether a message without params is malformed.
        embedded: Whether the request is not a message in this revision, but an entry of an InputRequiredResult; the
            client's next request contains the answer.
        name_header: The parameter that the ``Mcp-Name`` HTTP header repeats, if any
            (2026-07-28 basic/transports/streamable-http, "Standard Request Headers").
        cacheable: Whether the result says for how long it may be cached.
        may_ask_for_input: Whether the result may be an InputRequiredResult.
        server_capability: The capability that the server must have declared for this message to be allowed, as a dotted
            wire path such as ``"resources.subscribe"``.
        client_capability: The capability that the client must have declared. If both sides may send a request, only the
            receiver must have declared its capability.
    """

    method: str
    senders: frozenset[Sender]
    message_ref: str
    params_ref: str
    result_refs: tuple[str, ...] = ()
    params_required: bool = True
    embedded: bool = False
    name_header: str | None = None
    cacheable: bool = False
    may_ask_for_input: bool = False
    server_capability: str | None = None
    client_capability: str | None = None

    @property
    def is_request(self) -> bool:
        """Whether the message is a request, not a notification."""
        return bool(self.result_refs)

    @property
    def message(self) -> "type[WireModel]":
        """The model of the whole message."""
        return _resolve(self.message_ref)

    @property
    def params_models(self) -> "tuple[type[WireModel], ...]":
        """The possible models of the parameters; more than one only for ``elicitation/create``."""
        return tuple(map(_resolve, self.params_ref.split("|")))

    @property
    def params(self) -> "type[WireModel]":
        """The model of the parameters; for ``elicitation/create`` that of a form, see :meth:`params_models`."""
        return self.params_models[0]

    @property
    def results(self) -> "tuple[type[WireModel], ...]":
        """The possible models of the result, the ordinary one first; empty for a notification."""
        return tuple(map(_resolve, self.result_refs))


def _resolve(name: str) -> "type[WireModel]":
    # The name is an attribute of the package, which imports the model's module on first use.
    return cast("type[WireModel]", getattr(trio_mcp.types, name))


# Models that several rows refer to.
_ASKS: Final = "InputRequiredResult"
_AS_TASK: Final = "CreateTaskResult"
_EMPTY: Final = "Result"
_META_ONLY: Final = "RequestParams"
_PAGE: Final = "PaginatedRequestParams"
_BARE: Final = "NotificationParams"

# The groups of revisions that rows apply to. They are tuples in the order of publication, so that slices of them work.
_EVERY: Final = REVISIONS
_LEGACY: Final = LEGACY_REVISIONS
_MODERN: Final = MODERN_REVISIONS
_WITH_TASKS: Final = ("2025-11-25",)
_BEFORE_TASKS: Final = ("2024-11-05", "2025-03-26", "2025-06-18")


class _Row(NamedTuple):
    revisions: tuple[str, ...]
    spec: MethodSpec


def _row(revisions: tuple[str, ...], method: str, senders: frozenset[Sender], models: str, **more: Any) -> _Row:
    """Make a table row; ``models`` names the models of message, params and results (no results for a notification)."""
    message, params, *results = models.split()
    return _Row(revisions, MethodSpec(method, senders, message, params, tuple(results), **more))


def _list(method: str, models: str, capability: str) -> tuple[_Row, _Row]:
    """Make the table rows of a method that returns a paginated list, one for each era."""
    # In the modern era params are required, because `_meta` is, and the result may be cached.
    legacy = _row(_LEGACY, method, _CLIENT, models, server_capability=capability, params_required=False)
    return legacy, _Row(_MODERN, legacy.spec._replace(params_required=True, cacheable=True))


def _bare(revisions: tuple[str, ...], method: str, senders: frozenset[Sender], message: str, **more: Any) -> _Row:
    """Make the table row of a notification without parameters of its own."""
    return _row(revisions, method, senders, f"{message} {_BARE}", params_required=False, **more)


_READ: Final = "ReadResourceRequest ReadResourceRequestParams ReadResourceResult"
_GET_PROMPT: Final = "GetPromptRequest GetPromptRequestParams GetPromptResult"
_CALL: Final = "CallToolRequest CallToolRequestParams CallToolResult"
_COMPLETE: Final = "CompleteRequest CompleteRequestParams CompleteResult"
_SUBSCRIBE: Final = f"SubscribeRequest SubscribeRequestParams {_EMPTY}"
_UNSUBSCRIBE: Final = f"UnsubscribeRequest UnsubscribeRequestParams {_EMPTY}"
_LISTEN: Final = "SubscriptionsListenRequest SubscriptionsListenRequestParams SubscriptionsListenResult"
_SAMPLE: Final = "CreateMessageRequest CreateMessageRequestParams CreateMessageResult"
_ROOTS: Final = "ListRootsRequest ListRootsRequestParams ListRootsResult"
# Elicitation by URL came with 2025-11-25.
_FORM: Final = "ElicitRequest ElicitRequestFormParams ElicitResult"
_FORM_OR_URL: Final = "ElicitRequest ElicitRequestFormParams|ElicitRequestURLParams ElicitResult"

_ROWS: Final[tuple[_Row, ...]] = (
    # Opening a session, and the peer's health.
    _row(_LEGACY, "initialize", _CLIENT, "InitializeRequest InitializeRequestParams InitializeResult"),
    _bare(_LEGACY, "notifications/initialized", _CLIENT, "InitializedNotification"),
    _row(_LEGACY, "ping", _EITHER, f"PingRequest {_META_ONLY} {_EMPTY}", params_required=False),
    _row(_MODERN, "server/discover", _CLIENT, f"DiscoverRequest {_META_ONLY} DiscoverResult", cacheable=True),
    # Resources. In the modern era resources/subscribe is part of subscriptions/listen.
    *_list("resources/list", f"ListResourcesRequest {_PAGE} ListResourcesResult", "resources"),
    *_list(
        "resources/templates/list",
        f"ListResourceTemplatesRequest {_PAGE} ListResourceTemplatesResult",
        "resources",
    ),
    _row(_LEGACY, "resources/read", _CLIENT, _READ, server_capability="resources"),
    _row(
        _MODERN,
        "resources/read",
        _CLIENT,
        f"{_READ} {_ASKS}",
        name_header="uri",
        cacheable=True,
        may_ask_for_input=True,
        server_capability="resources",
    ),
    _row(_LEGACY, "resources/subscribe", _CLIENT, _SUBSCRIBE, server_capability="resources.subscribe"),
    _row(_LEGACY, "resources/unsubscribe", _CLIENT, _UNSUBSCRIBE, server_capability="resources.subscribe"),
    _bare(
        _EVERY,
        "notifications/resources/list_changed",
        _SERVER,
        "ResourceListChangedNotification",
        server_capability="resources.listChanged",
    ),
    _row(
        _EVERY,
        "notifications/resources/updated",
        _SERVER,
        "ResourceUpdatedNotification ResourceUpdatedNotificationParams",
        server_capability="resources.subscribe",
    ),
    # Prompts.
    *_list("prompts/list", f"ListPromptsRequest {_PAGE} ListPromptsResult", "prompts"),
    _row(_LEGACY, "prompts/get", _CLIENT, _GET_PROMPT, server_capability="prompts"),
    _row(
        _MODERN,
        "prompts/get",
        _CLIENT,
        f"{_GET_PROMPT} {_ASKS}",
        name_header="name",
        may_ask_for_input=True,
        server_capability="prompts",
    ),
    _bare(
        _EVERY,
        "notifications/prompts/list_changed",
        _SERVER,
        "PromptListChangedNotification",
        server_capability="prompts.listChanged",
    ),
    # Tools. Only 2025-11-25 has tasks as results.
    *_list("tools/list", f"ListToolsRequest {_PAGE} ListToolsResult", "tools"),
    _row(_BEFORE_TASKS, "tools/call", _CLIENT, _CALL, server_capability="tools"),
    _row(_WITH_TASKS, "tools/call", _CLIENT, f"{_CALL} {_AS_TASK}", server_capability="tools"),
    _row(
        _MODERN,
        "tools/call",
        _CLIENT,
        f"{_CALL} {_ASKS}",
        name_header="name",
        may_ask_for_input=True,
        server_capability="tools",
    ),
    _bare(
        _EVERY,
        "notifications/tools/list_changed",
        _SERVER,
        "ToolListChangedNotification",
        server_capability="tools.listChanged",
    ),
    # Completion. Revision 2024-11-05 has completion, but no capability for it.
    _row(_EVERY[:1], "completion/complete", _CLIENT, _COMPLETE),
    _row(_EVERY[1:], "completion/complete", _CLIENT, _COMPLETE, server_capability="completions"),
    # Log messages. In the modern era each request sets the level in `_meta`.
    _row(
        _LEGACY,
        "logging/setLevel",
        _CLIENT,
        f"SetLevelRequest SetLevelRequestParams {_EMPTY}",
        server_capability="logging",
    ),
    _row(
        _EVERY,
        "notifications/message",
        _SERVER,
        "LoggingMessageNotification LoggingMessageNotificationParams",
        server_capability="logging",
    ),
    # Requests from the server. In the modern era neither side sends them as messages: they are parts of a result, so
    # they have no senders there.
    _row(_BEFORE_TASKS, "sampling/createMessage", _SERVER, _SAMPLE, client_capability="sampling"),
    _row(_WITH_TASKS, "sampling/createMessage", _SERVER, f"{_SAMPLE} {_AS_TASK}", client_capability="sampling"),
    _row(_MODERN, "sampling/createMessage", _NOBODY, _SAMPLE, embedded=True, client_capability="sampling"),
    _row(_LEGACY, "roots/list", _SERVER, _ROOTS, params_required=False, client_capability="roots"),
    _row(_MODERN, "roots/list", _NOBODY, _ROOTS, params_required=False, embedded=True, client_capability="roots"),
    _bare(
        _LEGACY,
        "notifications/roots/list_changed",
        _CLIENT,
        "RootsListChangedNotification",
        client_capability="roots.listChanged",
    ),
    _row(_BEFORE_TASKS[-1:], "elicitation/create", _SERVER, _FORM, client_capability="elicitation"),
    _row(_WITH_TASKS, "elicitation/create", _SERVER, f"{_FORM_OR_URL} {_AS_TASK}", client_capability="elicitation"),
    _row(_MODERN, "elicitation/create", _NOBODY, _FORM_OR_URL, embedded=True, client_capability="elicitation"),
    _row(
        _WITH_TASKS,
        "notifications/elicitation/complete",
        _SERVER,
        "ElicitationCompleteNotification ElicitationCompleteNotificationParams",
        client_capability="elicitation.url",
    ),
    # Messages about other messages.
    _row(_EVERY, "notifications/cancelled", _EITHER, "CancelledNotification CancelledNotificationParams"),
    _row(_LEGACY, "notifications/progress", _EITHER, "ProgressNotification ProgressNotificationParams"),
    # A modern client gets no requests, so it has no progress to report.
    _row(_MODERN, "notifications/progress", _SERVER, "ProgressNotification ProgressNotificationParams"),
    # Streams of notifications.
    _row(_MODERN, "subscriptions/listen", _CLIENT, _LISTEN),
    _row(
        _MODERN,
        "notifications/subscriptions/acknowledged",
        _SERVER,
        "SubscriptionsAcknowledgedNotification SubscriptionsAcknowledgedNotificationParams",
    ),
)

# Tasks. The side that has received the original request runs the task. Requests may go either way, so either side may
# send these messages.
_TASK_ROWS: Final[tuple[_Row, ...]] = (
    _row(
        _WITH_TASKS,
        "tasks/get",
        _EITHER,
        "GetTaskRequest TaskRequestParams GetTaskResult",
        server_capability="tasks",
        client_capability="tasks",
    ),
    _row(
        _WITH_TASKS,
        "tasks/result",
        _EITHER,
        "GetTaskPayloadRequest TaskRequestParams GetTaskPayloadResult",
        server_capability="tasks",
        client_capability="tasks",
    ),
    _row(
        _WITH_TASKS,
        "tasks/cancel",
        _EITHER,
        "CancelTaskRequest TaskRequestParams CancelTaskResult",
        server_capability="tasks.cancel",
        client_capability="tasks.cancel",
    ),
    _row(
        _WITH_TASKS,
        "tasks/list",
        _EITHER,
        f"ListTasksRequest {_PAGE} ListTasksResult",
        params_required=False,
        server_capability="tasks.list",
        client_capability="tasks.list",
    ),
    _row(_WITH_TASKS, "notifications/tasks/status", _EITHER, "TaskStatusNotification TaskStatusNotificationParams"),
)

# There is one dict for each revision, because a lookup is made for every message.
_TABLE: Final[dict[str, dict[str, MethodSpec]]] = {
    revision: {row.spec.method: row.spec for row in _ROWS + _TASK_ROWS if revision in row.revisions}
    for revision in REVISIONS
}


class MethodFacts(NamedTuple):
    """The facts about a method that apply in every revision that has the method.

    Attributes:
        lane: ``"priority"`` if the request is served at once, because a busy server must neither fail a liveness check
            nor keep a handshake waiting. ``"listening"`` if the request stays open for as long as the peer likes, and
            would count against the limit on calls all that time; such a request is never queued, because it might have
            to wait forever.
        lasting: Whether the request is meant to last: the response is a stream, which either side may end, and the
            request never counts as slow.
        repeatable: Whether sending the message twice has the same effect as once, so that it may be sent again if it
            may not have arrived.
        opening: Whether a client may send the message before a revision is agreed on.
        handshake: Whether the request opens the session: it must not be cancelled or be part of a batch.
    """

    lane: Lane | None = None
    lasting: bool = False
    repeatable: bool = False
    opening: bool = False
    handshake: bool = False


_ORDINARY: Final = MethodFacts()
_READS: Final = MethodFacts(repeatable=True)


# This is a dict with a default, because `facts_of` runs for every message, and a dict's `__getitem__` is the quickest
# function for the purpose.
class _Facts(dict[str, MethodFacts]):
    def __missing__(self, method: str) -> MethodFacts:
        # A method that is not in the dict is an application's own. It is not stored, because a peer could fill the dict
        # with made-up names.
        return _ORDINARY


_FACTS: Final = _Facts(
    {spec.method: _ORDINARY for _, spec in _ROWS + _TASK_ROWS}
    | {
        # `initialize` is not repeatable: over HTTP, a second handshake would open a second session.
        "initialize": MethodFacts("priority", opening=True, handshake=True),
        "notifications/cancelled": MethodFacts(repeatable=True),
        "notifications/initialized": MethodFacts(repeatable=True, opening=True),
        "ping": MethodFacts("priority", repeatable=True, opening=True),
        "server/discover": MethodFacts("priority", repeatable=True, opening=True),
        # `subscriptions/listen` is repeatable, although it lasts: a stream that broke before its first message is
        # simply opened again.
        "subscriptions/listen": MethodFacts("listening", lasting=True, repeatable=True),
        # The following requests only read. tools/call is not among them: only a tool's author knows what it does when
        # called twice.
        "completion/complete": _READS,
        "prompts/get": _READS,
        "prompts/list": _READS,
        "resources/list": _READS,
        "resources/read": _READS,
        "resources/templates/list": _READS,
        "tools/list": _READS,
    }
)

facts_of: Final[Callable[[str], MethodFacts]] = _FACTS.__getitem__
"""Return the facts about a method that apply in every revision; for an application's own method, the defaults."""


def method_spec(revision: str, method: str) -> MethodSpec | None:
    """Return the facts about ``method`` in ``revision``; None if the revision is unknown or lacks the method."""
    methods = _TABLE.get(revision)
    return methods.get(method) if methods is not None else None


def methods_of(revision: str) -> Mapping[str, MethodSpec]:
    """Return the methods of a revision, by name.

    Raises:
        KeyError: If the revision is not one of :data:`trio_mcp.types.versions.REVISIONS`.
    """
    # The view is read-only, because it shows the table itself.
    return MappingProxyType(_TABLE[revision])
