"""A world for flows, in a table: which URL gives what. All else that a flow asks for is a 404."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

from trio_mcp.auth.rules.steps import Fetch, Fetched, Flow, SignIn
from trio_mcp.http.headers import Headers

ResultT = TypeVar("ResultT")

HTML = "text/html; charset=utf-8"


def answer(body: Any, status: int = 200, kind: str = "application/json") -> Fetched:
    """Return a response; a body that is not text is sent as JSON."""
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Fetched(status, Headers([("Content-Type", kind)]), raw)


@attrs.define
class World:
    """Responses by URL, and what was done.

    Attributes:
        pages: For each URL a `Fetched`, or a JSON object to answer with.
        person: What a person's browser comes back with.
        fetched: The URLs that were fetched.
        fields: The header fields sent with the last request.
        requests: The requests with a body, decoded.
        asked: What was asked of a person.
    """

    pages: Mapping[str, Any] = attrs.field(factory=dict)
    person: Callable[[SignIn], Mapping[str, str]] | None = None
    fetched: list[str] = attrs.field(factory=list, init=False)
    fields: Mapping[str, str] = attrs.field(factory=dict, init=False)
    requests: list[Any] = attrs.field(factory=list, init=False)
    asked: list[SignIn] = attrs.field(factory=list, init=False)

    def play(self, flow: Flow[ResultT]) -> ResultT:
        """Run a flow to its end."""
        outcome: Any = None
        while True:
            try:
                step = flow.send(outcome)
            except StopIteration as end:
                result: ResultT = end.value
                return result
            outcome = self._outcome(step)

    def _outcome(self, step: Any) -> Any:
        if isinstance(step, SignIn):
            assert self.person is not None
            self.asked.append(step)
            return self.person(step)
        assert isinstance(step, Fetch)
        self.fetched.append(step.url)
        self.fields = step.fields
        if step.method == "POST":
            self.requests.append(json.loads(step.body))
        page = self.pages.get(step.url, answer("not found", 404, HTML))
        return page if isinstance(page, Fetched) else answer(page)
