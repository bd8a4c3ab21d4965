"""The limits of the tasks of a server."""

from __future__ import annotations

import attrs

from trio_mcp._checks import check_count, check_seconds, validator
from trio_mcp.stores.contract import LEASE

__all__ = ["TaskOptions"]


@attrs.frozen(kw_only=True)
class TaskOptions:
    """The limits of a server's tasks.

    Attributes:
        max_tasks: How many tasks the store holds at once, those that have ended included, until they expire.
        max_running: How many tasks run at once in this process.
        max_size: How many bytes a task may take in the store: its arguments, its journal and its result each.
        lease: Seconds after which a process that does not renew its hold on a task has lost it.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """

    max_tasks: int = attrs.field(default=10_000, validator=validator(check_count))
    max_running: int = attrs.field(default=1_000, validator=validator(check_count))
    max_size: int = attrs.field(default=4 * 1024 * 1024, validator=validator(check_count))
    lease: float = attrs.field(default=LEASE, validator=validator(check_seconds, finite=True))
