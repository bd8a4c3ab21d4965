"""Streamable HTTP: headers, sessions and streams of a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trio_mcp.conformance.rules.clients.shared import SPEAKABLE, legacy, modern, over_http, tools_at
from trio_mcp.conformance.rules.history import Connection, History, is_request
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.http.headers import decode_value
from trio_mcp.http.param_headers import parameter_headers, parameter_values
from trio_mcp.types import meta
from trio_mcp.types.methods import method_spec
from trio_mcp.types.versions import REVISIONS


@stated_rule(since="2025-06-18", sentence="The body of a POST is one message.")
def one_post_per_message(history: History) -> Iterator[Verdict]:
    """Judge each POST."""
    for connection in over_http(iter(history)):
        # 2025-03-26 has batches, and the HTTP of 2024-11-05 is another transport.
        if connection.revision in ("2024-11-05", "2025-03-26"):
            continue
        for exchange in connection.exchanges.values():
            if exchange.method == "POST":
                kept = len(exchange.sent) == 1 and isinstance(exchange.sent[0].message, dict)
                yield judged(kept, exchange.request, "its body is not one message")


@stated_rule(
    since="2025-03-26", sentence="Accept names JSON and event streams in each POST, and event streams in each GET."
)
def accept_header_sent(history: History) -> Iterator[Verdict]:
    """Judge each POST and GET."""
    wanted = {"POST": ("application/json", "text/event-stream"), "GET": ("text/event-stream",)}
    for connection in over_http(iter(history)):
        for exchange in connection.exchanges.values():
            if exchange.method in wanted:
                named = [
                    each.partition(";")[0].strip().lower()
                    for each in exchange.request.headers.get("accept", "").split(",")
                ]
                # To HTTP `*/*` would say the same, but the text wants both types listed, and some servers look for just
                # that.
                kept = set(wanted[exchange.method]) <= set(named)
                yield judged(kept, exchange.request, f"Accept is {exchange.request.headers.get('accept')!r}")


@stated_rule(
    revisions=[revision for revision in REVISIONS if revision >= "2025-06-18"],
    older="basic/transports#protocol-version-header",
    sentence="Each HTTP request names the version in MCP-Protocol-Version; in the legacy era, each after the "
    "handshake.",
)
def version_header_sent(history: History) -> Iterator[Verdict]:
    """Judge each request after initialize was answered; in the modern era each POST."""
    for connection in over_http(iter(history)):
        # A version that doesn't exist, as the kit's server may answer, has no headers to demand.
        if connection.revision < "2025-06-18" or connection.revision not in SPEAKABLE:
            continue
        hello = connection.hello
        begins = -1 if hello is None else connection.position(hello.answers[0])
        for exchange in connection.exchanges.values():
            opens = any(is_request(sent.message) and sent.message["method"] == "initialize" for sent in exchange.sent)
            # A client that begins a new session sends `initialize` again, and has no version to name yet.
            if connection.position(exchange.request) > begins and not opens:
                header = exchange.request.headers.get("mcp-protocol-version")
                yield judged(bool(header), exchange.request, "it has no MCP-Protocol-Version")


@stated_rule(since="2025-06-18", sentence="The version in the header is the one that was agreed.")
def version_header_negotiated(history: History) -> Iterator[Verdict]:
    """Judge each request that has the header after initialize was answered."""
    for connection in over_http(legacy(history)):
        hello = connection.hello
        assert hello is not None
        for exchange in connection.exchanges.values():
            header = exchange.request.headers.get("mcp-protocol-version")
            if header is not None and connection.position(exchange.request) > connection.position(hello.answers[0]):
                yield judged(header == connection.revision, exchange.request, f"it names {header!r}")


def _session_id(connection: Connection) -> str | None:
    """Return the id that the server gave with the result of initialize, if any."""
    for exchange in connection.exchanges.values():
        opens = any(is_request(sent.message) and sent.message["method"] == "initialize" for sent in exchange.sent)
        # A handshake that was refused opens no session, whatever its headers say.
        if opens and exchange.response is not None and exchange.status == 200:
            return exchange.response.headers.get("mcp-session-id")
    return None


@stated_rule(since="2025-03-26")
def session_id_sent(history: History) -> Iterator[Verdict]:
    """Judge each request after the handshake."""
    for connection in over_http(legacy(history)):
        if (given := _session_id(connection)) is None or connection.hello is None:
            continue
        begins = connection.position(connection.hello.answers[0])
        for exchange in connection.exchanges.values():
            opens = any(is_request(sent.message) and sent.message["method"] == "initialize" for sent in exchange.sent)
            if exchange.status == 404:
                break  # the session has ended; the next one begins without an id
            if connection.position(exchange.request) > begins and not opens:
                sent = exchange.request.headers.get("mcp-session-id")
                yield judged(sent == given, exchange.request, f"it names the session {sent!r}")


@stated_rule(since="2025-03-26")
def session_restarted_after_404(history: History) -> Iterator[Verdict]:
    """Judge the first request with a message after a 404, if there is one."""
    # The new session is a connection of its own in the transcript, so all exchanges are put in one order.
    everything = [exchange for connection in over_http(iter(history)) for exchange in connection.exchanges.values()]
    ended = None
    for exchange in sorted(everything, key=lambda each: each.request.exchange or 0):
        session = exchange.request.headers.get("mcp-session-id")
        # GET and DELETE are left aside: a client may still be letting go of the old session.
        if ended is not None and exchange.method == "POST" and session != ended[0]:
            opens = any(is_request(sent.message) and sent.message["method"] == "initialize" for sent in exchange.sent)
            yield judged(opens and session is None, exchange.request, "a new session does not begin with initialize")
            ended = None
        elif ended is not None and exchange.method == "POST" and exchange.request.time > ended[1] + SETTLED:
            yield broken(exchange.request, "it goes on with a session that has ended")
            ended = None
        if exchange.status == 404 and session is not None and exchange.end is not None and ended is None:
            ended = (session, exchange.end.time)


SETTLED: Final = 1.0
"""Seconds after a 404 in which requests that were on their way may still name the session (chosen)."""


@stated_rule(
    level="MUST",
    since="2025-03-26",
    sentence="Last-Event-ID names the last event that came on a stream of the same session.",
)
def last_event_id_real(history: History) -> Iterator[Verdict]:
    """Judge each request with the header."""
    for connection in over_http(legacy(history)):
        # Which event came last the client knows better: some may have been on their way when the stream broke.
        given = {str(event.facts["event_id"]) for event in connection.events if "event_id" in event.facts}
        for exchange in connection.exchanges.values():
            named = exchange.request.headers.get("last-event-id")
            if named is not None:
                yield judged(named in given, exchange.request, f"no event has the id {named!r}")


@stated_rule(
    section="basic/transports/streamable-http#request-metadata",
    sentence="MCP-Protocol-Version, Mcp-Method and Mcp-Name say what the body says.",
)
def request_headers_sent(history: History) -> Iterator[Verdict]:
    """Judge each POST with a request."""
    for connection in over_http(modern(history)):
        for exchange in connection.exchanges.values():
            body = exchange.sent[0].message if exchange.sent else None
            # For notifications the text defines no headers (Sending Messages), and `initialize` asks whether the server
            # is of the legacy era.
            if exchange.method != "POST" or not is_request(body) or body["method"] == "initialize":
                continue
            headers, params = exchange.request.headers, body.get("params") or {}
            fields = params.get("_meta") or {}
            wanted = {"mcp-protocol-version": fields.get(meta.PROTOCOL_VERSION), "mcp-method": body["method"]}
            spec = method_spec(connection.revision, body["method"])
            if spec is not None and spec.name_header is not None:
                wanted["mcp-name"] = params.get(spec.name_header)
            found = {name: headers.get(name) for name in wanted}
            if found.get("mcp-name") is not None:
                # Of the three only a name may be encoded (Value Encoding).
                found["mcp-name"] = _decoded(str(found["mcp-name"]))
            wrong = [name for name in wanted if found[name] != wanted[name]]
            yield judged(not wrong, exchange.request, f"{', '.join(wrong)} differ from the body")


@stated_rule(sentence="A client sends each annotated argument as a header of its own, and none that is not there.")
def parameter_headers_sent(history: History) -> Iterator[Verdict]:
    """Judge each call of a listed tool whose schema names headers."""
    for connection in over_http(modern(history)):
        for exchange in connection.exchanges.values():
            body = exchange.sent[0].message if exchange.sent else None
            if not is_request(body) or body["method"] != "tools/call" or not isinstance(body.get("params"), dict):
                continue
            # A client can only go by the definition that it had when it called.
            tool = tools_at(connection, exchange.request).get(str(body["params"].get("name")), {})
            try:
                parameters = parameter_headers(tool.get("inputSchema"))
            except ValueError:  # such a tool must not be called, which is another rule
                continue
            if not parameters:
                continue
            try:
                values = parameter_values(body["params"].get("arguments"), parameters)
            except ValueError:  # an argument that no header can carry, which is another rule
                continue
            # A value that need not be encoded may still be.
            wanted = {name.lower(): _decoded(value) for name, value in values.items()}
            headers = exchange.request.headers
            found = {name: _decoded(value) for name, value in headers.items() if name.startswith("mcp-param-")}
            yield judged(found == wanted, exchange.request, f"the headers are {found}, not {wanted}")


def _decoded(value: str) -> str | None:
    try:
        return decode_value(value)
    except ValueError:
        return None
