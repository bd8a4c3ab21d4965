"""Declares the further arguments of a `ResourceServer`, and checks them."""

import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Annotated, Any, TypedDict

from trio_mcp._checks import check_hook, check_seconds, check_text
from trio_mcp._settings import Default
from trio_mcp.auth.fetching import FetchFunction
from trio_mcp.auth.server.document import checked_url

__all__ = ["ResourceOptions", "checked_names"]


def checked_names(name: str, value: Any) -> Collection[str]:
    """Check a list of non-empty strings, and return it.

    Raises:
        TypeError: If the value is not a list of strings.
        ValueError: If a string is empty.
    """
    if isinstance(value, str) or not isinstance(value, Collection):
        raise TypeError(f"{name} must be a list of strings, got {value!r}")
    for each in value:
        check_text(name, each)
    return value


def _check_nonces(name: str, value: Any) -> None:
    if not isinstance(value, (bool, bytes)):
        raise TypeError(f"{name} must be True, False or bytes, got {type(value).__name__}")
    if isinstance(value, bytes) and len(value) < 32:
        raise ValueError(f"{name} must be a secret of at least 32 bytes, got {len(value)} bytes")


def _check_page(name: str, value: Any) -> None:
    if value is not None:
        checked_url(name, value, query=True)


class ResourceOptions(TypedDict, total=False):
    """Further arguments of a `ResourceServer`.

    Attributes:
        nonces: Whether DPoP proofs must contain a nonce from this server. Bytes are the secret from which nonces are
            made: at least 32 random bytes, which all processes that serve the same resource must share.
        includes: Returns whether one scope includes another; called with a granted scope and a needed one.
        audiences: More names of this server, for issuers that can't put its URL into a token.
        remember: For how many seconds a token that was accepted is not checked again.
        name: The server's name, to show to people.
        documentation: The URL of a page with documentation for developers.
        fetch: Makes the HTTP exchanges with issuers; by default over HTTPS and within bounds.
        clock: Returns the time, in seconds since the epoch.
    """

    nonces: Annotated[bool | bytes, Default(False, _check_nonces)]
    includes: Annotated[Callable[[str, str], bool] | None, Default(check=partial(check_hook, sync=True))]
    audiences: Annotated[Collection[str], Default((), checked_names)]
    remember: Annotated[float, Default(60.0, partial(check_seconds, zero=True, finite=True))]
    name: Annotated[str | None, Default()]
    documentation: Annotated[str | None, Default(check=_check_page)]
    fetch: Annotated[FetchFunction | None, Default(check=check_hook)]
    clock: Annotated[Callable[[], float], Default(time.time)]
