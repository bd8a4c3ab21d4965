"""Moves that test the transport with odd headers, odd sessions, broken streams, and requests no revision defines."""

from __future__ import annotations

import base64
import contextlib
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.messages import alive
from trio_mcp.conformance.plans.moves.model import move
from trio_mcp.conformance.plans.moves.odd_calls import calls
from trio_mcp.conformance.steps import Ask, AwaitResponses, Break, Http, Open, Pause, Plan, Resume, Step, Tell, Write
from trio_mcp.http.headers import METHOD, PROTOCOL_VERSION, SESSION_ID
from trio_mcp.http.param_headers import ParameterHeader, parameter_headers
from trio_mcp.testing.strategies import CannotGenerate, from_schema
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS

Plans = st.SearchStrategy[Plan]

# Streamable HTTP was introduced in revision 2025-03-26, and its header for the protocol version in 2025-06-18.
SESSIONS: Final = LEGACY_REVISIONS[1:]
VERSION_HEADER: Final = LEGACY_REVISIONS[2:]

HTTP: Final = ["transport:http"]
NO_VERSIONS: Final = st.sampled_from(["1999-12-31", "1900-01-01", "9999-01-01", "banana"])
ORIGINS: Final = st.sampled_from(
    [
        "http://attacker.example",
        "https://attacker.example:8443",
        "http://192.0.2.1",
        "http://localhost.attacker.example",
    ]
)
HOLD: Final = 0.2
"""Seconds for which a response that may have no end is read (arbitrary); it limits how long an example takes."""


def _named(facts: Facts) -> st.SearchStrategy[tuple[Ask, str]]:
    """Return a strategy for valid requests that name a tool, resource or prompt, each with that name."""
    found: list[st.SearchStrategy[tuple[Ask, str]]] = [
        calls(facts).map(lambda ask: (ask, str((ask.params or {})["name"])))
    ]
    found += [st.just((Ask("resources/read", {"uri": uri}), uri)) for uri in sorted(facts.resources)[:20]]
    for name, prompt in sorted(facts.prompts.items())[:20]:
        if not prompt.get("arguments"):
            found.append(st.just((Ask("prompts/get", {"name": name}), name)))
    return st.one_of(found)


def _with(ask: Ask, **headers: str | None) -> Plan:
    """Return a plan that sends a request with changed headers; in the keyword names, underscores stand for hyphens."""
    return (_changed(ask, {name.replace("_", "-"): value for name, value in headers.items()}),)


def _changed(ask: Ask, headers: dict[str, str | None]) -> Ask:
    return Ask(ask.method, ask.params, token=ask.token, headers=headers)


def _encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


# --- any revision -----------------------------------------------------------------------------------------------------


@move(needs=HTTP, weight=1)
def foreign_origin(facts: Facts) -> Plans:
    """Send a request as a web page from another host would."""
    return ORIGINS.map(lambda origin: _with(alive(facts), Origin=origin))


@move(needs=HTTP, weight=1)
def odd_http(facts: Facts) -> Plans:
    """Make an HTTP request that no revision defines, and check that the server still responds."""
    methods = st.sampled_from(["PUT", "PATCH", "OPTIONS", "HEAD", "BREW"])
    fields = st.sampled_from(
        [
            {},
            {"Content-Type": "text/plain"},
            {"Accept": "text/html"},
            {"X-Long": "x" * 4000},
            {"Content-Encoding": "gzip"},
        ]
    )
    # An empty object is not a request in any era, so nothing happens if a server accepts one of these POSTs.
    posts = st.builds(lambda headers: Http("POST", headers, b"{}", hold=HOLD), fields)
    others = st.builds(lambda method, headers: Http(method, headers, hold=HOLD), methods, fields)
    return st.one_of(posts, others).map(lambda step: (step, alive(facts)))


@move(weight=1)
def chopped(facts: Facts) -> Plans:
    """Write a request in several pieces."""
    meta = b',"params":{"_meta":"$meta"}' if facts.modern else b""
    method = alive(facts).method.encode()
    pieces = [b'{"jsonrpc":"2.0",', b'"id":"$id"', b',"method":"', method[:3], method[3:], b'"', meta, b"}\n"]

    def cut(places: set[int]) -> Plan:
        texts, current = [], b""
        for place, piece in enumerate(pieces):
            current += piece
            if place in places or place == len(pieces) - 1:
                texts.append(current)
                current = b""
        # The name of the method is split between two pieces, so the header that repeats it has to be given explicitly.
        headers = {METHOD: method.decode()} if facts.modern else {}
        return (Write(tuple(texts), framed=False, headers=headers),)

    return st.sets(st.integers(0, len(pieces) - 2), min_size=1).map(cut)


@move(revisions=[*VERSION_HEADER, *MODERN_REVISIONS], needs=HTTP, weight=1)
def tell_in_unknown_version(facts: Facts) -> Plans:
    """Send a notification with a header that names a protocol version that does not exist."""
    # A server that accepts this notification must ignore it, so only the header can be the reason for an error.
    tell = Tell("notifications/cancelled", {"requestId": "never asked"})
    return NO_VERSIONS.map(lambda version: (attrs.evolve(tell, headers={PROTOCOL_VERSION: version}),))


@move(needs=["transport:stdio"], weight=1, alone=True)
def close_input(facts: Facts) -> Plans:
    """Start the server a second time, and close its standard input."""
    return st.just((Open(), alive(facts, connection=-1), AwaitResponses(), Break("half", connection=-1), Pause(0.5)))


# --- the legacy era ---------------------------------------------------------------------------------------------------


@move(revisions=SESSIONS, needs=[*HTTP, "callable_tools"], weight=3)
def break_and_resume(facts: Facts) -> Plans:
    """Call a tool, break off the stream of its response, and resume the stream."""
    hows = st.sampled_from(["close", "reset"])
    # The waits are short: most tools end within milliseconds, and a stream that has ended can't be broken off.
    waits = st.sampled_from([0.0, 0.001, 0.02])
    return st.builds(
        lambda ask, how, wait: (ask, Pause(wait), Break(how, which=-1), Resume(), AwaitResponses()),
        calls(facts, token=True),
        hows,
        waits,
    )


@move(revisions=SESSIONS, needs=HTTP, weight=1)
def second_stream(facts: Facts) -> Plans:
    """Open a second stream in the session while a request is open."""
    asks = calls(facts, token=True) | st.just(alive(facts))
    return asks.map(lambda ask: (ask, Http("GET", hold=HOLD), AwaitResponses()))


@move(revisions=SESSIONS, needs=HTTP, weight=1, alone=True)
def resume_foreign(facts: Facts) -> Plans:
    """Ask in one session for the events that came after an event of another session."""
    asks = calls(facts, token=True) | st.just(alive(facts))
    foreign = Http("GET", {"Last-Event-ID": "{other event}"}, hold=HOLD, connection=1)
    return asks.map(lambda ask: (ask, Open(), AwaitResponses(), foreign))


@move(revisions=SESSIONS, needs=HTTP, weight=1)
def without_session(facts: Facts) -> Plans:
    """Send a request without the id of the session."""
    return st.just(_with(alive(facts), Mcp_Session_Id=None))


@move(revisions=SESSIONS, needs=HTTP, weight=1, alone=True)
def end_session(facts: Facts) -> Plans:
    """End a second session, and then go on using it."""
    after: st.SearchStrategy[Step] = st.sampled_from(
        [alive(facts, connection=-1), Http("GET", hold=HOLD, connection=-1)]
    )
    return after.map(
        lambda step: (Open(), alive(facts, connection=-1), AwaitResponses(), Http("DELETE", connection=-1), step)
    )


@move(revisions=VERSION_HEADER, needs=HTTP, weight=1)
def unknown_version_header(facts: Facts) -> Plans:
    """Send a request with a header that names a protocol version that does not exist."""
    return NO_VERSIONS.map(lambda version: _with(alive(facts), MCP_Protocol_Version=version))


# --- the modern era ---------------------------------------------------------------------------------------------------


@move(revisions=MODERN_REVISIONS, needs=HTTP, weight=3)
def mismatched_header(facts: Facts) -> Plans:
    """Send a request with a header that contradicts the body."""
    methods = st.sampled_from(["tools/list", "server/Discover", "ping", "x"])
    # Only revisions that exist are used: a header with any other version may be refused with another error code.
    versions = st.sampled_from(LEGACY_REVISIONS)
    names = st.one_of(
        st.just(lambda name: name + "x"),
        # The value is encoded correctly, but it is a different name: a server that compares only unencoded headers
        # misses the difference.
        st.just(lambda name: _encoded(name + "é")),
        st.just(lambda name: name.upper() + "-"),
    )
    return st.one_of(
        methods.map(lambda method: _with(alive(facts), Mcp_Method=method)),
        versions.map(lambda version: _with(alive(facts), MCP_Protocol_Version=version)),
        st.builds(lambda named, change: _with(named[0], Mcp_Name=change(named[1])), _named(facts), names),
    )


@move(revisions=MODERN_REVISIONS, needs=HTTP, weight=2)
def missing_header(facts: Facts) -> Plans:
    """Send a request without one of the headers that it must have."""
    return st.one_of(
        st.just(_with(alive(facts), Mcp_Method=None)),
        st.just(_with(alive(facts), MCP_Protocol_Version=None)),
        _named(facts).map(lambda named: _with(named[0], Mcp_Name=None)),
    )


@move(revisions=MODERN_REVISIONS, needs=HTTP, weight=1)
def odd_characters(facts: Facts) -> Plans:
    """Send a header with characters that no header may have, in place of a name or an argument."""
    return st.one_of(
        _named(facts).map(lambda named: _with(named[0], Mcp_Name=named[1] + "é")),
        _parametrized(facts).map(lambda found: (_changed(found[0], {found[1].header: "é\x01"}),)),
    )


@move(revisions=MODERN_REVISIONS, needs=HTTP, weight=2)
def encoded_header(facts: Facts) -> Plans:
    """Encode the name in a header although it need not be encoded."""
    return _named(facts).map(lambda named: _with(named[0], Mcp_Name=_encoded(named[1])))


@move(revisions=MODERN_REVISIONS, needs=HTTP, weight=1)
def header_case(facts: Facts) -> Plans:
    """Send a request with the names of its headers in an unusual letter case."""
    cases = st.sampled_from([str.lower, str.upper, str.swapcase])
    probe = alive(facts)
    return cases.map(
        lambda case: (_changed(probe, {case(METHOD): probe.method, case(PROTOCOL_VERSION): facts.revision}),)
    )


@move(revisions=MODERN_REVISIONS, needs=HTTP, weight=1)
def legacy_traffic(facts: Facts) -> Plans:
    """Make a request that only clients of the legacy era make."""
    headers: st.SearchStrategy[dict[str, str | None]] = st.sampled_from(
        [{SESSION_ID: "0123456789abcdef"}, {"Last-Event-ID": "1"}]
    )
    return st.one_of(
        st.sampled_from(["GET", "DELETE"]).map(lambda method: (Http(method, hold=HOLD),)),
        headers.map(lambda fields: (_changed(alive(facts), fields),)),
    )


def _parametrized(facts: Facts, *types: str) -> st.SearchStrategy[tuple[Ask, ParameterHeader, Any]]:
    """Return a strategy for calls of tools that have an argument which a header must repeat.

    Each call comes with that header and the value of the argument.

    Args:
        facts: The facts about the target.
        types: The JSON types that the argument may have; any, if none are given.
    """

    def found(ask: Ask, parameter: ParameterHeader) -> tuple[Ask, ParameterHeader, Any]:
        return ask, parameter, parameter.value_in((ask.params or {}).get("arguments"))

    choices = []
    for name in facts.callable_tools:
        with contextlib.suppress(ValueError, CannotGenerate):
            schema = facts.tools[name].get("inputSchema")
            parameters = [each for each in parameter_headers(schema) if not types or _type(schema, each) in types]
            if parameters:
                arguments = from_schema(schema)
                asks = st.builds(
                    lambda given, name=name: Ask("tools/call", {"name": name, "arguments": given}), arguments
                )
                choices.append(st.builds(found, asks, st.sampled_from(parameters)))
    return st.one_of(choices)


def _type(schema: Any, parameter: ParameterHeader) -> Any:
    for name in parameter.path:
        schema = schema["properties"][name]
    return schema.get("type")


@move(revisions=MODERN_REVISIONS, needs=[*HTTP, "callable_tools"], weight=2)
def mismatched_parameter(facts: Facts) -> Plans:
    """Call a tool with a header that contradicts the argument it should repeat."""
    # Only arguments that have a value are used: for an absent one the header must be absent, which another rule checks.
    given = _parametrized(facts).filter(lambda found: isinstance(found[2], (str, int)))
    return given.map(lambda found: (_changed(found[0], {found[1].header: "something-else-7"}),))


@move(revisions=MODERN_REVISIONS, needs=[*HTTP, "callable_tools"], weight=2)
def missing_parameter(facts: Facts) -> Plans:
    """Call a tool without the header that must repeat an argument."""
    return _parametrized(facts).map(lambda found: (_changed(found[0], {found[1].header: None}),))


@move(revisions=MODERN_REVISIONS, needs=[*HTTP, "callable_tools"], weight=1)
def integer_parameter(facts: Facts) -> Plans:
    """Call a tool with an integer that is written as a decimal in the header for the argument: 7 as ``7.0``."""
    # The number is below 2**31: it is exact as a double and fits 32 bits, whatever a server parses "7.0" into.
    given = _parametrized(facts, "integer").filter(lambda found: type(found[2]) is int and abs(found[2]) < 2**31)
    return given.map(lambda found: (_changed(found[0], {found[1].header: f"{found[2]}.0"}),))
