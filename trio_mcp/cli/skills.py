"""``trio-mcp skills list``, ``show`` and ``verify``: the skills of a server, as a client sees and checks them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trio_mcp.cli.exits import FAILED, OK, Exit
from trio_mcp.cli.messages import paint
from trio_mcp.cli.text import clean, clean_line, dumps, paragraph
from trio_mcp.client.client import Client
from trio_mcp.errors import McpError
from trio_mcp.extensions.skills.errors import SkillError

if TYPE_CHECKING:
    from trio_mcp.extensions.skills.client import ClientSkills
    from trio_mcp.extensions.skills.entries import RefusedEntry, SkillEntry, SkillList
    from trio_mcp.extensions.skills.loaded import LoadedSkill

__all__ = ["skills"]

# The states of a file that `verify` prints. A dynamic skill does not fail, as its server states that it is one.
OKAY, BAD, DYNAMIC = "ok", "FAILED", "dynamic"


async def skills(client: Client, options: argparse.Namespace) -> int:
    """Run the command for one of its actions, and return the exit status."""
    from trio_mcp.extensions.skills.extension import Skills
    from trio_mcp.extensions.skills.rules import IDENTIFIER

    if IDENTIFIER not in client.extensions:
        raise Exit("the server has no skills: it has not declared the extension", FAILED)
    own = Skills.of(client)
    if options.action == "show":
        return await _show(own, options)
    if options.action == "verify":
        return await _verify(own, options)
    return _list(await own.entries(), options)


def _list(found: SkillList, options: argparse.Namespace) -> int:
    if options.json:
        refused = [{"uri": each.uri, "reason": each.reason} for each in found.refused]
        print(dumps({"skills": [_as_json(each) for each in found], "refused": refused}))
    else:
        print("\n".join(map(_outline, found)) or "the server lists no skills")
        for each in found.refused:
            print(_complaint(each), file=sys.stderr)
    return FAILED if found.refused else OK


def _outline(entry: SkillEntry) -> str:
    count = 0 if entry.resources is None else len(entry.resources)
    files = "dynamic" if not count else f"{count} file{'s' if count > 1 else ''}, {entry.size} bytes"
    heading = f"{paint(clean_line(entry.uri), 'name')} ({files})"
    return f"{heading}\n{paragraph(entry.description, '    ')}"


def _complaint(refused: RefusedEntry) -> str:
    return clean_line(f"refused: {refused.uri or 'an entry without a URI'}: {refused.reason}")


def _as_json(entry: SkillEntry) -> dict[str, Any]:
    files = entry.resources
    return {
        "uri": entry.uri,
        "frontmatter": dict(entry.frontmatter),
        "resources": "dynamic" if files is None else [each._asdict() for each in files],
        "fingerprint": entry.fingerprint,
    }


async def _show(own: ClientSkills, options: argparse.Namespace) -> int:
    skill = await own.load(options.uri, allow_dynamic=True)
    entry = skill.entry
    if options.json:
        print(dumps({**_as_json(entry), "text": skill.text}))
        return OK
    print(_outline(entry))
    for name, value in entry.frontmatter.items():
        if name not in ("name", "description"):
            print(f"    {clean_line(name)}: {clean_line(json.dumps(value, ensure_ascii=False))}")
    for each in entry.resources or ():
        print(f"    {clean_line(each.path)}: {each.size} bytes")
    print(f"    fingerprint: {entry.fingerprint or 'none, because nothing of it can be verified'}\n")
    print(clean(skill.body.strip("\r\n")))
    return OK


async def _verify(own: ClientSkills, options: argparse.Namespace) -> int:
    """Load each skill and read each of its files; print a line for each."""
    lines: list[dict[str, Any]] = []

    def say(state: str, uri: str, about: str) -> None:
        lines.append({"uri": uri, "state": state, "about": about})
        if not options.json:
            print(f"{paint(state, 'name' if state == OKAY else 'heading')} {clean_line(f'{uri}: {about}')}")

    if options.uri is not None:
        entries = [await own.get(options.uri)]
    else:
        found = await own.entries()
        entries = list(found)
        for refused in found.refused:
            say(BAD, refused.uri or "(an entry without a URI)", refused.reason)
    for entry in entries:
        await _verify_one(own, entry, say)
    if options.json:
        print(dumps({"files": lines}))
    elif not lines:
        print("the server lists no skills")
    return FAILED if any(each["state"] == BAD for each in lines) else OK


async def _verify_one(own: ClientSkills, entry: SkillEntry, say: Callable[[str, str, str], None]) -> None:
    if entry.resources is None:
        say(DYNAMIC, entry.uri, "nothing of it can be verified")
        return
    try:
        skill: LoadedSkill = await own.load(entry)
    except (SkillError, McpError) as exc:
        say(BAD, entry.uri, _reason(exc))
        return
    for each in entry.resources:
        try:
            say(OKAY, each.uri, f"{len(await skill.read(each.path))} bytes")
        except (SkillError, McpError) as exc:
            say(BAD, each.uri, _reason(exc))


def _reason(exc: SkillError | McpError) -> str:
    reason: str = getattr(exc, "reason", str(exc))
    return reason
