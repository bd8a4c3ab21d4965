"""Masks secrets: nothing is written to a file or shown before it went through here.

Two things give a secret away: the name that a value stands under, and its own look. A value keeps its type, so that a
masked message is still a valid one; what the protocol itself names, such as ``progressToken``, stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import attrs

from trio_mcp.testing.transcript.events import Event

__all__ = ["MASK", "Masker", "mask_text", "mask_words"]

MASK: Final = "***"

MAX_DEPTH = 200
"""How deep a value is looked into; what lies deeper is masked as a whole. Chosen: Python's own limit is near 1000."""
MAX_NAME = 200
"""The longest name that is looked at as a whole (chosen); of longer ones, the beginning and the end."""

# Of the protocol, and of schemas and sampling: no secrets, though their names look like it.
_HARMLESS = re.compile(r"progress_?tokens?|(max|min|input|output|total|prompt|completion|stop)_?tokens?", re.IGNORECASE)
# Mostly parts of names, wherever they stand: it is better to mask too much than to show what cannot be taken back.
_SECRET = re.compile(
    r"passw(or)?d|passphrase|(^|[_.-])(pass|pwd|pin)$|secret|credential|api_?-?key|(private|access|signing|encryption)_?-?key"
    r"|authorization|^auth$|cookie|^dpop$|jwt|bearer|session_?-?id|tokens?$|(^|[_-])(token|sig|signature)([_-]|$)",
    re.IGNORECASE,
)
_SESSIONS = re.compile(r"session_?-?id", re.IGNORECASE)

# Every pattern takes linear time: no repetition stands inside another one, and none that may fail at its end begins
# anew within what it has read.
_LOOKS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(-----END [A-Z ]*PRIVATE KEY-----)?"), MASK),
    (re.compile(r"\b(Bearer|Basic|Digest|Token)\s+(?=\S*[0-9+/=_.-])[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {MASK}"),
    # A JSON Web Token: the first one of a run, which may have other words before it.
    (re.compile(r"(?<![\w-])((?:(?!\beyJ[\w-]{5})[\w-])*+)eyJ[\w-]{5,}+\.[\w-]++\.[\w-]*"), rf"\1{MASK}"),
    (re.compile(r"\b(sk|pk|rk)[-_](live[-_]|test[-_]|proj[-_]|ant[-_])?[\w-]{16,}"), MASK),
    (re.compile(r"\b(gh[pousr]|github_pat|glpat|xox[abprs]|hf|npm|pypi)[-_][\w-]{16,}"), MASK),
    (re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"), MASK),
    (re.compile(r"\bAIza[\w-]{30,}"), MASK),
    (re.compile(r"(?<=://)[^\s/?#@\"'<>]{1,300}@"), f"{MASK}@"),  # user and password in a URL
)


def _is_secret(name: str) -> bool:
    # A peer may choose it, and it is looked at again for each item of a list.
    if len(name) > MAX_NAME:
        name = f"{name[: MAX_NAME // 2]} {name[-MAX_NAME // 2 :]}"
    return _SECRET.search(name) is not None and _HARMLESS.fullmatch(name) is None


def mask_text(text: str) -> str:
    """Return a text in which everything that looks like a secret is masked."""
    for pattern, instead in _LOOKS:
        text = pattern.sub(instead, text)
    return "".join(_without_named(text))


# The end of a name, and how a value begins: in a query, in environment variables, in JSON, and in JSON within a text.
_NAMED: Final = re.compile(r"""(?<![\w.-])([A-Za-z][\w.-]{0,60})(?:\\?"\s?:\s?\\?(")|\s?[=:]\s?(["']?))""")
_VALUES: Final = {
    '"': re.compile(r"""[^"\\]*"""),
    "'": re.compile(r"[^']*"),
    "": re.compile(r"""[^\s&;,"'\\<>{}\[\]]*"""),
}


def _without_named(text: str) -> Iterator[str]:
    """Yield the pieces of a text, with a mask for each value that stands under the name of a secret."""
    at = 0
    for found in _NAMED.finditer(text):
        # Inside a value that is masked already: an assignment in it would be shown from there on.
        if found.start() < at or not _is_secret(found[1]):
            continue
        value = _VALUES[found[2] or found[3]].match(text, found.end())
        if value is not None and value[0]:
            yield text[at : found.end()] + MASK
            at = value.end()
    yield text[at:]


def mask_words(words: Iterable[str]) -> str:
    """Return a command line without what looks like a secret, or follows an option with the name of one."""
    shown: list[str] = []
    last = ""
    for word in words:
        # Only after an option: a word that merely looks like one, such as a path with `token` in it, hides nothing
        # behind it.
        shown.append(MASK if last.startswith("-") and _is_secret(last.lstrip("-")) else mask_text(word))
        last = word
    return " ".join(shown)


MAX_SESSIONS = 10_000
"""How many ids of sessions a masker tells apart."""


class Masker:
    """Masks the secrets of one transcript.

    The ids of sessions get a name each, ``session-1`` and so on, so that one can still tell them apart.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, str] = {}
        self._numbered = 0

    def event(self, event: Event) -> Event:
        """Return an event without its secrets; one from which something was taken has the fact ``masked``."""
        text = event.text
        if text is not None:
            # The way there and back keeps every byte that is not UTF-8.
            text = mask_text(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        message, facts = self.value(event.message), self.value(dict(event.facts))
        # The same object where nothing was taken out: the mark says that the bytes are not those that were sent, and
        # must not stand where they are.
        if text == event.text and message == event.message and facts == event.facts:
            return event
        return attrs.evolve(event, text=text, message=message, facts={**facts, "masked": True})

    def _session(self, identifier: str) -> str:
        name = self._sessions.get(identifier)
        if name is None:
            self._numbered += 1
            name = self._sessions[identifier] = f"session-{self._numbered}"
            # Only a trace that runs for days forgets one: were it seen again, it would get another number.
            if len(self._sessions) > MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        return name

    def value(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """Return a JSON value without its secrets.

        Args:
            value: The value; it is not changed.
            name: The name that it stands under.
            depth: How deep it stands.
        """
        if depth > MAX_DEPTH:
            return MASK
        if isinstance(value, dict):
            return {
                key: self.value(each, key if isinstance(key, str) else "", depth + 1) for key, each in value.items()
            }
        if isinstance(value, (list, tuple)):
            # Of the same kind, so that what has not changed is equal to what it was.
            if name == "headers" and all(isinstance(each, (list, tuple)) and len(each) == 2 for each in value):
                return type(value)(
                    type(pair)([pair[0], self.value(pair[1], str(pair[0]), depth + 1)]) for pair in value
                )
            return type(value)(self.value(each, name, depth + 1) for each in value)
        # Neither can be a secret, and below true would pass for a number and come out as false.
        if value is None or isinstance(value, bool):
            return value
        if not _is_secret(name):
            return mask_text(value) if isinstance(value, str) else value
        return self._secret(value, name)

    def _secret(self, value: Any, name: str) -> Any:
        if not isinstance(value, str):
            return type(value)(0)  # a number stays one of its kind
        # A name for each: with one mask for all, a request under the wrong session would look right.
        if _SESSIONS.search(name) and value:
            return self._session(value)
        # The scheme is not a secret, and a wrong one is a fault that the transcript should show (RFC 9110, section
        # 11.4).
        scheme, separator, rest = value.partition(" ")
        return f"{scheme} {MASK}" if separator and rest and name.lower().endswith("authorization") else MASK
