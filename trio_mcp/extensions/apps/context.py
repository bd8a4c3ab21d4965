"""`HostContext`: what a host tells a view about its surroundings (SEP-1865, Host Context)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs
import trio

from trio_mcp._checks import check_choice, check_flag, check_number, check_text

__all__ = ["STYLE_VARIABLES", "CurrentContext", "DisplayMode", "HostContext"]

DisplayMode: TypeAlias = Literal["inline", "fullscreen", "pip"]
MODES: Final = get_args(DisplayMode)
Theme: TypeAlias = Literal["light", "dark"]
Platform: TypeAlias = Literal["web", "desktop", "mobile"]

_KINDS = {
    "color-background": "primary secondary tertiary inverse ghost info danger success warning disabled",
    "color-text": "primary secondary tertiary inverse info danger success warning disabled ghost",
    "color-border": "primary secondary tertiary inverse ghost info danger success warning disabled",
    "color-ring": "primary secondary inverse info danger success warning",
    "font": "sans mono",
    "font-weight": "normal medium semibold bold",
    "font-text": "xs-size sm-size md-size lg-size xs-line-height sm-line-height md-line-height lg-line-height",
    "font-heading": " ".join(
        f"{size}-{what}" for size in ("xs", "sm", "md", "lg", "xl", "2xl", "3xl") for what in ("size", "line-height")
    ),
    "border-radius": "xs sm md lg xl full",
    "border-width": "regular",
    "shadow": "hairline sm md lg",
}
STYLE_VARIABLES: Final = frozenset(f"--{kind}-{each}" for kind, names in _KINDS.items() for each in names.split())
"""The names of the standardized CSS variables (Theming). The official view SDK refuses all others."""


def _choice(choices: tuple[str, ...]) -> Any:
    def check(_: object, attribute: Any, value: Any) -> None:
        if value is not None:
            check_choice(attribute.name, value, choices)

    return check


def _text(_: object, attribute: Any, value: Any) -> None:
    if value is not None:
        check_text(attribute.name, value)


def _length(_: object, attribute: Any, value: Any) -> None:
    if value is not None:
        check_number(attribute.name, value)
        if not 0 <= value < float("inf"):
            raise ValueError(f"{attribute.name} must be a length in pixels, got {value!r}")


def _flag(_: object, attribute: Any, value: Any) -> None:
    if value is not None:
        check_flag(attribute.name, value)


def _variables(_: object, attribute: Any, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{attribute.name} must map the names of CSS variables to values, got {value!r}")
    for name, each in value.items():
        if name not in STYLE_VARIABLES:
            raise ValueError(f"{attribute.name}: {name!r} is not one of the variables of SEP-1865, Theming")
        check_text(name, each)


def _modes(given: Iterable[str] | None) -> tuple[str, ...] | None:
    if isinstance(given, str):
        raise TypeError(f"available_display_modes must be a list of modes, got {given!r}")
    return None if given is None else tuple(given)


def _known_modes(_: object, attribute: Any, value: tuple[str, ...] | None) -> None:
    for each in value or ():
        check_choice(attribute.name, each, MODES)


def _insets(_: object, attribute: Any, value: Any) -> None:
    if value is not None:
        if not isinstance(value, tuple) or len(value) != 4:
            raise TypeError(f"{attribute.name} must be a tuple (top, right, bottom, left), got {value!r}")
        for each in value:
            _length(None, attribute, each)


@attrs.frozen(kw_only=True)
class HostContext:
    """The surroundings of a view, as a host describes them; None stands for what the host does not say.

    Attributes:
        theme: ``"light"`` or ``"dark"``.
        style_variables: The values of the standardized CSS variables, such as ``--color-text-primary``.
        fonts: CSS that loads fonts: ``@font-face`` and ``@import`` rules.
        display_mode: How the page is shown: ``"inline"``, ``"fullscreen"`` or ``"pip"``.
        available_display_modes: The modes that the host supports.
        width: The fixed width of the frame, in pixels.
        height: The fixed height of the frame, in pixels.
        max_width: The maximum width that the page may choose, in pixels; not with ``width``.
        max_height: The maximum height that the page may choose, in pixels; not with ``height``.
        locale: The person's language and region, such as ``"en-US"`` (BCP 47).
        time_zone: The person's time zone, such as ``"Europe/Berlin"``.
        user_agent: A name for the host.
        platform: ``"web"``, ``"desktop"`` or ``"mobile"``.
        touch: Whether the device has touch input.
        hover: Whether the device has a pointer that hovers.
        safe_area: The insets of the safe area in pixels: top, right, bottom, left.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """

    theme: Theme | None = attrs.field(default=None, validator=_choice(get_args(Theme)))
    style_variables: Mapping[str, str] = attrs.field(factory=dict, validator=_variables)
    fonts: str | None = attrs.field(default=None, validator=_text)
    display_mode: DisplayMode | None = attrs.field(default=None, validator=_choice(MODES))
    available_display_modes: tuple[str, ...] | None = attrs.field(
        default=None, converter=_modes, validator=_known_modes
    )
    width: float | None = attrs.field(default=None, validator=_length)
    height: float | None = attrs.field(default=None, validator=_length)
    max_width: float | None = attrs.field(default=None, validator=_length)
    max_height: float | None = attrs.field(default=None, validator=_length)
    locale: str | None = attrs.field(default=None, validator=_text)
    time_zone: str | None = attrs.field(default=None, validator=_text)
    user_agent: str | None = attrs.field(default=None, validator=_text)
    platform: Platform | None = attrs.field(default=None, validator=_choice(get_args(Platform)))
    touch: bool | None = attrs.field(default=None, validator=_flag)
    hover: bool | None = attrs.field(default=None, validator=_flag)
    safe_area: tuple[float, float, float, float] | None = attrs.field(default=None, validator=_insets)

    def __attrs_post_init__(self) -> None:
        for fixed, most in (("width", "max_width"), ("height", "max_height")):
            if getattr(self, fixed) is not None and getattr(self, most) is not None:
                raise ValueError(f"{fixed} and {most} exclude each other: a frame of a fixed size has no maximum")

    def to_wire(self) -> dict[str, Any]:
        """Return the context as the messages to a view have it."""
        area = None if self.safe_area is None else zip(("top", "right", "bottom", "left"), self.safe_area, strict=True)
        modes = self.available_display_modes
        lengths = {"width": self.width, "maxWidth": self.max_width, "height": self.height, "maxHeight": self.max_height}
        styles: dict[str, Any] = {}
        if self.style_variables:
            styles["variables"] = dict(self.style_variables)
        if self.fonts is not None:
            styles["css"] = {"fonts": self.fonts}
        return _stated(
            {
                "theme": self.theme,
                "styles": styles or None,
                "displayMode": self.display_mode,
                "availableDisplayModes": None if modes is None else list(modes),
                "containerDimensions": _stated(lengths) or None,
                "locale": self.locale,
                "timeZone": self.time_zone,
                "userAgent": self.user_agent,
                "platform": self.platform,
                "deviceCapabilities": _stated({"touch": self.touch, "hover": self.hover}) or None,
                "safeAreaInsets": None if area is None else dict(area),
            }
        )


def _stated(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class CurrentContext:
    """The context of a host, which changes while a view is shown.

    Attributes:
        value: The context of now.
    """

    def __init__(self, value: HostContext) -> None:
        self.value = value
        self._changed = trio.Event()

    def change(self, changes: Mapping[str, Any]) -> None:
        """Replace some fields.

        Raises:
            TypeError, ValueError: If a name or a value is invalid; nothing is changed then.
        """
        self.value = attrs.evolve(self.value, **changes)
        self._changed.set()
        self._changed = trio.Event()

    async def wait_changed(self) -> None:
        """Wait until a field is replaced."""
        await self._changed.wait()
