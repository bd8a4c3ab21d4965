"""Makes the parts that all formats of a report share: sections, counts, sentences, and events as single lines.

Most of this text comes from a target, and none of it is escaped for HTML or XML yet. But the events contain no hidden
or control characters, and no secrets.
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import attrs

from trio_mcp._secrets import mask_text
from trio_mcp.conformance.outcomes import CheckReport, Ended, Failure, Outcome, Reached, Status
from trio_mcp.conformance.rules.history import is_notification, is_request, is_response
from trio_mcp.conformance.rules.model import LEVELS
from trio_mcp.conformance.statements.model import statements
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.masking import Masker

__all__ = [
    "SIDES",
    "STATUSES",
    "Coverage",
    "Section",
    "ShownEvent",
    "ShownReach",
    "clean",
    "counted",
    "coverage",
    "ending",
    "folded",
    "headline",
    "page_title",
    "reached",
    "reached_line",
    "repeats",
    "sections",
    "shorten",
    "shown",
    "transcript_of",
]

STATUSES: Final[tuple[Status, ...]] = ("broken", "held", "not exercised", "not checkable")
"""The statuses in the order in which they are shown, the worst first."""

_ENDINGS: Final[dict[Ended, str]] = {
    "time": "The time was up after {examples}; with more time, the remaining examples would be run.",
    "bytes": "The budget of bytes was used up after {examples}.",
    "interrupted": "The check was interrupted: this report shows what was found until then.",
    "no handshake": "The handshake failed, so no example was run; the rules judged what came until then.",
    "target died": "The target died after {examples}, and could not be reached again.",
    "target hangs": "The target stopped responding after {examples}.",
    "target floods": "The target sent more data than the check can keep, so the check ended after {examples}.",
}

# The Unicode categories of invisible characters: some of these can reorder or hide the text around them (UAX #9).
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})

MAX_TEXT: Final = 4000
"""The maximum number of characters of a message that are shown: an arbitrary choice, as a replay shows all of it."""


MAX_NAME: Final = 120
"""The maximum number of characters of a name, a URI or a place that are shown (arbitrary)."""


def clean(text: str, kept: str = "") -> str:
    """Return a text with its invisible characters written as escapes, except for those in ``kept``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        each if each in kept or unicodedata.category(each) not in _HIDDEN else each.encode("unicode_escape").decode()
        for each in text
    )


def shorten(text: str, width: int) -> str:
    """Cut a text to at most ``width`` characters, with an ellipsis at the cut."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


# --- outcomes ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Section:
    """The outcomes of the rules of one page of the specification.

    Attributes:
        path: The path of the page, for example ``basic/lifecycle``.
        outcomes: The outcomes, the worst first.
        counts: How many outcomes have each status.
    """

    path: str
    outcomes: tuple[Outcome, ...]
    counts: dict[Status, int]


def sections(report: CheckReport) -> list[Section]:
    """Return the outcomes grouped by section, with the sections in alphabetical order."""
    found: dict[str, list[Outcome]] = {}
    for outcome in report.outcomes:
        path = outcome.rule.section.partition("#")[0].removesuffix(".mdx").removesuffix("/index") or "expected"
        found.setdefault(path, []).append(outcome)
    return [
        Section(path, tuple(sorted(outcomes, key=_rank)), counted(outcomes)) for path, outcomes in sorted(found.items())
    ]


def _rank(outcome: Outcome) -> tuple[int, int, str]:
    return STATUSES.index(outcome.status), LEVELS.index(outcome.rule.level), outcome.rule.id


def counted(outcomes: Sequence[Outcome]) -> dict[Status, int]:
    """Return how many outcomes have each status."""
    return {status: sum(outcome.status == status for outcome in outcomes) for status in STATUSES}


@attrs.frozen
class Coverage:
    """The coverage of one page of the specification: counts of its statements that bind the checked side.

    Attributes:
        revision: The revision of the specification.
        page: The path of the page.
        exercised: How many statements have a rule that was held or broken.
        idle: How many can be observed by a peer, but have no rule that was both selected and exercised.
        hidden: How many can't be observed by a peer, or belong to authorization.
    """

    revision: str
    page: str
    exercised: int = 0
    idle: int = 0
    hidden: int = 0


def coverage(report: CheckReport) -> list[Coverage]:
    """Return the coverage of each page of each revision that the check used, the newest revision first."""
    exercised = {outcome.rule.id for outcome in report.outcomes if outcome.status in ("held", "broken")}
    counts: dict[tuple[str, str], Counter[str]] = {}
    for statement in statements():
        # Statements that bind only the other side are left out: they were not checked, and would look like a gap.
        if statement.binds not in ("others" if report.side == "issuer" else report.side, "both"):
            continue
        kind = "hidden" if not statement.observable else "exercised" if exercised & set(statement.rules) else "idle"
        for place in statement.places:
            # A sentence counts in each revision that contains it and was used, so that the figures of each revision are
            # complete.
            if place.revision in report.revisions:
                page = place.section.partition("#")[0]
                counts.setdefault((place.revision, page), Counter())[kind] += 1
    # The pages are sorted by name and then, stably, by revision from the newest.
    pages = sorted(counts.items())
    return [
        Coverage(revision, page, **count)
        for (revision, page), count in sorted(pages, key=lambda each: each[0][0], reverse=True)
    ]


@attrs.frozen
class ShownReach:
    """The calls of a tool, prompt, resource or template, as they are displayed.

    Attributes:
        item: The counts.
        keywords: The counts of the keywords of its schema.
    """

    item: Reached
    keywords: tuple[Reached, ...]

    @property
    def label(self) -> str:
        """The kind and the name, for example ``tool add``."""
        return clean(f"{self.item.kind} {shorten(self.item.name, MAX_NAME)}")

    @property
    def why(self) -> str:
        """Why no call was accepted; empty if one was."""
        return clean(self.item.why)

    @property
    def idle(self) -> list[str]:
        """The keywords that no accepted call had to do with, as JSON pointers."""
        return [clean(shorten(each.keyword, MAX_NAME)) for each in self.keywords if not each.accepted]

    @property
    def share(self) -> str:
        """How many of the keywords were reached, for example ``3 of 5``; empty without any."""
        return f"{len(self.keywords) - len(self.idle)} of {len(self.keywords)}" if self.keywords else ""


def reached(report: CheckReport) -> list[ShownReach]:
    """Return what became of the calls of a check, those that no call reached first."""
    found: dict[tuple[str, str], tuple[Reached, list[Reached]]] = {}
    for each in report.reached:
        if each.keyword:
            found[each.kind, each.name][1].append(each)
        else:
            found[each.kind, each.name] = (each, [])
    shown = [ShownReach(item, tuple(keywords)) for item, keywords in found.values()]
    return sorted(shown, key=lambda each: each.item.accepted > 0)


def reached_line(report: CheckReport) -> str:
    """Return a sentence on how much of what a server offers was reached; empty if it offers nothing."""
    kinds: dict[str, list[Reached]] = {}
    for each in report.reached:
        kinds.setdefault("schema keyword" if each.keyword else each.kind, []).append(each)
    parts = [
        f"{sum(each.accepted > 0 for each in found)} of {_number(len(found), kind, f'{kind}s')}"
        for kind, found in kinds.items()
    ]
    return f"Reached: {', '.join(parts)}." if parts else ""


SIDES: Final = {"server": "a server", "client": "a client", "issuer": "an authorization server"}
"""The name of each side, in a sentence."""

_TITLES: Final = {"mrtr": "Multi round-trip requests", "streamable-http": "Streamable HTTP", "stdio": "stdio"}


def page_title(path: str) -> str:
    """Return a readable title for a page, from its path."""
    return " / ".join(_TITLES.get(part, part.replace("-", " ").capitalize()) for part in path.split("/"))


def ending(report: CheckReport) -> str:
    """Return a sentence on why the check ended, and on what would let it try more."""
    if report.side == "issuer":
        count = f"{report.examples} of {report.wanted} authorization servers"
        return f"The check was {'complete' if report.ended == 'complete' else 'interrupted'}: it has looked at {count}."
    if report.ended != "complete":
        return _ENDINGS[report.ended].format(examples=f"{report.examples} of {report.wanted} examples")
    if report.examples >= report.wanted:
        return f"All {report.examples} examples were run: to try more, raise the number of examples, not the time."
    why = "every rule is broken" if len(report.broken) == len(report.outcomes) else "there is nothing else to try"
    return f"The check ended after {report.examples} of {report.wanted} examples, as {why}."


def repeats(failure: Failure) -> str:
    """Describe in words how often a failure occurred when it was run again."""
    if not failure.of:
        return "not run again"
    if failure.is_rare:
        return f"rare: seen once, and 0 of {failure.of} times when run again"
    return f"seen {failure.seen} of {failure.of} times"


def headline(report: CheckReport) -> str:
    """Return the result of the check in one line."""
    new = [outcome for outcome in report.broken if not outcome.known]
    musts = sum(outcome.rule.level == "MUST" for outcome in new)
    known = len(report.broken) - len(new)
    parts = [_number(musts, "MUST is broken", "MUSTs are broken")] if musts else []
    if new and not musts:
        parts.append("Every MUST that was exercised holds" if not known else "No other MUST is broken")
    if shoulds := sum(outcome.rule.level == "SHOULD" for outcome in new):
        parts.append(_number(shoulds, "SHOULD is broken", "SHOULDs are broken"))
    if rest := len(new) - musts - shoulds:
        parts.append(_number(rest, "EXPECTED rule is broken", "EXPECTED rules are broken"))
    if not new:
        held = counted(report.outcomes)["held"]
        parts.append(
            "No rule was exercised" if not held and not known else f"All {held} rules that were exercised hold"
        )
    if (count := sum(not found[0].known for found in report.findings)) < len(new):
        parts.append(f"all by {_number(count, 'cause', 'causes')}")
    if known:
        parts.append(f"{known} known from the baseline")
    if report.status == 2:
        parts.append("but the result is undecided: " + "; ".join(report.doubts))
    return ", ".join(parts)


def _number(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


# --- events -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class ShownEvent:
    """An event, as it is displayed.

    Attributes:
        event: The event, masked.
        label: The kind of the event in a few words, for example ``tools/call #3``.
        detail: The content of the event, in a line that may be long.
        time: Seconds since the first event after the prologue.
        is_bad: Whether this is the event that breaks the rule.
    """

    event: Event
    label: str
    detail: str
    time: float
    is_bad: bool = False


def transcript_of(failure: Failure) -> tuple[list[ShownEvent], list[ShownEvent]]:
    """Return the events of a failure as they are displayed: those of its prologue, and those of the example."""
    return shown(failure.transcript, failure.at)


def shown(transcript: Sequence[Event], at: int) -> tuple[list[ShownEvent], list[ShownEvent]]:
    """Return the events of a transcript as they are displayed: those before its first example, and the rest.

    Args:
        transcript: The events.
        at: The index of the event that breaks a rule.
    """
    # One masker serves the whole transcript, in which the same session must have the same name.
    masker = Masker()
    events = [masker.event(event) for event in transcript]
    marks = (place for place, each in enumerate(events) if each.kind == "mark" and each.facts.get("what") == "begin")
    # A transcript from a check of a client has no such mark, so none of its events belong to the prologue.
    first = next(marks, -1) + 1
    began = events[first].time if first < len(events) else 0.0
    found = [_shown(event, began, place == at) for place, event in enumerate(events)]
    return found[:first], found[first:]


def folded(events: Sequence[ShownEvent]) -> list[ShownEvent]:
    """Return the events, with the standard error of each connection folded into one event at its first line."""
    said: dict[int, list[ShownEvent]] = {}
    for each in events:
        if _is_stderr(each):
            said.setdefault(each.event.connection, []).append(each)
    found = []
    for each in events:
        lines = said[each.event.connection] if _is_stderr(each) else [each]
        if each is lines[0]:
            more = f"{len(lines)} lines, the first: " if len(lines) > 1 else ""
            found.append(attrs.evolve(each, detail=more + each.detail))
    return found


def _is_stderr(shown: ShownEvent) -> bool:
    return shown.event.facts.get("what") == "stderr" and not shown.is_bad


def problem_of(outcome: Outcome) -> str:
    """Return what is wrong if the rule is broken, and an empty string otherwise."""
    return "" if outcome.failure is None else clean(mask_text(outcome.failure.problem))


def _shown(event: Event, began: float, is_bad: bool) -> ShownEvent:
    label, detail = _described(event)
    # The text is shortened before it is cleaned: a message may be megabytes long, and an escape takes up to ten
    # characters.
    return ShownEvent(event, clean(label), clean(shorten(detail, MAX_TEXT)), event.time - began, is_bad)


def _described(event: Event) -> tuple[str, str]:
    facts = event.facts
    match event.kind:
        case "message":
            return _message(event.message)
        case "text":
            # The bytes are cut before they are decoded, perhaps in the middle of a character, whose remaining bytes are
            # then written as escapes.
            return "not JSON", (event.text or b"")[:MAX_TEXT].decode("utf-8", "backslashreplace")
        case "request":
            return f"{facts.get('method')} {facts.get('path', '')}".strip(), _headers(event)
        case "response":
            return f"HTTP {facts.get('status')}", _headers(event)
        case "end":
            return "response is cut off" if facts.get("cut") else "response ends", ""
        case "open":
            return "connects", str(facts.get("transport", ""))
        case "close":
            known = [f"{name} {facts[name]}" for name in ("status", "code") if facts.get(name) is not None]
            return "connection ends", ", ".join([str(facts.get("reason") or ""), *known]).strip(", ")
        case _:
            return _mark(event)


_MARKS: Final = {
    "overdue": ("no response to #{id} within {after}", ""),
    "quiet": ("nothing more comes for {after}", ""),
    "begin": ("the next example", ""),
    "alive": ("still responds, after {after}", ""),
    "dead": ("no longer responds within {after}", ""),
    "again": ("the kit repeats this", ""),
    "repeated": ("the kit has repeated this", ""),
    "usage": ("after {calls} calls", "{used}"),
    "unsent": ("could not be sent", "{reason}"),
    "unended": ("sends a line without an end", "{text}"),
    "stderr": ("standard error", "{text}"),
}
"""The label and the detail of each kind of mark, an event that the kit itself adds to a transcript."""


def _mark(event: Event) -> tuple[str, str]:
    facts = {"id": None, "reason": "", **event.facts}
    seconds = facts.get("seconds")
    facts["after"] = f"{seconds:g} s" if isinstance(seconds, (int, float)) else "the deadline"
    facts["text"] = facts.get("text") or (event.text or b"").decode("utf-8", "backslashreplace")
    what = str(facts.get("what"))
    if what == "usage":
        memory, opened = int(facts.get("memory", 0)) / 2**20, facts.get("descriptors")
        facts["used"] = (
            f"{memory:.1f} MiB, {opened} descriptors, {facts.get('threads')} threads; a call took {facts['after']}"
        )
    if what == "login":
        names = ("trial", "sent_form", "redirected_with", "answer", "problem")
        passed = {name: facts[name] for name in names if facts.get(name)}
        asked = f"{facts.get('method')} {facts.get('to')}" + (f" ({facts['asks']})" if facts.get("asks") else "")
        return f"{asked}: {facts.get('status')}", f"{facts.get('url')} {_json(passed)}"
    if what in _MARKS:
        label, detail = _MARKS[what]
        return label.format_map(facts), detail.format_map(facts)
    rest = {name: value for name, value in event.facts.items() if name not in ("what", "masked")}
    return what, _json(rest) if rest else ""


# These headers are in nearly every request or response, and so tell a reader nothing.
_DULL: Final = frozenset({"host", "content-length", "user-agent", "connection", "date", "server", "accept-encoding"})


def _headers(event: Event) -> str:
    pairs: Sequence[Any] = event.facts.get("headers", ())
    return ", ".join(f"{name}: {value}" for name, value in pairs if str(name).lower() not in _DULL)


def _message(message: Any) -> tuple[str, str]:
    if isinstance(message, list):
        return f"batch of {len(message)}", _json(message)
    if is_request(message):
        # The method and the id are shortened, because they may have any length, and the label must fit on one line.
        return f"{shorten(message['method'], 60)} #{_id(message['id'])}", _params(message)
    if is_notification(message):
        return shorten(message["method"], 60), _params(message)
    if is_response(message):
        if "error" in message:
            error = message["error"]
            code = error.get("code") if isinstance(error, dict) else "?"
            text = error.get("message") if isinstance(error, dict) else _json(error)
            return f"error {_id(code)} #{_id(message.get('id'))}", str(text)
        return f"result #{_id(message.get('id'))}", _json(message["result"])
    return "JSON", _json(message)


def _id(value: Any) -> str:
    # The id is shown as JSON, so that 1 and "1" differ: some rules are about a peer that confuses them.
    return shorten(_json(value), 24)


def _params(message: dict[str, Any]) -> str:
    return _json(message["params"]) if "params" in message else ""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
