"""The script of a generated server: its lists, and how it responds to each request of the client in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from trio_mcp.conformance.serving.protection import ProtectionScript, protections
from trio_mcp.types.versions import LATEST_LEGACY, LEGACY_REVISIONS

__all__ = ["BASE", "EVERY_TURN", "LEGACY_TURNS", "MODERN_TURNS", "Script", "protected_scripts", "scripts"]

EVERY_TURN: Final = {
    "plain": "the result, at once",
    "progress": "progress notifications, if the client asked for them, then the result",
    "late": "the result, after that of the next request or a short wait",
    "error": "an internal error",
    "log": "a log message, then the result",
    "extra": "a result with members that no revision has",
    "noise": "a notification that no revision has, then the result",
    "stray": "a response to a request that was never sent, then the result",
    "again": "the result, twice",
    "malformed": "an object without a method, then the result",
}
"""The ways of responding to a request, in both eras."""

LEGACY_TURNS: Final = {
    "ping": "a ping from the server, then the result",
    "unknown": "a request from the server that no revision has, then the result",
    "ask": "a question of each kind that the client has declared, then the result",
    "undeclared": "a question of each kind that the client has not declared, then the result",
    "withdrawn": "a question that is cancelled at once, then the result",
    "changed": "a notice that a list has changed, then the result",
    "gone": "over HTTP: status 404, as if the session had ended",
    "cut": "over HTTP: an event with an id, then the end of the stream; the result follows when the client resumes it",
}
"""Further ways of responding to a request in the legacy era."""

MODERN_TURNS: Final = {
    "input": "a result that asks for input of each kind that the client has declared; the retry gets the result",
    "state": "a result that only has a state for the retry",
    "undeclared": "a result that asks for input of each kind that the client has not declared",
    "untyped": "a result without a resultType, as older servers send",
    "task": "a task in place of a tool's result, if the client declares the extension; so do all plain calls then",
    "misplaced": "a task in place of a result that can't become one, if the client declares the extension",
}
"""Further ways of responding to a request in the modern era."""

OBJECT: Final[dict[str, Any]] = {"type": "object", "properties": {}}
# A dot is allowed in a name, but model providers refuse it, and allow no more than 64 characters. A client that renames
# tools must still call them by the names that the server gave.
NAMES: Final = ("add", "echo", "look.up", "A-1_b", "x" * 64, "get_weather")
SCHEMAS: Final[tuple[dict[str, Any], ...]] = (
    OBJECT,
    # In the modern era a client over HTTP repeats these arguments as headers.
    {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "x-mcp-header": "A"},
            "text": {"type": "string", "x-mcp-header": "Text"},
            "on": {"type": "boolean", "x-mcp-header": "On"},
        },
    },
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
    {"type": "object", "properties": {"text": {"type": "string", "maxLength": 20}}, "required": ["text"]},
    {
        "type": "object",
        "properties": {
            "where": {"enum": ["here", "there"]},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            "deep": {"type": "object", "properties": {"on": {"type": "boolean"}}},
        },
        "required": ["where"],
    },
)
BASE: Final = "https://base.invalid"
"""A placeholder for the server's URL, until the URL is known."""
# A client must not automatically load the schema that this one refers to.
REMOTE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"$ref": f"{BASE}/schema.json"}},
}
# A client over HTTP must not call this tool, as its header annotation is invalid.
UNCALLABLE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "integer", "x-mcp-header": "A"}}},
}
URIS: Final = ("file:///a.txt", "https://example.com/b?c=d#e", "x-y:z", "file:///with%20space")
# This is a tuple, because the order of strings in a set differs between processes, and the same seed must give the same
# scripts in every process.
DECLARABLE: Final = ("tools", "resources", "prompts", "logging", "completions")


@attrs.frozen
class Script:
    """The script of a generated server: what the server declares and lists, and how it responds.

    Attributes:
        revision: The revision that the server speaks.
        answers: The revision in its response to ``initialize``: the script's own, or one that does not exist.
        declared: The capabilities that the server declares.
        tools: Its tools, as they are listed.
        resources: Its resources.
        prompts: Its prompts.
        pages: How many items a page of a list has.
        blank: Whether the second page of the list of tools has an empty cursor.
        turns: How it responds to the requests after the opening, one by one; all further requests get a plain response.
        streams: Whether its responses over HTTP are always streams, and not JSON where a single message is enough.
        has_session: Whether it assigns a session id over HTTP, in the legacy era.
        listens: Whether it offers a stream for its own messages over HTTP, in the legacy era.
        protection: How it makes clients sign in; None if it lets everyone in.
    """

    revision: str
    answers: str
    declared: tuple[str, ...] = DECLARABLE
    tools: tuple[Mapping[str, Any], ...] = ()
    resources: tuple[Mapping[str, Any], ...] = ()
    prompts: tuple[Mapping[str, Any], ...] = ()
    pages: int = 10
    blank: bool = False
    turns: tuple[str, ...] = ()
    streams: bool = True
    has_session: bool = True
    listens: bool = True
    protection: ProtectionScript | None = None

    @property
    def modern(self) -> bool:
        """Whether the server speaks a revision of the modern era."""
        return self.revision not in LEGACY_REVISIONS

    @property
    def has_tasks(self) -> bool:
        """Whether the server declares the tasks extension, which it does if a turn makes a task."""
        return self.modern and bool({"task", "misplaced"} & set(self.turns))

    def simpler(self) -> list[Script]:
        """Return scripts that are simpler in one way each, the greatest simplification first."""
        found = [attrs.evolve(self, turns=self.turns[:at] + self.turns[at + 1 :]) for at in range(len(self.turns))]
        # Halves are tried first, because most turns have nothing to do with a fault, and each attempt runs the client
        # once.
        if len(self.turns) > 2:
            half = len(self.turns) // 2
            found = [attrs.evolve(self, turns=self.turns[:half]), attrs.evolve(self, turns=self.turns[half:]), *found]
        # Leaving out a turn would move the later turns to other requests, which may hide the fault; a plain turn in its
        # place does not move them.
        found += [
            attrs.evolve(self, turns=(*self.turns[:at], "plain", *self.turns[at + 1 :]))
            for at, turn in enumerate(self.turns)
            if turn != "plain"
        ]
        for field in ("tools", "resources", "prompts"):
            items = getattr(self, field)
            if len(items) > 1:
                found.append(attrs.evolve(self, **{field: items[:1]}))
        plain: dict[str, Any] = {
            # No list of a script has more than ten items, so all its items fit on one page.
            "pages": 10,
            "blank": False,
            "streams": False,
            "has_session": False,
            "listens": False,
            "answers": self.revision,
        }
        found += [attrs.evolve(self, **{name: value}) for name, value in plain.items() if getattr(self, name) != value]
        if self.protection is not None:
            found = [attrs.evolve(self, protection=each) for each in self.protection.simpler()] + found
        return found


def _tools(revision: str) -> st.SearchStrategy[tuple[dict[str, Any], ...]]:
    def make(names: list[str], schemas: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        return tuple(
            {
                "name": name,
                "description": f"The tool {name}.",
                "inputSchema": schema,
                **({"outputSchema": schema} if schema is REMOTE else {}),
                # The server declares no tasks, so the client must call the tool without one, whatever `taskSupport`
                # says.
                **({"execution": {"taskSupport": "required"}} if schema is OBJECT and revision == "2025-11-25" else {}),
            }
            for name, schema in zip(names, schemas, strict=False)
        )

    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)
    schemas = SCHEMAS if revision in LEGACY_REVISIONS else (*SCHEMAS, UNCALLABLE, REMOTE)
    return st.builds(make, names, st.lists(st.sampled_from(schemas), min_size=5, max_size=5))


@st.composite
def scripts(draw: st.DrawFn, revision: str = LATEST_LEGACY, max_turns: int = 8) -> Script:
    """Generate scripts of servers that speak a revision."""
    legacy = revision in LEGACY_REVISIONS
    # TakenValue together, the turns that only this era has are as likely as the turns that both eras have.
    own = sorted(LEGACY_TURNS if legacy else MODERN_TURNS)
    turns = st.sampled_from(sorted(EVERY_TURN)) | st.sampled_from(own)
    uris = draw(st.lists(st.sampled_from(URIS), max_size=3, unique=True))
    prompts = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    known = [name for name in DECLARABLE if name != "completions" or revision >= "2025-03-26"]
    # Most scripts declare everything: an undeclared capability gives the client nothing to do.
    declared = known if draw(st.integers(0, 3)) else draw(st.lists(st.sampled_from(known), unique=True))
    return Script(
        revision,
        # One legacy script in twelve names a version that does not exist: a client should then leave
        # (basic/lifecycle#version-negotiation), so the example tests nothing else.
        "1999-12-31" if legacy and draw(st.integers(0, 11)) == 7 else revision,
        tuple(sorted(declared)),
        draw(_tools(revision)),
        tuple({"uri": uri, "name": f"resource {at}", "mimeType": "text/plain"} for at, uri in enumerate(uris)),
        tuple({"name": name, "arguments": [{"name": "who", "required": True}]} for name in prompts),
        draw(st.sampled_from([10, 1, 2])),
        draw(st.integers(0, 3)) == 3,
        tuple(draw(st.lists(turns, max_size=max_turns))),
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def protected_scripts(seed: int, revision: str = LATEST_LEGACY) -> Iterator[Script]:
    """Yield an endless series of scripts of servers that make clients sign in, and are otherwise plain."""
    declared = ("tools",)
    tools = ({"name": "add", "description": "The tool add.", "inputSchema": OBJECT},)
    for protection in protections(seed, revision):
        yield Script(
            revision, revision, declared, tools, streams=False, has_session=False, listens=False, protection=protection
        )
