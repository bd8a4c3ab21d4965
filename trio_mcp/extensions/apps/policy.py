"""The security policy of a page: `Csp`, which a server declares, and `PagePolicy`, which a host makes of it.

See SEP-1865, UI Resource Format and Security Implications.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

from trio_mcp import _attrs as attrs
from trio_mcp._log import logger

__all__ = ["PERMISSIONS", "Csp", "PagePolicy", "Permission", "checked_permissions", "origin_problem"]

Permission: TypeAlias = Literal["camera", "microphone", "geolocation", "clipboardWrite"]

PERMISSIONS: Final[Mapping[str, str]] = MappingProxyType(
    {name: "clipboard-write" if name == "clipboardWrite" else name for name in get_args(Permission)}
)
"""The permissions that a page may ask for, each with its name in the ``allow`` attribute of a frame."""

MAX_LISTED_ORIGINS: Final = 100
"""The maximum number of origins in one list of a policy (arbitrary): a header must have an end."""

_FIELDS: Final = {
    "connect": "connectDomains",
    "resources": "resourceDomains",
    "frames": "frameDomains",
    "base_uris": "baseUriDomains",
}
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
# A wildcard stands for subdomains only, so at least two labels must follow it.
_ORIGIN = re.compile(rf"(?:https?|wss?)://(?:(?:\*\.{_LABEL}\.)?{_LABEL}(?:\.{_LABEL})*)(?::[0-9]{{1,5}})?")


def origin_problem(origin: object) -> str | None:
    """Return what is wrong with an origin of a policy; None if it is valid.

    A valid origin has a scheme (http, https, ws or wss), a host that may begin with ``*.``, and perhaps a port, and
    nothing else: any other character could end the directive that the origin is put into.
    """
    if not isinstance(origin, str):
        return "it is not a string"
    if len(origin) > 300 or _ORIGIN.fullmatch(origin) is None:
        return "it must be a scheme and a host, such as 'https://api.example.com' or 'https://*.example.com:8443'"
    return None


def _origins(given: Iterable[str]) -> tuple[str, ...]:
    # A string would be read as a list of characters.
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"the origins of a Csp must be a list of strings, got {given!r}")
    return tuple(given)


def _check_origins(_: object, attribute: Any, value: tuple[str, ...]) -> None:
    if len(value) > MAX_LISTED_ORIGINS:
        raise ValueError(f"{attribute.name} has {len(value)} origins; {MAX_LISTED_ORIGINS} is the limit")
    for each in value:
        if (problem := origin_problem(each)) is not None:
            raise ValueError(f"{attribute.name}: {each!r} is not a valid origin: {problem}")


@attrs.frozen(kw_only=True)
class Csp:
    """The origins that a page uses, for its content security policy. A page may use no others.

    An origin has a scheme, a host, and perhaps a port; ``https://*.example.com`` stands for all subdomains.

    Attributes:
        connect: The origins to which scripts connect, with ``fetch`` or a WebSocket.
        resources: The origins of scripts, styles, images, fonts and media.
        frames: The origins of frames inside the page.
        base_uris: The origins that the page may name in ``<base>``.

    Raises:
        TypeError, ValueError: If an origin is invalid.
    """

    connect: tuple[str, ...] = attrs.field(default=(), converter=_origins, validator=_check_origins)
    resources: tuple[str, ...] = attrs.field(default=(), converter=_origins, validator=_check_origins)
    frames: tuple[str, ...] = attrs.field(default=(), converter=_origins, validator=_check_origins)
    base_uris: tuple[str, ...] = attrs.field(default=(), converter=_origins, validator=_check_origins)

    def to_wire(self) -> dict[str, list[str]]:
        """Return the origins as ``_meta.ui.csp`` has them."""
        lists = ((wire, list(getattr(self, name))) for name, wire in _FIELDS.items())
        return {wire: origins for wire, origins in lists if origins}

    @classmethod
    def accepted(cls, given: object, allow: Callable[[str], bool]) -> tuple[Csp, list[str]]:
        """Return the part of a server's ``_meta.ui.csp`` that a host accepts, and the origins that it refuses."""
        found: dict[str, list[str]] = {}
        refused: list[str] = []
        for name, wire in _FIELDS.items():
            listed = given.get(wire) if type(given) is dict else None
            for each in listed if type(listed) is list else ():
                kept = found.setdefault(name, [])
                if origin_problem(each) is None and len(kept) < MAX_LISTED_ORIGINS and allow(each):
                    kept.append(each)
                elif len(refused) < MAX_LISTED_ORIGINS:
                    refused.append(repr(each)[:100])
        return cls(**found), refused

    def header(self) -> str:
        """Return the value of the header ``Content-Security-Policy``.

        It is that of the specification, or stricter: a page can't connect to where it came from, and can't send forms.
        """
        resources = "".join(f" {each}" for each in self.resources)
        directives = {
            "default-src": "'none'",
            "script-src": "'self' 'unsafe-inline'" + resources,
            "style-src": "'self' 'unsafe-inline'" + resources,
            "img-src": "'self' data:" + resources,
            "font-src": "'self'" + resources if resources else "'none'",
            "media-src": "'self' data:" + resources,
            "connect-src": " ".join(self.connect) or "'none'",
            "frame-src": " ".join(self.frames) or "'none'",
            "object-src": "'none'",
            "base-uri": " ".join(self.base_uris) or "'self'",
            "form-action": "'none'",
        }
        return "; ".join(f"{name} {value}" for name, value in directives.items())


def checked_permissions(given: Iterable[str], what: str) -> tuple[str, ...]:
    """Return the permissions that a page asks for, each once.

    Raises:
        TypeError: If they are not strings.
        ValueError: If there is no such permission.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{what}: permissions must be a list of strings, got {given!r}")
    names = tuple(dict.fromkeys(given))
    for each in names:
        if each not in PERMISSIONS:
            raise ValueError(f"{what}: {each!r} is not a permission; the permissions are {', '.join(PERMISSIONS)}")
    return names


@attrs.frozen
class PagePolicy:
    """The policy of a host for one page, after the metadata that came with the page.

    Attributes:
        csp: The origins that the page may use.
        permissions: The permissions that it has asked for and gets.
        prefers_border: Whether it asks for a border; None if it does not say.
        domain: The origin that it asks for, in a form that depends on the host; None if it does not say.
        refused: The origins that it has declared and does not get, each as text, for a log.
    """

    csp: Csp
    permissions: tuple[str, ...]
    prefers_border: bool | None
    domain: str | None
    refused: tuple[str, ...]

    @classmethod
    def of(
        cls, uri: str, declared: Mapping[str, Any], allow: Callable[[str], bool], grant: Iterable[str]
    ) -> PagePolicy:
        """Make the policy of a page.

        Args:
            uri: The URI of the page.
            declared: Its ``_meta.ui``, as its server sent it.
            allow: Returns whether the host allows an origin.
            grant: The permissions that the host grants.
        """
        csp, refused = Csp.accepted(declared.get("csp"), allow)
        asked, border, domain = declared.get("permissions"), declared.get("prefersBorder"), declared.get("domain")
        if refused:
            logger.warning("the page %r declares origins that it does not get: %s", uri, ", ".join(refused))
        return cls(
            csp,
            # A permission is asked for by an object, as in {"camera": {}}.
            tuple(each for each in grant if type(asked) is dict and type(asked.get(each)) is dict),
            border if type(border) is bool else None,
            domain if type(domain) is str else None,
            tuple(refused),
        )

    @property
    def allow(self) -> str:
        """The value of the attribute ``allow`` of the page's frame."""
        return "; ".join(PERMISSIONS[each] for each in self.permissions)
