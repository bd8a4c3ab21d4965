"""The legacy era at an endpoint: its sessions, from ``initialize`` to their end, and HTTP+SSE at its two paths."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Final
from urllib.parse import parse_qs, quote

import trio

from trio_mcp._log import logger
from trio_mcp.http.headers import JSON, LAST_EVENT_ID, SESSION_ID
from trio_mcp.http.rules.statuses import Accept, Opening, Refusal, refuse
from trio_mcp.http.server.access import note_message
from trio_mcp.http.server.asgi import CountedMessage, HttpAnswer, HttpRequest, Ledger, NoRoom, Owner
from trio_mcp.http.server.door import Judge, LegacyEndpoint, ReadBody, ending, no_room
from trio_mcp.http.server.gate import end_of
from trio_mcp.http.server.host import HostedRun
from trio_mcp.http.server.legacy.session import HttpSession, event_id, event_store, key_of, read_event_id
from trio_mcp.http.server.legacy.sharing import Membership, SessionGone
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.http.server.statistics import HttpStatistics
from trio_mcp.http.sse import encode_event
from trio_mcp.jsonrpc.codec import decode, encode_or_replace
from trio_mcp.jsonrpc.messages import Batch, ErrorData, Incoming, Malformed, Request, RequestId, Response
from trio_mcp.stores.contract import StaleWriter, StoreError, StoreFull
from trio_mcp.stores.event_store import EventsLost
from trio_mcp.stores.session_store import StoredSession
from trio_mcp.types.error_codes import OVERLOADED

__all__ = ["Endpoint"]

# A client is asked to wait ten seconds (an arbitrary choice), not one as with a refused request, because sessions end
# much less often than requests.
TOO_MANY_SESSIONS: Final = refuse(
    503, ErrorData(OVERLOADED, "too many sessions; try again later"), headers=(("Retry-After", "10"),)
)


COPY_TIMEOUT: Final = 60.0
"""Seconds after which a process forgets an unused session that other processes serve, too."""


def unknown_session(request_id: RequestId | None) -> Refusal:
    """Return the refusal of a request for a session that does not exist."""
    return refuse(404, "the session is unknown or has ended: send initialize, without a session id", request_id)


def _membership(run: HostedRun, options: HttpOptions) -> Membership | None:
    """Return the membership of a process whose sessions others serve, too; None if only this process does."""
    stores = run.served.stores
    if stores is None or not stores.shared or options.settings["stateless"]:
        return None
    return Membership(stores, run.nursery, run.seen)


def _id_of(message: Incoming) -> RequestId | None:
    return message.id if isinstance(message, Request) else None


class Endpoint(LegacyEndpoint):
    """The object that serves the legacy era at an endpoint.

    Args:
        run: The run of the server, in whose nursery the sessions' tasks run.
        options: The settings of the endpoint.
    """

    served = True

    def __init__(self, run: HostedRun, options: HttpOptions) -> None:
        self._run = run
        self._options = options
        # There are three collections of sessions: all that are running (including stateless, HTTP+SSE and ending ones),
        # those that a client can name, and those that a client can name but no HTTP request is using.
        self._live: set[HttpSession] = set()
        self._sse = None if options.settings["sse_path"] is None else SseSessions(run, options, self._live)
        self._sessions: dict[str, HttpSession] = {}
        self._idle: OrderedDict[str, float] = OrderedDict()  # when each session became idle, the longest idle first
        self._watching = False
        self._membership = _membership(run, options)
        self.shared = self._membership is not None
        self._loading: dict[str, trio.Event] = {}
        # A session that other processes serve, too, lives on in the store when it leaves this process.
        self._timeout = options.settings["session_timeout"] if self._membership is None else COPY_TIMEOUT
        # A file may well have a single process. Those who start several by hand read it in how-to/processes.
        several = run.served.inherited is not None or (run.served.stores is not None and run.served.stores.remote)
        if self._membership is not None and self._sse is not None and several:
            logger.warning(
                "sessions over HTTP+SSE (sse_path) stay in the process that opened them: with several processes, route"
                " each client to the same one, by the session_id in its URLs"
            )

    def find_session(self, session_id: str, request_id: RequestId | None, owner: Owner | None = None) -> str | Refusal:
        session = self._sessions.get(session_id)
        # To anyone but its owner, a session must look like an unknown one in every respect.
        if session is not None and session.owner == owner and not session.connection.closed:
            revision = session.revision
            if revision is not None:
                return revision
        return unknown_session(request_id)

    async def prepare(self, request: HttpRequest) -> Refusal | None:
        session_id = request.headers.get(SESSION_ID)
        if self._membership is None or not session_id:
            return None
        key = key_of(session_id, request.owner)
        while not self._has(session_id, request.owner) and (loading := self._loading.get(key)) is not None:
            await loading.wait()  # another request is loading it, and may fail
        if self._has(session_id, request.owner):
            return None
        loaded = self._loading[key] = trio.Event()
        try:
            await self._membership.join()
            found = await self._membership.store.session(key)
            if found is not None:
                return await self._copy(session_id, request.owner, found)
        except StoreError as exc:
            return self._away(exc)
        finally:
            del self._loading[key]
            loaded.set()
        return None

    def _has(self, session_id: str, owner: Owner | None) -> bool:
        """Return whether the store need not be asked for a session, because this process serves it."""
        session = self._sessions.get(session_id)
        if session is None:
            return False
        if session.owner != owner or not session.connection.closed:
            return True
        # This process has given the session up, but others may serve it.
        self._remove(session, "the session is loaded again")
        return False

    async def _copy(self, session_id: str, owner: Owner | None, found: StoredSession) -> Refusal | None:
        """Serve a session that another process has begun."""
        assert self._membership is not None
        if len(self._sessions) >= self._options.settings["max_sessions"] and not self._made_room():
            return TOO_MANY_SESSIONS
        session = HttpSession(
            self._run, self._options, self._live, owner=owner, id=session_id, membership=self._membership
        )
        assert session.copy is not None
        session.copy.begin(found)
        await self._run.nursery.start(session.host)
        self._sessions[session_id] = session
        self._rest(session)
        return None

    def _away(self, exc: StoreError, session: HttpSession | None = None) -> Refusal:
        """Return the refusal of a request for which the store could not be used."""
        if isinstance(exc, StoreFull):
            text = "the process that waits for this message has too many waiting; try again later"
        else:
            if isinstance(exc, StaleWriter) and session is not None and session.copy is not None:
                session.copy.lost()
            logger.warning("a request of a session was refused: %s", exc)
            text = "the sessions can't be read or written now; try again later"
        return refuse(503, ErrorData(OVERLOADED, text), headers=(("Retry-After", "1"),))

    async def _confirmed(self, session: HttpSession, answer: HttpAnswer, request_id: RequestId | None = None) -> bool:
        """Return whether a session still exists; otherwise refuse the request.

        Every request has this round trip to the store, so that no process serves a session that another one has ended.
        """
        if session.copy is None:
            return True
        try:
            await session.copy.confirm()
            return True
        except SessionGone:
            self._remove(session, "the session has ended")
            await answer.refuse(unknown_session(request_id))
        except StoreError as exc:
            await answer.refuse(self._away(exc, session))
        return False

    async def post(self, accepted: Accept, request: HttpRequest, answer: HttpAnswer, held: CountedMessage) -> None:
        if self._options.settings["stateless"]:
            await self._post_alone(accepted, request, answer, held)
        elif accepted.kind == "initialize":
            await self._initialize(accepted, request, answer)
        else:
            session = self._use(accepted.session)
            try:
                if await self._confirmed(session, answer, _id_of(accepted.message)):
                    await session.post(accepted, request, answer, held)
            except StoreError as exc:
                refusal = self._away(exc, session)
                if not answer.started:
                    await answer.refuse(refusal)
            finally:
                self._rest(session)

    def _use(self, session_id: str | None) -> HttpSession:
        """Return a session for one of its HTTP requests; the session can't expire before `_rest` is called."""
        session = self._sessions[session_id or ""]
        self._idle.pop(session.id, None)
        return session

    async def _post_alone(
        self, accepted: Accept, request: HttpRequest, answer: HttpAnswer, held: CountedMessage
    ) -> None:
        session = HttpSession(self._run, self._options, self._live, stateless=True)
        # There was no handshake, so only the version header says something about the client.
        if accepted.revision is not None:
            session.connection.presume(accepted.revision)
        # The session runs in the task of this exchange, so that nothing of it outlives the POST.
        async with trio.open_nursery() as nursery:
            await nursery.start(session.host)
            try:
                await session.post(accepted, request, answer, held)
            finally:
                session.end("the exchange has ended")

    async def _initialize(self, accepted: Accept, request: HttpRequest, answer: HttpAnswer) -> None:
        # If there are too many sessions, one that has not finished the handshake gives way, because a scanner can open
        # many such sessions at no cost.
        if len(self._sessions) >= self._options.settings["max_sessions"] and not self._made_room():
            await answer.refuse(TOO_MANY_SESSIONS)
            return
        assert isinstance(accepted.message, Request)
        if self._membership is not None:
            try:
                await self._membership.join()
            except StoreError as exc:
                await answer.refuse(self._away(exc))
                return
        session = HttpSession(self._run, self._options, self._live, owner=request.owner, membership=self._membership)
        self._sessions[session.id] = session
        try:
            await self._run.nursery.start(session.host)
            result = await session.connection.initialize(accepted.message, request.metadata)
            data, problem = encode_or_replace(result)
            if data is None or problem is not None:
                raise ValueError(f"the result of initialize can't be written as JSON: {problem}")
            if session.copy is not None and isinstance(result, Response):
                await session.copy.add(self._options.settings["max_sessions"])
        except StoreError as exc:
            self._remove(session, "initialize got no response")
            await answer.refuse(TOO_MANY_SESSIONS if isinstance(exc, StoreFull) else self._away(exc))
            return
        except BaseException:
            self._remove(session, "initialize got no response")
            raise
        # The session becomes idle before its id is sent: if sending fails, it expires like any other.
        if isinstance(result, Response):
            self._rest(session)
        else:
            self._remove(session, "initialize was refused")
        await answer.whole(200, data, ((SESSION_ID, session.id),) if isinstance(result, Response) else ())

    def _made_room(self) -> bool:
        """End the session that has been idle longest of those without a finished handshake, such as a scanner's.

        Returns:
            Whether there was such a session.
        """
        for session in map(self._sessions.__getitem__, self._idle):
            if session.copy is not None and not session.connection.busy:
                self._remove(session, "there are too many sessions in this process")
                return True
            if not session.connection.initialized:
                self._remove(session, "the client has not finished the handshake, and there are too many sessions")
                return True
        return False

    async def get(self, opening: Opening, request: HttpRequest, answer: HttpAnswer) -> None:
        session = self._use(opening.session)
        try:
            if not await self._confirmed(session, answer):
                return
            if opening.last_event_id is None:
                await session.open_stream(request, answer)
            else:
                await session.resume(opening.last_event_id, request, answer)
        except SessionGone:  # it has ended since
            await answer.refuse(unknown_session(None))
        except StoreError as exc:
            refusal = self._away(exc, session)
            if not answer.started:
                await answer.refuse(refusal)
        finally:
            self._rest(session)

    async def delete(self, opening: Opening, answer: HttpAnswer) -> None:
        session = self._sessions[opening.session or ""]
        if session.copy is not None:
            if not await self._confirmed(session, answer):
                return
            try:
                await session.copy.end()
            except StoreError as exc:
                await answer.refuse(self._away(exc))
                return
        self._remove(session, "the client has ended the session", forget=True)
        # The response is sent only when the store has forgotten the session, so that its events are really gone.
        await session.over.wait()
        await answer.whole(204)

    async def replay(self, refusal: Refusal, request: HttpRequest, answer: HttpAnswer) -> bool:
        # The session id proves that the events are the client's own: it can't be guessed, and the store knows the
        # session only by a digest of the id and the owner.
        if self._membership is not None:  # as long as there are events, there is the session
            return False
        session_id, store = request.headers.get(SESSION_ID), event_store(self._run, self._options)
        found = read_event_id(request.headers.get(LAST_EVENT_ID) or "")
        if refusal.status != 404 or request.method != "GET" or not session_id or found is None or store is None:
            return False
        stream, cursor = found
        while True:
            try:
                events = await store.after(key_of(session_id, request.owner), stream, cursor)
            except EventsLost:
                break
            except Exception:
                logger.exception("the event store failed")
                break
            if not events:
                break
            # The response starts only with the first page: before that, the refusal may still be sent instead.
            if not answer.started:
                await answer.start_events()
            for event in events:
                cursor = event.number
                await answer.send(encode_event(event.data, event="message", id=event_id(stream, cursor)))
        await answer.finish()
        return answer.started

    async def take_broken_answer(self, message: Malformed, request: HttpRequest) -> Refusal | None:
        session = self._sessions.get(request.headers.get(SESSION_ID) or "")
        if session is None or session.owner != request.owner:
            return None
        # Only a malformed response, which has an id and expects no response, may make our request fail.
        if not message.expects_answer and message.id is not None:
            try:
                if session.copy is None or await session.copy.route(message) is not None:
                    session.feed(message)
            except StoreError as exc:
                return self._away(exc, session)
        return None

    # --- HTTP+SSE ------------------------------------------------------------------------------------------------

    def method_at(self, path: str) -> str | None:
        if self._sse is None:
            return None
        return {self._options.settings["sse_path"]: "GET", self._options.settings["message_path"]: "POST"}.get(path)

    async def serve_at(
        self, request: HttpRequest, answer: HttpAnswer, body: ReadBody, ledger: Ledger, judge: Judge | None = None
    ) -> Refusal | None:
        assert self._sse is not None
        if request.method == "GET":
            return await self._sse.get(request, answer)
        return await self._sse.post(request, answer, body, ledger, judge)

    # --- the end of the server -----------------------------------------------------------------------------------

    def end(self) -> None:
        # Streams of requests end with their responses; the stream for other messages would never end, and those of
        # requests that other processes run go on there.
        for session in self._sessions.values():
            for stream in tuple(session.router.streams.values()):
                if stream is session.router.rest or stream.remote:
                    stream.end()
        if self._sse is not None:
            self._sse.end_when_idle()

    async def idle(self) -> None:
        for session in tuple(self._live):
            await session.connection.wait_idle()

    def cut(self, why: str) -> None:
        for session in tuple(self._live):
            session.end(why)

    def statistics(self) -> HttpStatistics:
        return HttpStatistics(
            sessions=len(self._sessions),
            idle_sessions=len(self._idle),
            sse_sessions=0 if self._sse is None else len(self._sse),
            exchanges=sum(each.exchanges for each in self._live),
            listening=sum(each.router.rest.writer is not None for each in self._live),
            streams=sum(len(each.router.streams) - 1 for each in self._live),  # the stream `rest` is not counted
            unanswered=sum(each.router.unanswered for each in self._live),
            unstored=sum(each.router.unstored for each in self._live),
            watching=self._watching,
        )

    # --- the end of a session ------------------------------------------------------------------------------------

    def _remove(self, session: HttpSession, why: str, *, forget: bool = False) -> None:
        session.forgotten = session.forgotten or forget
        self._sessions.pop(session.id, None)
        self._idle.pop(session.id, None)
        session.end(why)

    def _rest(self, session: HttpSession) -> None:
        """Start the session's idle time, unless another of its HTTP requests is being served."""
        if session.id not in self._sessions or session.exchanges:
            return
        if session.connection.closed:
            self._remove(session, "the session has ended")
            return
        self._idle[session.id] = trio.current_time()
        if not self._watching:
            self._watching = True
            self._run.nursery.start_soon(self._watch)

    async def _watch(self) -> None:
        """End sessions that are no longer used, for as long as there are sessions."""
        # One task and one deadline suffice: idle sessions are in the order in which they became idle, and all have the
        # same timeout, so the first is always the next to expire.
        timeout = self._timeout
        try:
            while self._sessions:
                now = trio.current_time()
                first = next(iter(self._idle.items()), None)
                if first is None or first[1] + timeout > now:
                    # A session that becomes idle during this sleep expires no earlier than the sleep ends.
                    await trio.sleep_until((now if first is None else first[1]) + timeout)
                    continue
                session = self._sessions[first[0]]
                if session.copy is not None and not session.connection.busy:
                    self._remove(session, "this process has not been used for the session lately")
                elif session.connection.busy:  # the client has left, and may come back for the response
                    # Our requests to the client fail, because a handler that waits for a response would keep the
                    # session forever.
                    if session.copy is not None:
                        session.start_soon(session.copy.give_up_questions)
                    else:
                        session.router.give_up_questions(f"the client has sent no HTTP request for {timeout:g} seconds")
                    self._idle[session.id] = now
                    self._idle.move_to_end(session.id)
                else:
                    self._remove(session, f"the session was not used for {timeout:g} seconds", forget=True)
        finally:
            self._watching = False


class SseSessions:
    """The sessions of HTTP+SSE, the transport of 2024-11-05.

    The server sends everything on one stream, and the client posts messages to another path. A session lasts as long
    as its stream.

    Args:
        run: The run of the server.
        options: The settings of the endpoint.
        live: The set that contains each session while it runs.
    """

    def __init__(self, run: HostedRun, options: HttpOptions, live: set[HttpSession]) -> None:
        self._run = run
        self._options = options
        self._live = live
        self._sessions: dict[str, HttpSession] = {}
        self._leaving = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def get(self, request: HttpRequest, answer: HttpAnswer) -> Refusal | None:
        """Open a session and serve its stream; the session ends with it."""
        if len(self._sessions) >= self._options.settings["max_sessions"]:
            return TOO_MANY_SESSIONS
        session = HttpSession(self._run, self._options, self._live, one_stream=True, owner=request.owner)
        # The first event tells the client where to post its messages (2024-11-05 `basic/transports`, HTTP with SSE).
        # The query names the session, because this transport has no header for it.
        where = f"{quote(request.root)}{self._options.settings['message_path']}?session_id={session.id}"
        session.greeting = encode_event(where.encode(), event="endpoint")
        self._sessions[session.id] = session
        try:
            await self._run.nursery.start(session.host)
            await session.open_stream(request, answer)
        finally:
            del self._sessions[session.id]
            session.end("the client closed the stream")
        return None

    async def post(
        self, request: HttpRequest, answer: HttpAnswer, body: ReadBody, ledger: Ledger, judge: Judge | None
    ) -> Refusal | None:
        """Accept a message that a client posts to one of the sessions."""
        if request.headers.media_type != JSON:
            return refuse(415, f"the body must be {JSON}")
        if self._named(request) is None:
            return refuse(
                404, f"the session is unknown or has ended: open a stream at {self._options.settings['sse_path']}"
            )
        # The session is looked up again after this wait: its stream, and so the session, may have ended in the
        # meantime.
        text = await body()
        if text is None:
            return None
        session = self._named(request)
        if session is None:  # the session ended while the body was read
            return refuse(404, f"the session has ended: open a stream at {self._options.settings['sse_path']}")
        message = decode(text)
        note_message(request.scope, message)
        if self._leaving and isinstance(message, (Request, Batch)):
            return ending()
        if judge is not None and (refusal := judge(message)) is not None:
            return refusal
        try:
            held = ledger.take(message, len(text))
        except NoRoom as exc:
            return no_room(exc)
        try:
            session.feed(message, request.metadata, held)
        finally:
            held.release()  # if a handler was started, it keeps the message counted
        session.extend(end_of(request))
        if type(message) is Malformed:  # if a response is due, it is sent on the stream
            return refuse(400, ErrorData(message.code, message.reason))
        await answer.whole(202)
        return None

    def _named(self, request: HttpRequest) -> HttpSession | None:
        # The bound is arbitrary: our ids have 43 characters, and a peer may send a query of any length.
        query = request.scope.get("query_string", b"").decode("latin-1")[:1000]
        session = self._sessions.get(parse_qs(query).get("session_id", [""])[0])
        return session if session is not None and session.owner == request.owner else None

    def end_when_idle(self) -> None:
        """Refuse new work, and end each session as soon as none of its requests is under way."""
        # The sessions are not ended at once: a session ends with its stream, on which the responses to requests under
        # way still have to be sent.
        self._leaving = True
        for session in self._sessions.values():
            session.start_soon(partial(_end_when_settled, session))


async def _end_when_settled(session: HttpSession) -> None:
    await session.connection.wait_settled()
    session.end("the server is ending")
