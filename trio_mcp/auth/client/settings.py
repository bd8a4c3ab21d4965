"""Reading the ``"auth"`` entry of a server in a host's configuration file into an object for ``auth=``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from trio_mcp._keywords import did_you_mean
from trio_mcp.auth.client.bearer import BearerToken
from trio_mcp.auth.client.machines import ClientCredentials, WorkloadIdentity
from trio_mcp.auth.client.oauth import OAuth
from trio_mcp.auth.client.stores.files import FileTokens
from trio_mcp.auth.client.stores.keychain import KeyringTokens
from trio_mcp.auth.client.stores.memory import MemoryTokens, TokenStore
from trio_mcp.auth.rules.jose import PrivateKeyJwt
from trio_mcp.auth.rules.registration import RegisteredClient
from trio_mcp.http.client.auth import Auth

__all__ = ["auth_of"]

STORES: Final[dict[str, Callable[[], TokenStore]]] = {
    "file": FileTokens,
    "keyring": KeyringTokens,
    "memory": MemoryTokens,
}

_ARGUMENTS: Final = {
    "scopes": "scopes",
    "metadataUrl": "metadata_url",
    "redirect": "redirect",
    "assumePkce": "assume_pkce",
}
"""The argument of `OAuth` for each key whose value is passed on unchanged."""


def auth_of(settings: object, **further: Any) -> Auth:
    """Return the object for ``auth=`` that the settings describe.

    Args:
        settings: An object with a ``type``: ``"oauth"``, ``"client-credentials"``, ``"workload-identity"`` or
            ``"bearer"``, and the other keys of that type; or only the type, as a string.
        further: Arguments of `OAuth` that the settings leave to the program.

    Raises:
        ValueError: If the settings are invalid. The message names only keys, since values may be secret.
    """
    given = {"type": settings} if isinstance(settings, str) else settings
    if not isinstance(given, Mapping):
        raise ValueError('must be an object with a "type", such as {"type": "oauth"}')
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f'"type" must be one of {", ".join(_KINDS)}{did_you_mean(kind, _KINDS)}')
    make, keys = _KINDS[kind]
    for key, value in given.items():
        if key == "type":
            continue
        # An unknown key is never ignored: it may be a misspelled `issuer`, to which a secret should be limited.
        if key not in keys:
            raise ValueError(f"unknown key {str(key)[:50]!r} for the type {kind!r}{did_you_mean(key, keys)}")
        if keys[key] is list:
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise ValueError(f"{key!r} must be an array of strings")
        elif keys[key] is bool:
            if not isinstance(value, bool):
                raise ValueError(f"{key!r} must be true or false")
        elif not isinstance(value, str) or not value:
            raise ValueError(f"{key!r} must be a non-empty string")
    if "clientId" not in given and ("clientSecret" in given or kind == "client-credentials"):
        raise ValueError("'clientId' is missing")
    return make(given, further)


def _oauth(given: Mapping[str, Any], further: Mapping[str, Any]) -> Auth:
    store = given.get("store", "file")
    if store not in STORES:
        raise ValueError(f"'store' must be one of {', '.join(STORES)}{did_you_mean(store, STORES)}")
    settings: dict[str, Any] = {"store": STORES[store]()}
    if "clientId" in given:
        settings["client"] = RegisteredClient(
            given["clientId"],
            secret=given.get("clientSecret"),
            issuer=given.get("issuer"),
            prompt=given.get("prompt"),
            resource=given.get("resource", True),
        )
    else:
        for key in ("issuer", "prompt", "resource"):
            if key in given:
                raise ValueError(f"{key!r} can be used only with 'clientId'")
    settings |= {name: given[key] for key, name in _ARGUMENTS.items() if key in given}
    return OAuth(**{**settings, **further})


def _client_credentials(given: Mapping[str, Any], further: Mapping[str, Any]) -> Auth:
    if ("clientSecret" in given) == ("privateKeyFile" in given):
        raise ValueError("give either 'clientSecret' or 'privateKeyFile', and not both")
    return ClientCredentials(
        given["clientId"],
        secret=given.get("clientSecret"),
        key=_key(given) if "privateKeyFile" in given else None,
        issuer=given.get("issuer"),
        scopes=given.get("scopes"),
    )


def _key(given: Mapping[str, Any]) -> PrivateKeyJwt:
    try:
        pem = Path(given["privateKeyFile"]).expanduser().read_bytes()
    except OSError as exc:
        raise ValueError(f"'privateKeyFile' can't be read: {exc.strerror}") from None
    return PrivateKeyJwt(pem, given.get("algorithm", "ES256"), given.get("keyId"))


def _workload_identity(given: Mapping[str, Any], further: Mapping[str, Any]) -> Auth:
    if "assertionFile" not in given:
        raise ValueError("'assertionFile' is missing")
    file = Path(given["assertionFile"]).expanduser()
    return WorkloadIdentity(file, issuer=given.get("issuer"), scopes=given.get("scopes"))


def _bearer(given: Mapping[str, Any], further: Mapping[str, Any]) -> Auth:
    if "token" not in given:
        raise ValueError("'token' is missing")
    return BearerToken(given["token"])


_CLIENT: Final[dict[str, type]] = {"clientId": str, "clientSecret": str, "issuer": str, "scopes": list}
_KINDS: Final[dict[str, tuple[Callable[[Mapping[str, Any], Mapping[str, Any]], Auth], dict[str, type]]]] = {
    "oauth": (
        _oauth,
        {
            **_CLIENT,
            "prompt": str,
            "resource": bool,
            "metadataUrl": str,
            "store": str,
            "redirect": str,
            "assumePkce": list,
        },
    ),
    "client-credentials": (
        _client_credentials,
        {**_CLIENT, "privateKeyFile": str, "algorithm": str, "keyId": str},
    ),
    "workload-identity": (_workload_identity, {"assertionFile": str, "issuer": str, "scopes": list}),
    "bearer": (_bearer, {"token": str}),
}
"""For each kind of auth in a configuration: the function that makes the object, and the Python type of each key's
value."""
