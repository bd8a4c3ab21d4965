"""The options of a group of clients."""

from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from typing import Annotated, Any, get_args

from trio_mcp._checks import check_choice, check_hook, check_kind, check_seconds
from trio_mcp._settings import Default
from trio_mcp.client.group.members import Require, ServerStatus
from trio_mcp.client.options import ClientOptions
from trio_mcp.retrying import Backoff

__all__ = ["GroupOptions"]


def _check_pins(name: str, value: Any) -> None:
    if value is not None and not isinstance(value, (str, PathLike)):
        raise TypeError(f"{name} must be the path of a file, got {type(value).__name__}")


class GroupOptions(ClientOptions, total=False):
    """The keyword arguments of a `ClientGroup`: its own, and those of `ClientOptions`, which apply to every server.

    Attributes:
        require: What entering waits for. ``"all"``: every server must connect, or entering raises what connecting to
            one of them raised. ``"any"``: wait for every first attempt, but raise only if all of them failed.
            ``"none"``: don't wait.
        max_wait: Seconds that a call waits for its server to be connected, unless its own time limit is shorter.
        reconnect: The delays before reconnecting; ``Backoff(attempts=0)`` never reconnects. By default the first delay
            is half a second and each one is longer, up to a minute; the attempts never end. A connection that lasts for
            the longest delay starts the sequence over.
        on_status: Called with a server's name and its new `ServerStatus`. It must be a sync function, and must not
            block.
        pins: The file of the tools that are approved; it need not exist yet. Any other tool, and one that has changed
            since, is not listed and can't be called: `Listed.unapproved` has it for `ClientGroup.pins` to approve. The
            group then lists the tools of a server before the first call, and again when they may have changed.
        per_server: Arguments of the `Client` for particular servers, by name; they override those for all servers.
    """

    require: Annotated[Require, Default("all", partial(check_choice, choices=get_args(Require)))]
    max_wait: Annotated[float, Default(5.0, partial(check_seconds, zero=True))]
    reconnect: Annotated[Backoff | None, Default(check=partial(check_kind, kind=Backoff))]
    on_status: Annotated[Callable[[str, ServerStatus], object] | None, Default(check=partial(check_hook, sync=True))]
    pins: Annotated[str | PathLike[str] | None, Default(check=_check_pins)]
    per_server: Annotated[Mapping[str, ClientOptions] | None, Default()]
