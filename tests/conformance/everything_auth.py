"""How the everything-client signs in: one table of settings, with the public API.

The suite's authorization servers redirect at once, so the person is a browser that follows no redirection: what it was
redirected to is what a person would paste.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs
import httpx

from trio_mcp import Client
from trio_mcp.auth import ClientCredentials, IdentityAssertion, OAuth, PrivateKeyJwt, RegisteredClient, WorkloadIdentity
from trio_mcp.errors import AuthorizationError

Context: TypeAlias = Mapping[str, Any]
"""What the suite tells the client beside the URL."""

DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The metadata document of a client that the suite's servers take for known."""


async def browse(url: str) -> str:
    async with httpx.AsyncClient() as browser:
        return (await browser.get(url)).headers["Location"]


def person(**settings: Any) -> OAuth:
    return OAuth(show=browse, **settings)


def registered(context: Context) -> OAuth:
    return person(
        client=RegisteredClient(context["client_id"], secret=context["client_secret"], issuer=context["issuer"])
    )


def program(context: Context) -> ClientCredentials:
    key = context.get("private_key_pem")
    return ClientCredentials(
        context["client_id"],
        secret=context.get("client_secret"),
        key=key and PrivateKeyJwt(key, context["signing_algorithm"]),
    )


def employee(context: Context) -> IdentityAssertion:
    async def id_token() -> str:
        return str(context["idp_id_token"])

    return IdentityAssertion(
        context["idp_issuer"],
        id_token,
        client=RegisteredClient(context["client_id"], secret=context["client_secret"]),
        idp_client=RegisteredClient(context["idp_client_id"]),
    )


def workload(context: Context) -> WorkloadIdentity:
    async def assertion(issuer: str, token_endpoint: str, resource: str | None) -> str:
        return str(context["valid_jwt"])

    return WorkloadIdentity(assertion)


@attrs.frozen
class Settings:
    """How one scenario is played.

    Attributes:
        auth: Makes the ``auth=`` of the client.
        refused: The step at which the library has to refuse what the server says; None if it has to succeed.
    """

    auth: Callable[[Context], Any] = lambda context: person()
    refused: str | None = None


SETTINGS: dict[str, Settings] = {
    "basic-cimd": Settings(lambda context: person(metadata_url=DOCUMENT)),
    "pre-registration": Settings(registered),
    "client-credentials-basic": Settings(program),
    "client-credentials-jwt": Settings(program),
    "enterprise-managed-authorization": Settings(employee),
    "wif-jwt-bearer": Settings(workload),
    "scope-retry-limit": Settings(refused="authorization"),
    "resource-mismatch": Settings(refused="resource metadata"),
    "metadata-issuer-mismatch": Settings(refused="authorization server metadata"),
    "iss-supported-missing": Settings(refused="redirection"),
    "iss-wrong-issuer": Settings(refused="redirection"),
    "iss-unexpected": Settings(refused="redirection"),
    "iss-normalized": Settings(refused="redirection"),
}
"""Scenarios other than those in which a person signs in, and nothing is wrong."""


async def sign_in(url: str, mode: str, scenario: str, context: Context) -> None:
    """Play a scenario: list the tools, and call one."""
    settings = SETTINGS.get(scenario, Settings())
    try:
        async with Client(url, mode=mode, auth=settings.auth(context)) as client:
            await client.list_tools()
            await client.call_tool("test-tool")
    except AuthorizationError as error:
        if error.step != settings.refused:
            raise
    else:
        assert settings.refused is None, f"nothing was refused at the step {settings.refused}"
