"""How the scripts of `ValkeyStores` get and return tasks, journals and states."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Final

from trio_mcp.stores.contract import JournalEntry, StateEntry, StoredTask

__all__ = ["columns_of", "entry_of", "flat", "optional", "task_of"]

TAG: Final = len(secrets.token_urlsafe(8))
"""The length of a tag, which precedes the value of a state."""


def optional(number: float | None) -> str:
    """Return a number as the scripts get it, which is empty for None."""
    return "" if number is None else repr(number)


def flat(entries: Sequence[JournalEntry]) -> list[str | bytes]:
    """Return the entries of a journal as the scripts get them."""
    return [part for entry in entries for part in entry]


def columns_of(task: StoredTask) -> list[str | bytes]:
    """Return the columns of a task as the scripts get and return them: see ``COLUMNS`` in ``tasks.lua``."""
    head = [task.owner, task.updated, task.begun, task.takeovers, task.cancelling, task.message]
    return [
        json.dumps(head, ensure_ascii=False),
        task.tool,
        task.status,
        repr(task.created),
        optional(task.expires),
        str(task.version),
        task.token,
        task.body,
        task.asked,
        task.result,
    ]


def task_of(key: str, columns: Sequence[bytes | None] | None) -> StoredTask | None:
    """Return a task, given its columns as a script returns them; None for None."""
    if columns is None:
        return None
    head, tool, status, created, expires, version, token, body, asked, result = (each or b"" for each in columns)
    owner, updated, begun, takeovers, cancelling, message = json.loads(head)
    return StoredTask(
        key=key,
        owner=owner,
        tool=tool.decode(),
        status=status.decode(),
        created=float(created),
        updated=updated,
        expires=float(expires) if expires else None,
        version=int(version),
        token=token.decode(),
        begun=begun,
        takeovers=takeovers,
        cancelling=cancelling,
        message=message,
        body=body,
        asked=asked,
        result=result,
    )


def entry_of(found: bytes | None = None) -> StateEntry | None:
    """Return a state, given the tag and the value as the engine keeps them; None for None."""
    return None if found is None else StateEntry(found[TAG:], found[:TAG].decode())
