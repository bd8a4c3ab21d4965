"""Moves that try whether a protected server checks tokens: with none, with wrong ones, and with those of two users."""

from __future__ import annotations

from typing import Any, Final

import attrs
from hypothesis import strategies as st

from trio_mcp.conformance.answers import capabilities_of
from trio_mcp.conformance.credentials import UNAUTHORIZED, WELL_KNOWN
from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.messages import alive
from trio_mcp.conformance.plans.moves.model import Move, move
from trio_mcp.conformance.plans.moves.odd_calls import calls
from trio_mcp.conformance.rules.extension_tasks import EXTENSION
from trio_mcp.conformance.run import CLIENT_INFO
from trio_mcp.conformance.steps import (
    Ask,
    AwaitResponses,
    Break,
    Continue,
    Headers,
    Http,
    OnTask,
    Open,
    Pause,
    Plan,
    Resume,
)
from trio_mcp.http.headers import LAST_EVENT_ID, SESSION_ID
from trio_mcp.types import meta
from trio_mcp.types.versions import LATEST_MODERN, MODERN_REVISIONS, REVISIONS

__all__ = ["greeting"]

Plans = st.SearchStrategy[Plan]

# 2025-06-18 is the first revision in which a server is a resource server, with metadata (changelog).
PROTECTED: Final = tuple(each for each in REVISIONS if each >= "2025-06-18")
SESSIONS: Final = tuple(each for each in PROTECTED if each not in MODERN_REVISIONS)
TASKS: Final = ("2025-11-25",)

HTTP: Final = ("transport:http",)
NO_TOKEN: Final[Headers] = {"Authorization": None}
AUTHORIZATION: Final = "Authorization"
HOLD: Final = 0.2
"""Seconds for which a response that may have no end is read (arbitrary); it limits how long an example takes."""

MOST_TOOLS: Final = 20
"""How many tools are called with a token that has no scopes (arbitrary)."""

_AWAIT: Final = AwaitResponses()
# Only these moves declare the extension; see `extension_tasks`.
_DECLARED: Final[dict[str, Any]] = {
    meta.CLIENT_CAPABILITIES: {**capabilities_of(LATEST_MODERN), "extensions": {EXTENSION: {}}}
}


def _of(name: str) -> dict[str, str | None]:
    """Return the headers of a request with a token other than the usual one."""
    return {AUTHORIZATION: f"Bearer {{token {name}}}"}


def _hello(facts: Facts, headers: Headers) -> Ask:
    """Return the handshake of another session."""
    params = {
        "protocolVersion": facts.revision,
        "capabilities": capabilities_of(facts.revision),
        "clientInfo": CLIENT_INFO,
    }
    return Ask("initialize", params, headers={**headers, SESSION_ID: None})


def greeting(facts: Facts, name: str) -> Ask:
    """Return a request that a server serves to each of its users, with the token of this name."""
    return alive(facts, headers=_of(name)) if facts.modern else _hello(facts, _of(name))


def _asks(facts: Facts, headers: Headers) -> st.SearchStrategy[Ask]:
    """Return a strategy for requests that a server serves to a user only."""
    found = [st.just(alive(facts, headers=headers))]
    if not facts.modern:
        found.append(st.just(_hello(facts, headers)))
    lists = [f"{kind}/list" for kind in ("tools", "prompts", "resources") if facts.declares(kind)]
    if lists:
        found.append(st.sampled_from(lists).map(lambda method: Ask(method, headers=headers)))
    if facts.callable_tools:
        found.append(calls(facts).map(lambda ask: Ask(ask.method, ask.params, headers=headers)))
    return st.one_of(found)


# --- tokens that must be refused --------------------------------------------------------------------------------------


@move(revisions=PROTECTED, needs=(*HTTP, "token:a"), weight=1)
def without_token(facts: Facts) -> Plans:
    """Send a request without a token; in the legacy era, a handshake as well."""
    asked: Plans = _asks(facts, NO_TOKEN).map(lambda ask: (ask,))
    if facts.modern:
        return asked
    asked |= st.just((Http("GET", NO_TOKEN, hold=HOLD),))
    return asked.map(lambda plan: (_hello(facts, NO_TOKEN), *plan))


def _with(name: str) -> Move:
    """Return the move that sends a request with a token that no server must accept."""
    return Move(
        f"{name}-token",
        lambda facts: _asks(facts, _of(name)).map(lambda ask: (ask,)),
        PROTECTED,
        (*HTTP, f"token:{name}"),
        1,
    )


random_token = _with("random")
unsigned_token = _with("unsigned")
forged_token = _with("forged")
expired_token = _with("expired")
early_token = _with("early")
elsewhere_token = _with("elsewhere")
stranger_token = _with("stranger")
capital_token = _with("capital")


@move(revisions=PROTECTED, needs=(*HTTP, "token:a"), weight=1)
def query_token(facts: Facts) -> Plans:
    """Send a valid token in the URL, where it must not be."""
    headers = {**NO_TOKEN, ":path": "{endpoint?}access_token={token a}"}
    return _asks(facts, headers).map(lambda ask: (ask,))


@move(revisions=PROTECTED, needs=(*HTTP, "token:a"), weight=1)
def malformed_credentials(facts: Facts) -> Plans:
    """Send an ``Authorization`` header that contains no token."""
    # None begins with a valid token: a server may read that and leave the rest.
    values = st.sampled_from(["Bearer", "Bearer not a-token", "Bearer ,;!", "Bearer=", "bearer: x y"])
    return values.flatmap(lambda value: _asks(facts, {AUTHORIZATION: value})).map(lambda ask: (ask,))


# --- metadata ---------------------------------------------------------------------------------------------------------


@move(revisions=PROTECTED, needs=(*HTTP, "token:a"), weight=1)
def read_metadata(facts: Facts) -> Plans:
    """Send a request without a token, and then look for the server's metadata as clients do."""
    paths = ("{metadata}", f"{WELL_KNOWN}{{endpoint}}", WELL_KNOWN)
    reads = tuple(Http("GET", UNAUTHORIZED, path=path) for path in paths)
    return _asks(facts, NO_TOKEN).map(lambda ask: (ask, _AWAIT, *reads))


# --- scopes -----------------------------------------------------------------------------------------------------------


@move(revisions=PROTECTED, needs=(*HTTP, "token:narrow"), weight=2)
def narrow_token(facts: Facts) -> Plans:
    """Send a request with a token that has no scopes, and once more with one that has those that are asked for."""

    def twice(ask: Ask) -> Plan:
        return (ask, _AWAIT, Ask(ask.method, ask.params, headers={**ask.headers, **_of("stepped")}))

    every = _asks(facts, _of("narrow"))
    tools = [
        calls_of.map(lambda ask: Ask(ask.method, ask.params, headers=_of("narrow")))
        for calls_of in (
            calls(attrs.evolve(facts, callable_tools=(name,))) for name in facts.callable_tools[:MOST_TOOLS]
        )
    ]
    return st.one_of(every, *tools).map(twice)


# --- two users --------------------------------------------------------------------------------------------------------


@move(revisions=SESSIONS, needs=(*HTTP, "token:b"), weight=1)
def other_user(facts: Facts) -> Plans:
    """Send a request of one user in the session of another."""
    kept = _asks(facts, _of("b")).filter(lambda ask: SESSION_ID not in ask.headers)
    return kept.map(lambda ask: (ask,)) | st.just((Http("GET", _of("b"), hold=HOLD),))


@move(revisions=SESSIONS, needs=(*HTTP, "token:b"), weight=1, alone=True)
def other_user_ends(facts: Facts) -> Plans:
    """End the session of one user in the name of another."""
    return st.just((Open(), Http("DELETE", _of("b"), connection=-1), alive(facts, connection=-1)))


@move(revisions=SESSIONS, needs=(*HTTP, "token:b", "callable_tools"), weight=2)
def other_user_resumes(facts: Facts) -> Plans:
    """Break off the stream of one user, and resume it in the name of another; then let the first resume it."""
    after = Http("GET", {**_of("b"), LAST_EVENT_ID: "{event}"}, hold=HOLD)
    theirs = Http("GET", {**_of("b"), LAST_EVENT_ID: "{other event}"}, hold=HOLD, connection=1)
    # A stream that has ended can't be broken off: see `break_and_resume`.
    waits = st.sampled_from([0.0, 0.001, 0.02])

    def run(call: Ask, wait: float, own: bool) -> Plan:
        resumed: Plan = (Open(user="b"), theirs) if own else (after,)
        return (call, Pause(wait), Break("close", which=-1), *resumed, Resume(), _AWAIT)

    return st.builds(run, calls(facts, token=True), waits, st.booleans())


def _tasks(facts: Facts, call: st.SearchStrategy[Ask], methods: list[str], changes: dict[str, Any]) -> Plans:
    """Return a strategy for plans in which one user makes a task, and another asks about it."""

    def run(call: Ask, method: str, own: bool) -> Plan:
        # In a session of its own, the other user is refused only because of the task.
        headers = {**_of("b"), SESSION_ID: "{other session}"} if own else _of("b")
        asked = Ask(method, headers=headers) if method == "tasks/list" else OnTask(method, -1, changes, headers=headers)
        return (call, _AWAIT, *((Open(user="b"),) if own else ()), asked, _AWAIT)

    # Revisions of the modern era have no sessions.
    owns = st.just(False) if facts.modern else st.booleans()
    return st.builds(run, call, st.sampled_from(methods), owns)


@move(revisions=TASKS, needs=(*HTTP, "token:b", "callable_tools", "capability:tasks.requests.tools.call"), weight=3)
def other_user_tasks(facts: Facts) -> Plans:
    """Ask in the name of one user about the task of another."""
    methods = ["tasks/get", "tasks/result"]
    methods += [f"tasks/{name}" for name in ("list", "cancel") if facts.declares(f"tasks.{name}")]
    found = calls(facts).map(lambda ask: Ask(ask.method, {**(ask.params or {}), "task": {}}))
    return _tasks(facts, found, methods, {})


@move(revisions=MODERN_REVISIONS, needs=(*HTTP, "token:b", "callable_tools", f"extension:{EXTENSION}"), weight=3)
def other_user_ext_tasks(facts: Facts) -> Plans:
    """Ask in the name of one user about the task of another, by the tasks extension."""
    return _tasks(facts, calls(facts, meta=_DECLARED), ["tasks/get", "tasks/update", "tasks/cancel"], _DECLARED)


@move(revisions=MODERN_REVISIONS, needs=(*HTTP, "token:b", "callable_tools"), weight=2)
def other_user_continues(facts: Facts) -> Plans:
    """Answer in the name of one user what the server has asked another."""
    return calls(facts).map(lambda ask: (ask, _AWAIT, Continue(-1, headers=_of("b")), _AWAIT))
