"""Plan a benchmark: its bounds, the tools to call, and their arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from trio_mcp.conformance.report.view import clean, shorten
from trio_mcp.testing.strategies.drawing import draws
from trio_mcp.testing.strategies.schemas import CannotGenerate, from_schema
from trio_mcp.types.tools import Tool

__all__ = ["LONGEST_NAME", "BenchTerms", "NamedTool", "Plan", "ToolCall", "choose", "shown_names"]

MOST_TOOLS: Final = 20
"""How many tools are called at most if the user names none (arbitrary): with more tools, each would be called too
rarely for useful figures."""

SETS: Final = 8
"""How many sets of arguments are generated for a tool (arbitrary): with only one, a server that caches its last result
would seem fast."""

LONGEST_NAME: Final = 100
"""How many characters of a name are shown at most (arbitrary): a server may choose names of any length."""

WARM_UP: Final = 0.25
"""How long the warm-up of a sample takes, as a share of the time that is measured (arbitrary)."""

PAIRS: Final = 6
"""Pairs of samples in each step of a comparison: if two servers are equally fast, all six pairs favour the same one by
chance only once in 32 times."""


@attrs.frozen
class BenchTerms:
    """The bounds of a benchmark.

    Attributes:
        ladder: How many calls are in flight in each step, the fewest first.
        seconds: How long each step measures a server.
        max_calls: How many calls each server gets at most, including the trial calls and the warm-up.
        max_time: How many seconds the whole benchmark may take.
        timeout: How many seconds a call may take.
        seed: The seed from which the arguments are generated.
    """

    ladder: tuple[int, ...] = (1, 4, 16, 64)
    seconds: float = 2.0
    max_calls: int = 100_000
    max_time: float = 300.0
    timeout: float = 10.0
    seed: int = 0


@attrs.frozen(eq=False)
class ToolCall:
    """A call to a tool.

    Attributes:
        tool: The name of the tool.
        arguments: The arguments of the call.
    """

    tool: str
    arguments: Mapping[str, Any]


@attrs.frozen
class NamedTool:
    """A tool that the user names.

    Attributes:
        tool: The name of the tool.
        arguments: The arguments to call it with; None to generate them from its schema.
    """

    tool: str
    arguments: Mapping[str, Any] | None = None


@attrs.define
class Plan:
    """The calls of a benchmark, which are made in turn.

    Attributes:
        calls: The calls to make, each with a tool and its arguments.
        writing: The names of the called tools that are not annotated as read-only.
        notes: Facts that the user must know: which tools are not called, and why.
    """

    calls: list[ToolCall]
    writing: tuple[str, ...] = ()
    notes: list[str] = attrs.Factory(list)

    @property
    def tools(self) -> list[str]:
        """The names of the tools that are called."""
        return list(dict.fromkeys(call.tool for call in self.calls))

    def drop(self, tool: str, why: str) -> None:
        """Remove a tool's calls from the plan, and note the reason."""
        if tool in self.tools:
            self.calls = [call for call in self.calls if call.tool != tool]
            self.notes.append(f"the tool {shown_names([tool])!r} is not called any more: {why}")


def choose(listed: Sequence[Mapping[str, Tool]], named: Sequence[NamedTool], seed: int) -> Plan:
    """Choose the tools to call: those that the user names, or else those that are annotated as read-only.

    Args:
        listed: The tools of each server, by name; only tools that all servers have are called.
        named: The tools that the user names, each of which all servers have.
        seed: The seed from which the arguments are generated.

    Returns:
        The plan; if it has no calls, its notes say why.
    """
    first = listed[0]
    plan = Plan([])
    if named:
        for each in named:
            made = [each.arguments] if each.arguments is not None else _made(first[each.tool], seed, plan.notes)
            plan.calls += [ToolCall(each.tool, arguments) for arguments in made]
        plan.writing = tuple(name for name in plan.tools if not all(is_read_only(tools[name]) for tools in listed))
        return plan
    common = [name for name in first if all(name in tools for tools in listed)]
    elsewhere = sorted({name for tools in listed for name in tools} - {*common})
    plan.notes += _note("not called, since only one of the servers has them", elsewhere)
    reading = [name for name in common if all(is_read_only(tools[name]) for tools in listed)]
    plan.notes += _note(
        "not called, since not annotated as read-only (name those to call with --tool)",
        [name for name in common if name not in reading],
    )
    for name in reading:
        if len(plan.tools) == MOST_TOOLS:
            rest = reading[reading.index(name) :]
            plan.notes += _note(f"not called, since {MOST_TOOLS} others are", rest)
            break
        plan.calls += [ToolCall(name, arguments) for arguments in _made(first[name], seed, plan.notes)]
    return plan


def is_read_only(tool: Tool) -> bool:
    """Return whether a tool's annotations call it read-only, and do not also call it destructive."""
    hints = tool.annotations
    return hints is not None and hints.read_only_hint is True and hints.destructive_hint is not True


def _made(tool: Tool, seed: int, notes: list[str]) -> list[Mapping[str, Any]]:
    try:
        drawn = draws(from_schema(tool.input_schema), SETS, seed=seed)
    except CannotGenerate as exc:
        notes.append(
            f"the tool {shown_names([tool.name])!r} is not called: no arguments can be generated from its schema: {exc}"
        )
        return []
    # Duplicates are dropped: arguments that were drawn twice would be used twice as often.
    return list({json.dumps(each, sort_keys=True): each for each in drawn}.values())


def shown_names(names: Iterable[str]) -> str:
    """Join a server's names for a line of text: each is shortened, and its invisible characters are escaped."""
    return ", ".join(shorten(clean(name), LONGEST_NAME) for name in names)


def _note(head: str, names: Sequence[str]) -> list[str]:
    shown = shown_names(names[:10]) + (", …" if len(names) > 10 else "")
    return [f"{head}: {shown}"] if names else []
