"""The defaults and bounds that docs/reference/limits.md and the pages about HTTP state are those of the code."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import attrs
import pytest

import trio_mcp
from tests.docs.pages import ROOT
from trio_mcp import (
    Answers,
    Backoff,
    CallOptions,
    Context,
    FailoverParameters,
    FunctionOptions,
    GroupOptions,
    HttpSettings,
    InputOptions,
    ListOptions,
    ResponseCache,
    Server,
    SessionOptions,
    SocketSettings,
    SqliteEventStore,
    StdioServerParameters,
    link,
)
from trio_mcp._settings import completed, settings_of
from trio_mcp.auth import OAuth, ResourceOptions, TokenExchange, fetching
from trio_mcp.auth.client import login_refresh
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.server import keys
from trio_mcp.extensions import AppLimits, Skills, TaskOptions, TaskPolicy
from trio_mcp.extensions.apps import client as apps_client
from trio_mcp.extensions.apps.view import ViewSession
from trio_mcp.extensions.tasks import following
from trio_mcp.http.client import heads as http_heads, streamable as http_link
from trio_mcp.http.client.sending import http1_format
from trio_mcp.http.framing import MAX_FRAMING
from trio_mcp.http.runner.hypercorn.settings import QuietConfig
from trio_mcp.http.runner.serving import FAREWELL, PROMISED
from trio_mcp.http.server.legacy import endpoint, numbered_stream, sharing, streams as router
from trio_mcp.low_level import (
    sse_client,
    stdio_client,
    stdio_server,
    stream_link,
    streamable_http_client,
    tcp_client,
    unix_client,
    websocket_client,
)
from trio_mcp.middleware import Caching, RateLimit
from trio_mcp.server.processes import supervisor
from trio_mcp.server.processes.child import EXTRA
from trio_mcp.server.processes.command import MAX_PROCESSES
from trio_mcp.server.processes.slots import PAUSES
from trio_mcp.session.outbox import Outbox
from trio_mcp.sockets.addresses import LONGEST_PATH
from trio_mcp.stores import UserStateOptions
from trio_mcp.stores.event_stores import MemoryEventStore
from trio_mcp.stores.session_store import MAILBOX


def default(function: Callable[..., Any], argument: str) -> Any:
    return inspect.signature(function).parameters[argument].default


@functools.cache
def modules() -> list[ModuleType]:
    """Return every module of the package."""
    names = [info.name for info in pkgutil.walk_packages(trio_mcp.__path__, "trio_mcp.") if "__main__" not in info.name]
    return [importlib.import_module(name) for name in names]


def constant(name: str, room: str = "trio_mcp.") -> Any:
    """Return a constant of the package, whichever module it lives in; the room where its name says too little."""
    (value,) = {vars(each)[name] for each in modules() if each.__name__.startswith(room) and name in vars(each)}
    return value


FAILOVER = "trio_mcp.client.failover."
SKILLS = "trio_mcp.extensions.skills"

OF_HTTP: Any = completed(HttpSettings, {})
OF_SOCKETS: Any = completed(SocketSettings, {})

CONFIG = QuietConfig()
OPTIONS = SessionOptions()

# By the first cell of each row.
STATED = {
    "timeout": CallOptions().timeout,
    "total_timeout": CallOptions().total_timeout,
    "reset_on_progress": CallOptions().reset_on_progress,
    "connecting a Client: starting the server, the connection and the negotiation, together": constant(
        "CONNECT_TIMEOUT", "trio_mcp.client."
    ),
    "CallOptions.probe_timeout": CallOptions().probe_timeout,
    **{
        f"FailoverParameters({name}=…)": default(FailoverParameters, name)
        for name in ("check_after", "check_timeout", "attempt_timeout", "head_start", "settle", "patience")
    },
    "ClientGroup(max_wait=…)": settings_of(GroupOptions)["max_wait"].default,
    "resources/unsubscribe after a Client.listen": constant("UNSUBSCRIBE_TIMEOUT"),
    "SessionOptions.close_grace": OPTIONS.close_grace,
    "HandlerOptions.drain_grace": OPTIONS.handlers.drain_grace,
    "a notification or a response over HTTP": constant("POST_TIMEOUT"),
    "what a process has learned about an origin": constant("MAX_AGE"),
    "OAuth(login_timeout=…)": float(default(OAuth, "login_timeout")),
    "an exchange with an authorization server": fetching.TIMEOUT,
    "all exchanges of a sign-in, without the person's time": fetching.FLOW_TIMEOUT,
    "a refresh that was sent, whose callers have left": float(login_refresh.FINISH),
    "TokenExchange(remember=…)": default(TokenExchange, "remember"),
    "ResourceServer(remember=…)": settings_of(ResourceOptions)["remember"].default,
    "the keys of an issuer": keys.FRESH,
    "the keys of an issuer that does not respond": keys.STALE,
    "asking an issuer for its keys or its metadata again": keys.RETRY,
    "exchanges of a sign-in": fetching.MAX_EXCHANGES,
    "bytes of a response of an authorization server": attrs.fields(Fetch).limit.default,
    "bytes of the keys of an issuer": keys.MAX_JWKS,
    "keys of an issuer": keys.MAX_KEYS,
    "redirections to the listener that belong to no sign-in": constant("MAX_WRONG"),
    "connections to the listener of a sign-in": constant("MAX_CONNECTIONS", "trio_mcp.auth."),
    "characters of the header field with an access token": constant("MAX_TOKEN"),
    "characters of a DPoP proof": constant("MAX_PROOF"),
    "access tokens that a protected server remembers": constant("MAX_TOKENS"),
    "tokens for services that a protected server remembers": constant("MAX_EXCHANGED_TOKENS"),
    "exchanges of tokens under way": constant("MAX_TOKEN_EXCHANGES"),
    "exchanges of tokens under way or waiting": constant("MAX_WAITING_EXCHANGES"),
    "DPoP proofs that a protected server without stores remembers": constant("MAX_PROOFS"),
    "tokens that an issuer is asked about at once": constant("MAX_INTROSPECTIONS"),
    **{f"TaskPolicy({name}=…)": getattr(TaskPolicy(), name) for name in ("after", "poll", "ttl")},
    "TaskOptions(lease=…)": TaskOptions().lease,
    "a client looking at a task again": following.LONGEST_INTERVAL,
    "a client looking at a task again, whatever the server suggests": following.SHORTEST_INTERVAL,
    "a client looking at a task whose changes are announced": following.SLOW_INTERVAL,
    "cancelling the task of a call that is cancelled": following.CANCEL_TIMEOUT,
    "looks at a task that needs input although all of its questions have responses": following.MAX_STUCK,
    "looks at a task in a row that fail, over a connection that is open": following.MAX_FAILED,
    "AppLimits(teardown_wait=…)": AppLimits().teardown_wait,
    "the tools of a server whose page calls one": apps_client.FRESH,
    "requests of the view of a page that run, and again that wait": AppLimits().max_calls,
    "messages of a view in a second": AppLimits().rate,
    "messages of a view at once, and again those that are refused": AppLimits().burst,
    "faults of a view in a row": ViewSession.max_faults,
    "origins in a list of a Csp": constant("MAX_LISTED_ORIGINS"),
    "bytes of a page that a host shows": AppLimits().max_html,
    "bytes of a message of the view of a page": AppLimits().max_message,
    "levels of a message of the view of a page": constant("MAX_DEPTH", "trio_mcp.extensions.apps."),
    "tasks in the stores of a server, those that have ended included": TaskOptions().max_tasks,
    "tasks that run in a process": TaskOptions().max_running,
    "tasks for which one subscriptions/listen listens": constant("MAX_LISTENED"),
    "responses in one tasks/update": constant("MAX_ANSWERS"),
    "bytes of a task: its arguments and its journal together, and its result": TaskOptions().max_size,
    "characters of a task's id": constant("MAX_ID"),
    "the first line of a client on a socket of trio-mcp record": constant("FIRST_LINE"),
    "resuming a stream over HTTP, whatever retry the server asks for": constant("MIN_WAIT"),
    "opening an HTTP session in place of a lost one": constant("RENEWAL_TIMEOUT"),
    "opening HTTP sessions only to hear the server, while no call is made": constant("UNASKED_INTERVAL"),
    "closing an HTTP link": constant("CLOSE_TIMEOUT"),
    "closing an HTTP link that is cancelled": constant("CANCELLED_TIMEOUT"),
    "StdioServerParameters.shutdown_grace": StdioServerParameters("x").shutdown_grace,
    "running requests of the peer": OPTIONS.handlers.max_running_requests,
    "queued requests of the peer": OPTIONS.handlers.max_queued_requests,
    "bytes of the peer's running and queued requests; a single one may be larger": OPTIONS.handlers.max_incoming_bytes,
    "bytes of the peer's waiting notifications; a single one may be larger": OPTIONS.handlers.max_incoming_bytes,
    "bytes of the waiting progress of one call; a single one may be larger": constant("MAX_PENDING_PROGRESS_BYTES"),
    "your messages on their way to the link, and again the urgent ones": OPTIONS.max_outgoing_messages,
    "urgent messages in a row that overtake one that waits, each way": constant("MOST_IN_A_ROW"),
    "the callbacks of what arrived before the response to a call": constant("DELIVERY_TIME"),
    "cancellations and responses given on the spot": default(Outbox, "max_control"),
    "notifications of the peer that wait to be handled": OPTIONS.handlers.max_pending_notifications,
    "progress of one call that waits for its callback": constant("MAX_PENDING_PROGRESS"),
    "events of one Client.listen, for resources below those it names": constant("MAX_PENDING"),
    "cancellations that came before their requests, in an HTTP session of the legacy era": constant("MAX_EARLY"),
    "faults of a peer in a row, with nothing valid in between": constant("MAX_FAULTS", "trio_mcp.session."),
    "faults of a server in a row, over one of a list of ways": constant("MAX_GARBAGE", FAILOVER),
    "faults of a peer that a session logs, without on_error": constant("MAX_LOGGED_FAULTS"),
    "bytes of a child's standard error about the probe for its era, until that is known": constant("MAX_HELD"),
    "messages in a memory link, each way": link.BUFFER,
    "names of tools that a list of ways may call again": constant("MAX_TOOLS", FAILOVER),
    "URIs subscribed to over a list of ways": constant("MAX_URIS", FAILOVER),
    "bytes of these names, and of these URIs": constant("MAX_BYTES", FAILOVER),
    "times that a list of ways sends a request again on one way that works": constant("MAX_TRIES", FAILOVER),
    "times in a row that calls fail on one way that works": constant("MAX_FAILED", FAILOVER),
    "requests from a server that a list of ways keeps track of": constant("MAX_QUESTIONS", FAILOVER),
    "messages that have arrived in a stdio link": link.BUFFER,
    "messages that have arrived in a link on a socket or another stream": link.BUFFER,
    "bytes of messages to be sent in a link on a pipe, a stream or a WebSocket; a single one may be larger": constant(
        "MAX_WAITING", "trio_mcp.text_sender"
    ),
    "messages in an HTTP link, each way": link.BUFFER,
    **{
        f"serve_tcp({name}=…), serve_unix({name}=…)": OF_SOCKETS[name]
        for name in ("head_timeout", "write_timeout", "grace")
    },
    "the last messages on a socket or another stream": constant("LAST_WORDS", "trio_mcp.sockets.stream_link"),
    "connections to a TCP or Unix socket open at once": OF_SOCKETS["max_connections"],
    "bytes of a message to a server on a socket": OF_SOCKETS["max_message_size"],
    "bytes of a message on another stream, or from a server on a socket": default(stream_link, "max_message_size"),
    "bytes of the path of a Unix socket, on Linux": LONGEST_PATH,
    "HttpOptions(ping_timeout=…), websocket_client(ping_timeout=…)": OF_HTTP["ping_timeout"],
    "websocket_client(ping_interval=…)": default(websocket_client, "ping_interval"),
    "connecting to a server on TCP, with its TLS handshake": constant("OPENING_TIMEOUT"),
    "opening a WebSocket, from connecting to the end of its handshake": constant("OPENING_TIMEOUT"),
    "closing a WebSocket": constant("CLOSE_GRACE", "trio_mcp.websocket"),
    "closing a WebSocket that is cancelled, or whose peer broke the protocol": constant(
        "LAST_WORDS", "trio_mcp.websocket.sockets"
    ),
    "bytes of messages that have arrived over a WebSocket, and 1 KiB for each of them; a single one may be larger": (
        constant("INBOX")
    ),
    "bytes of a message over a WebSocket, for a client": default(websocket_client, "max_message_size"),
    "bytes of a message over a WebSocket, for a server": OF_HTTP["max_message_size"],
    "fragments of a message over a WebSocket, whatever their size": constant("FREE_FRAGMENTS"),
    "bytes of the response to the handshake of a WebSocket": constant("MAX_HEAD", "trio_mcp.websocket."),
    "requests of an HTTP link on their way, except subscriptions/listen": http_link.MAX_CONNECTIONS,
    "urgent requests of an HTTP link on their way": http_link.MAX_URGENT,
    "requests of an HTTP link on their way or waiting for a place": http_link.MAX_EXCHANGES,
    "notifications and responses of an HTTP link on their way": http_link.MAX_POSTS,
    "lines of a child's standard error that wait to be taken": constant("PENDING"),
    "open subscriptions/listen of a session": OPTIONS.handlers.max_running_requests,
    "changes that one listener has not been told yet": "one of each kind and resource",
    "records of one McpLogHandler, from other threads": constant("MAX_PENDING_RECORDS"),
    "synchronous functions running in threads": FunctionOptions().max_sync_threads,
    "HttpOptions(session_timeout=…)": OF_HTTP["session_timeout"],
    "keep_alive_timeout of hypercorn's Config": CONFIG.keep_alive_timeout,
    "reading what is left of an HTTP body that the server does not want": constant("DRAIN_TIME"),
    "a stream of a protected server, after its token has expired": constant("LEEWAY", "trio_mcp.http.server.gate"),
    "HttpOptions(head_timeout=…)": OF_HTTP["head_timeout"],
    "HttpOptions(body_timeout=…)": OF_HTTP["body_timeout"],
    "HttpOptions(write_timeout=…)": OF_HTTP["write_timeout"],
    "HttpOptions(grace=…)": OF_HTTP["grace"],
    "one of [several processes](../how-to/processes.md) that ends, while others accept connections": FAREWELL,
    "a connection of such a process, after a response that began before the end of the process": PROMISED,
    "one of several processes, after its grace": EXTRA,
    "one of several processes that has been started": supervisor.START,
    "one of several processes that serves": supervisor.SILENCE,
    "the same while others can't write to the stores": supervisor.LEASE,
    "the next process, after the first of several in a row that have ended young": PAUSES[0],
    "processes of a supervisor": MAX_PROCESSES,
    "messages on one stream of an HTTP session, before its handler waits": router.ROOM,
    "messages on one stream of an HTTP session, in total": numbered_stream.MAX_WAITING,
    "bytes on one stream of an HTTP session": numbered_stream.MAX_WAITING_BYTES,
    "messages on one stream that no client has open, without an event store": numbered_stream.MAX_DETACHED,
    "a process that serves sessions of stores, not renewing its lease": sharing.LEASE,
    "a session of stores, without a request in a process": endpoint.COPY_TIMEOUT,
    "storing the last words of sessions as their process ends": sharing.PATIENCE,
    "bytes of messages for what one process runs for sessions of stores; a single one may be larger": MAILBOX,
    "streams of sessions that a process could not end in the stores": sharing.MAX_UNENDED,
    "HTTP connections open at once": OF_HTTP["max_connections"],
    "the first event of an HTTP+SSE server, which says where messages go": constant("ENDPOINT_TIMEOUT"),
    "connecting over HTTP, with no http_client of your own": constant("CONNECT_TIMEOUT"),
    "the body of an HTTP error": constant("ERROR_BODY_TIMEOUT"),
    "an HTTP stream after its response": constant("DRAIN_TIMEOUT"),
    "messages of an HTTP session that wait for its event store": router.MAX_UNSTORED,
    "responses of an HTTP session that its event store refused, for clients that come back": router.MAX_FAULTY,
    "sessions over HTTP, and again open WebSockets": OF_HTTP["max_sessions"],
    "bytes of messages of an HTTP session that wait for its event store": numbered_stream.MAX_WAITING_BYTES,
    "HTTP requests under way, and again bodies being read": OF_HTTP["max_requests"],
    "bytes of HTTP requests under way, and again of bodies being read; a single one may be larger": (
        OF_HTTP["max_request_bytes"]
    ),
    "bytes of further requests that an HTTP/1.1 client sends before it has its response": constant("MAX_RECEIVED"),
    "bytes of the head of an HTTP/1.1 request, its target and fields": QuietConfig().h11_max_incomplete_size,
    "heads of HTTP requests that a server remembers, and again its runner h11 or httptools": constant(
        "MAX_SEEN", "trio_mcp.http.runner"
    ),
    "spellings of accepted hosts that a server remembers": constant("MAX_SEEN", "trio_mcp.http.rules"),
    "bytes of a head that is remembered": constant("MAX_SEEN_SIZE", "trio_mcp.http"),
    "header fields of a head that a runner remembers": constant("MAX_SEEN_FIELDS"),
    "bytes of the size of a chunk with its extensions, in the runners h11 and httptools": constant(
        "MAX_LINE", "trio_mcp.http"
    ),
    "bytes of an HTTP body that the server does not want and reads all the same, so that the client can read the"
    " response": constant("DRAINED"),
    "bytes of the body of an HTTP request": OF_HTTP["max_message_size"],
    "handlers parked for input": InputOptions().max_parked,
    "files of a skill": constant("MAX_FILES", SKILLS),
    "names in a folder of skills": constant("MAX_NAMES", SKILLS),
    "directories of a folder of skills above one another": constant("MAX_DEPTH", f"{SKILLS}.folder"),
    "bytes of all files of a skill": constant("MAX_SIZE", f"{SKILLS}.rules"),
    "bytes of the files of all skills of a server": default(Skills, "max_size"),
    "bytes of the frontmatter of a skill": constant("MAX_FRONTMATTER", SKILLS),
    "levels of the frontmatter of a skill": constant("MAX_DEPTH", f"{SKILLS}.frontmatter"),
    "bytes of a page of skills, about; an entry may be larger": constant("MAX_PAGE", SKILLS),
    "pages that a client was asked to visit and that are not completed": constant("MAX_ELICITATIONS"),
    "callers that a RateLimit keeps track of in a process": RateLimit(1).max_callers,
    "UserStateOptions(ttl=…)": UserStateOptions().ttl,
    "bytes of a state of a user": UserStateOptions().max_size,
    "times that a change of a user's state is tried": constant("MOST_TRIES"),
    "states of users that a process remembers": constant("MOST_SEEN"),
    "bytes of those states together": constant("SEEN_BYTES"),
    "keys in the file of a KeyRing": constant("MOST_KEYS"),
    "bytes of the file of a KeyRing": constant("MOST_BYTES", "trio_mcp.stores"),
    "looking at the file of a KeyRing again": constant("LOOK", "trio_mcp.stores.key_ring"),
    "a new key in the file of a KeyRing": constant("DELAY", "trio_mcp.stores.key_ring"),
    "a RateLimit that asks the stores of its server": constant("PATIENCE", "trio_mcp.middleware"),
    "asking stores again that a RateLimit could not use": constant("RETRY", "trio_mcp.middleware"),
    "results that a Caching keeps": Caching(()).max_entries,
    "bytes of results that a Caching keeps": Caching(()).max_bytes,
    "abandoned calls that a proxy's upstream may still answer": constant("MAX_GIVEN_UP"),
    "rounds of input of one request": InputOptions().max_rounds,
    "times that ctx.sample with functions or a type asks the model": default(Context.sample, "max_rounds"),
    "tools that the model calls in one reply to it": constant("MAX_TOOL_USES"),
    "seconds that a client has to come back with its input": InputOptions().ttl,
    "characters of a requestState": constant("MAX_STATE"),
    "bytes of a message over stdio": default(stdio_client, "max_message_size"),
    "bytes of a message over HTTP": default(streamable_http_client, "max_message_size"),
    "bytes of the body of an HTTP error": constant("MAX_ERROR_BODY"),
    "origins of which a process remembers what they speak": constant("MAX_ORIGINS"),
    "tools whose headers an HTTP link remembers": http_heads.MAX_TOOLS,
    "messages of a batch (2025-03-26 only)": constant("MAX_BATCH"),
    "blocks of Client.listen open at once": constant("MAX_LISTENS"),
    "resources that Client.listen names; in the legacy era, in all its blocks together": constant(
        "MAX_URIS", "trio_mcp.client.listen"
    ),
    "results that a ResponseCache keeps": default(ResponseCache, "max_entries"),
    "bytes of results that a ResponseCache keeps": default(ResponseCache, "max_bytes"),
    "pages of a list that an iter_… method walks": constant("MAX_PAGES", "trio_mcp.client"),
    "shortened names of one server that a ClientGroup remembers": constant("MAX_REMEMBERED"),
    "characters of a URI times characters of the server's templates it is matched against": constant("MAX_MATCH_WORK"),
    "inputs that a server asks for in one round": constant("MAX_INPUT_REQUESTS"),
    "rounds of input in one call": Answers().max_input_rounds,
    "tools on one page of a server's list": ListOptions().page_size,
    "resources that one client subscribes to": constant("MAX_SUBSCRIPTIONS"),
    "characters of a resource's URI": constant("MAX_URI", "trio_mcp.uri_templates"),
    "subschemas of a JSON Schema": constant("MAX_SUBSCHEMAS"),
    "bytes of a server card": constant("MAX_CARD"),
    "levels of a server card": constant("MAX_DEPTH", "trio_mcp.server_card"),
    "steps that one validation may take": constant("MAX_WORK"),
    "bytes of a file that Image, Audio or File reads": constant("MAX_FILE", "trio_mcp.server"),
    "bytes of a line of a child's standard error": constant("LONGEST_LINE"),
    "lines of a child's standard error kept for error messages": constant("TAIL", "trio_mcp.stdio"),
    "cookies that an HTTP client keeps": constant("MAX_COOKIES"),
    "bytes by which the framing of an HTTP body (chunks, frames) exceeds a quarter of its content": MAX_FRAMING,
    "characters of a cookie": constant("MAX_COOKIE"),
    "characters of a URL to which a server redirects a client": constant("MAX_URL"),
}


def rows() -> dict[str, str]:
    """Return the cell under "default" of each row, by the row's first cell."""
    found: dict[str, str] = {}
    column = None
    for line in (ROOT / "docs" / "reference" / "limits.md").read_text().splitlines():
        cells = [cell.strip().replace("`", "") for cell in line.strip().strip("|").split(" | ")]
        if not line.startswith("|"):
            column = None
        elif "default" in cells:
            column = cells.index("default")
        elif column is not None and not line.startswith("|--"):
            found[cells[0]] = cells[column]
    return found


@pytest.mark.parametrize("what", rows())
def test_a_default_is_that_of_the_code(what: str) -> None:
    assert rows()[what] == str(STATED[what])


def test_the_page_has_a_row_for_each_limit() -> None:
    assert sorted(rows()) == sorted(STATED)


def test_each_limit_of_a_session_has_a_row() -> None:
    page = (ROOT / "docs" / "reference" / "limits.md").read_text()
    for options, field in ((each, field) for each in (CallOptions, SessionOptions) for field in each.__attrs_attrs__):
        if field.type in (int, float, "int", "float", "float | None") and field.name != "alert_threshold":
            assert f"`{field.name}`" in page or f"`{options.__name__}.{field.name}`" in page, field.name


def test_every_transport_has_the_same_limit() -> None:
    over_stdio = default(stdio_client, "max_message_size")
    others = (streamable_http_client, sse_client, stream_link, tcp_client, unix_client)
    assert {default(each, "max_message_size") for each in others} == {over_stdio}
    for client in (streamable_http_client, sse_client, websocket_client):
        assert default(client, "max_message_size") == over_stdio


def test_both_ends_of_a_websocket_have_the_same_patience() -> None:
    assert default(websocket_client, "ping_timeout") == OF_HTTP["ping_timeout"]
    assert default(websocket_client, "ping_interval") == OF_HTTP["keep_alive"]


def test_both_ends_of_stdio_have_the_same_limit() -> None:
    assert default(stdio_client, "max_message_size") == default(stdio_server, "max_message_size")


# --- the pages about HTTP ---------------------------------------------------------------------------------------------


FIELDS = {name: setting.default for name, setting in settings_of(HttpSettings).items()}

IN_WORDS = {
    "allowed_hosts": (
        None,
        "`localhost`, `127.0.0.1` and `[::1]` for connections to a loopback address or a Unix socket, else any",
    ),
    "allowed_origins": (None, "those on the `allowed_hosts`; none if any host is accepted"),
}
"""Defaults that the page explains: the value in the code, and the cell."""

ELSEWHERE = {
    "host": default(Server.serve_http, "host"),
    "config.backlog": QuietConfig().backlog,
    "config.keep_alive_timeout": QuietConfig().keep_alive_timeout,
}
"""Settings in the tables that are not among `HttpSettings`."""


def rows_below(page: str, header: str) -> Iterator[list[str]]:
    """Yield the rows of all tables of a page that have this header."""
    inside = False
    for line in (ROOT / "docs" / "how-to" / page).read_text().splitlines():
        if line == header:
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|--"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def read(cell: str) -> Any:
    """Return a value as the tables write it."""
    number, _, unit = cell.partition(" ")
    match unit:
        case "MiB":
            return int(number) * 1024 * 1024
        case "s":
            return float(number)
    return {"off": False, "none": None}.get(cell, int(cell) if cell.isdigit() else cell.strip("`"))


SETTINGS = {row[0].strip("`"): row[1] for row in rows_below("http_server.md", "| setting | default | what it does |")}


def test_each_setting_has_one_row() -> None:
    found = [row[0].strip("`") for row in rows_below("http_server.md", "| setting | default | what it does |")]
    assert sorted(found) == sorted([*FIELDS, *ELSEWHERE])


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_has_the_default_of_the_code(name: str) -> None:
    if name in IN_WORDS:
        assert (FIELDS[name], SETTINGS[name]) == IN_WORDS[name]
    else:
        assert read(SETTINGS[name]) == {**FIELDS, **ELSEWHERE}[name]


def test_each_setting_of_a_socket_has_the_default_of_the_code() -> None:
    stated = {
        row[0].strip("`"): row[1] for row in rows_below("transports.md", "| setting | default | what it limits |")
    }
    assert stated == {name: str(setting.default) for name, setting in settings_of(SocketSettings).items()}


BOUNDS = {
    "requests on their way at once, except `subscriptions/listen`": http_link.MAX_CONNECTIONS,
    "urgent requests on their way at once, besides these": http_link.MAX_URGENT,
    "requests on their way or waiting": http_link.MAX_EXCHANGES,
    "connections kept for further requests": constant("MAX_KEPT_ALIVE"),
    "seconds for which they are reused if the server does not say how long it keeps them": constant("KEPT_ALIVE"),
    "seconds before the server closes a connection from which on it is not reused": constant("EARLIER"),
    "notifications and responses on their way at once": http_link.MAX_POSTS,
    "seconds for the server to take a notification or a response": http_link.POST_TIMEOUT,
    "bytes of a JSON text or an event": default(streamable_http_client, "max_message_size") // 1024**2,
    "bytes read of the body of an error": constant("MAX_ERROR_BODY"),
    "redirections of one request": constant("MAX_REDIRECTS", "trio_mcp.http."),
    "seconds to connect, and again for each write, without an `http_client` of your own": constant("CONNECT_TIMEOUT"),
    "bytes of the head of a response, without an `http_client` of your own": http1_format.MAX_HEAD,
    "lines of that head": http1_format.MAX_FIELDS,
    "responses with a status of 1xx before the final one": http1_format.MAX_INTERIM,
    "seconds for the body of an error": constant("ERROR_BODY_TIMEOUT"),
    "seconds for the first event of an HTTP+SSE server, which says where messages go": constant("ENDPOINT_TIMEOUT"),
    "seconds for a stream to end after its response; then its connection is not used again": constant("DRAIN_TIMEOUT"),
    "seconds for messages on their way at a close, and again for the DELETE": constant("CLOSE_TIMEOUT"),
    "seconds for the DELETE of a client that is cancelled": constant("CANCELLED_TIMEOUT"),
}


def test_each_bound_of_the_client_is_that_of_the_code() -> None:
    stated = dict(rows_below("http_client.md", "| what | bound |"))
    assert sorted(stated) == sorted(BOUNDS)
    for what, bound in BOUNDS.items():
        assert f"{bound:g}" in stated[what].replace(",", "").replace(";", "").split(), what


def test_what_is_said_of_trying_again_is_so() -> None:
    """The page says how often a broken stream is resumed."""
    assert "After five attempts it gives up" in (ROOT / "docs" / "how-to" / "http_client.md").read_text()
    assert Backoff().attempts == 5


@pytest.mark.parametrize("store", [MemoryEventStore, SqliteEventStore])
def test_the_bounds_of_a_store_are_those_of_the_code(store: Any) -> None:
    (row,) = (
        row
        for row in rows_below("event_stores.md", "| | keeps | bounds, and their defaults |")
        if store.__name__ in row[0]
    )
    limits = {
        name: each.default for name, each in inspect.signature(store).parameters.items() if name.startswith("max_")
    }
    for name, bound in limits.items():
        assert f"`{name}={bound:g}`" in row[2] or f"`{name}={bound}`" in row[2], name
    assert row[2].count("max_") == len(limits)
