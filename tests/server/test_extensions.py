"""Extensions: declared by both sides, required by methods, and adding result types (2026-07-28 `basic/versioning`)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.harness import LEGACY, MODERN, both_eras, client_of, every_revision
from tests.strategies import json_values
from trio_mcp import CallOptions, Client, Context, McpError, RemoteProtocolError, Server, SessionOptions
from trio_mcp.eras.capabilities import checked_extensions, declared_extensions
from trio_mcp.types.error_codes import METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY

FEATURE = "com.example/feature"
OTHER = "com.example/other"


def serving() -> Server:
    server = Server("test", extensions={FEATURE: {"depth": 3}, OTHER: {}})

    @server.method("com.example/thing", extension=FEATURE)
    async def thing(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"client": ctx.client_extensions}

    @server.method("com.example/defer", extension=FEATURE)
    async def defer(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"resultType": "com.example/deferred", "ticket": 7}

    return server


@every_revision
async def test_both_sides_declare_extensions(revision: str) -> None:
    """Before 2026-07-28, too: capabilities are an open set there, and SEP-2133 shows them in the handshake."""
    async with client_of(serving(), revision, capabilities={"extensions": {FEATURE: {"mode": "fast"}}}) as client:
        assert client.extensions == {FEATURE: {"depth": 3}, OTHER: {}}
        assert client.capabilities.extensions == client.extensions
        assert (await client.request("com.example/thing"))["client"] == {FEATURE: {"mode": "fast"}}


@every_revision
async def test_without_extensions_the_capability_is_left_out(revision: str) -> None:
    server = Server("test")

    @server.method("com.example/capabilities")
    async def capabilities(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"capabilities": ctx.client_capabilities}

    async with client_of(server, revision) as client:
        assert client.extensions == {}
        assert client.capabilities.extensions is None
        assert "extensions" not in (await client.request("com.example/capabilities"))["capabilities"]


@pytest.mark.parametrize("extensions", [{}, {OTHER: {}}])
async def test_a_client_without_the_extension_is_told_so(extensions: dict[str, Any]) -> None:
    """2026-07-28 `basic/index`: -32021 names what is missing; the eras before know no such error."""
    async with client_of(serving(), MODERN, capabilities={"extensions": extensions}) as client:
        with pytest.raises(McpError, match=f"needs the extension '{FEATURE}'") as caught:
            await client.request("com.example/thing")
    assert caught.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert caught.value.data == {"requiredCapabilities": {"extensions": {FEATURE: {}}}}
    async with client_of(serving(), LEGACY, capabilities={"extensions": extensions}) as client:
        with pytest.raises(McpError, match=r"unknown method 'com\.example/thing'") as caught:
            await client.request("com.example/thing")
    assert caught.value.code == METHOD_NOT_FOUND


async def test_a_result_type_of_an_extension() -> None:
    """`basic/index`, ResultType: known are those of the protocol and of the extensions that the client declares."""
    declared = {"extensions": {FEATURE: {"mode": "fast"}}}
    knowing = SessionOptions(calls=CallOptions(result_types=["com.example/deferred"]))
    async with client_of(serving(), capabilities=declared, options=knowing) as client:
        result = await client.request("com.example/defer")
        assert (result["resultType"], result["ticket"]) == ("com.example/deferred", 7)
        client.session.set_log_level("info")  # makes the era anew
        assert (await client.request("com.example/defer"))["ticket"] == 7
    async with client_of(serving(), capabilities=declared) as client:
        with pytest.raises(RemoteProtocolError, match=r"unknown resultType 'com\.example/deferred'"):
            await client.request("com.example/defer")


@both_eras
async def test_what_one_side_does_with_its_settings_does_not_reach_the_other(revision: str) -> None:
    settings: dict[str, Any] = {"depth": [3]}
    server = Server("test", extensions={FEATURE: settings})
    async with client_of(server, revision) as client:
        client.extensions[FEATURE]["depth"].append(4)
        settings["depth"].append(5)
    async with client_of(server, revision) as client:
        assert client.extensions == {FEATURE: {"depth": [3]}}


def test_a_method_belongs_to_an_extension_that_is_declared() -> None:
    with pytest.raises(ValueError, match=r"the extension 'com.example/feature' is not declared; pass extensions="):
        Server("test").method("com.example/thing", extension=FEATURE)(lambda params, ctx: None)


@pytest.mark.parametrize(
    ("extensions", "error", "message"),
    [
        ({"feature": {}}, ValueError, "'feature' is not a valid extension identifier: it must be a prefix"),
        *(
            ({name: {}}, ValueError, "is not a valid extension identifier")
            for name in ("com.example/", "/feature", "1com/feature", "com.example/a/b", 5)
        ),
        ({FEATURE: None}, TypeError, "the settings of the extension 'com.example/feature' must be a mapping"),
        ([FEATURE], TypeError, "extensions must map identifiers to settings, got list"),
    ],
)
def test_an_invalid_extension_is_refused(extensions: Any, error: type[Exception], message: str) -> None:
    """2026-07-28 `basic/versioning`: an identifier is like a key of `_meta`, with a mandatory prefix."""
    with pytest.raises(error, match=message):
        Server("test", extensions=extensions)
    with pytest.raises(error, match=message):
        Client(Server("x"), capabilities={"extensions": extensions})


def test_result_types_belong_to_extensions() -> None:
    with pytest.raises(ValueError, match=r'pass capabilities=\{"extensions": …\} too'):
        Client(Server("x"), options=SessionOptions(calls=CallOptions(result_types=["com.example/deferred"])))
    with pytest.raises(TypeError, match="result_types must be a list of strings"):
        CallOptions(result_types="com.example/deferred")


@given(st.one_of(json_values(), st.dictionaries(st.just("extensions"), json_values())))
def test_malformed_declarations_are_left_out(value: Any) -> None:
    """Whatever a peer declares, reading it gives a mapping of identifiers to settings."""
    found = declared_extensions(value if isinstance(value, dict) else {"extensions": value})
    assert all(isinstance(settings, dict) for settings in found.values())


LABELS = st.from_regex(r"[a-zA-Z]([a-zA-Z0-9-]{0,5}[a-zA-Z0-9])?", fullmatch=True)
NAMES = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,5}[a-zA-Z0-9])?", fullmatch=True)


@given(st.lists(LABELS, min_size=1, max_size=3), NAMES)
def test_every_valid_identifier_is_accepted(labels: list[str], name: str) -> None:
    identifier = f"{'.'.join(labels)}/{name}"
    assert checked_extensions({identifier: {"a": 1}}, "server") == {identifier: {"a": 1}}
