"""Flows, driven by hand: each step that is sent something gets the next answer of a list."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from trio_mcp.auth.rules.login import ClientRecord
from trio_mcp.auth.rules.steps import Fetch, Fetched, Flow, Step
from trio_mcp.auth.rules.token_requests import TokenEndpoint
from trio_mcp.http.headers import Headers

ResultT = TypeVar("ResultT")

NOW = 1_800_000_000.0
ISSUER = "https://id.example.com"
AT = TokenEndpoint(ISSUER, f"{ISSUER}/token", ClientRecord("me", "given"), clock=lambda: NOW)
GRANTED = {"access_token": "token-1", "token_type": "Bearer"}


def answer(body: object = GRANTED, status: int = 200, **fields: str) -> Fetched:
    """Return a response: an object as JSON, bytes as they are; underscores in the names of fields are hyphens."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in fields.items()}
    return Fetched(status, Headers(headers.items()), raw)


def error(code: str, status: int = 400, **more: Any) -> Fetched:
    """Return a refusal of OAuth."""
    return answer({"error": code} | more, status)


def drive(flow: Flow[ResultT], *answers: object) -> tuple[ResultT, list[Step]]:
    """Run a flow to its end, and return its result and its steps; an exception among the answers is raised into it."""
    steps: list[Step] = []
    given = iter(answers)
    try:
        step = next(flow)
        while True:
            steps.append(step)
            sent = next(given)
            step = flow.throw(sent) if isinstance(sent, BaseException) else flow.send(sent)
    except StopIteration as stop:
        assert next(given, None) is None, "the flow ended before the answers did"
        return stop.value, steps


def form(step: Step) -> Mapping[str, str]:
    """Return the form that a step posts."""
    assert isinstance(step, Fetch)
    assert step.method == "POST"
    pairs = parse_qsl(step.body.decode(), keep_blank_values=True, strict_parsing=True) if step.body else []
    assert len(dict(pairs)) == len(pairs), "a parameter twice"
    return dict(pairs)
