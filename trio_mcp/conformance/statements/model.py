"""The specification's statements as data: where each is written, what it asks in our words, and what checks it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias, cast

import attrs

__all__ = [
    "EXTENSIONS",
    "NOT_OBSERVABLE",
    "REVISIONS",
    "Binds",
    "Keyword",
    "Location",
    "Statement",
    "link_to",
    "statements",
]

REVISIONS = ("2025-11-25", "2026-07-28")
"""The revisions whose statements are listed."""

Keyword: TypeAlias = Literal["MUST", "MUST NOT", "SHOULD", "SHOULD NOT"]
Binds: TypeAlias = Literal["server", "client", "both", "others"]

NOT_OBSERVABLE = {
    "inside": "It happens inside a program, and nothing that the program sends depends on it.",
    "person": "It is about what a person sees, decides or does.",
    "meaning": "Only those who know what the content means, or what the operator allows, can tell.",
    "choice": "It is about what a program does only if it chooses to, such as to reconnect, to poll or to speak both "
    "eras; that another does nothing proves nothing.",
    "open": "It sets no limit that traffic could exceed: how often, how much and how soon are left to the program.",
    "outside": "It binds, or happens at, something other than the client and the server of a connection: an author, a "
    "document, an operator, a model, an intermediary, another transport, a web page.",
}
"""The reasons why a peer can't observe whether a statement is kept, each under a key that names it."""

UNCHECKED = "unchecked"
SPECIFICATION = "https://modelcontextprotocol.io/specification"
_EXTENSIONS = "https://github.com/modelcontextprotocol"
EXTENSIONS = {
    "extensions/apps": f"{_EXTENSIONS}/ext-apps/blob/main/specification/2026-01-26/apps.mdx",
    "extensions/skills": f"{_EXTENSIONS}/ext-skills/blob/main/specification/stable/skills.mdx",
    "extensions/tasks": _EXTENSIONS + "/ext-tasks/blob/main/specification/{revision}/tasks.md",
}
"""The pages of extensions, which are not part of the specification: the URL of each, which may name the revision."""

TITLE = re.compile(
    r"(?P<keyword>(?:MUST|SHOULD)(?: NOT)?) (?P<binds>server|client|both|others) (?P<status>[\w,*-]+)"
    r"(?: since (?P<since>20[\d-]+))?"
)
PLACE = re.compile(r"(?P<revisions>20[\d -]+) (?P<section>\S+) (?P<hash>[0-9a-f]{8})")


def link_to(revision: str, section: str) -> str:
    """Return the URL of a section, of the specification or of an extension, in a revision."""
    page, hash_sign, anchor = section.partition("#")
    if page in EXTENSIONS:
        return EXTENSIONS[page].format(revision=revision) + hash_sign + anchor
    return "/".join([SPECIFICATION, revision, *([page] if page != "index" else [])]) + hash_sign + anchor


@attrs.frozen
class Location:
    """The place where a statement is written, and the hash of the sentence in that place.

    Attributes:
        revision: The revision.
        section: The page within the revision, and the anchor.
        hash: The first eight hexadecimal digits of the SHA-256 of the sentence without markup.
    """

    revision: str
    section: str
    hash: str

    @property
    def link(self) -> str:
        """The URL of the section."""
        return link_to(self.revision, self.section)


@attrs.frozen
class Statement:
    """A demand of the specification, made in one or more places.

    Attributes:
        text: The demand, in our words.
        keyword: MUST, SHOULD, or one of these with NOT.
        binds: The side that is bound.
        places: Where it is written.
        rules: The ids of the rules that check it.
        reason: Why no rule checks it: a key of `NOT_OBSERVABLE`; empty if a peer can observe it.
        owns: The rules that other statements name as well, but that take their sentence from this statement.
        since: The first revision of the legacy era that makes the demand; empty if all legacy revisions make it.
    """

    text: str
    keyword: Keyword
    binds: Binds
    places: tuple[Location, ...]
    rules: tuple[str, ...]
    reason: str
    owns: tuple[str, ...] = ()
    since: str = ""

    @property
    def observable(self) -> bool:
        """Whether a peer can observe if the statement is kept."""
        return not self.reason

    @property
    def checked(self) -> bool:
        """Whether a rule checks the statement."""
        return bool(self.rules)


@cache
def statements() -> tuple[Statement, ...]:
    """Return every statement, in the order of the specification's pages."""
    # `importlib.resources` finds the tables in a zipped package as well.
    folder = files(__package__)
    tables = sorted((table for table in folder.iterdir() if table.name.endswith(".txt")), key=lambda table: table.name)
    return tuple(each for table in tables for each in _read(table.read_text(encoding="utf-8"), table.name))


def _read(text: str, name: str) -> Iterator[Statement]:
    """Read a table of statements: each has its text, then its keyword, side and rules, then its places.

    A star after a rule marks the statement that the rule takes its sentence from, if several statements name the rule.
    ``since`` names the first revision that makes the demand, if it is not the oldest revision.
    """
    for row in text.strip().split("\n\n"):
        words, title, *where = row.splitlines()
        parsed = TITLE.fullmatch(title.strip())
        places = [PLACE.fullmatch(line.strip()) for line in where]
        if parsed is None or not places or not all(places):
            raise ValueError(f"{name} has a malformed row: {row}")
        status = parsed["status"]
        reason = status if status in NOT_OBSERVABLE else ""
        names = [] if reason or status == UNCHECKED else status.split(",")
        yield Statement(
            text=words,
            keyword=cast("Keyword", parsed["keyword"]),
            binds=cast("Binds", parsed["binds"]),
            places=tuple(Location(r, p["section"], p["hash"]) for p in places if p for r in p["revisions"].split()),
            rules=tuple(name.removesuffix("*") for name in names),
            reason=reason,
            owns=tuple(name.removesuffix("*") for name in names if name.endswith("*")),
            since=parsed["since"] or "",
        )
