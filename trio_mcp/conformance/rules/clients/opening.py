"""The opening: which request comes first, and what is used of the server afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_mcp.conformance.rules.clients.shared import SPEAKABLE, after, legacy
from trio_mcp.conformance.rules.common import is_ordered
from trio_mcp.conformance.rules.history import History, is_request, is_response
from trio_mcp.conformance.rules.http import is_no_version
from trio_mcp.conformance.rules.model import Verdict, broken, judged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.types import meta
from trio_mcp.types.methods import method_spec


@stated_rule(
    sentence="The first request of a session is initialize, with version, capabilities and name of the client."
)
def initialize_first(history: History) -> Iterator[Verdict]:
    """Judge the first request of each connection; a probe for the modern era may come before it."""
    for connection in history:
        if connection.modern:
            continue
        for asked in connection.requests:
            # A client of both eras tries the modern one first, with `server/discover` or any request (Backward
            # Compatibility).
            if meta.PROTOCOL_VERSION in asked.meta or asked.method == "server/discover":
                continue
            if asked.method != "initialize":
                yield broken(asked.event, f"the first request is {asked.method}")
            else:
                wanted = {"protocolVersion": str, "capabilities": dict, "clientInfo": dict}
                missing = [name for name, kind in wanted.items() if not isinstance(asked.params.get(name), kind)]
                yield judged(not missing, asked.event, f"it lacks {', '.join(missing)}")
            break


@stated_rule()
def initialize_version_supported(history: History) -> Iterator[Verdict]:
    """Judge each initialize; which versions the client really speaks can't be seen."""
    for _, asked in history.requests("initialize"):
        version = asked.params.get("protocolVersion")
        # One that this kit does not know may be a later one.
        if version in SPEAKABLE or not isinstance(version, str) or is_no_version(version):
            yield judged(version in SPEAKABLE, asked.event, f"there is no version {version!r}")


@stated_rule()
def nothing_before_initialize_result(history: History) -> Iterator[Verdict]:
    """Judge what the client sent between initialize and its result."""
    for connection in legacy(history):
        hello = connection.hello
        assert hello is not None
        answered = connection.position(hello.answers[0])
        for asked in connection.requests:
            # Messages that arrive before the answer leaves can't have waited for it, whatever crosses on the way.
            if connection.position(hello.event) < connection.position(asked.event) < answered:
                yield judged(
                    asked.method == "ping", asked.event, f"{asked.method} was sent before initialize was answered"
                )
        yield Verdict(hello.event)


@stated_rule()
def initialized_sent(history: History) -> Iterator[Verdict]:
    """Judge the first message after the result, if the client goes on in a version that both know."""
    for connection in legacy(history):
        hello = connection.hello
        assert hello is not None
        # Here the client should leave instead, which `version_mismatch_disconnects` judges.
        if connection.revision not in SPEAKABLE:
            continue
        for event, message in after(connection, hello.answers[0]):
            # Pings are allowed, and a response is owed as soon as the server asks.
            if (is_request(message) and message["method"] == "ping") or is_response(message):
                continue
            kept = isinstance(message, dict) and message.get("method") == "notifications/initialized"
            # Over HTTP what was sent later may arrive first; but not what is sent after the response.
            if not kept and not is_ordered(connection):
                told = next(connection.notifications("client", "notifications/initialized"), None)
                asked = next((each for each in connection.requests if each.event is event), None)
                ends = [connection.position(each) for each in asked.answers[:1]] if asked is not None else []
                kept = told is not None and connection.position(told) < min(ends, default=len(connection.events))
            yield judged(kept, event, "this was sent before notifications/initialized")
            break


@stated_rule(sentence="A client leaves if the server answers initialize with a version that the client does not speak.")
def version_mismatch_disconnects(history: History) -> Iterator[Verdict]:
    """Judge what follows a version that does not exist."""
    for connection in legacy(history):
        hello = connection.hello
        assert hello is not None
        if connection.revision in SPEAKABLE:
            continue
        # Only requests show that it goes on: a cancellation or a notification may be part of leaving.
        went_on = next((event for event, message in after(connection, hello.answers[0]) if is_request(message)), None)
        yield judged(went_on is None, went_on or hello.answers[0], f"it goes on in {connection.revision!r}")


@stated_rule(who="client", since="2025-06-18", sentence="A client uses only what the server has declared.")
def client_capabilities_respected(history: History) -> Iterator[Verdict]:
    """Judge the requests that need a capability of the server, once the client knows which it has."""
    for connection in history:
        known = next(
            (a for a in connection.requests if a.method in ("initialize", "server/discover") and a.result), None
        )
        if known is None or connection.revision not in SPEAKABLE:
            continue
        for asked in connection.requests:
            spec = method_spec(connection.revision, asked.method)
            needs = spec.server_capability if spec is not None else None
            # A message that crossed the answer was sent in good faith.
            if needs is not None and connection.position(asked.event) > connection.position(known.answers[0]):
                declared: Any = connection.server_capabilities
                for name in needs.split("."):
                    declared = declared.get(name) if isinstance(declared, dict) else None
                yield judged(bool(declared) or declared == {}, asked.event, f"the server did not declare {needs}")
