"""`ProxyServer`: offers everything that another server offers, to clients of either era."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import attrs
import trio

from trio_mcp._keywords import refuse_unknown
from trio_mcp._nursery import background_nursery
from trio_mcp.client.client import Client, connection_of
from trio_mcp.client.input_rounds import FIRST_PAUSE, LONGEST_PAUSE, read_input_required
from trio_mcp.client.options import ClientOptions
from trio_mcp.client.targets import Target, auths_of, link_factory
from trio_mcp.eras.capabilities import declared_extensions
from trio_mcp.eras.rules import rules_of
from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.errors import McpError, RemoteProtocolError, TransportError
from trio_mcp.http.client.auth import guard_of
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.proxy.translation import PASSED_ON, handed_on, in_words_of
from trio_mcp.proxy.upstream import Upstream, UpstreamClient
from trio_mcp.server.base_server import BaseServer
from trio_mcp.server.changes import Topic
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.feature import Feature, FeatureSettings, Handler, Needs
from trio_mcp.server.features.listening import ListeningFeature
from trio_mcp.server.features.logging import LoggingFeature
from trio_mcp.server.features.resources import read_uri
from trio_mcp.server.functions.function import single
from trio_mcp.server.input.interactive import run_interactive
from trio_mcp.server.input.options import Asked, InputRequired
from trio_mcp.server.options import ProxyOptions
from trio_mcp.types import meta
from trio_mcp.types.common import Implementation
from trio_mcp.types.error_codes import INTERNAL_ERROR
from trio_mcp.types.input_required import INPUT_REQUIRED
from trio_mcp.types.methods import methods_of
from trio_mcp.types.versions import LATEST

if TYPE_CHECKING:  # few proxies have extensions
    from trio_mcp.proxy.extension import ProxyExtension

__all__ = ["ProxyServer"]

# The client capabilities for questions. They are passed on to a modern upstream with each request.
_INPUTS = ("elicitation", "sampling", "roots")

# The parameters with which a client sends a request again after it was asked.
_ANSWERING = ("requestState", "inputResponses")

# The upstream's capabilities that the proxy declares as its own.
_MIRRORED = ("tools", "resources", "prompts", "completions", "logging")


class ProxyFeature:
    """The feature that offers everything that an upstream server offers.

    Args:
        settings: The proxy's settings.
        max_rounds: How many times the upstream may ask for the same request to be sent again.
        extensions: The extensions that the proxy hands on.

    Attributes:
        upstream_capabilities: The capabilities that the upstream has declared.
    """

    def __init__(self, settings: FeatureSettings, max_rounds: int, extensions: Sequence[ProxyExtension]) -> None:
        specs = methods_of(LATEST)
        self.methods: dict[str, Handler] = {
            **{method: self._pass_asking if specs[method].may_ask_for_input else self._pass for method in PASSED_ON},
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "logging/setLevel": self._set_level,
        }
        self.needs: dict[str, Needs] = {}
        self.upstream_capabilities: dict[str, Any] = {}
        self._settings = settings
        self._max_rounds = max_rounds
        self._extensions = extensions
        self._logging = LoggingFeature()

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of a revision."""
        declared, rules = self.upstream_capabilities, rules_of(revision)
        return {
            # The caller may add to the capabilities, so it gets a copy.
            name: copy.deepcopy(declared[name])
            for name in _MIRRORED
            if isinstance(declared.get(name), dict) and (name != "completions" or rules.completions_capability)
        }

    async def _pass(self, context: ServedContext[Any]) -> dict[str, Any]:
        upstream: Upstream = context.state
        await upstream.connected_or_refuse(context.method)
        result = await upstream.request(context, self._params(context, upstream))
        return self._in_words_of_client(context, result, upstream.client.protocol_version)

    def _in_words_of_client(self, context: ServedContext[Any], result: dict[str, Any], spoken: str) -> dict[str, Any]:
        hints = self._settings.cache_hints.get(context.method, {})
        return in_words_of(context.protocol_version, context.method, result, spoken, hints)

    async def _pass_asking(self, context: ServedContext[Any]) -> dict[str, Any]:
        upstream: Upstream = context.state
        await upstream.connected_or_refuse(context.method)
        if (level := _log_level(context)) is not None:
            await upstream.want_logs(level)
        # If both sides are modern, questions come with the upstream's result, and not before. Few calls ask any, so the
        # first round does without what rounds of input take, such as a cancel scope.
        modern = upstream.client.session.modern
        if not (modern and context.rules.input_in_results and context.params.keys().isdisjoint(_ANSWERING)):
            return await self._ask(context, upstream, modern)
        result = await self._rounds(context, upstream)
        return result if type(result) is dict else await self._ask(context, upstream, modern, result)

    async def _ask(
        self, context: ServedContext[Any], upstream: Upstream, modern: bool, early: InputRequired | None = None
    ) -> dict[str, Any]:
        """Ask the client what the upstream asks, in rounds.

        Args:
            context: The context of the request.
            upstream: The upstream.
            modern: Whether the upstream is of the modern era.
            early: The questions of a first round; None if the request has not been sent.
        """

        async def call() -> Any:
            return await self._rounds(context, upstream) if early is None else early

        try:
            # A call to a legacy upstream can't be sent again for each round, so it stays open while the client is
            # asked.
            value = await run_interactive(context, lambda: call, park=not modern)
        except Exception as exc:
            error = single(exc)
            if isinstance(error, TransportError):
                # A failure of the upstream's link would have become an McpError by now, so it is the client that has
                # disconnected.
                raise McpError(INTERNAL_ERROR, f"the client can't be asked: {error}") from None
            raise error from None
        result: dict[str, Any] = value.result if isinstance(value, Asked) else value
        return result

    async def _rounds(self, context: ServedContext[Any], upstream: Upstream) -> Any:
        """Send the request for one round of input; return the upstream's result, or the questions that it asks."""
        params = self._params(context, upstream)
        state = context.input_state
        if state is not None and context.rounds is not None:
            answers = context.rounds.answers
            params["inputResponses"] = {key: answers[key].data for key in state["keys"] if key in answers}
            if state["upstream"] is not None:
                params["requestState"] = state["upstream"]
        unfinished = self._unfinished(context) if self._extensions else ()
        # Rounds without questions are handled in this loop, because the proxy's client need not know of them.
        pause = FIRST_PAUSE
        for _ in range(self._max_rounds):
            result = await upstream.request(context, params, unfinished)
            spoken = upstream.client.protocol_version
            if result.get("resultType") != INPUT_REQUIRED or not rules_of(spoken).input_in_results:
                return self._in_words_of_client(context, result, spoken)
            try:
                questions, token = read_input_required(context.method, result)
            except RemoteProtocolError as exc:
                raise McpError(INTERNAL_ERROR, f"the upstream server {upstream.name!r}: {exc.message}") from None
            if questions:
                asked = self._asked(context, questions, spoken)
                # The upstream's state is put into the proxy's own state, to be sent back with the answers.
                return InputRequired(asked, {"upstream": token, "keys": list(asked)})
            await trio.sleep(pause)  # without questions, the upstream only wants the request to be sent again
            pause = min(2 * pause, LONGEST_PAUSE)
            # The parameters are built again, without the responses that were just sent, because only the newest state
            # goes back (2026-07-28 `basic/patterns/mrtr`).
            params = {**self._params(context, upstream), "requestState": token}
        raise McpError(INTERNAL_ERROR, f"the upstream server {upstream.name!r} keeps asking to repeat the request")

    def _asked(self, context: ServedContext[Any], questions: Mapping[str, Any], spoken: str) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        for key, request in questions.items():
            if not isinstance(request, dict):
                raise McpError(INTERNAL_ERROR, "an input request of the upstream server is malformed")
            asked[key] = handed_on(context, request.get("method", ""), request.get("params"), spoken)
        return asked

    def _params(self, context: ServedContext[Any], upstream: Upstream) -> dict[str, Any]:
        """Return the parameters for the upstream, without those that belong to the connection to the client."""
        params = dict(context.params)
        params.pop("_meta", None)
        # The client returns the proxy's sealed state, which contains the upstream's state; `_rounds` adds that and the
        # responses.
        for name in _ANSWERING:
            params.pop(name, None)
        given = {
            key: value
            for key, value in context.meta.items()
            # The keys that are left out belong to the link between client and proxy; the request to the upstream gets
            # its own.
            if key != "progressToken" and not key.startswith("io.modelcontextprotocol/")
        }
        # A modern upstream learns from each request which questions the client can answer; a legacy one has learned it
        # from the handshake.
        if upstream.client.session.modern:
            declared = context.client_capabilities
            known: dict[str, Any] = {name: declared[name] for name in _INPUTS if name in declared}
            if extensions := self._extensions_of(context):
                known["extensions"] = extensions
            given[meta.CLIENT_CAPABILITIES] = known
            level = _log_level(context) or context.rules.default_log_level
            if level is not None and "logging" in self.upstream_capabilities:
                given[meta.LOG_LEVEL] = level
        if given:
            params["_meta"] = given
        return params

    def _extensions_of(self, context: ServedContext[Any]) -> dict[str, Any]:
        """Return the extensions that the client of a request has declared and the proxy hands on, with the settings."""
        if not self._extensions or not context.rules.modern:
            return {}
        declared = context.client_extensions
        return {each.identifier: declared[each.identifier] for each in self._extensions if each.identifier in declared}

    def _unfinished(self, context: ServedContext[Any]) -> list[str]:
        """Return the types of result that the client gets as the upstream has sent them."""
        declared = self._extensions_of(context)
        return [name for each in self._extensions if each.identifier in declared for name in each.result_types]

    async def _set_level(self, context: ServedContext[Any]) -> dict[str, Any]:
        result = await self._logging.set_level(context)
        await context.state.want_logs(_log_level(context))
        return result

    async def _subscribe(self, context: ServedContext[Any]) -> dict[str, Any]:
        # The subscription is only recorded: the proxy follows each upstream resource once, for all its subscribers.
        context.session.watch(read_uri(context))
        return {}

    async def _unsubscribe(self, context: ServedContext[Any]) -> dict[str, Any]:
        context.session.unwatch(read_uri(context))
        return {}


def _log_level(context: ServedContext[Any]) -> str | None:
    assert context.client is not None
    return context.client.log_level


class ProxyServer(BaseServer):
    """Serves everything that another server offers: tools, resources, templates, prompts, completions, logs, changes.

    Lists, arguments and results pass unchanged, except for what a client's revision does not define. Progress,
    cancellation, errors and the upstream's questions during a call (elicitation, sampling, roots) are passed on as
    well. Each side may speak either era.

    A run of the proxy, such as one stdio process or one HTTP server, has one upstream connection, shared by its
    clients. If it is lost, the calls in flight fail with -32603, and the next call reconnects. An upstream of the
    legacy era does not say which call a question or a log message belongs to. A message that arrives on the HTTP
    stream of a call belongs to that call; any other, to the last call. But if several clients have pending calls,
    including those given up, a question is refused and a log message dropped. So if upstream tools ask questions, give
    each client its own proxy.

    With `trio_mcp.auth.CallerAuth` as the client's ``auth``, each call has a connection of its own, on which its caller
    is signed in; the shared one, which signs in with ``otherwise``, only learns what the upstream offers, and hears of
    changes. Such a proxy hands on no extensions.

    Args:
        target: As for a `Client`: a URL, `StdioServerParameters`, a `Server`, … Or a `Client` that has been entered
            and remains open: then its own callbacks answer the questions of a legacy-era upstream, it also gets the
            upstream's log messages, and it is not reconnected.
        name: The proxy's name, as for a `Server`; by default it presents itself as the upstream.
        client: Further arguments for the upstream `Client`, such as ``mode`` or ``timeout``.
        settings: Those of `ProxyOptions`. By default the instructions are those of the upstream. The cache hints of
            ``lists`` apply to results for which the upstream gives none, the pages are the upstream's, and ``input``
            says how the upstream's questions are passed on. ``extensions`` are handed on: the upstream client gets
            them, too, and a call declares those that the client of the call has declared.

    Raises:
        TypeError, ValueError: If an argument is invalid.
        LocalProtocolError: If the target is a `Client` that lacks one of the extensions.

    Starting a run raises the exceptions that entering the `Client` raises.
    """

    _ends_on_sigterm = True  # a host's SIGTERM must not leave the upstream's process behind

    def __init__(
        self,
        target: Target | Client,
        *,
        name: str | Implementation | None = None,
        client: ClientOptions | None = None,
        **settings: Unpack[ProxyOptions],
    ) -> None:
        refuse_unknown(type(self), settings, ProxyOptions)
        refuse_unknown(Client, client or (), ClientOptions)
        taken = {"on_message", "on_log", "answers"} & set(client or ())
        if taken:
            raise TypeError(f"client= must not set {min(taken)!r}: the proxy uses it itself, to pass messages on")
        self._given = target if isinstance(target, Client) else None
        if self._given is not None and connection_of(self._given).is_for_one_request:
            raise TypeError(
                "the client signs in as one caller, and a proxy has several: pass the URL of the server instead, and "
                "client={'auth': …}"
            )
        if not isinstance(target, Client):
            link_factory(target)  # raises an error now if the target is invalid
        elif client:
            raise TypeError("client= is for a Client that the proxy makes; leave it out if the target is a Client")
        self._target: Any = target
        self._client_settings = dict(client or {})
        auths: list[Any] = [] if isinstance(target, Client) else [*auths_of(target), self._client_settings.get("auth")]
        self._per_call = any(auth is not None and guard_of(auth) is not None for auth in auths)
        if self._per_call and settings.get("extensions"):
            raise TypeError(
                "a proxy hands on no extensions if each call has a connection of its own, as with auth=CallerAuth(…): "
                "leave out extensions="
            )
        self._extensions: Sequence[ProxyExtension] = ()
        if settings.get("extensions") is not None:
            from trio_mcp.proxy.extension import proxy_sides

            settings["extensions"] = self._extensions = proxy_sides(settings["extensions"])
            self._give_extensions()
        self._renamed = name is not None
        # The lifespan opens the connection to the upstream, so each run of the proxy has its own.
        super().__init__("proxy" if name is None else name, lifespan=self._connected, **settings)
        self._instructions_given = settings.get("instructions") is not None

    def _give_extensions(self) -> None:
        """Let the upstream client have the extensions that the proxy hands on."""
        if self._given is not None:
            for each in self._extensions:
                self._given.attached(each.identifier)  # raises an error now if the client was made without it
            return
        from trio_mcp.client.extension import ClientExtensions

        own: Any = self._client_settings.get("extensions", ())
        both = [*own, *self._extensions]
        ClientExtensions(both, {})  # raises an error now if one is given twice
        self._client_settings["extensions"] = both

    def _make_features(self) -> Iterable[Feature]:
        self._offered = ProxyFeature(self._core.settings, self._core.input.max_rounds, self._extensions)
        # The proxy handles listening itself, because its clients may speak another era than the upstream does.
        extensions = self._core.settings.extensions
        if extensions is None:
            return self._offered, ListeningFeature(self._capabilities)
        from trio_mcp.server.features.custom import CustomFeature  # imported late: few proxies have extensions

        listening = ListeningFeature(self._capabilities, fields=extensions.fields)
        return self._offered, listening, CustomFeature(self._core.settings)

    def _capabilities(self, revision: str) -> dict[str, Any]:
        declared = super()._capabilities(revision)
        if own := declared.pop("extensions", None):
            # An extension that the upstream does not have can't be handed on.
            theirs = declared_extensions(self._offered.upstream_capabilities)
            if both := {name: settings for name, settings in own.items() if name in theirs}:
                declared["extensions"] = both
        return declared

    # --- identity ------------------------------------------------------------------------------------------------

    def _mirror(self, client: Client) -> None:
        """Adopt the upstream's identity, capabilities and instructions."""
        server = client.session.server
        self._offered.upstream_capabilities = server.capabilities
        changed: dict[str, Any] = {}
        # `server_info` is None if the upstream's identity is malformed, which is not passed on.
        if not self._renamed and client.server_info is not None:
            changed["info"] = server.info
        if not self._instructions_given:
            changed["instructions"] = server.instructions
        self._core.identity = attrs.evolve(self._core.identity, **changed)

    # --- the upstream --------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _connected(self, server: object) -> AsyncIterator[Upstream]:
        upstream = Upstream(
            self,
            self._mirror,
            lambda own: UpstreamClient(upstream, self._target, {**self._client_settings, **own}),
            self._given,
            frozenset(name for each in self._extensions for name in each.client_side.notifications),
            per_call=self._per_call,
        )
        async with background_nursery(upstream.aclose) as nursery:
            await upstream.open(nursery)
            yield upstream

    def _watcher(self, state: Upstream) -> Callable[[Topic, bool], None]:
        return state.watch

    async def _heard(
        self, notification: Notification, states: Mapping[Any, Any], client: ClientDeclaration | None
    ) -> None:
        if notification.method == "notifications/roots/list_changed":
            # A client's other notifications do not concern the upstream.
            await states[self._core.settings].tell(notification.method)
