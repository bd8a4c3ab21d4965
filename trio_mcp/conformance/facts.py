"""Collects the facts about a target: the capabilities that it declared, and the tools, resources and prompts that it
lists."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any, Final

import attrs

from trio_mcp.conformance.credentials import KINDS
from trio_mcp.conformance.members import member_of, object_of
from trio_mcp.conformance.rules.extension_apps import pages_of
from trio_mcp.conformance.rules.extension_skills import (
    EXTENSION as SKILLS,
    LIST as ENTRIES,
    SKILL_FILE,
    files_of,
)
from trio_mcp.conformance.rules.history import LISTS
from trio_mcp.conformance.run import PlanRunner, Talk
from trio_mcp.conformance.wires.notes import to_text
from trio_mcp.eras.capabilities import declares
from trio_mcp.errors import TransportError
from trio_mcp.testing.strategies.schemas import CannotGenerate, from_schema
from trio_mcp.types import meta
from trio_mcp.types.versions import MODERN_REVISIONS

__all__ = ["Facts", "discover"]

MOST_PAGES: Final = 20
"""The maximum number of pages of a list that are requested (arbitrary)."""

MOST_ITEMS: Final = 500
"""The number of tools, resources and so on after which no further page is requested (arbitrary)."""

Definitions = Mapping[str, Mapping[str, Any]]


@attrs.frozen
class Facts:
    """The known facts about a server in one revision.

    Attributes:
        revision: The revision that the facts are about.
        transport: The name of the transport, as in `Wire`.
        server_info: The server's name and version.
        instructions: The server's instructions.
        capabilities: The capabilities that it declared.
        tools: Its tools as it lists them, by name.
        resources: Its resources, by URI.
        templates: Its resource templates, by URI template.
        prompts: Its prompts, by name.
        skills: The entries of its skills, by the URI of their ``SKILL.md``; see the skills extension.
        callable_tools: The names of the tools that may be called.
        paged: The list methods that returned more than one page.
        skipped: Notes for the user on what is not used, and why.
        supported: The revisions that the server lists as supported; empty if it lists none.
        slow_tools: The names of tools that may be called, but turned out to be slow and are not called again.
        tokens: The names of the tokens that can be sent; see `trio_mcp.conformance.credentials`.
    """

    revision: str
    transport: str
    server_info: Mapping[str, Any] = attrs.Factory(dict)
    instructions: str | None = None
    capabilities: Mapping[str, Any] = attrs.Factory(dict)
    tools: Definitions = attrs.Factory(dict)
    resources: Definitions = attrs.Factory(dict)
    templates: Definitions = attrs.Factory(dict)
    prompts: Definitions = attrs.Factory(dict)
    skills: Definitions = attrs.Factory(dict)
    callable_tools: tuple[str, ...] = ()
    paged: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    supported: tuple[str, ...] = ()
    slow_tools: tuple[str, ...] = ()
    tokens: frozenset[str] = frozenset()

    def without(self, method: str, name: str) -> Facts:
        """Return the facts without a tool, resource or prompt that is too slow to be used repeatedly."""

        def rest(definitions: Definitions) -> Definitions:
            return {key: value for key, value in definitions.items() if key != name}

        match method:
            case "tools/call" if name in self.callable_tools:
                usable = tuple(each for each in self.callable_tools if each != name)
                # The tool stays in the list and is just not called any more: its schema is still needed for earlier
                # calls.
                return attrs.evolve(self, callable_tools=usable, slow_tools=(*self.slow_tools, name))
            case "resources/read":
                return attrs.evolve(self, resources=rest(self.resources))
            case "prompts/get":
                return attrs.evolve(self, prompts=rest(self.prompts))
        return self

    @property
    def modern(self) -> bool:
        """Whether the revision belongs to the modern era."""
        return self.revision in MODERN_REVISIONS

    @property
    def tool_sizes(self) -> dict[str, int]:
        """The bytes of each tool in ``tools/list``, as compact JSON, by its name; the largest first."""
        sizes = {name: len(to_text(tool)) for name, tool in self.tools.items()}
        return dict(sorted(sizes.items(), key=lambda pair: (-pair[1], pair[0])))

    @property
    def is_measured(self) -> bool:
        """Whether the kit can measure what the server uses: it must be a process of its own, on Linux."""
        return self.transport == "stdio" and sys.platform.startswith("linux")

    @property
    def pages(self) -> list[str]:
        """The URIs of the pages that the tools name; see the apps extension."""
        return sorted(pages_of(self.tools.values()))

    @property
    def directories(self) -> list[tuple[str, str]]:
        """The directories of the skills, each with the URI of a skill that it is in; none if they can't be read."""
        if member_of(self.capabilities, "extensions", SKILLS, "directoryRead") is not True:
            return []
        found: dict[str, str] = {}
        for skill, entry in sorted(self.skills.items()):
            root = skill.removesuffix(SKILL_FILE)
            for file in (skill, *files_of(entry)):
                while file.startswith(f"{root}/"):
                    file = file.rpartition("/")[0]
                    found.setdefault(file, skill)
        return [(skill, directory) for directory, skill in sorted(found.items())]

    def declares(self, path: str) -> bool:
        """Return whether the server declared a capability, such as ``resources.subscribe``."""
        return declares(self.capabilities, path)

    def lacks(self, need: str) -> str:
        """Return why the server does not meet a need of a move; an empty string if it does.

        A need is ``capability:`` followed by a path, ``extension:`` followed by an identifier, ``transport:`` followed
        by names separated by ``|``, ``token:`` followed by the name of a token, ``process``, or the name of an
        attribute that must not be empty (``tools``,
        ``callable_tools``, ``resources``, ``templates``, ``prompts``, ``paged``, ``pages``, ``skills``,
        ``directories``).

        Raises:
            ValueError: If ``need`` has none of these forms.
        """
        kind, _, name = need.partition(":")
        if kind == "capability":
            return "" if self.declares(name) else f"the server does not declare the capability {name!r}"
        if kind == "extension":
            declared = name in object_of(self.capabilities.get("extensions"))
            return "" if declared else f"the server does not declare the extension {name!r}"
        if kind == "transport":
            return "" if self.transport in name.split("|") else f"the rule applies only to the transport {name}"
        if kind == "token" and name in KINDS:
            return "" if name in self.tokens else KINDS[name]
        if need == "process":
            missing = "what it uses can only be measured if the kit has started it as a process, on Linux"
            return "" if self.is_measured else missing
        if need not in _LISTED:
            raise ValueError(
                f"unknown need {need!r}; use capability:…, extension:…, transport:…, token:… or one of "
                f"{', '.join(_LISTED)}"
            )
        return "" if getattr(self, need) else f"the server {_LISTED[need]}"


_LISTED = {
    "tools": "lists no tools",
    "callable_tools": "has no tool that may be called (see --allow-writes and --tool)",
    "resources": "lists no resources",
    "templates": "lists no resource templates",
    "prompts": "lists no prompts",
    "paged": "gives each list in one page",
    "pages": "has no tool with a page",
    "skills": "lists no skills",
    "directories": "reads no directories of skills",
}


async def discover(runner: PlanRunner, *, allow_writes: bool = False, tools: Collection[str] = ()) -> Facts:
    """Ask a server what it offers, after the handshake.

    Args:
        runner: Has a connection to the server, with the handshake done.
        allow_writes: Whether every tool may be called, not only those that are annotated as read-only.
        tools: The names of further tools that may be called.

    Raises:
        TransportError: If the server does not respond.
    """
    talk = runner.talks[0]
    hello = talk.answered()[0].result
    facts = Facts(
        talk.revision,
        talk.wire.transport,
        # In the modern era the server's name and version are in the metadata of each result, here in that of
        # `server/discover`.
        object_of(member_of(hello, "_meta", meta.SERVER_INFO) if talk.modern else hello.get("serverInfo")),
        hello.get("instructions"),
        object_of(hello.get("capabilities")),
        supported=tuple(map(str, hello.get("supportedVersions") or ())),
        tokens=talk.wire.tokens,
    )
    listed: dict[str, dict[str, Any]] = {}
    paged: list[str] = []
    skipped: list[str] = []
    for method in LISTS:
        # The capability "resources" covers both of its lists. A list that the server has not declared is not requested
        # here: the server need not serve it, and a move checks whether it rejects the request properly.
        if facts.declares(method.split("/")[0]):
            listed[method], pages, problem = await _listed(runner, talk, method)
            paged += [method] * (pages > 1)
            skipped += [problem] * bool(problem)
    if not facts.lacks(f"extension:{SKILLS}") and facts.modern:
        listed["skills/list"], _, problem = await _listed(runner, talk, "skills/list")
        skipped += [problem] * bool(problem)
    found = listed.get("tools/list", {})
    usable, problems = _callable(found, allow_writes, tools)
    return attrs.evolve(
        facts,
        tools=found,
        resources=listed.get("resources/list", {}),
        templates=listed.get("resources/templates/list", {}),
        prompts=listed.get("prompts/list", {}),
        skills=listed.get("skills/list", {}),
        callable_tools=usable,
        paged=tuple(paged),
        skipped=(*skipped, *problems),
    )


async def _listed(runner: PlanRunner, talk: Talk, method: str) -> tuple[dict[str, Any], int, str]:
    """Request a list; return its items by name or URI, how many pages were read, and what went wrong."""
    field, key = {**LISTS, "skills/list": ENTRIES}[method]
    found: dict[str, Any] = {}
    cursor, cursors = None, set()
    for page in range(1, MOST_PAGES + 1):
        sent = await talk.ask(method, None if cursor is None else {"cursor": cursor})
        # A list that does not arrive is an error and not a note: every connection begins with the lists, so each would
        # wait just as long, and most moves need them.
        if not await runner.until(lambda sent=sent: sent.over, runner.terms.deadline):  # type: ignore[misc]
            runner.note_overdue(talk, sent)
            raise TransportError(runner.unanswered(sent))
        if sent.answer is None:
            raise TransportError(f"the target did not respond to {method}{runner.last_words(talk)}")
        items = sent.result.get(field)
        if not isinstance(items, list):
            return found, page, f"the result of {method} contains no list of {field}, so the check uses none"
        for item in items:
            # An item without a name or URI is malformed, which is for the rules to judge; a plan can't use it.
            if isinstance(item, dict) and isinstance(item.get(key), str):
                found[item[key]] = item
        cursor = sent.result.get("nextCursor")
        if cursor is None:
            return found, page, ""
        if not isinstance(cursor, str):
            return found, page, f"the cursor from {method} is not a string, so no further pages are used"
        # A cursor that has come before would repeat the same pages until the limit on pages is reached.
        if cursor in cursors:
            return found, page, f"{method} returned the cursor {cursor!r} twice, so no further pages are used"
        cursors.add(cursor)
        if len(found) > MOST_ITEMS:
            break
    return found, page, f"the list from {method} is cut off after {page} pages with {len(found)} entries"


def _callable(
    tools: Mapping[str, Mapping[str, Any]], allow_writes: bool, named: Collection[str]
) -> tuple[tuple[str, ...], list[str]]:
    """Return the names of the tools that may be called, and notes on why others are not."""
    allowed, notes, writing = [], [], []
    for name, tool in tools.items():
        # `readOnlyHint` is false by default (schema, ToolAnnotations), and only the value true counts: a tool that
        # wrongly seems to be read-only would be called hundreds of times, with generated arguments.
        if not (allow_writes or name in named or member_of(tool, "annotations", "readOnlyHint") is True):
            writing.append(name)
            continue
        try:
            # The schema is tried now: if no arguments can be generated for it, the user is told once, and no move has
            # to deal with the tool.
            from_schema(tool.get("inputSchema"))
        except CannotGenerate as exc:
            notes.append(f"the tool {name!r} is not called: no arguments can be generated from its schema: {exc}")
        else:
            allowed.append(name)
    if writing:
        shown = ", ".join(writing[:10]) + (", …" if len(writing) > 10 else "")
        notes.append(
            f"not called, since not annotated as read-only: {shown} (name those to call with --tool or tools=, or allow"
            " all with --allow-writes or allow_writes=True)"
        )
    return tuple(allowed), notes
