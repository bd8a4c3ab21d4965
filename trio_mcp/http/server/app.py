"""The ASGI application of a server: one MCP endpoint for all revisions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection
from functools import partial
from typing import Any, Final

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery
from trio_mcp.http.framing import MAX_SEEN_FIELDS, MAX_SEEN_SIZE
from trio_mcp.http.headers import Headers
from trio_mcp.http.param_headers import ParameterHeader, parameter_headers
from trio_mcp.http.rules.statuses import (
    Accept,
    FindSession,
    Opening,
    Refusal,
    RuleSettings,
    judge_head,
    judge_message,
    refuse,
    too_large,
)
from trio_mcp.http.server.access import ACCESS, INFO, is_noted, logged, note_message
from trio_mcp.http.server.asgi import (
    BodyTooLarge,
    ClientGone,
    HttpAnswer,
    HttpRequest,
    Ledger,
    NoRoom,
    ReceiveCallable,
    Scope,
    SendCallable,
)
from trio_mcp.http.server.card import CardPages
from trio_mcp.http.server.cors import cors_fields, is_preflight, preflight_fields
from trio_mcp.http.server.door import ending, legacy_endpoint, no_room
from trio_mcp.http.server.exchange import HttpExchange
from trio_mcp.http.server.gate import Gate, end_of
from trio_mcp.http.server.host import HostedRun
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.http.server.statistics import HttpStatistics
from trio_mcp.http.server.websocket import WebSockets, wants_websocket
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import Malformed
from trio_mcp.principal import Principal
from trio_mcp.types.versions import Era

__all__ = ["HttpApp", "open_app"]

MAX_TOOL_HEADERS = 10_000
"""The maximum number of tools whose header parameters are cached. An arbitrary choice.

Names of removed tools stay in the cache until it is cleared.
"""

MAX_SEEN: Final = 256
"""How many heads are remembered, each with at most `MAX_SEEN_SIZE` bytes and `MAX_SEEN_FIELDS` fields.

An arbitrary choice.
"""

# These fields differ between requests or sessions, or are secrets. No rule for the head of a POST reads any of them
# except the length, which is checked here.
VARYING: Final = frozenset(
    (
        b"authorization",
        b"baggage",
        b"content-length",
        b"cookie",
        b"dpop",
        b"mcp-method",
        b"mcp-name",
        b"mcp-session-id",
        b"traceparent",
        b"tracestate",
        b"x-request-id",
    )
)
PARAMETER: Final = b"mcp-param-"


@contextlib.asynccontextmanager
async def open_app(run: HostedRun, options: HttpOptions) -> AsyncIterator[HttpApp]:
    """Yield the application for a run, with the gate that checks tokens if ``auth`` is set.

    Raises:
        ValueError: If something that the server offers needs scopes, but no tokens are checked; or if there are an
            event store and stores of the server.
    """
    if options.settings["auth"] is None:
        yield HttpApp(run, options)
        return
    served = run.served
    secret = None if served.inherited is None else served.inherited.nonce
    async with options.settings["auth"].opened(served.stores, secret) as guard:
        yield HttpApp(run, options, Gate(options.settings["auth"], guard, served))


class HttpApp:
    """The ASGI application that serves one run of a server.

    Args:
        run: The run.
        options: The settings of the endpoint.
        gate: The gate that admits requests, if ``options.settings["auth"]`` checks their tokens.

    Raises:
        ValueError: If something that the server offers needs scopes, but no tokens are checked; or if there are an
            event store and stores of the server.
    """

    def __init__(self, run: HostedRun, options: HttpOptions, gate: Gate | None = None) -> None:
        if gate is None and run.served.scoped:
            raise ValueError(
                f"{run.served.scoped} needs scopes, which are enforced only if tokens are checked: serve with "
                "auth=ResourceServer(…), or leave out scopes=…"
            )
        if run.served.stores is not None and options.settings["event_store"] is not None:
            raise ValueError(
                "the server has stores, which keep the messages of sessions: leave out event_store=, or the stores= of "
                "the server"
            )
        assert (gate is None) == (options.settings["auth"] is None), "open_app makes both"
        # The check above can't cover tools and the like that are added later and need scopes, so their calls are
        # checked one by one.
        run.permit = _none_granted if options.settings["auth"] is None else options.settings["auth"].permit
        self._gate = gate
        self._run = run
        self._served = run.served
        self.options = options
        self._legacy = legacy_endpoint(run, options)
        self._websockets = WebSockets(run, options)
        # The keys say whether a connection arrived on a loopback address. By default, only requests on such connections
        # must use loopback host names, because a server that listens elsewhere has names that it doesn't know.
        self._settings = {local: self._judged_by(local) for local in (True, False)}
        self._seen = SeenHeads(options.settings["max_message_size"])
        self._exchanges: set[HttpExchange] = set()
        self._ledger = Ledger(options.settings["max_requests"], options.settings["max_request_bytes"])
        self._ending = False
        self._refusing = False  # whether calls are refused
        self._tool_headers: dict[str, tuple[object, tuple[ParameterHeader, ...]]] = {}
        self._card = self._card_pages()
        run.endpoints.append(self.statistics)

    def _card_pages(self) -> CardPages | None:
        source, path = self.options.settings["card"], self.options.settings["path"]
        if source is None or path is None:
            return None
        identity = self._settings[False].identity
        return CardPages(source, path, identity.info, identity.supported)

    def _judged_by(self, local: bool) -> RuleSettings:
        options, identity = self.options, self._served.identity
        if not self._legacy.served:  # the package can be installed without its legacy folder
            identity = attrs.evolve(identity, revisions=tuple(identity.modern))
        return RuleSettings(
            identity=identity,
            guard=options.guard(local=local),
            stateless=options.settings["stateless"],
            json_only=options.settings["json_only"],
            max_message_size=options.settings["max_message_size"],
            tool_headers=self._headers_of_tool,
        )

    def _headers_of_tool(self, name: str) -> tuple[ParameterHeader, ...]:
        schema = self._served.input_schema(name)
        if schema is None:
            self._tool_headers.pop(name, None)
            return ()
        # The annotations are searched once per schema object: `input_schema` returns the same one for as long as the
        # tool is registered.
        known, headers = self._tool_headers.get(name, (None, ()))
        if known is not schema:
            try:
                headers = parameter_headers(schema)
            except ValueError as exc:
                # Section Schema Extension: clients over HTTP must leave such a tool out of their list. The log tells
                # the author once; calls from clients that don't check the schema are served without the headers.
                logger.error("modern clients can't call the tool %r over HTTP until its schema is fixed: %s", name, exc)
                headers = ()
            if len(self._tool_headers) >= MAX_TOOL_HEADERS:  # most entries are for tools that have been removed
                self._tool_headers.clear()
            self._tool_headers[name] = schema, headers
        return headers

    async def __call__(self, scope: Scope, receive: ReceiveCallable, send: SendCallable) -> None:
        # Logging is done here, so that it is the same for all runners; if it is off, it adds no stack frame.
        if ACCESS.isEnabledFor(INFO) and not is_noted(scope):
            await logged(self, scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._open_websocket(scope, receive, send)
            return
        seen, key = self._seen.find(scope)
        request = HttpRequest(scope, receive, Headers(scope["headers"]) if seen is None else seen)
        answer = HttpAnswer(send)
        if (self._card is not None or self.options.settings["cors"]) and await self._is_public(request, answer):
            return
        if request.path != self.options.settings["path"]:
            await self._elsewhere(request, answer)
            return
        settings = self._settings[request.is_local]
        if (
            seen is None
            and request.path == self.options.settings["websocket_path"]
            and wants_websocket(request.headers)
        ):
            await self._upgrade(request, answer)
            return
        # A head that is remembered has passed the rules, but its token still has to be checked.
        if self._gate is not None:
            # The host is checked before the token, so that a foreign web page learns nothing else about the server.
            refusal = (None if seen is not None else self._foreign(request)) or await self._gate.admit(request, answer)
            if refusal is not None:
                await self._refuse(refusal, request, answer)
                return
        if seen is not None:  # only the head of a POST that carries a message is ever remembered
            await self._post(request, answer, settings)
            return
        # The head is judged before the body is read, so that a refused request costs no memory.
        verdict = await self._judge_head(request, settings)
        if isinstance(verdict, Refusal):
            # A session that has ended may have left events in a store that outlives it, and these can still be sent.
            if not await self._legacy.replay(verdict, request, answer):
                await self._refuse(verdict, request, answer)
        elif verdict.kind == "message":
            self._seen.add(key)
            await self._post(request, answer, settings)
        else:
            await self._of_session(verdict, request, answer)

    async def _is_public(self, request: HttpRequest, answer: HttpAnswer) -> bool:
        """Respond to a request for the card, or to a preflight request; return whether it was one."""
        # The card comes before everything else: it is for everybody, whatever their origin and without a token.
        if self._card is not None and (page := self._card.find(request)) is not None:
            await self._card.serve(page, request, answer)
            return True
        # CORS comes next: its headers are sent with every response, refusals included, so that a page can read it.
        return bool(self.options.settings["cors"]) and await self._is_preflight(request, answer)

    async def _judge_head(self, request: HttpRequest, settings: RuleSettings) -> Opening | Refusal:
        if self._legacy.shared and self._foreign(request) is None:
            refusal = await self._legacy.prepare(request)
            if refusal is not None:
                return refusal
        return judge_head(request.method, request.headers, settings, self._finder(request))

    async def _of_session(self, verdict: Opening, request: HttpRequest, answer: HttpAnswer) -> None:
        """Respond to a GET or DELETE for a session of the legacy era."""
        if verdict.kind == "end":
            await self._legacy.delete(verdict, answer)
        elif self._ending and verdict.last_event_id is None:
            await self._refuse(ending(), request, answer)
        else:  # a stream is resumed even while the server ends: it may carry the response to a request under way
            await self._legacy.get(verdict, request, answer)

    async def _admit(self, request: HttpRequest, answer: HttpAnswer | None = None) -> Refusal | None:
        return None if self._gate is None else await self._gate.admit(request, answer)

    def _finder(self, request: HttpRequest) -> FindSession:
        find = self._legacy.find_session
        return find if request.owner is None else partial(find, owner=request.owner)

    def statistics(self) -> HttpStatistics:
        """Return what the endpoint is doing now.

        This looks at every session: it may be called once a second, but not for every request.
        """
        legacy = self._legacy.statistics()
        ledger = self._ledger
        return attrs.evolve(
            legacy,
            websockets=len(self._websockets),
            requests=ledger.requests,
            request_bytes=ledger.request_bytes,
            bodies=ledger.bodies,
            body_bytes=ledger.body_bytes,
            ending=self._ending,
        )

    async def end(self, *, refuse: bool = True) -> None:
        """Refuse new work, and end every stream that would never end by itself.

        Args:
            refuse: Whether new calls are refused before `cut`, too. They need not be where each connection ends with
                the next response, and other processes accept new ones.
        """
        # This is set before any stream ends: a client whose stream ends reconnects at once, and must be refused then.
        self._ending = True
        self._refusing = refuse
        self._legacy.end()
        self._websockets.end()
        await self._run.end_listening()

    def cut(self) -> None:
        """Cancel everything still under way, and end its streams."""
        self._refusing = True
        for exchange in tuple(self._exchanges):  # a copy, because an exchange leaves the set when it ends
            exchange.end("the server has ended")
        self._legacy.cut("the server has ended")
        self._websockets.cut()

    async def idle(self) -> None:
        """Wait until no handler of a session is running.

        The client of such a handler may have left and may come back for the response, or it may have been asked
        something and will respond with a POST.
        """
        await self._legacy.idle()

    def close_websockets(self) -> None:
        """End every WebSocket: their tasks belong to the ASGI server, and don't end with the run."""
        self._websockets.cut()

    async def _is_preflight(self, request: HttpRequest, answer: HttpAnswer) -> bool:
        """Add the CORS headers for an allowed origin, and respond if the request is a preflight.

        Returns:
            Whether it was a preflight, which needs nothing more.
        """
        origin = request.headers.get("Origin")
        if origin is None or self._foreign(request) is not None:
            return False  # the rules will refuse a foreign page, which can't read why without CORS headers
        answer.fields += cors_fields(origin)
        if not is_preflight(request):
            return False
        await answer.whole(204, fields=preflight_fields(request))
        return True

    async def _body(self, request: HttpRequest, answer: HttpAnswer, settings: RuleSettings) -> bytes | None:
        """Read and return the body, or return None if the request has been refused or the client has left."""
        try:
            return await request.body(settings.max_message_size, self._ledger, self.options.settings["body_timeout"])
        except NoRoom as exc:
            refusal = no_room(exc)
        except BodyTooLarge:
            refusal = too_large(settings)
        except trio.TooSlowError:
            text = f"the body did not arrive within body_timeout={self.options.settings['body_timeout']:g} seconds"
            refusal = refuse(408, text)
        except ClientGone:
            return None
        await self._refuse(refusal, request, answer)
        return None

    async def _post(self, request: HttpRequest, answer: HttpAnswer, settings: RuleSettings) -> None:
        body = await self._body(request, answer, settings)
        if body is None:
            return
        message = decode(body)
        note_message(request.scope, message)
        # The head may be a remembered one, while this process has forgotten the session, which others serve, too.
        if self._legacy.shared and (refusal := await self._legacy.prepare(request)) is not None:
            await self._refuse(refusal, request, answer)
            return
        find = self._legacy.find_session if self._gate is None else self._finder(request)
        verdict = judge_message(message, request.headers, settings, find)
        if self._gate is not None and type(verdict) is Accept:
            verdict = self._gate.judge(request, verdict) or verdict
        if isinstance(verdict, Refusal):
            if isinstance(message, Malformed):
                # A malformed response still settles the server's request that it names: otherwise, the handler that
                # made the request would wait for its timeout.
                verdict = await self._legacy.take_broken_answer(message, request) or verdict
            await self._refuse(verdict, request, answer)
        elif verdict.owes_answer and (self._refusing or (self._ending and verdict.lasting)):
            # Other messages are still accepted, because a handler under way may be waiting for one: a response,
            # progress or a cancellation.
            await self._refuse(ending(), request, answer)
        else:
            # The message is counted from here on; until now, `_body` has counted its body. A handler that outlives this
            # exchange keeps the message counted: see `CountedMessage`.
            try:
                held = self._ledger.take(message, len(body))
            except NoRoom as exc:
                await self._refuse(no_room(exc), request, answer)
                return
            try:
                if verdict.era is Era.LEGACY:
                    await self._legacy.post(verdict, request, answer, held)
                elif not verdict.owes_answer:
                    await answer.whole(202)
                else:
                    exchange = HttpExchange(self._run, answer, verdict.may_stream, self.options.settings["keep_alive"])
                    self._exchanges.add(exchange)
                    try:
                        if request.principal is not None and verdict.lasting:
                            await self._serve_lasting(exchange, verdict, request)
                        else:
                            await exchange.serve(verdict, request)
                    finally:
                        self._exchanges.discard(exchange)
            finally:
                held.release()

    async def _serve_lasting(self, exchange: HttpExchange, accepted: Accept, request: HttpRequest) -> None:
        """Serve a request that lasts until its client ends it, but no longer than its token is valid."""
        async with background_nursery() as nursery:
            nursery.start_soon(exchange.end_at, end_of(request))
            await exchange.serve(accepted, request)

    async def _elsewhere(self, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve a path other than that of the endpoint, or respond with 404."""
        options = self.options
        # The health path is open to probes of any host name, but not to foreign web pages.
        if request.headers.get("Origin") is not None and (foreign := self._foreign(request)) is not None:
            await self._refuse(foreign, request, answer)
        elif request.path == options.settings["health_path"] and request.method in ("GET", "HEAD"):
            status, said = (503, b"ending") if self._ending else (200, b"ok")
            # Requests that need no store are served without it, so the server is to get further ones.
            trouble = b"" if self._run.healthy else b', "stores": "not usable"'
            await answer.whole(status, b'{"status": "%s"%s}' % (said, trouble))
        elif request.path == options.settings["websocket_path"]:
            await self._upgrade(request, answer)
        elif (document := self._document(request)) is not None:
            await answer.whole(200, document, (("cache-control", "max-age=3600"),))  # the time is an arbitrary choice
        elif (allowed := self._legacy.method_at(request.path)) is not None:
            await self._legacy_path(allowed, request, answer)
        else:
            text = f"nothing is served at this path; the endpoint is {request.root}{options.endpoint}"
            # Closing with a part of the body unread would reset the connection, and this response might be lost: see
            # `DRAINED`.
            await request.drain()
            await answer.whole(404, text.encode(), (("content-type", "text/plain; charset=utf-8"),))

    def _document(self, request: HttpRequest) -> bytes | None:
        """Return the metadata of the protected resource, if it is served at the path of the request; otherwise None."""
        auth = self.options.settings["auth"]
        if auth is None or request.method not in ("GET", "HEAD"):
            return None
        return auth.document(request.root + request.path)

    async def _upgrade(self, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve a WebSocket on a request's connection, unless the request is refused."""
        refusal = (
            self._foreign(request) or await self._admit(request, answer) or await self._websockets.upgrade(request)
        )
        if refusal is not None:
            await self._refuse(refusal, request, answer)

    async def _open_websocket(self, scope: Scope, receive: ReceiveCallable, send: SendCallable) -> None:
        """Serve a WebSocket for which the ASGI server implements the protocol."""
        if self.options.settings["websocket_path"] is None:
            await send({"type": "websocket.close"})  # closing before accepting makes the ASGI server respond with 403
            return
        request = HttpRequest({**scope, "method": "GET"}, receive, Headers(scope["headers"]))
        refusal = self._foreign(request)
        if request.path != self.options.settings["websocket_path"]:
            refusal = refuse(404, "there is no WebSocket at this path")
        refusal = refusal or await self._admit(request)
        await self._websockets.serve_scope(request, receive, send, refusal)

    async def _legacy_path(self, allowed: str, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve a path of HTTP+SSE, which only the legacy era has."""
        if request.method != allowed:
            # 2025-03-26 and later, Backwards Compatibility: a client that doesn't know which transport the server uses
            # posts `initialize` first, and a 4xx tells it to try HTTP+SSE.
            refusal: Refusal | None = refuse(
                405, f"only the method {allowed} is allowed at this path", headers=(("Allow", allowed),)
            )
        elif (refusal := self._foreign(request) or await self._admit(request, answer)) is None:
            if self._ending and allowed == "GET":  # a GET opens a session; POSTs may settle work under way
                refusal = ending()
            else:
                body = partial(self._body, request, answer, self._settings[request.is_local])
                judge = None if self._gate is None else partial(self._gate.judge_message, request)
                refusal = await self._legacy.serve_at(request, answer, body, self._ledger, judge)
        if refusal is not None:
            await self._refuse(refusal, request, answer)

    def _foreign(self, request: HttpRequest) -> Refusal | None:
        fault = self._settings[request.is_local].guard.check(request.headers)
        return None if fault is None else refuse(403, fault)

    async def _refuse(self, refusal: Refusal, request: HttpRequest, answer: HttpAnswer) -> None:
        logger.debug("refused with %s by the rule %r", refusal.status, refusal.rule)
        await request.drain()
        await answer.refuse(refusal)


def _none_granted(principal: Principal | None, needed: Collection[str]) -> Refusal | None:
    """Refuse whatever needs scopes, in place of `Protection.permit`, because no tokens are checked."""
    return (
        refuse(403, "this request needs scopes, but the server checks no tokens: it has no auth=…") if needed else None
    )


@attrs.define(eq=False)
class SeenHeads:
    """A cache of the parsed heads of POSTs that have passed all rules: a client sends nearly the same head every time.

    Args:
        max_length: The maximum size of a body, in bytes.
    """

    _max_length: int
    _seen: dict[Any, Headers] = attrs.Factory(dict)

    def find(self, scope: Scope) -> tuple[Headers | None, tuple[Any, ...]]:
        """Look up the head of a request.

        Returns:
            A pair: the fields, or None if the head is not known to pass the checks; and the key with which to `add` it
            (empty if it must not be remembered).
        """
        # The host names that are accepted depend on the address that the connection has reached. ASGI servers may give
        # it as a list, which has no hash, so it is converted to a tuple.
        server = scope.get("server")
        key: list[Any] = [scope["method"], None if server is None else tuple(server)]
        varying = []
        for name, value in scope["headers"]:
            if name not in VARYING and not name.startswith(PARAMETER):
                key.append((name, value))
                continue
            varying.append((name, value))
            # A length of 20 digits or more is too large in any case, and `int` refuses thousands of digits.
            if name == b"content-length" and not (
                len(value) < 20 and value.isdigit() and int(value) <= self._max_length
            ):
                # The key is empty, so that the head is not remembered: the rules must judge each such request.
                return None, ()
        known = self._seen.get(tuple(key))
        return None if known is None else known.adding(varying), tuple(key)

    def add(self, key: tuple[Any, ...]) -> None:
        """Remember the head of a POST that has passed all rules; do nothing if the key is empty."""
        # The first two items of the key are the method and the address.
        if not key or len(key) > 2 + MAX_SEEN_FIELDS:
            return
        if sum(len(name) + len(value) for name, value in key[2:]) <= MAX_SEEN_SIZE:
            if len(self._seen) >= MAX_SEEN:  # the cache is bounded: a client can make up any number of heads
                self._seen.clear()
            self._seen[key] = Headers(key[2:])
