"""Finds the states of the user of a request: whether there is such a user, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from trio_mcp._checks import check_text
from trio_mcp.errors import LocalProtocolError

if TYPE_CHECKING:
    from trio_mcp.principal import Principal
    from trio_mcp.stores.user_states import UserStates

__all__ = ["UserContext", "name_of_state", "states_of_user"]


class UserContext(Protocol):
    """The part of a `Context` that says whose request it is."""

    method: str
    principal: Principal | Any
    settings: Any

    @property
    def connection(self) -> Any: ...

    @property
    def transport_metadata(self) -> Mapping[str, Any]: ...


def states_of_user(context: UserContext) -> tuple[UserStates, str]:
    """Return the states of a server's users, and which of them the user of a request is.

    Raises:
        LocalProtocolError: If the server has no stores, or the request has no user who counts.
    """
    served = context.connection.served
    if served.stores is None:
        raise LocalProtocolError(
            "there is no place for the state of users: give the server that runs one, such as Server(…, "
            'stores="desk.db")'
        )
    states: UserStates = served.user_states.get()
    principal = context.principal
    if principal is None:
        raise LocalProtocolError(
            f"it is not known on whose behalf this {context.method!r} is made, so there is no state of its user: serve "
            "over HTTP with auth=…, or determine the user with Server(principal=…) and "
            "UserStateOptions(trust_principal=True)"
        )
    if served.settings.principal is not None and not states.options.trust_principal:
        raise LocalProtocolError(
            "the user of this request comes from Server(principal=…), which counts for the state of users only with "
            "Server(user_state=UserStateOptions(trust_principal=True)): set it if no caller can choose another user"
        )
    # Subjects are unique only within their issuer: without it, users of two issuers would share a state.
    token = context.transport_metadata.get("principal")
    if principal.issuer is None and token is not None and token.issuer is not None:
        raise LocalProtocolError(
            f"the user of this request has no issuer, although its token comes from {token.issuer}: let "
            "Server(principal=…) return a Principal with that issuer"
        )
    return states, states.user(principal)


def name_of_state(context: UserContext, model: type[Any], name: str | None) -> str:
    """Return the name under which a state is kept.

    Two servers that are mounted in a third may have classes with the same name, which must not share a state.

    Args:
        context: The context of the request.
        model: The class of the state.
        name: The name that was given, if any.

    Raises:
        TypeError, ValueError: If it is not a text.
    """
    if name is not None:
        check_text("name", name)
        return name
    own = getattr(model, "__name__", "")
    settings = context.settings
    return own if settings is context.connection.served.settings else f"{settings.info.name}/{own}"
