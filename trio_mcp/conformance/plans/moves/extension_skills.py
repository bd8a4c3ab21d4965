"""Moves with the skills extension: they list skills, and read their files and directories."""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.model import move
from trio_mcp.conformance.rules.extension_skills import EXTENSION, NO_SKILL, SKILL_FILE, files_of
from trio_mcp.conformance.steps import Ask, AwaitResponses, NextPage, Plan
from trio_mcp.types.versions import MODERN_REVISIONS

__all__: list[str] = []

_OFFERED: Final = f"extension:{EXTENSION}"
_AWAIT: Final = AwaitResponses()


def _get(uri: str) -> Ask:
    return Ask("skills/get", {"uri": uri})


@move(revisions=MODERN_REVISIONS, needs=(_OFFERED,))
def ext_skill_listed(facts: Facts) -> st.SearchStrategy[Plan]:
    """List the skills, perhaps with further pages."""
    more = (_AWAIT, NextPage(-1))
    return st.sampled_from([(Ask("skills/list"),), (Ask("skills/list"), *more * 2)])


@move(revisions=MODERN_REVISIONS, needs=(_OFFERED, "skills"), weight=4)
def ext_skill_read(facts: Facts) -> st.SearchStrategy[Plan]:
    """Read a file of a skill, and get the entry of the skill before and after."""

    def read(skill: str, turn: int) -> Plan:
        files = sorted(files_of(facts.skills[skill])) or [skill]
        return (_get(skill), _AWAIT, Ask("resources/read", {"uri": files[turn % len(files)]}), _AWAIT, _get(skill))

    # A get between two others shows that a skill which is not found was there.
    twice = st.sampled_from(sorted(facts.skills)).map(
        lambda skill: (Ask("skills/list"), _AWAIT, _get(skill), _AWAIT, Ask("skills/list"))
    )
    return st.one_of(st.builds(read, st.sampled_from(sorted(facts.skills)), st.integers(0, 19)), twice)


@move(revisions=MODERN_REVISIONS, needs=(_OFFERED,), weight=1)
def ext_skill_unknown(facts: Facts) -> st.SearchStrategy[Plan]:
    """Get a skill that does not exist, or read its directory."""
    words = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
    uris = words.map(lambda word: f"{NO_SKILL}-{word}")
    asks = [uris.map(lambda uri: (_get(uri + SKILL_FILE),))]
    if facts.directories:
        asks.append(uris.map(lambda uri: (Ask("resources/directory/read", {"uri": uri}),)))
    return st.one_of(asks)


@move(revisions=MODERN_REVISIONS, needs=(_OFFERED, "directories"), weight=3)
def ext_skill_directory(facts: Facts) -> st.SearchStrategy[Plan]:
    """Read a directory of a skill, or a file as if it were one, and get the entry of the skill before and after."""

    def read(place: tuple[str, str]) -> Plan:
        skill, uri = place
        return (_get(skill), _AWAIT, Ask("resources/directory/read", {"uri": uri}), _AWAIT, _get(skill))

    files = [(skill, skill) for skill in sorted(facts.skills)]
    return st.one_of(st.sampled_from(facts.directories), st.sampled_from(files)).map(read)
