"""The options of `AppHost`."""

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Annotated, Any, TypeAlias, TypedDict

from trio_mcp._checks import check_flag, check_hook, check_kind
from trio_mcp._settings import Default
from trio_mcp.extensions.apps.context import DisplayMode, HostContext
from trio_mcp.extensions.apps.limits import AppLimits
from trio_mcp.extensions.apps.policy import PERMISSIONS, checked_permissions
from trio_mcp.session.calls import CallLimits
from trio_mcp.types.common import Implementation
from trio_mcp.types.content import ContentBlock, EmbeddedResource, ResourceLink
from trio_mcp.types.notices import LoggingMessageNotificationParams

__all__ = ["AppHostOptions"]

Verdict: TypeAlias = Awaitable[object] | object


def _check_grant(name: str, value: Any) -> None:
    checked_permissions(value, name)


class AppHostOptions(TypedDict, total=False):
    """The keyword arguments of `AppHost`.

    A hook may be sync or async, and runs in a task of its own for each request of the view. It refuses by returning
    False, or by raising; an `McpError` is sent to the view as it is. Without the hook, the host refuses, and does not
    declare the capability.

    Attributes:
        streamed: Whether the arguments of the tool come later, in parts: see `AppHost.partial_input`.
        call: The limits of the call of the tool, such as ``{"timeout": 60}``, as in `Client.call_tool`.
        host_info: The host's name and version for the view.
        context: What the host tells the view about its surroundings.
        limits: The limits of the page and its view.
        grant: The permissions that a page gets if it asks for them; by default all, as the browser asks the person.
        allow_origin: ``(origin) -> bool``, sync: whether a page may use an origin that its server has declared. By
            default it may.
        on_open_link: Called with the URL that the view wants opened, which is an http or https URL.
        on_message: Called with the content that the view wants to say to the model for the person.
        on_model_context: Called with the content and the structured content (or None) that the view wants the model to
            know from now on; they replace those of an earlier call.
        on_display_mode: Called with the mode that the view asks for, if both sides support it; returns the mode that
            the host has set, or None for the one asked for.
        on_download_file: Called with the contents that the view wants saved (draft).
        on_log: Called with each log message of the view.
        on_size_changed: Called with the width and the height of the view's content, in pixels; each may be None.
        on_request_teardown: Called when the view asks to be closed; unless it returns False, the view is torn down
            (draft). Without it, the host ignores this.
    """

    streamed: Annotated[bool, Default(False, check_flag)]
    call: Annotated[CallLimits | None, Default()]
    host_info: Annotated[Implementation | None, Default(check=partial(check_kind, kind=Implementation))]
    context: Annotated[HostContext | None, Default(check=partial(check_kind, kind=HostContext))]
    limits: Annotated[AppLimits | None, Default(check=partial(check_kind, kind=AppLimits))]
    grant: Annotated[Iterable[str], Default(tuple(PERMISSIONS), _check_grant)]
    allow_origin: Annotated[Callable[[str], bool] | None, Default(check=partial(check_hook, sync=True))]
    on_open_link: Annotated[Callable[[str], Verdict] | None, Default(check=check_hook)]
    on_message: Annotated["Callable[[list[ContentBlock]], Verdict] | None", Default(check=check_hook)]
    on_model_context: Annotated[
        "Callable[[list[ContentBlock], dict[str, Any] | None], Verdict] | None", Default(check=check_hook)
    ]
    on_display_mode: Annotated[
        Callable[[DisplayMode], Awaitable[DisplayMode | None] | DisplayMode | None] | None, Default(check=check_hook)
    ]
    on_download_file: Annotated[
        Callable[[list[EmbeddedResource | ResourceLink]], Verdict] | None, Default(check=check_hook)
    ]
    on_log: Annotated[Callable[[LoggingMessageNotificationParams], Verdict] | None, Default(check=check_hook)]
    on_size_changed: Annotated[Callable[[float | None, float | None], Verdict] | None, Default(check=check_hook)]
    on_request_teardown: Annotated[Callable[[], Verdict] | None, Default(check=check_hook)]
