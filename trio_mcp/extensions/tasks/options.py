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
        max_tasks: The maximum number of tasks in the store. Tasks that have ended count until they expire.
        max_running: The maximum number of tasks that run at the same time in this process.
        max_size: The maximum size in bytes of the arguments and the journal of a task together when it is created;
            later of its journal, of its questions, and of its result each.
        lease: Seconds after which a process has lost a task whose lease it has not renewed.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """

    max_tasks: int = attrs.field(default=10_000, validator=validator(check_count))
    max_running: int = attrs.field(default=1_000, validator=validator(check_count))
    max_size: int = attrs.field(default=4 * 1024 * 1024, validator=validator(check_count))
    lease: float = attrs.field(default=LEASE, validator=validator(check_seconds, finite=True))
