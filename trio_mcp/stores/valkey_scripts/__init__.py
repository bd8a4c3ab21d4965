"""The scripts of `ValkeyStores`, which an engine runs: one for each operation, in Lua."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final

__all__ = ["LIBRARIES", "code_of"]

LIBRARIES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("open", "inspect"), ()),
    **dict.fromkeys(
        ("add_task", "task", "journal", "note", "put_task", "claim_tasks", "renew", "versions"), ("prelude", "tasks")
    ),
    **dict.fromkeys(
        ("announce", "changed", "state", "put_state", "forget_states", "take", "remember", "own"), ("prelude",)
    ),
    **dict.fromkeys(("join", "stay", "letters", "take_over", "open_streams", "leave"), ("prelude", "sessions")),
    **dict.fromkeys(("add_session", "session", "change_session", "end_session"), ("prelude", "sessions")),
    **dict.fromkeys(("open_stream", "append", "after", "forget", "carry"), ("prelude", "sessions")),
    **dict.fromkeys(("drop_stream", "send"), ("prelude", "sessions")),
}
"""Each script, and the files whose functions it uses: what stands in them precedes the script."""


@cache
def code_of(name: str) -> str:
    """Return the code of a script: its flags, which are in its first line, its libraries, and itself."""
    first, rest = _file(name).split("\n", 1)
    return "\n".join((first, *map(_file, LIBRARIES[name]), rest))


def _file(name: str) -> str:
    return (files(__name__) / f"{name}.lua").read_text("utf-8")
