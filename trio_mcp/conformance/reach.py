"""Counts what became of the calls of a check: how often each tool, prompt, resource and schema keyword was reached."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from trio_mcp._secrets import mask_text
from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.keywords import Keywords
from trio_mcp.conformance.members import is_refused, member_of, object_of, objects_of
from trio_mcp.conformance.outcomes import Kind, Reached
from trio_mcp.conformance.run import Sent
from trio_mcp.schema.validator import SchemaError, SchemaValidator
from trio_mcp.uri_templates import UriTemplate

__all__ = ["ReachCounts"]

MOST_REASONS: Final = 20
"""How many different reasons for refusals are kept for each tool, prompt or resource (arbitrary)."""

MOST_KEYWORDS: Final = 5000
"""How many keywords of all tools together are counted (arbitrary): each is a row of a report."""

LONGEST: Final = 200
"""How many characters of a reason are kept (arbitrary)."""

# Quoted texts, and words with a digit, differ from call to call in messages that say the same.
_VARIES: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\S*[0-9]\S*")

_KINDS: Final[dict[str, Kind]] = {"tools/call": "tool", "prompts/get": "prompt", "resources/read": "resource"}
_Key: TypeAlias = tuple[Kind, str]


@attrs.define
class _Count:
    """Counts some calls by what became of them."""

    called: int = 0
    accepted: int = 0
    refused: int = 0
    broken: int = 0

    def add(self, sent: Sent) -> None:
        """Count a call."""
        self.called += 1
        if sent.answer is not None:
            is_no = is_refused(sent.answer)
            self.refused += is_no
            self.accepted += not is_no


@attrs.define
class _Item:
    """Something that can be called.

    Attributes:
        count: What became of its calls.
        keywords: The keywords of its schema, if it has one.
        counts: What became of the calls to which each keyword applied.
        reasons: How often each reason was given for a refusal, by what all messages with that reason have in common.
        examples: The first message with each reason.
    """

    count: _Count = attrs.Factory(_Count)
    keywords: Keywords | None = None
    counts: dict[str, _Count] = attrs.Factory(dict)
    reasons: Counter[str] = attrs.Factory(Counter)
    examples: dict[str, str] = attrs.Factory(dict)
    valid: SchemaValidator | None = None

    def refuse(self, sent: Sent) -> None:
        """Note why a call was refused."""
        said = _message(sent)
        common = _VARIES.sub("…", said)
        if common in self.examples or len(self.examples) < MOST_REASONS:
            self.examples.setdefault(common, said)
            self.reasons[common] += 1


class ReachCounts:
    """Counts the calls of a check. Everything that is kept is bounded, whatever the server sends."""

    def __init__(self) -> None:
        self._items: dict[_Key, _Item] = {}
        self._facts: list[Facts] = []
        self._templates: dict[str, UriTemplate] = {}
        self._left = MOST_KEYWORDS

    def meet(self, facts: Facts) -> None:
        """Add what a server offers."""
        self._facts.append(facts)
        for name, tool in facts.tools.items():
            if ("tool", name) not in self._items:
                schema = tool.get("inputSchema")
                # A schema of `true` has no keywords.
                keywords = Keywords(schema if self._left > 0 else True)
                self._left -= len(keywords.known)
                item = self._items["tool", name] = _Item(keywords=keywords)
                with contextlib.suppress(SchemaError):
                    item.valid = SchemaValidator(schema)
        others: dict[Kind, Mapping[str, Any]] = {
            "prompt": facts.prompts,
            "resource": facts.resources,
            "template": facts.templates,
        }
        for kind, found in others.items():
            for name in found:
                self._items.setdefault((kind, name), _Item())
        for text in facts.templates:
            with contextlib.suppress(TypeError, ValueError):
                self._templates.setdefault(text, UriTemplate(text))

    def take(self, requests: Iterable[Sent]) -> None:
        """Count the calls among the requests of an example."""
        last: tuple[Any, Any, dict[str, tuple[str, str]] | None, frozenset[str]] | None = None
        for sent in requests:
            # Nothing is learned from what the kit repeats, nor from a call whose headers may be to blame.
            if sent.step is None or sent.step.headers or (key := self._key(sent)) is None:
                continue
            item = self._items[key]
            params = object_of(sent.message.get("params"))
            arguments = params.get("arguments", {})
            # The kit repeats some calls hundreds of times, one after the other.
            if last is None or last[0] != key or last[1] != arguments:
                last = (key, arguments, *self._judged(key, item, arguments))
            applying, broken = last[2], last[3]
            for place in broken:
                item.counts.setdefault(place, _Count()).broken += 1
            if applying is None:
                continue
            item.count.add(sent)
            for place in applying:
                item.counts.setdefault(place, _Count()).add(sent)
            if sent.answer is not None and is_refused(sent.answer):
                item.refuse(sent)

    def _key(self, sent: Sent) -> _Key | None:
        kind = _KINDS.get(sent.method)
        params = object_of(sent.message.get("params"))
        name = params.get("uri" if kind == "resource" else "name")
        if kind is None or not isinstance(name, str):
            return None
        if (kind, name) in self._items:
            return kind, name
        for text, template in self._templates.items() if kind == "resource" else ():
            if template.match(name) is not None:
                return "template", text
        return None

    def _judged(
        self, key: _Key, item: _Item, arguments: Any
    ) -> tuple[dict[str, tuple[str, str]] | None, frozenset[str]]:
        """Return the keywords that apply to valid arguments, or None and the keywords that invalid ones break."""
        if key[0] == "prompt":
            listed = (objects_of(facts.prompts.get(key[1]), "arguments") for facts in self._facts)
            needed = [each.get("name") for found in listed for each in found if each.get("required") is True]
            is_valid = isinstance(arguments, dict) and all(
                each in arguments for each in needed if isinstance(each, str)
            )
            return ({} if is_valid else None), frozenset()
        if item.keywords is None:
            return {}, frozenset()
        applying = item.keywords.applying(arguments)
        if item.valid is None:
            return applying, frozenset()
        try:
            if item.valid.problem(arguments) is None:
                return applying, frozenset()
            found = set(item.valid.broken(arguments))
        except SchemaError:
            return None, frozenset()
        return None, frozenset(place for place, what in applying.items() if what in found)

    # --- the report ---------------------------------------------------------------------------------------------------

    def reached(self, slow: Iterable[tuple[str, str]]) -> Iterator[Reached]:
        """Yield what became of the calls of each item, followed by the keywords of its schema.

        Args:
            slow: The method and the name of what is not used again because it is slow.
        """
        late = {(_KINDS.get(method, "tool"), name) for method, name in slow}
        for (kind, name), item in self._items.items():
            count = item.count
            why = "" if count.accepted else self._why((kind, name), item, late)
            shown = mask_text(name)
            yield Reached(kind, shown, count.called, count.accepted, count.refused, why)
            for place in () if item.keywords is None else item.keywords.known:
                each = item.counts.get(place, _Count())
                reason = _why_not(each, count)
                yield Reached(
                    kind, shown, each.called, each.accepted, each.refused, reason, mask_text(place), each.broken
                )

    def _why(self, key: _Key, item: _Item, slow: set[tuple[Kind, str]]) -> str:
        kind, name = key
        count = item.count
        if not count.called:
            may = kind != "tool" or any(name in (*facts.callable_tools, *facts.slow_tools) for facts in self._facts)
            if not may:
                return "it may not be called, or no arguments can be made for it; the notes say which"
            return "it is too slow to be called again" if key in slow else "no call was made in this check"
        said = [
            f"{item.examples[common]!r}{_often(times) if times < count.refused else ''}"
            for common, times in item.reasons.most_common(2)
        ]
        calls = "the only call" if count.called == 1 else f"all {count.called} calls"
        if not count.refused:
            return f"{calls} had no answer"
        became = "was refused" if count.called == 1 else "were refused"
        if count.refused < count.called:
            calls = f"of {count.called} calls, {count.refused}"
            became = f"{'was' if count.refused == 1 else 'were'} refused, and the others had no answer"
        return f"{calls} {became}: {', and '.join(said)}"


def _often(times: int) -> str:
    return " (once)" if times == 1 else f" ({times} times)"


def _why_not(each: _Count, whole: _Count) -> str:
    if each.accepted:
        return ""
    if not whole.called:
        return "nothing was called"
    if not each.called:
        return "no call had a value that it applies to"
    return "no call that it applied to was accepted"


def _message(sent: Sent) -> str:
    """Return what a refusal says, in one line and without secrets."""
    error = member_of(sent.answer, "error")
    said = member_of(error, "message")
    if error is None:
        said = next((each.get("text") for each in objects_of(sent.answer, "result", "content")), "")
    text = said if isinstance(said, str) else ""
    return mask_text(" ".join(text[: 2 * LONGEST].split()))[:LONGEST]
