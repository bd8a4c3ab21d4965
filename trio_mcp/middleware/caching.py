"""`Caching`: a middleware that responds to a repeated request with the earlier result."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import attrs
import trio
from pydantic_core import from_json, to_json

from trio_mcp._checks import check_count, check_seconds, check_text, validator
from trio_mcp.middleware.logging import outcome_of
from trio_mcp.server.context import Context

__all__ = ["Caching"]

# For each cacheable method, the parameter that names the tool, prompt or resource.
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def _checked_names(given: Iterable[str]) -> frozenset[str]:
    if isinstance(given, str):  # a string is an iterable of strings, too
        raise TypeError(f"names must be a set of strings; write {{{given!r}}}")
    names = frozenset(given)
    for name in names:
        check_text("a name", name)
    return names


@attrs.define(eq=False)
class Caching:
    """Responds to a tool call, a read or a prompt with the result that the same request got earlier.

    Two requests count as the same if they have the same principal (with the same scopes), revision, method and
    parameters (apart from ``_meta``). So name only tools, prompts and URIs whose results depend on nothing else: not on
    a session, headers, claims, the client's capabilities or the user's answers. A cached result is not checked against
    ``visible=`` again, and the result of a disabled tool is still used until it expires.

    Errors and questions to the user are never cached.

    Attributes:
        names: The names of tools and prompts, and the URIs, whose results may be cached. Include only tools that change
            nothing: those that you would annotate with ``read_only_hint``.
        ttl: How many seconds a result may be used.
        max_entries: The maximum number of results that are kept.
        max_bytes: The maximum number of bytes of results that are kept. Beyond either limit, the least recently used
            results are dropped.
    """

    names: frozenset[str] = attrs.field(converter=_checked_names)
    ttl: float = attrs.field(default=60.0, kw_only=True, validator=validator(check_seconds))
    max_entries: int = attrs.field(default=1000, kw_only=True, validator=validator(check_count))
    max_bytes: int = attrs.field(default=10_000_000, kw_only=True, validator=validator(check_count))
    # Results are kept as text, because a middleware outside this one may change the dict that it gets.
    _kept: OrderedDict[bytes, tuple[float, bytes]] = attrs.field(factory=OrderedDict, init=False)
    _bytes: int = attrs.field(default=0, init=False)

    async def __call__(
        self, context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        key = self._key(context)
        if key is None:
            return await call_next()
        expires, text = self._kept.get(key, (0.0, b""))
        # The second comparison is needed because an entry may come from an earlier run of Trio, whose clock may be far
        # ahead of the current clock.
        if 0 < expires - trio.current_time() <= self.ttl:
            self._kept.move_to_end(key)
            await trio.lowlevel.checkpoint()
            found: dict[str, Any] = from_json(text)
            return found
        result = await call_next()
        if outcome_of(result) == "ok":
            self._keep(key, to_json(result))
        return result

    def clear(self) -> None:
        """Forget all results."""
        self._kept.clear()
        self._bytes = 0

    def _key(self, context: Context[Any]) -> bytes | None:
        params = {name: value for name, value in context.params.items() if name != "_meta"}
        named_by = _NAMED_BY.get(context.method)
        named = None if named_by is None else params.get(named_by)
        # The type is tested because nothing has validated the parameters yet: the value may be a list, for example.
        if type(named) is not str or named not in self.names:
            return None
        whose = None if context.principal is None else [context.principal.identity, sorted(context.principal.scopes)]
        # The key is a digest because parameters may be long.
        return hashlib.sha256(to_json([whose, context.protocol_version, context.method, params])).digest()

    def _keep(self, key: bytes, text: bytes) -> None:
        self._bytes -= len(self._kept.pop(key, (0.0, b""))[1])
        if len(text) > self.max_bytes:
            return
        self._kept[key] = trio.current_time() + self.ttl, text
        self._bytes += len(text)
        while self._bytes > self.max_bytes or len(self._kept) > self.max_entries:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._bytes -= len(oldest)
