"""The names of a group's or a mounted server's tools and prompts: two names made one, never clashing, and undone."""

from __future__ import annotations

import hashlib
import json
import re

__all__ = ["MAX_NAME", "JoinedNames"]

MAX_NAME = 64
"""Characters. The APIs of models take tool names of ``[a-zA-Z0-9_-]{1,64}``, less than MCP allows."""

MAX_REMEMBERED = 10_000
"""Shortened names that are remembered for each server; beyond that the oldest is forgotten."""

SEPARATOR = "__"

_SERVER = re.compile(r"(?!.*__)[a-zA-Z0-9_-]*[a-zA-Z0-9-]")  # so the first separator is where it ends
_ITEM = re.compile(r"[a-zA-Z0-9_-]+")
_MARK = re.compile(r".*_[0-9a-f]{16}")
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


class JoinedNames:
    """``server__name`` where that is a good name and can be taken apart, and else a shortened one with a hash.

    A name depends on nothing but the two that it is made of. The two forms can't be confused: what ends like a hash
    always gets one.
    """

    def __init__(self) -> None:
        self._shortened: dict[str, dict[str, str]] = {}

    def join(self, server: str, name: str) -> str:
        """The name in the group of something that a server calls so. `split` undoes it."""
        joined = f"{server}{SEPARATOR}{name}"
        if (
            len(joined) <= MAX_NAME
            and _SERVER.fullmatch(server)
            and _ITEM.fullmatch(name)
            and not _MARK.fullmatch(joined)
        ):
            return joined
        joined = _shortened(server, name)
        of_server = self._shortened.setdefault(server, {})
        of_server[joined] = name
        if len(of_server) > MAX_REMEMBERED:
            del of_server[next(iter(of_server))]
        return joined

    def split(self, joined: str) -> tuple[str, str] | None:
        """The server and its own name for what has this name in the group; None if nothing can have it.

        A shortened name can be taken apart once `join` has made it here.
        """
        if _MARK.fullmatch(joined):
            for server, of_server in self._shortened.items():
                if joined in of_server:
                    return server, of_server[joined]
            return None
        server, separator, name = joined.partition(SEPARATOR)
        return (server, name) if separator and _SERVER.fullmatch(server) and _ITEM.fullmatch(name) else None

    def is_shortened(self, joined: str) -> bool:
        """Whether a name has the form with a hash."""
        return _MARK.fullmatch(joined) is not None

    def forget(self, server: str) -> None:
        """A server has left."""
        self._shortened.pop(server, None)


def _shortened(server: str, name: str) -> str:
    digest = hashlib.sha256(json.dumps([server, name]).encode()).hexdigest()[:16]
    front = _FORBIDDEN.sub("_", server)[:20]
    front += SEPARATOR + _FORBIDDEN.sub("_", name)
    return f"{front[: MAX_NAME - 17]}_{digest}"
