"""Sessions that are foreign, over or made up; ids of events that were never given; HTTP+SSE."""

from __future__ import annotations

import random

from tests.hostile.case import LATEST, Answer, Draft, Message, chosen, cut, kinds_of, legacy, modern, rendered, token
from tests.hostile.families.bodies import hello, request, sent
from tests.tables import listed

STREAM = {200}


def forged(rng: random.Random) -> str:
    """Make up a session id that our servers never gave out."""
    given: str = chosen(
        rng,
        token(rng, 43, 43),
        "".join(rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", k=43)),
        "0",
        "null",
        "../" + token(rng),
        "*",
        "' OR 1=1 --",
        "x" * 6000,
        *listed('\xe9\xff | @live@x | x@live@ | @live@, @other@ | @live@; | "@live@" | %00 | __init__'),
    )
    return given


def got(rng: random.Random, session: str | None, **more: str) -> Message:
    """Return a GET of a session's stream."""
    message = Message("GET", "/mcp", [("Host", "localhost"), ("Accept", "text/event-stream")])
    if session is not None:
        message.fields.append(("Mcp-Session-Id", session))
    message.fields += [(name.replace("_", "-"), value) for name, value in more.items()]
    return message


def session_forged(rng: random.Random) -> Draft:
    rule = "L, Session Management, 3: a session that is not there is 404"
    method = chosen(rng, "POST", "GET", "DELETE")
    message = legacy(rng, session=forged(rng)) if method == "POST" else got(rng, forged(rng))
    message.method = method
    return Draft(rule, {404}, rendered(rng, message), closes=False)


def session_ended(rng: random.Random) -> Draft:
    method = chosen(rng, "POST", "GET", "DELETE")
    message = legacy(rng, session="@ended@") if method == "POST" else got(rng, "@ended@")
    message.method = method
    return Draft("L, Session Management, 3: a session that is over is 404", {404}, rendered(rng, message), closes=False)


def session_missing(rng: random.Random) -> Draft:
    method = chosen(rng, "POST", "GET", "DELETE")
    message = legacy(rng, session=None) if method == "POST" else got(rng, None)
    if rng.random() < 0.3:
        message.set("mcp_session_id", "@live@")  # no such field
    message.method = method
    return Draft("L, Session Management, 2: no session id is 400", {400}, rendered(rng, message), closes=False)


def session_twice(rng: random.Random) -> Draft:
    ids = chosen(rng, ("@live@", "@live@"), ("@live@", "@other@"), ("@live@", ""), ("x", "@live@"))
    message = legacy(rng).set("Mcp-Session-Id", *ids)
    rule = "RFC 9110, 5.3; L, Session Management, 3: two ids are none that was given"
    return Draft(rule, {400, 404}, rendered(rng, message), closes=False)


def session_empty(rng: random.Random) -> Draft:
    message = legacy(rng).set("Mcp-Session-Id", chosen(rng, "", " ", "\t"))
    return Draft("L, Session Management, 2, 3: no id, or none that was given", {400, 404}, rendered(rng, message))


def session_ended_twice(rng: random.Random) -> Draft:
    message = got(rng, "@own@")
    message.method = "DELETE"
    data = b"".join(rendered(rng, message))
    answers = [Answer(frozenset({200, 202, 204})), Answer(frozenset({404}))]
    after = legacy(rng, session="@own@").set("MCP-Protocol-Version")
    data += b"".join(rendered(rng, message if rng.random() < 0.5 else after))
    rule = "L, Session Management, 3, 5: ended once; then it is not known"
    return Draft(rule, (), cut(rng, data), answers=answers, closes=False)


def session_of_another_revision(rng: random.Random) -> Draft:
    message = legacy(rng).set("MCP-Protocol-Version", chosen(rng, "2025-06-18", "2025-03-26", "2024-11-05"))
    rule = "L, Protocol Version Header: a revision that is served, but not the session's"
    return Draft(rule, {200, 400}, rendered(rng, message), closes=False)


def uninitialized(rng: random.Random) -> Draft:
    """Draft a call right after initialize, without notifications/initialized."""
    call = {"name": "add", "arguments": {"a": 1, "b": 2}}
    message = legacy(rng, "tools/call", call, session="@own@")
    rule = "2025-11-25 basic/lifecycle, Initialization: a client SHOULD NOT, before it is ready"
    return sent(rng, message, rule, {200, 400})


def initialize_in_session(rng: random.Random) -> Draft:
    message = hello(rng).set("Mcp-Session-Id", chosen(rng, "@live@", "@own@"))
    rule = "L, Session Management, 1: initialize opens a session, and has none"
    return Draft(rule, {400}, rendered(rng, message), closes=False)


def cancelled_of_another(rng: random.Random) -> Draft:
    params = {"requestId": chosen(rng, 1, "x", rng.randint(1, 2**50), None, [], {}, 1.5, -1, True)}
    message = legacy(rng, content={"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    return sent(rng, message, "basic/utilities/cancellation: of a request that is not there it is ignored", {202, 400})


def id_in_use(rng: random.Random) -> Draft:
    """Draft a reused id on one connection."""
    number = rng.randint(1, 2**50)
    content = {"jsonrpc": "2.0", "id": number, "method": "ping"}
    data = b"".join(b"".join(rendered(rng, legacy(rng, content=content))) for _ in range(2))
    answers = [Answer(frozenset({200})), Answer(frozenset({200, 400}))]
    rule = "2025-11-25 basic, Requests: an id MUST NOT be used again; RFC 9112, 9.3.2: in order"
    return Draft(rule, (), cut(rng, data), answers=answers, closes=False)


# --- streams and events -----------------------------------------------------------------------------------------


def stream_of_session(rng: random.Random) -> Draft:
    rule = "L, Listening for Messages: a stream, which the attack leaves"
    return Draft(rule, STREAM, rendered(rng, got(rng, "@own@")), probe=False)


def stream_not_accepted(rng: random.Random) -> Draft:
    message = got(rng, "@live@").set(
        "Accept", chosen(rng, "application/json", "text/html", "text/event-stream;q=0", "image/*")
    )
    return Draft("L, Listening for Messages, 2; RFC 9110, 15.5.7: 406", {406}, rendered(rng, message), closes=False)


def stream_in_modern(rng: random.Random) -> Draft:
    message = got(rng, chosen(rng, None, "@live@"), MCP_Protocol_Version="2026-07-28")
    message.method = chosen(rng, "GET", "DELETE")
    rule = "S, Earlier Streamable HTTP Revisions; RFC 9110, 15.5.6: 405"
    return Draft(rule, {405}, rendered(rng, message), closes=False)


def stream_of_unknown_revision(rng: random.Random) -> Draft:
    version = chosen(rng, "1900-01-01", "x", "2099-01-01", "x" * 5000, "2025-11-25,")
    message = got(rng, "@live@", MCP_Protocol_Version=version)
    message.method = chosen(rng, "GET", "DELETE")
    rule = "L, Protocol Version Header: 400; S: a later revision has no GET: 405"
    return Draft(rule, {400, 405}, rendered(rng, message), closes=False)


def event_forged(rng: random.Random) -> Draft:
    event = chosen(
        rng,
        *listed("x | - | 1 | 1- | -1 | 1-1-1 | 1_1 | 0x1-1 | 1e3-1 | \xb2-1 | 99999-1 | 1-99999"),
        f"{2**64}-{2**64}",
        "9" * 5000,
        "9" * 2500 + "-" + "9" * 2500,
        "-1--1",
        "+1-+1",
        "1 - 1",
        token(rng, 10, 60),
        *listed("../../1 | %30-%30 | \xe9 | null | 1-1, 1-2"),
    )
    message = got(rng, "@live@", Last_Event_ID=event)
    rule = "L, Resumability: an id that was not given; docs/how-to/http_server.md: 400, 404 or 410"
    return Draft(rule, {400, 404, 410}, rendered(rng, message), closes=False)


def event_of_another(rng: random.Random) -> Draft:
    event = f"{rng.randint(1000, 10**9)}-{rng.randint(0, 9)}"
    message = got(rng, chosen(rng, "@live@", "@other@"), Last_Event_ID=event)
    rule = "L, Resumability, 3: nothing of another stream may be replayed"
    return Draft(rule, {400, 404, 410}, rendered(rng, message), closes=False)


def event_without_session(rng: random.Random) -> Draft:
    session = chosen(rng, None, "@ended@", token(rng, 43, 43))
    message = got(rng, session, Last_Event_ID=chosen(rng, "0-0", "1-0", "1-1", "x", ""))
    rule = "L, Session Management, 2, 3: 400 without an id, 404 for one that is not known"
    return Draft(rule, {400} if session is None else {404}, rendered(rng, message), closes=False)


def listen(rng: random.Random) -> Draft:
    """Draft a modern stream that the client abandons."""
    message = modern(rng, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    return Draft("2026-07-28 subscriptions: a stream", STREAM, rendered(rng, message), probe=False)


def listen_wrong(rng: random.Random) -> Draft:
    wanted = chosen(
        rng, None, 1, [], "x", {"toolsListChanged": "yes"}, {"resourceSubscriptions": 1}, {"resourceSubscriptions": [1]}
    )
    params = {} if wanted is None else {"notifications": wanted}
    message = modern(rng, "subscriptions/listen", params)
    return Draft("JSON-RPC 2.0, 5.1: invalid parameters are -32602", {200, 400}, rendered(rng, message), codes={-32602})


def listen_not_accepted(rng: random.Random) -> Draft:
    message = modern(rng, "subscriptions/listen", {"notifications": {}}).set("Accept", "application/json")
    return Draft("S, Receiving Messages: 406", {406}, rendered(rng, message), closes=False)


def call_and_leave(rng: random.Random) -> Draft:
    """Draft a slow tool whose client disconnects: neither its handler nor its stream may survive."""
    params = {"name": "slow", "arguments": {"seconds": 0.5}}
    message = chosen(
        rng, modern(rng, "tools/call", params, name="slow"), legacy(rng, "tools/call", params, session="@own@")
    )
    rule = "S, Cancellation; L, Sending Messages, 6: the client has left"
    return Draft(rule, {200, "closed"}, [*rendered(rng, message), 0.02], probe=False, shut=True)


# --- HTTP+SSE ---------------------------------------------------------------------------------------------------


def sse_forged(rng: random.Random) -> Draft:
    message = legacy(rng, session=None)
    query = chosen(
        rng,
        "",
        "?",
        "?session_id=",
        f"?session_id={token(rng, 40, 60)}",
        "?session_id=%00",
        "?a=b",
        "?session_id=" + "x" * 5000,
    )
    message.target = "/messages" + query
    rule = "2024-11-05 basic/transports; RFC 9110, 15.5.5: no such session"
    return Draft(rule, {400, 404}, rendered(rng, message), closes=False)


def sse_wrong(rng: random.Random) -> Draft:
    message, allowed = chosen(
        rng,
        (Message("POST", "/sse", [("Host", "localhost")], b"{}"), 405),
        (Message("DELETE", "/sse", [("Host", "localhost")]), 405),
        (Message("GET", "/messages", [("Host", "localhost")]), 405),
        (Message("GET", "/sse", [("Host", "evil.example")]), 403),
        (Message("GET", "/sse", [("Host", "localhost"), ("Origin", "http://evil.example")]), 403),
        (
            Message(
                "POST",
                "/messages?session_id=x",
                [("Host", "evil.example"), ("Content-Type", "application/json")],
                b"{}",
            ),
            403,
        ),
        (
            Message("POST", "/messages?session_id=x", [("Host", "localhost"), ("Content-Type", "text/plain")], b"{}"),
            415,
        ),
    )
    return Draft("RFC 9110, 15.5.6, 15.5.16; S, Security Warning", {allowed}, rendered(rng, message), closes=False)


def sse_stream(rng: random.Random) -> Draft:
    message = Message("GET", "/sse", [("Host", "localhost"), ("Accept", "text/event-stream")])
    return Draft(
        "2024-11-05 basic/transports: a stream, which the attack leaves", STREAM, rendered(rng, message), probe=False
    )


def modern_to_session(rng: random.Random) -> Draft:
    """Draft a body of one era with the headers of the other."""
    message = legacy(rng, content=request(rng)).set("MCP-Protocol-Version", *chosen(rng, (), (LATEST,)))
    rule = "S, Protocol Version Header: what claims to be modern has to say so in the header: 400"
    return sent(rng, message, rule, {400}, {-32020})


KINDS = kinds_of(__name__)
