"""``basic/lifecycle`` of the legacy era, ``basic/versioning`` and ``server/discover`` of the modern one."""

from __future__ import annotations

from typing import Any

from tests.peer import Peer
from tests.requirements.case import Case
from tests.requirements.model import ALL, ALONE, LEGACY, MODERN, REFUSED, Topic
from trio_mcp import Context, Server, types
from trio_mcp.jsonrpc.messages import ErrorResponse, Notification, Request, Response
from trio_mcp.types import error_codes, meta
from trio_mcp.types.versions import LATEST_LEGACY, LATEST_MODERN, REVISIONS


def server() -> Server:
    name = types.Implementation(name="lifecycle", version="3.2.1", title="Life cycle")
    made = Server(name, instructions="Call version first.")

    @made.tool
    async def version(ctx: Context) -> str:
        """Say which revision this request speaks."""
        return ctx.protocol_version

    @made.tool
    async def grow() -> None:
        """Add a tool."""

        async def another() -> None:
            """Do nothing."""

        made.add_tool(another)

    return made


topic = Topic("Versions and the handshake", server)

CHANGED = "notifications/tools/list_changed"


async def initialized(hand: Peer, **changes: Any) -> dict[str, Any]:
    return await hand.result("initialize", {**hand.hello(), **changes})


async def refused(hand: Peer, method: str, params: dict[str, Any] | None) -> ErrorResponse:
    """The error that answers a request which is sent as it is."""
    await hand.send(Request("refused", method, params))
    answer = await hand.answer("refused")
    assert isinstance(answer, ErrorResponse), answer
    return answer


# --- the handshake -------------------------------------------------------------------------------------------------


@topic.row(
    "basic/lifecycle#version-negotiation",
    "A server answers initialize with the requested version, if it supports that.",
    LEGACY,
)
async def same_version(case: Case) -> None:
    async with case.greeting() as hand:
        assert (await initialized(hand))["protocolVersion"] == case.revision


@topic.row(
    "basic/lifecycle#version-negotiation",
    "A server that does not know the version asked for answers with its latest legacy version.",
    LEGACY,
)
async def unknown_version(case: Case) -> None:
    for version in ("1999-01-01", "2999-01-01", ""):
        async with case.greeting() as hand:
            assert (await initialized(hand, protocolVersion=version))["protocolVersion"] == LATEST_LEGACY


@topic.row("basic/lifecycle#initialization", "The result of initialize has the server's name and version.", LEGACY)
async def server_info(case: Case) -> None:
    async with case.greeting() as hand:
        info = (await initialized(hand))["serverInfo"]
    assert (info["name"], info["version"]) == ("lifecycle", "3.2.1")


@topic.row("basic/lifecycle#initialization", "The result of initialize declares what the server offers.", LEGACY)
async def declared(case: Case) -> None:
    async with case.greeting() as hand:
        capabilities = (await initialized(hand))["capabilities"]
    assert capabilities["tools"] == {"listChanged": True}
    assert "prompts" not in capabilities
    assert "resources" not in capabilities


@topic.row("basic/lifecycle#initialization", "The result of initialize may carry instructions.", LEGACY)
async def instructions(case: Case) -> None:
    async with case.greeting() as hand:
        assert (await initialized(hand))["instructions"] == "Call version first."


@topic.row("basic/lifecycle#initialization", "After the handshake every request uses the negotiated version.", LEGACY)
async def version_of_the_session(case: Case) -> None:
    async with case.hand() as hand:
        assert (await hand.call("version"))["content"][0]["text"] == case.revision


@topic.row("basic/lifecycle#initialization", "A request before initialize is refused.", LEGACY)
async def request_before(case: Case) -> None:
    async with case.greeting() as hand:
        error = (await refused(hand, "tools/list", None)).error
        assert error.code in (error_codes.INVALID_REQUEST, error_codes.INVALID_PARAMS)
        assert (await initialized(hand))["protocolVersion"] == case.revision


@topic.row(
    "basic/lifecycle#initialization",
    "A second initialize is refused, and the session is unchanged.",
    LEGACY,
    not_over_http=REFUSED,
)
async def initialize_twice(case: Case) -> None:
    async with case.hand() as hand:
        error = await hand.error("initialize", {**hand.hello(), "protocolVersion": "2024-11-05"})
        assert error.code == error_codes.INVALID_REQUEST
        assert (await hand.call("version"))["content"][0]["text"] == case.revision


def _malformed(name: str, text: str, **changes: Any) -> None:
    async def scenario(case: Case) -> None:
        async with case.greeting() as hand:
            params = {key: value for key, value in {**hand.hello(), **changes}.items() if value is not None}
            assert (await refused(hand, "initialize", params)).error.code == error_codes.INVALID_PARAMS
            assert (await initialized(hand))["protocolVersion"] == case.revision

    scenario.__name__ = name
    topic.row("basic/lifecycle#initialization", text, LEGACY)(scenario)


_malformed("initialize_without_version", "initialize without a protocolVersion is refused.", protocolVersion=None)
_malformed("initialize_without_capabilities", "initialize without capabilities is refused.", capabilities=None)
_malformed("initialize_without_client_info", "initialize without clientInfo is refused.", clientInfo=None)


@topic.row(
    "basic/lifecycle#initialization", "A change before notifications/initialized is announced only afterwards.", LEGACY
)
async def nothing_before_initialized(case: Case) -> None:
    async with case.greeting() as hand:
        await initialized(hand)
        await hand.call("grow")
        await hand.result("ping")
        assert hand.heard_of(CHANGED) == []
        await hand.notify("notifications/initialized")
        await hand.hear(CHANGED)


@topic.row(
    "basic/lifecycle#initialization", "A ping is answered between initialize and notifications/initialized.", LEGACY
)
async def ping_before_initialized(case: Case) -> None:
    async with case.greeting() as hand:
        await initialized(hand)
        assert await hand.result("ping") == {}


@topic.row("basic/lifecycle#operation", "A method of an undeclared capability is refused with -32601.", LEGACY)
async def undeclared(case: Case) -> None:
    async with case.hand() as hand:
        for method in ("prompts/list", "resources/list", "resources/templates/list", "completion/complete"):
            assert (await hand.error(method, {})).code == error_codes.METHOD_NOT_FOUND, method


@topic.row(
    "basic/versioning#protocol-version-negotiation",
    "A feature the server does not offer is refused with -32601.",
    MODERN,
)
async def not_offered(case: Case) -> None:
    async with case.hand() as hand:
        for method in ("prompts/list", "resources/list", "resources/templates/list", "completion/complete"):
            assert (await hand.error(method, {})).code == error_codes.METHOD_NOT_FOUND, method


@topic.row("basic/utilities/ping#behavior-requirements", "A ping is answered with an empty result.", LEGACY)
async def ping(case: Case) -> None:
    async with case.hand() as hand:
        assert await hand.result("ping") == {}


@topic.row("schema", "ping is not a method of this revision: it is refused with -32601.", MODERN)
async def no_ping(case: Case) -> None:
    async with case.hand() as hand:
        assert (await hand.error("ping")).code == error_codes.METHOD_NOT_FOUND


def _absent(revisions: tuple[str, ...], era: str, method: str, params: dict[str, Any]) -> None:
    async def scenario(case: Case) -> None:
        async with case.hand() as hand:
            assert (await hand.error(method, params)).code == error_codes.METHOD_NOT_FOUND

    scenario.__name__ = "no_" + method.replace("/", "_").lower()
    topic.row("schema", f"{method} does not exist in the {era} era: it is refused with -32601.", revisions)(scenario)


_absent(MODERN, "modern", "logging/setLevel", {"level": "info"})
_absent(MODERN, "modern", "resources/subscribe", {"uri": "x://y"})
_absent(LEGACY, "legacy", "server/discover", {})
_absent(LEGACY, "legacy", "subscriptions/listen", {"notifications": {}})


# --- the modern era ------------------------------------------------------------------------------------------------


@topic.row("server/discover#discoverresult", "server/discover names every version that the server supports.", MODERN)
async def discovered_versions(case: Case) -> None:
    async with case.hand() as hand:
        assert sorted((await hand.result("server/discover"))["supportedVersions"]) == sorted(REVISIONS)


@topic.row("server/discover#discoverresult", "server/discover declares what the server offers.", MODERN)
async def discovered_capabilities(case: Case) -> None:
    async with case.hand() as hand:
        capabilities = (await hand.result("server/discover"))["capabilities"]
    assert capabilities["tools"] == {"listChanged": True}
    assert "prompts" not in capabilities


@topic.row("server/discover#discoverresult", "server/discover may give instructions.", MODERN)
async def discovered_instructions(case: Case) -> None:
    async with case.hand() as hand:
        assert (await hand.result("server/discover"))["instructions"] == "Call version first."


@topic.row("server/discover#discoverresult", "server/discover says who the server is, in _meta.", MODERN)
async def discovered_info(case: Case) -> None:
    async with case.hand() as hand:
        info = (await hand.result("server/discover"))["_meta"][meta.SERVER_INFO]
    assert info == {"name": "lifecycle", "version": "3.2.1", "title": "Life cycle"}


@topic.row(
    "server/discover#when-to-call",
    "A client need not call server/discover, and may call it late and repeatedly.",
    MODERN,
)
async def discovery_is_optional(case: Case) -> None:
    async with case.hand() as hand:
        assert (await hand.call("version"))["content"][0]["text"] == case.revision
        assert await hand.result("server/discover") == await hand.result("server/discover")


@topic.row(
    "basic/versioning#protocol-version-negotiation",
    "A request of a version that the server does not implement is refused with -32022, "
    "which names those it does and the one asked for.",
    MODERN,
    not_over_http=REFUSED,
)
async def unsupported_version(case: Case) -> None:
    async with case.hand() as hand:
        error = await hand.error("tools/list", {}, **{meta.PROTOCOL_VERSION: "2999-01-01"})
    assert error.code == error_codes.UNSUPPORTED_PROTOCOL_VERSION
    assert error.data["requested"] == "2999-01-01"
    assert LATEST_MODERN in error.data["supported"]


@topic.row(
    "basic/versioning#protocol-version-negotiation",
    "server/discover of a version that the server does not implement is refused with -32022 as well.",
    MODERN,
    not_over_http=REFUSED,
)
async def unsupported_discovery(case: Case) -> None:
    async with case.hand() as hand:
        error = await hand.error("server/discover", {}, **{meta.PROTOCOL_VERSION: "2999-01-01"})
    assert error.code == error_codes.UNSUPPORTED_PROTOCOL_VERSION
    assert LATEST_MODERN in error.data["supported"]


@topic.row(
    "basic/versioning#protocol-version-negotiation",
    "A legacy version in the _meta of a request is refused with -32022: only initialize negotiates it.",
    MODERN,
    not_over_http=REFUSED,
)
async def handshake_version_in_meta(case: Case) -> None:
    async with case.hand() as hand:
        error = await hand.error("tools/list", {}, **{meta.PROTOCOL_VERSION: LATEST_LEGACY})
    assert error.code == error_codes.UNSUPPORTED_PROTOCOL_VERSION


@topic.row(
    "basic/versioning#protocol-version-negotiation", "After a refused version the next request is served.", MODERN
)
async def after_an_unsupported_version(case: Case) -> None:
    async with case.hand() as hand:
        await hand.error("tools/list", {}, **{meta.PROTOCOL_VERSION: "2999-01-01"})
        assert (await hand.call("version"))["content"][0]["text"] == case.revision


# --- both eras on one server ---------------------------------------------------------------------------------------

BOTH = "basic/versioning#backward-compatibility-with-initialization-based-versions"


@topic.row(BOTH, "initialize opens a session of the legacy era on a link that has served modern requests.", MODERN)
async def session_after_modern_requests(case: Case) -> None:
    async with case.hand() as hand:
        await hand.call("version")
        old = Peer(hand.link, LATEST_LEGACY, {})
        assert (await initialized(old))["protocolVersion"] == LATEST_LEGACY
        await old.notify("notifications/initialized")
        assert (await old.call("version"))["content"][0]["text"] == LATEST_LEGACY


@topic.row(
    BOTH,
    "On a link with a session, a request with modern _meta is served statelessly.",
    MODERN,
    not_over_http=ALONE,
)
async def modern_request_in_a_session(case: Case) -> None:
    async with case.greeting() as hand:
        old = Peer(hand.link, "2024-11-05", {})
        await initialized(old)
        await old.send(Notification("notifications/initialized"))
        assert (await hand.call("version"))["content"][0]["text"] == case.revision
        await old.send(Request("old", "tools/call", {"name": "version"}))
        answer = await old.answer("old")
    assert isinstance(answer, Response)
    assert answer.result["content"][0]["text"] == "2024-11-05"


@topic.row("schema", "Fields that an older revision does not know are left out for its clients.", ALL)
async def results_of_the_revision(case: Case) -> None:
    async with case.hand() as hand:
        result = await hand.result("tools/list")
    assert ("resultType" in result) == case.modern
    assert ("ttlMs" in result) == case.modern
    assert ("outputSchema" in result["tools"][0]) == (case.revision >= "2025-06-18")


topic.held(
    "modern_only",
    BOTH,
    "A modern-only server names its versions in its error to initialize.",
    "tests/protocol/test_negotiation.py::test_a_modern_server_names_its_versions_to_a_legacy_client",
    MODERN,
)
topic.held(
    "legacy_only",
    BOTH,
    "A legacy-only server answers a modern request as old servers do, without modern evidence.",
    "tests/protocol/test_negotiation.py::test_a_legacy_server_answers_a_modern_probe_as_legacy_servers_do",
    MODERN,
)
topic.held(
    "pipelined",
    "basic/lifecycle#initialization",
    "Requests sent right after initialize are served in order.",
    "tests/session/test_opening.py::test_requests_pipelined_behind_initialize_are_served_in_order",
    LEGACY,
)
topic.held(
    "no_questions_before_initialized",
    "basic/lifecycle#initialization",
    "A server sends no requests before notifications/initialized.",
    "tests/session/test_opening.py::test_a_server_asks_nothing_before_the_handshake_is_confirmed",
    LEGACY,
)
topic.held(
    "whatever_arrives",
    "basic/versioning#protocol-version-negotiation",
    "Any first request is answered, with a result or an error of its era.",
    "tests/protocol/test_negotiation.py::test_whatever_arrives_is_answered",
)
