"""`ClientExtension`: the client's side of an extension; and the extensions of one client.

See 2026-07-28 `basic/versioning`, Extension Negotiation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_hook
from trio_mcp.eras.capabilities import checked_extensions
from trio_mcp.eras.client_negotiation import RESULT_TYPES, Additions
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.session.calls import CallLimits
from trio_mcp.types.methods import method_spec, methods_of
from trio_mcp.types.versions import MODERN_REVISIONS, REVISIONS

__all__ = ["ClientExtension", "ClientExtensions", "Finisher", "HasClientSide"]

# The client imports this module, so the types of the client and its parts can't be imported here.
Middleware: TypeAlias = Callable[[Any, Callable[[], Awaitable[dict[str, Any]]]], Awaitable[dict[str, Any]]]
Finish: TypeAlias = Callable[[Any, str, dict[str, Any], dict[str, Any], CallLimits], Awaitable[dict[str, Any]]]

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
FINISHED: Final = frozenset(
    method for revision in MODERN_REVISIONS for method, spec in methods_of(revision).items() if spec.may_ask_for_input
)
"""The methods whose results an extension may finish: those of `Client.call_tool`, `read_resource` and `get_prompt`."""
CORE_FILTERS: Final = frozenset(
    {"toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions"}
)
"""The fields of the filter of ``subscriptions/listen`` that the core protocol defines."""


@attrs.frozen
class Finisher:
    """How a client turns results of a type that an extension adds into final results.

    Attributes:
        methods: The methods that may return results of this type: some of ``tools/call``, ``resources/read`` and
            ``prompts/get``. For any other method, such a result raises `RemoteProtocolError`.
        finish: ``async (client, method, params, result, limits) -> final result``. Its arguments are the `Client`, the
            method and parameters of the request, the result of the added type, and the `CallLimits` of the call, in
            which ``total_timeout`` is None, because the client enforces that limit itself. The final result is plain
            data, as if the server had returned it at once. If the call is cancelled or its ``total_timeout`` expires,
            the function is cancelled.
    """

    methods: Collection[str]
    finish: Finish


class ClientExtension:
    """The client's side of an extension of the protocol. Subclass it, set the attributes, and override the methods.

    Pass objects of the subclass as ``Client(extensions=[…])``. Several clients may share an object, as those of a
    `ClientGroup` do, so state that belongs to one client must not be kept in it: see `attach`.

    Attributes:
        identifier: The extension's identifier, such as ``"com.example/feature"``.
        requires: The identifiers of other extensions that the client must declare too, in any order.
        methods: The methods that the extension adds, each with the name of the parameter that the HTTP header
            ``Mcp-Name`` repeats, or None (2026-07-28 `basic/transports/streamable-http`, Standard Request Headers).
            `Client.request` sends them.
        notifications: The notifications that the extension adds, each with a function ``(client, notification)``, sync
            or async. The functions run one at a time, in the order of arrival, and before ``on_message``; a call whose
            result arrives after a notification waits for its function. A `RemoteProtocolError` that a function raises
            is reported as a fault of the server; any other exception is logged.
        filters: The fields that the extension adds to the filter of ``subscriptions/listen``, each with the
            notifications of the extension that it asks for. Outside an acknowledged subscription, such a notification
            is a fault of the server.
        result_types: The values of ``resultType`` that the extension adds, each with its `Finisher`.
        middleware: A function that surrounds every request of the client, as in ``Client(middleware=[…])``, or None.
            If it is not named in that list, it is outside all functions of the list, in the order of the extensions.
    """

    identifier: str = ""
    requires: Sequence[str] = ()
    methods: Mapping[str, str | None] = NOTHING
    notifications: Mapping[str, Callable[[Any, Notification], Awaitable[object] | object]] = NOTHING
    filters: Mapping[str, Sequence[str]] = NOTHING
    result_types: Mapping[str, Finisher] = NOTHING
    middleware: Middleware | None = None

    def settings(self, revision: str) -> Mapping[str, Any] | None:
        """Return the settings with which the client declares the extension in a revision; None to not declare it.

        In a revision in which the extension is not declared, its methods and result types are unknown. The method is
        called for each revision when a client is constructed.
        """
        return {}

    def attach(self, client: Any, access: Any) -> Any:
        """Return the extension's state for a new client, or None; `Client.attached` returns it.

        The constructor of the client calls this last, once all arguments have been accepted.

        Args:
            client: The `Client`, not entered yet.
            access: The `ClientAccess` of the client.
        """
        return None

    async def run(self, client: Any) -> None:
        """Do background work while a client is connected, in a Trio task of the client. By default, there is no task.

        The task begins when the handshake has succeeded, and is cancelled when the connection ends. An exception that
        it raises is logged, and affects nothing else.

        Args:
            client: The `Client`.
        """
        await trio.lowlevel.checkpoint()


class HasClientSide(Protocol):
    """An extension for both sides; `Client` uses its ``client_side``."""

    @property
    def client_side(self) -> ClientExtension:
        """The client's part of the extension."""


class ClientExtensions:
    """The extensions of one client, checked, and what they add together.

    Args:
        given: The argument ``extensions`` of `Client`.
        declared: The extensions among the client's ``capabilities``, by identifier.
        result_types: The result types that the client's options allow.

    Raises:
        TypeError: If an extension, or one of its attributes, has the wrong type.
        ValueError: If an extension or one of its names is given twice, belongs to the core protocol, or requires an
            extension that is missing.

    Attributes:
        finishers: For each added result type, the function that finishes such results.
        handlers: For each added notification, the function that handles it.
        filters_for: For each added notification that needs a subscription, the fields of the listen filter that ask for
            it.
        client: The client, once it is constructed.
        attached: The state of each extension for the client, by identifier.
        header_names: For each added method that has one, the parameter that the HTTP header ``Mcp-Name`` repeats.
    """

    def __init__(self, given: Any, declared: Mapping[str, Any], result_types: Iterable[str] = ()) -> None:
        plain, self._members = _sorted_out(given)
        self._settings: dict[str, dict[str, Any]] = {revision: {} for revision in REVISIONS}
        taken: dict[tuple[str, str], str] = {("result type", name): "result_types" for name in result_types}
        for identifier in declared:
            taken["identifier", identifier] = 'capabilities={"extensions": …}'
        for identifier in plain:
            _take(taken, "identifier", identifier, identifier)
        for each in self._members:
            _take(taken, "identifier", each.identifier, each.identifier)
            for revision in REVISIONS:
                settings = each.settings(revision)
                if settings is not None:
                    self._settings[revision] |= checked_extensions({each.identifier: settings}, "client")
        for revision in REVISIONS:
            self._settings[revision] |= plain
        identifiers = {name for kind, name in taken if kind == "identifier"}
        for each in self._members:
            self._check(each, taken, identifiers)
        self.client: Any = None
        self.attached: dict[str, Any] = {}
        self.finishers = {name: how.finish for each in self._members for name, how in each.result_types.items()}
        self.handlers = {name: how for each in self._members for name, how in each.notifications.items()}
        pairs = [(name, field) for each in self._members for field, names in each.filters.items() for name in names]
        self.filters_for = {name: {field for other, field in pairs if other == name} for name, _ in pairs}
        self.header_names = {name: by for each in self._members for name, by in each.methods.items() if by is not None}

    def _check(self, each: ClientExtension, taken: dict[tuple[str, str], str], identifiers: set[str]) -> None:
        identifier = each.identifier
        for required in each.requires:
            if required not in identifiers:
                raise ValueError(
                    f"the extension {identifier!r} requires the extension {required!r}, which is not among the client's"
                    " extensions"
                )
        # Names of the core protocol are taken only in revisions in which the extension is declared: 2025-11-25 had
        # different tasks, for example.
        revisions = [revision for revision in REVISIONS if identifier in self._settings[revision]]
        for kind, added in (("method", list(each.methods)), ("notification", list(each.notifications))):
            for name in added:
                if any(method_spec(revision, name) is not None for revision in revisions):
                    raise ValueError(f"the extension {identifier!r} can't add the {kind} {name!r} of the core protocol")
                _take(taken, kind, name, identifier)
        for name, by in each.methods.items():
            if by is not None and not isinstance(by, str):
                raise TypeError(
                    f"the method {name!r} of {identifier!r} needs the name of a parameter or None, got {by!r}"
                )
        for name, how in each.notifications.items():
            check_hook(f"the function for {name!r} of {identifier!r}", how)
        for field, names in each.filters.items():
            if field in CORE_FILTERS:
                raise ValueError(f"the extension {identifier!r} can't add the filter {field!r} of the core protocol")
            _take(taken, "filter", field, identifier)
            if isinstance(names, str) or not set(names) <= each.notifications.keys():
                raise ValueError(f"the filter {field!r} of {identifier!r} must name notifications of that extension")
        for name, finisher in each.result_types.items():
            _check_finisher(name, finisher, identifier)
            _take(taken, "result type", name, identifier)
        check_hook(f"the middleware of {identifier!r}", each.middleware)

    def settings_in(self, revision: str) -> dict[str, Any]:
        """Return the settings of the extensions that are declared in a revision, by identifier."""
        return self._settings[revision]

    def additions_in(self, revision: str) -> Additions:
        """Return the methods and result types that are added to a revision."""
        members = [each for each in self._members if each.identifier in self._settings[revision]]
        return Additions(
            frozenset(method for each in members for method in each.methods),
            {name: frozenset(how.methods) for each in members for name, how in each.result_types.items()},
        )

    def around(self, middleware: Sequence[Any]) -> tuple[Any, ...]:
        """Return the middleware of a client, with that of the extensions in front, unless it is named already."""
        own = [each.middleware for each in self._members]
        return *(each for each in own if each is not None and each not in middleware), *middleware

    def attach(self, client: Any, access: Any) -> None:
        """Attach every extension to its client."""
        self.client = client
        self.attached = {each.identifier: each.attach(client, access) for each in self._members}

    @property
    def running(self) -> list[Callable[[Any], Awaitable[None]]]:
        """The `ClientExtension.run` of each extension that overrides it."""
        return [each.run for each in self._members if type(each).run is not ClientExtension.run]


def _sorted_out(given: Any) -> tuple[dict[str, Any], tuple[ClientExtension, ...]]:
    """Return the settings of extensions that are only declared, and the extensions that are objects."""
    if isinstance(given, Mapping):
        return checked_extensions(given, "client"), ()
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise TypeError(
            f"extensions must be a list of extensions, or map identifiers to settings; got {type(given).__name__}"
        )
    sides: list[Any] = [getattr(each, "client_side", each) for each in given]
    for each, side in zip(given, sides, strict=True):
        if not isinstance(side, ClientExtension):
            hint = f": write {each.__name__}()" if isinstance(each, type) else ""
            raise TypeError(f"each of the extensions must be a ClientExtension, got {each!r}{hint}")
        checked_extensions({side.identifier: {}}, "client")
    return {}, tuple(sides)


def _take(taken: dict[tuple[str, str], str], kind: str, name: str, owner: str) -> None:
    if not isinstance(name, str):
        raise TypeError(f"each {kind} of the extension {owner!r} must be a string, got {name!r}")
    if (kind, name) in taken:
        if kind == "identifier":
            raise ValueError(f"the extension {name!r} is given twice")
        raise ValueError(f"the extension {owner!r} can't add the {kind} {name!r}: {taken[kind, name]!r} has added it")
    taken[kind, name] = owner


def _check_finisher(name: str, finisher: object, identifier: str) -> None:
    if name in RESULT_TYPES:
        raise ValueError(f"the extension {identifier!r} can't add the result type {name!r} of the core protocol")
    if not isinstance(finisher, Finisher):
        raise TypeError(f"the result type {name!r} of {identifier!r} needs a Finisher, got {type(finisher).__name__}")
    if isinstance(finisher.methods, str) or not set(finisher.methods) <= FINISHED:
        raise ValueError(
            f"the result type {name!r} of {identifier!r} can only be that of {', '.join(sorted(FINISHED))};"
            f" got {finisher.methods!r}"
        )
    check_hook(f"the function that finishes {name!r} of {identifier!r}", finisher.finish)
