"""The arguments that every client of an authorization server takes."""

import time
from collections.abc import Callable, Collection
from typing import Annotated, Any, TypedDict, get_args

from trio_mcp._checks import check_choice, check_hook
from trio_mcp._settings import Default
from trio_mcp.auth.fetching import FetchFunction
from trio_mcp.auth.rules.dpop import DpopUse
from trio_mcp.auth.rules.jose import need_jose
from trio_mcp.auth.rules.urls import UrlPolicy

__all__ = ["TokenOptions"]


def _check_scopes(name: str, value: Any) -> None:
    # A string is refused first, because it would pass as a collection of its characters.
    if isinstance(value, str):
        raise TypeError(f"{name} must be a set of strings; write {set(value.split())!r}")


def _check_dpop(name: str, value: Any) -> None:
    check_choice(name, value, get_args(DpopUse))
    if value == "require":
        need_jose("dpop='require'")


class TokenOptions(TypedDict, total=False):
    """Arguments that `OAuth`, `ClientCredentials`, `WorkloadIdentity` and `IdentityAssertion` have in common.

    Attributes:
        scopes: The scopes to ask for; by default those that the server asks for.
        dpop: Whether tokens are bound to a key of this client (RFC 9449): ``"auto"`` if the server and its
            authorization server support that, ``"require"`` always, or ``"off"`` never.
        urls: The policy for URLs that a server names: which of them are fetched and opened.
        fetch: Makes the HTTP exchanges with authorization servers; the default respects ``urls``, and limits the size
            and time of each exchange.
        clock: Returns the time, in seconds since the epoch.
    """

    scopes: Annotated[Collection[str] | None, Default(check=_check_scopes)]
    dpop: Annotated[DpopUse, Default("auto", _check_dpop)]
    urls: Annotated[UrlPolicy, Default(UrlPolicy())]
    fetch: Annotated[FetchFunction | None, Default(check=check_hook)]
    clock: Annotated[Callable[[], float], Default(time.time)]
