"""`TaskPolicy`: how a tool runs as a task, for the extension `Tasks`."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_choice, check_count, check_seconds, validator

__all__ = ["OnLoss", "TaskMode", "TaskPolicy"]

TaskMode: TypeAlias = Literal["optional", "required", "manual"]
OnLoss: TypeAlias = Literal["rerun", "fail"]


@attrs.frozen(kw_only=True)
class TaskPolicy:
    """How a tool runs as a task: ``@server.tool(task=TaskPolicy(after=5.0))``, or only the mode, ``task="required"``.

    For a client that has not declared the extension, a call of the tool is an ordinary call.

    Attributes:
        mode: ``"optional"``: a call becomes a task if it takes longer than ``after``, or asks for input.
            ``"required"``: the same, but a client without the extension is refused (-32021; in the legacy era by a
            result that says why).
            ``"manual"``: a call becomes a task when the function calls `Context.detach`; until then it asks for input
            in rounds of the call.
        after: Seconds that a call may take before it becomes a task; 0 makes a task of every call.
        ttl: The time to live: seconds after its creation for which the task is kept, whether it has ended or not.
        poll: Seconds that clients should wait between two polls of the task.
        on_loss: The effect if the process that runs the task dies or shuts down, or can't reach the store.
            ``"rerun"``: the function runs again in another process; completed steps of `Context.once` are not repeated.
            ``"fail"``: the task ends as failed, with an unknown outcome. None means ``"rerun"`` for a tool with
            ``read_only_hint``, and ``"fail"`` for any other tool.
        max_takeovers: How many times a lost task runs again; if it is lost once more, it ends as failed.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """

    mode: TaskMode = attrs.field(default="optional", validator=validator(check_choice, choices=get_args(TaskMode)))
    after: float = attrs.field(default=1.0, validator=validator(check_seconds, finite=True, zero=True))
    ttl: float = attrs.field(default=3600.0, validator=validator(check_seconds, finite=True))
    poll: float = attrs.field(default=2.0, validator=validator(check_seconds, finite=True))
    on_loss: OnLoss | None = attrs.field(default=None)
    max_takeovers: int = attrs.field(default=3, validator=validator(check_count))

    def __attrs_post_init__(self) -> None:
        if self.on_loss is not None:
            check_choice("on_loss", self.on_loss, get_args(OnLoss))
