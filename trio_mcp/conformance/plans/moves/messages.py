"""Moves that send messages a server may not expect: unknown methods, stray responses, batches."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.model import move
from trio_mcp.conformance.rules.messages import NO_SUCH
from trio_mcp.conformance.steps import Ask, AwaitResponses, Break, Open, Plan, Tell, Write
from trio_mcp.types.versions import LEGACY_REVISIONS, REVISIONS

__all__ = ["alive", "text_of"]

_NAMES = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
_PARAMS = st.sampled_from([None, {}, {"name": "x"}, {"cursor": "x", "deep": {"er": [1, None, "é"]}}])


def alive(facts: Facts, connection: int = 0, **more: Any) -> Ask:
    """Return a request that every server must respond to."""
    return Ask("server/discover" if facts.modern else "ping", connection=connection, **more)


def text_of(facts: Facts, message: Any) -> bytes:
    """Return a message as text for a `Write` step, with the ``_meta`` that the era requires."""
    if facts.modern and isinstance(message, dict) and isinstance(message.get("params", {}), dict):
        message = message | {"params": {**message.get("params", {}), "_meta": "$meta"}}
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


@move()
def unknown_method(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send a request with a method that does not exist."""
    return st.builds(lambda name, params: (Ask(f"{NO_SUCH}{name}", params),), _NAMES, _PARAMS)


@move(weight=1)
def method_of_clients(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send a request that only servers may send."""
    methods = st.sampled_from(["sampling/createMessage", "roots/list", "elicitation/create"])
    return st.builds(lambda method: (Ask(method, {}),), methods)


@move()
def unknown_notification(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send a notification with a method that does not exist."""
    names = st.builds(lambda prefix, name: prefix + name, st.sampled_from(["notifications/", NO_SUCH]), _NAMES)
    return st.builds(lambda name, params: (Tell(name, params), alive(facts)), names, _PARAMS)


@move(weight=1)
def stray_response(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send a response to a request that was never made."""
    bodies = st.sampled_from([{"result": {}}, {"error": {"code": -1, "message": "no"}}])
    ids = st.sampled_from(["never asked", 10**9])

    def respond(body: dict[str, Any], request_id: Any) -> Plan:
        message = {"jsonrpc": "2.0", "id": request_id, **body}
        return (Write((text_of(facts, message),), fault="a response to nothing"), alive(facts))

    return st.builds(respond, bodies, ids)


@move(weight=1)
def duplicate_id(facts: Facts) -> st.SearchStrategy[Plan]:
    """Use the same id for two requests that are open at the same time, which no client may do."""
    text = text_of(facts, {"jsonrpc": "2.0", "id": "$id", "method": alive(facts).method})
    return st.just((Write((text, text), fault="an id that is used twice"), alive(facts)))


@move(revisions=["2025-03-26"], weight=2)
def batch(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send one or more messages as a batch."""
    ping: dict[str, Any] = {"jsonrpc": "2.0", "id": "$id", "method": "ping"}
    # There is a batch for each kind of list that the server declares, so that a failing example shows which list is at
    # fault.
    lists = [
        {"jsonrpc": "2.0", "id": "$id2", "method": f"{kind}/list"} for kind in facts.capabilities if kind in _KINDS
    ]
    notice = {"jsonrpc": "2.0", "method": "notifications/no-such"}
    batches = [[ping], [ping, notice], [notice], *[[ping, each] for each in lists], *[[each, notice] for each in lists]]
    return st.builds(lambda which: (Write((text_of(facts, which),)),), st.sampled_from(batches))


_KINDS = ("tools", "prompts", "resources")


@move(revisions=[revision for revision in REVISIONS if revision != "2025-03-26"], weight=1)
def batch_unexpected(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send a batch in a revision that does not allow batches."""
    text = b"[" + text_of(facts, {"jsonrpc": "2.0", "id": "$id", "method": alive(facts).method}) + b"]"
    return st.just((Write((text,), fault="a batch"), alive(facts)))


@move(weight=1)
def another_connection(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send requests on two connections at the same time."""
    method = next((f"{kind}/list" for kind in _KINDS if facts.declares(kind)), None)
    asks = [alive(facts, 0), alive(facts, -1)]
    if method is not None:
        asks += [Ask(method, connection=0), Ask(method, connection=-1)]
    return st.permutations(asks).map(lambda order: (Open(), *order, AwaitResponses()))


@move(weight=1, alone=True)
def disconnect(facts: Facts) -> st.SearchStrategy[Plan]:
    """Break a connection on which a request is open; a new connection must still work."""
    methods = [f"{kind}/list" for kind in _KINDS if facts.declares(kind)]
    asked = st.sampled_from([alive(facts, -1), *[Ask(method, connection=-1) for method in methods]])
    hows = st.sampled_from(["close", "reset"])
    return st.builds(
        lambda step, how: (Open(), step, Break(how, connection=-1), Open(), alive(facts, -1), AwaitResponses()),
        asked,
        hows,
    )


@move(weight=1)
def open_in_revision(facts: Facts) -> st.SearchStrategy[Plan]:
    """Open another connection with the handshake of the legacy era, in a revision that may not exist."""
    # One version comes before all revisions and one after all: a server that compares strings instead of looking the
    # revision up accepts one of them.
    revisions = st.sampled_from([*LEGACY_REVISIONS, "1900-01-01", "1900-01-01", "2999-12-31"])
    return st.lists(revisions, min_size=1, max_size=2).map(lambda found: tuple(Open(each) for each in found))


@move(revisions=LEGACY_REVISIONS, weight=1)
def roots_changed(facts: Facts) -> st.SearchStrategy[Plan]:
    """Tell the server that the client's roots have changed."""
    return st.just((Tell("notifications/roots/list_changed"), alive(facts)))
