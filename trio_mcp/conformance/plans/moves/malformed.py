"""Moves that send odd input: texts that are not JSON, JSON that is not a message, and parameters that are not valid."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.messages import alive, text_of
from trio_mcp.conformance.plans.moves.model import move, one_of
from trio_mcp.conformance.steps import Ask, Plan, Write
from trio_mcp.testing.strategies import hostile_messages, json_values

__all__: list[str] = []

TEXTS: Final = (
    b"{",
    b"}",
    b"nonsense",
    b'{"jsonrpc":"2.0","id":"$id","method":"ping"',
    b"{'jsonrpc': '2.0'}",
    b'{"jsonrpc":"2.0",}',
    b"[1,",
    b'"\\ud800',
    b"\xff\xfe{}",
    b"\x00",
    b"NaN",
    b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
    b"Content-Length: 2",
    b"[" * 2000,
)
"""Texts that are not JSON."""


@move()
def malformed_text(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send texts that are not JSON."""
    return st.builds(lambda text: (Write((text,), fault="no JSON"), alive(facts)), st.sampled_from(TEXTS))


_VALID: Final[dict[str, Any]] = {"jsonrpc": "2.0", "id": "$id", "method": "ping"}

ENVELOPES: Final[tuple[Any, ...]] = (
    {**_VALID, "jsonrpc": "1.0"},
    {**_VALID, "jsonrpc": 2},
    {key: value for key, value in _VALID.items() if key != "jsonrpc"},
    {key: value for key, value in _VALID.items() if key != "method"},
    {**_VALID, "method": None},
    {**_VALID, "method": 7},
    {**_VALID, "method": ["ping"]},
    {**_VALID, "id": None},
    {**_VALID, "id": 1.5},
    {**_VALID, "id": True},
    {**_VALID, "id": []},
    {**_VALID, "id": {"a": 1}},
    {**_VALID, "params": [1, 2]},
    {**_VALID, "params": 5},
    {**_VALID, "params": None},
    {**_VALID, "result": {}},
    {"jsonrpc": "2.0", "method": "notifications/initialized", "params": 3},
    {"jsonrpc": "2.0", "id": "$id"},
    {"jsonrpc": "2.0"},
)
"""JSON objects that are not valid messages."""


@move()
def malformed_message(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send JSON that is not a message."""
    known = st.sampled_from([text_of(facts, each) for each in ENVELOPES])
    # Arrays are left out, since they may be batches.
    values = json_values().filter(lambda value: not isinstance(value, list))
    others = values.map(lambda value: json.dumps(value, separators=(",", ":")).encode())
    # The known messages are drawn twice as often, because random values are seldom even objects, and servers refuse
    # them at once.
    return st.builds(lambda text: (Write((text,), fault="no message"), alive(facts)), st.one_of(known, known, others))


UNUSUAL: Final = ("escaped", "large", "nested", "spaces")
"""The "faults" that make ``hostile_messages`` produce unusual but valid requests."""


@move(weight=1)
def unusual_request(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send requests that are valid, but nested deeply, large, or written in an unusual way."""
    # The id is filled in when the step runs, because an id that was drawn now could collide with an id in another plan.
    texts = hostile_messages(facts.revision, ids=st.just("$id"), faults=UNUSUAL)
    return texts.map(lambda found: (Write((found.text,), fault=found.fault), alive(facts)))


_PARAMS: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "tools/call": ({}, {"name": None}, {"name": 5}, {"name": "x", "arguments": []}, {"arguments": {}}),
    "prompts/get": ({}, {"name": []}, {"name": "x", "arguments": {"a": 5}}),
    "resources/read": ({}, {"uri": None}, {"uri": 5}),
    "tools/list": ({"cursor": 5}, {"cursor": {}}),
    "completion/complete": ({}, {"ref": {}}, {"ref": {"type": "ref/none"}, "argument": {"name": "a", "value": ""}}),
}


@move()
def malformed_params(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send a request with parameters that its method does not allow."""
    known = {"tools": ("tools/call", "tools/list"), "prompts": ("prompts/get",), "resources": ("resources/read",)}
    known["completions"] = ("completion/complete",)
    # Only methods that the server declares are used: the refusal of any other would be right for a reason that has
    # nothing to do with the parameters.
    methods = [method for kind, found in known.items() if facts.declares(kind) for method in found]
    choices = [(method, params) for method in methods for params in _PARAMS[method]]
    return one_of(choices).map(lambda choice: (Ask(*choice),))
