"""Joins a server's name and the name of its tool or prompt, for groups and mounts: uniquely, and reversibly."""

from __future__ import annotations

import hashlib
import json
import re

__all__ = ["MAX_NAME", "JoinedNames"]

MAX_NAME = 64
"""The maximum length of a joined name: APIs of models accept tool names of ``[a-zA-Z0-9_-]{1,64}``; MCP allows more."""

# An arbitrary limit: more names than any server lists, but few enough for the memory if a server keeps inventing names.
MAX_REMEMBERED = 10_000
"""How many shortened names are remembered for each server; beyond that limit, the oldest name is forgotten."""

SEPARATOR = "__"

# A server's name has no "__" and does not end with "_", so it ends at the first separator of the joined name.
_SERVER = re.compile(r"(?!.*__)[a-zA-Z0-9_-]*[a-zA-Z0-9-]")
_ITEM = re.compile(r"[a-zA-Z0-9_-]+")
# A shortened name, which ends in 64 bits of SHA-256 in hexadecimal.
_MARK = re.compile(r".*_[0-9a-f]{16}")
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


class JoinedNames:
    """Joined names: ``server__name`` if that is valid and can be split again, otherwise a shortened name with a hash.

    A joined name depends only on its two parts. The two forms can't be confused: a name that happens to end like a
    shortened one is always shortened.
    """

    def __init__(self) -> None:
        self._shortened: dict[str, dict[str, str]] = {}

    def join(self, server: str, name: str) -> str:
        """Join a server's name and the name of one of its tools or prompts; `split` reverses this."""
        joined = f"{server}{SEPARATOR}{name}"
        if (
            len(joined) <= MAX_NAME
            and _SERVER.fullmatch(server)
            and _ITEM.fullmatch(name)
            and not _MARK.fullmatch(joined)
        ):
            return joined
        # A hash can't be reversed, so the original name is remembered. A dict is ordered: its first key is the oldest.
        joined = _shortened(server, name)
        of_server = self._shortened.setdefault(server, {})
        of_server[joined] = name
        if len(of_server) > MAX_REMEMBERED:
            del of_server[next(iter(of_server))]
        return joined

    def split(self, joined: str) -> tuple[str, str] | None:
        """Split a joined name into the server's name and the original name; return None if it can't be a joined name.

        A shortened name can be split only after this object's `join` has made it.
        """
        # The shortened form is tried first, because `join` never makes an unshortened name that looks like it.
        if _MARK.fullmatch(joined):
            pairs = ((server, of_server.get(joined)) for server, of_server in self._shortened.items())
            return next(((server, name) for server, name in pairs if name is not None), None)
        server, separator, name = joined.partition(SEPARATOR)
        return (server, name) if separator and _SERVER.fullmatch(server) and _ITEM.fullmatch(name) else None

    def is_shortened(self, joined: str) -> bool:
        """Return whether a name has the shortened form, with a hash."""
        return _MARK.fullmatch(joined) is not None

    def forget(self, server: str) -> None:
        """Forget the shortened names of a server that was removed."""
        self._shortened.pop(server, None)


def _shortened(server: str, name: str) -> str:
    # JSON preserves the boundary between the two names, so that "ab" with "c" differs from "a" with "bc".
    digest = hashlib.sha256(json.dumps([server, name]).encode()).hexdigest()[:16]
    front = _FORBIDDEN.sub("_", server)[:20]  # the readable part: the server's name must not take all of it
    front += SEPARATOR + _FORBIDDEN.sub("_", name)
    return f"{front[: MAX_NAME - 17]}_{digest}"
