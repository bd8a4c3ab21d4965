"""The changes between two snapshots of a server, and their meaning for those who call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from trio_mcp import _attrs as attrs
from trio_mcp.client.surface.snapshot import Snapshot, SnapshotError
from trio_mcp.schema.comparison import MISSING, becomes, canonical, compare_schemas

__all__ = ["Drift", "DriftReport", "compare_snapshots", "tool_drift"]

Effect: TypeAlias = Literal["breaks", "reads", "harmless"]
Change: TypeAlias = Literal["appeared", "vanished", "widened", "narrowed", "changed", "reads"]

_EFFECTS: Final[tuple[Effect, ...]] = ("breaks", "reads", "harmless")

# The meaning of a change of a schema: callers send what the one describes, and get what the other describes.
_SENT: Final[dict[str, Effect]] = {"widened": "harmless", "narrowed": "breaks", "changed": "breaks", "reads": "reads"}
_RECEIVED: Final[dict[str, Effect]] = {**_SENT, "widened": "breaks", "narrowed": "harmless"}

# The ways of calling a tool that each value of `taskSupport` allows (2025-11-25, `basic/utilities/tasks`).
_TASKS: Final = {"forbidden": {"plain"}, "optional": {"plain", "task"}, "required": {"task"}}

MAX_MEMBERS: Final = 100
"""The number of members of an item whose changes are told one by one (an arbitrary choice)."""

_SINGULAR: Final = {"tools": "tool", "prompts": "prompt", "resources": "resource", "templates": "resource template"}


@attrs.frozen
class Drift:
    """One change of what a server offers, or says about itself.

    Attributes:
        effect: ``"breaks"``: a caller that was right may now be wrong, or may get what it does not expect; also where
            nothing can be shown. ``"reads"``: all works as before, but a model or a person reads something else.
            ``"harmless"``: neither.
        change: What has happened: ``"appeared"``, ``"vanished"``, ``"widened"``, ``"narrowed"``, ``"changed"`` where
            neither can be shown, or ``"reads"`` for what only reads differently.
        what: What has changed, such as ``tool 'price'``.
        text: How it has changed, in printable ASCII.
    """

    effect: Effect
    change: Change
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.what}: {self.text}"


@attrs.frozen
class DriftReport:
    """All that has changed between two snapshots.

    Attributes:
        changes: The changes: first what breaks callers, then what reads differently, then what is harmless.
    """

    changes: tuple[Drift, ...] = ()

    @property
    def breaking(self) -> list[Drift]:
        """The changes that may break callers."""
        return self._of("breaks")

    @property
    def reading(self) -> list[Drift]:
        """The changes after which only something else is read, by a model or a person."""
        return self._of("reads")

    @property
    def harmless(self) -> list[Drift]:
        """All other changes."""
        return self._of("harmless")

    def _of(self, effect: Effect) -> list[Drift]:
        return [each for each in self.changes if each.effect == effect]

    def __str__(self) -> str:
        return "\n".join(f"{each.effect}: {each}" for each in self.changes) or "nothing has changed"


def compare_snapshots(before: Snapshot, after: Snapshot) -> DriftReport:
    """Return what has changed between two snapshots of a server.

    Raises:
        SnapshotError: If the snapshots are of different revisions of the protocol, in which the same server may well
            offer different things.
    """
    if before.revision != after.revision:
        raise SnapshotError(
            f"the snapshot is of revision {before.revision}, but the server was asked in revision {after.revision}"
        )
    found = [*_about(before, after)]
    for kind, word in _SINGULAR.items():
        old, new = before.items[kind], after.items[kind]
        for name in sorted(old.keys() | new.keys()):
            what = f"{word} {name[:200]!a}"
            if name not in new:
                found.append(Drift("breaks", "vanished", what, "has vanished"))
            elif name not in old:
                found.append(Drift("harmless", "appeared", what, "has appeared"))
            elif canonical(old[name]) != canonical(new[name]):
                found += _ITEMS.get(kind, _resource)(old[name], new[name], what)
    return DriftReport(tuple(sorted(found, key=lambda each: _EFFECTS.index(each.effect))))


# --- what a server says about itself ----------------------------------------------------------------------------------


def _about(before: Snapshot, after: Snapshot) -> Iterator[Drift]:
    if before.instructions != after.instructions:
        text = becomes(*(MISSING if each.instructions is None else each.instructions for each in (before, after)))
        yield Drift("reads", "reads", "instructions", text)
    old, new = before.server_info or {}, after.server_info or {}
    yield from _rest(old, new, "serverInfo", (), also={"version": "harmless"})
    declared, declares = (dict(_flags(each.capabilities)) for each in (before, after))
    for name in sorted(declared.keys() | declares.keys()):
        what = f"capability {name[:200]!a}"
        if name not in declares:
            yield Drift("breaks", "vanished", what, "is not declared any more")
        elif name not in declared:
            yield Drift("harmless", "appeared", what, "is declared now")
        elif canonical(declared[name]) != canonical(declares[name]):
            yield Drift("breaks", "changed", what, becomes(declared[name], declares[name]))


def _flags(capabilities: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each capability that is declared, by its dotted path; a false one is not declared."""
    for name, settings in capabilities.items():
        if not isinstance(settings, Mapping):
            if settings not in (None, False):
                yield name, settings
            continue
        yield name, {}
        for inner, value in settings.items():
            if value is not None and value is not False:
                yield f"{name}.{inner}", value


# --- items ------------------------------------------------------------------------------------------------------------


def tool_drift(before: Mapping[str, Any], after: Mapping[str, Any], what: str) -> list[Drift]:
    """Return the changes between two descriptions of a tool, as JSON data."""
    found = [
        *_schema(before, after, "inputSchema", what, closed=True, effects=_SENT),
        *_schema(before, after, "outputSchema", what, closed=False, effects=_RECEIVED),
    ]
    old, new = (_task_support(each) for each in (before, after))
    ways, now = (_TASKS.get(each) for each in (old, new))
    if old != new:
        safe = ways is not None and now is not None and ways <= now
        effect: Effect = "harmless" if safe else "breaks"
        found.append(Drift(effect, "widened" if safe else "changed", what, f"taskSupport {becomes(old, new)}"))
    apart = ("inputSchema", "outputSchema", *(["execution"] if old != new else []))
    return found + _rest(before, after, what, apart)


def _task_support(tool: Mapping[str, Any]) -> str:
    execution = tool.get("execution")
    found = execution.get("taskSupport", "forbidden") if isinstance(execution, Mapping) else "forbidden"
    return found if isinstance(found, str) else canonical(found)


def _schema(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    name: str,
    what: str,
    *,
    closed: bool,
    effects: Mapping[str, Effect],
) -> Iterator[Drift]:
    if name not in before or name not in after:
        # Without a schema, anything may be there.
        change: Change = "narrowed" if name in after else "widened"
        if name in before or name in after:
            text = "has appeared" if name in after else "has vanished"
            yield Drift(effects[change], change, what, f"{name}: {text}")
        return
    for each in compare_schemas(before[name], after[name], closed=closed):
        yield Drift(effects[each.change], each.change, what, f"{name}: {each}")


def _prompt(before: Mapping[str, Any], after: Mapping[str, Any], what: str) -> list[Drift]:
    old, new = _arguments(before), _arguments(after)
    if old is None or new is None:
        return [Drift("breaks", "changed", what, "its arguments are malformed"), *_rest(before, after, what, ())]
    # The arguments of a prompt are compared as an object: any may be given, and some must be.
    changes = [each for each in compare_schemas(_as_schema(old), _as_schema(new), closed=True) if each.path]
    found = [Drift(_SENT[each.change], each.change, what, f"argument {each}") for each in changes]
    for name in (each for each in new if each in old):
        found += _rest(old[name], new[name], what, ("name", "required"), f"argument {name[:100]!a}: ")
    if old.keys() == new.keys() and [*old] != [*new]:
        found.append(Drift("reads", "reads", what, "its arguments are in another order"))
    return found + _rest(before, after, what, ("arguments",))


def _arguments(prompt: Mapping[str, Any]) -> dict[str, Mapping[str, Any]] | None:
    listed = prompt.get("arguments") or []
    if not isinstance(listed, list):
        return None
    if not all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in listed):
        return None
    return {each["name"]: each for each in listed}


def _as_schema(arguments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    required = [name for name, each in arguments.items() if each.get("required") is True]
    return {"properties": {name: {"type": "string"} for name in arguments}, "required": required}


def _resource(before: Mapping[str, Any], after: Mapping[str, Any], what: str) -> list[Drift]:
    found = []
    if before.get("mimeType") != after.get("mimeType"):
        # Its type is named for the first time, or something else comes than callers can read.
        known: Effect = "harmless" if "mimeType" not in before else "breaks"
        change: Change = "narrowed" if "mimeType" not in before else "changed"
        found.append(Drift(known, change, what, f"mimeType {_becomes(before, after, 'mimeType')}"))
    # The size and the time of the last change follow from the content.
    old, new = ({**each, "annotations": _lasting(each.get("annotations"))} for each in (before, after))
    if canonical(old["annotations"]) == canonical(new["annotations"]):
        found += _rest(before, after, what, ("mimeType", "annotations"), also={"size": "harmless"})
        if canonical(before.get("annotations")) != canonical(after.get("annotations")):
            found.append(Drift("harmless", "reads", what, "was modified"))
        return found
    return found + _rest(before, after, what, ("mimeType",), also={"size": "harmless"})


def _lasting(annotations: Any) -> Any:
    if not isinstance(annotations, Mapping):
        return annotations
    return {name: value for name, value in annotations.items() if name != "lastModified"} or None


def _rest(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    what: str,
    apart: tuple[str, ...],
    prefix: str = "",
    also: Mapping[str, Effect] | None = None,
) -> list[Drift]:
    """Return the changes of all other members, which are for a model or a person to read."""
    names = [name for name in _differing(before, after) if name not in apart]
    found = [
        Drift((also or {}).get(name, "reads"), "reads", what, f"{prefix}{_shown(name)} {_becomes(before, after, name)}")
        for name in names[:MAX_MEMBERS]
    ]
    if len(names) > MAX_MEMBERS:
        found.append(Drift("reads", "reads", what, f"{prefix}{len(names) - MAX_MEMBERS} more members have changed"))
    return found


def _differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return the names of the members that differ."""
    return [
        name
        for name in sorted(before.keys() | after.keys())
        if (name in before) != (name in after) or canonical(before[name]) != canonical(after[name])
    ]


def _shown(name: str) -> str:
    # A member that the specification does not have may have any name.
    return ascii(name[:100])[1:-1]


def _becomes(before: Mapping[str, Any], after: Mapping[str, Any], name: str) -> str:
    return becomes(before.get(name, MISSING), after.get(name, MISSING))


_ITEMS: Final[dict[str, Callable[[Mapping[str, Any], Mapping[str, Any], str], list[Drift]]]] = {
    "tools": tool_drift,
    "prompts": _prompt,
}
