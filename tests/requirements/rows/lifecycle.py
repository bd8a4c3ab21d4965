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
        """Return the revision of this request."""
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


@topic.row(
    "basic/lifecycle#initialization",
    "The result of initialize has the server's name and version, what it offers, and may carry instructions.",
    LEGACY,
)
async def initialize_result(case: Case) -> None:
    async with case.greeting() as hand:
        result = await initialized(hand)
    assert (result["serverInfo"]["name"], result["serverInfo"]["version"]) == ("lifecycle", "3.2.1")
    assert result["capabilities"]["tools"] == {"listChanged": True}
    assert not {"prompts", "resources"} & result["capabilities"].keys()
    assert result["instructions"] == "Call version first."


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


@topic.row(
    "basic/lifecycle#initialization", "initialize without version, capabilities or clientInfo is refused.", LEGACY
)
async def malformed(case: Case) -> None:
    async with case.greeting() as hand:
        for field in hand.hello():
            params = {key: value for key, value in hand.hello().items() if key != field}
            assert (await refused(hand, "initialize", params)).error.code == error_codes.INVALID_PARAMS
        assert (await initialized(hand))["protocolVersion"] == case.revision


@topic.row(
    "basic/lifecycle#initialization",
    "Before notifications/initialized a ping is answered, and a change announced only later.",
    LEGACY,
)
async def nothing_before_initialized(case: Case) -> None:
    async with case.greeting() as hand:
        await initialized(hand)
        await hand.call("grow")
        assert await hand.result("ping") == {}
        assert hand.heard_of(CHANGED) == []
        await hand.notify("notifications/initialized")
        await hand.hear(CHANGED)


for _method in "prompts/list", "resources/list", "resources/templates/list", "completion/complete":
    topic.refuses(
        "basic/lifecycle#operation",
        f"{_method} of a server that does not offer it is refused with -32601.",
        _method,
        {},
        code=error_codes.METHOD_NOT_FOUND,
    )
topic.gives(
    "basic/utilities/ping#behavior-requirements", "A ping is answered with an empty result.", ("ping", {}), {}, LEGACY
)
for _revisions, _era, _method, _params in (
    (MODERN, "modern", "ping", {}),
    (MODERN, "modern", "logging/setLevel", {"level": "info"}),
    (MODERN, "modern", "resources/subscribe", {"uri": "x://y"}),
    (LEGACY, "legacy", "server/discover", {}),
    (LEGACY, "legacy", "subscriptions/listen", {"notifications": {}}),
):
    topic.refuses(
        "schema",
        f"{_method} does not exist in the {_era} era: it is refused with -32601.",
        _method,
        _params,
        code=error_codes.METHOD_NOT_FOUND,
        revisions=_revisions,
    )


# --- the modern era ------------------------------------------------------------------------------------------------


for _text, _path, _expected in (
    ("server/discover names every version that the server supports.", ("supportedVersions", sorted), sorted(REVISIONS)),
    ("server/discover declares what the server offers.", ("capabilities", "tools"), {"listChanged": True}),
    ("server/discover declares nothing else.", ("capabilities", "prompts"), None),
    ("server/discover may give instructions.", ("instructions",), "Call version first."),
    (
        "server/discover says who the server is, in _meta.",
        ("_meta", meta.SERVER_INFO),
        {"name": "lifecycle", "version": "3.2.1", "title": "Life cycle"},
    ),
):
    topic.gives("server/discover#discoverresult", _text, ("server/discover", {}, *_path), _expected, MODERN)


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
    "A request of a version that the server does not implement, even a legacy one, is refused with -32022, "
    "which names those it does and the one asked for; the next request is served.",
    MODERN,
    not_over_http=REFUSED,
)
async def unsupported_version(case: Case) -> None:
    async with case.hand() as hand:
        for method in ("tools/list", "server/discover"):
            for version in ("2999-01-01", LATEST_LEGACY):
                error = await hand.error(method, {}, **{meta.PROTOCOL_VERSION: version})
                assert error.code == error_codes.UNSUPPORTED_PROTOCOL_VERSION
                assert error.data["requested"] == version
                assert LATEST_MODERN in error.data["supported"]
        assert (await hand.call("version"))["content"][0]["text"] == case.revision


# --- both eras on one server ---------------------------------------------------------------------------------------

BOTH = "basic/versioning#backward-compatibility-with-initialization-based-versions"


@topic.row(BOTH, "initialize opens a session of the legacy era on a link that has served modern requests.", MODERN)
async def session_after_modern_requests(hand: Peer) -> None:
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
    """
    A modern-only server names its versions in its error to initialize.
        basic/versioning#backward-compatibility-with-initialization-based-versions
        a_modern_server_names_its_versions_to_a_legacy_client modern
    A legacy-only server answers a modern request as old servers do, without modern evidence.
        basic/versioning#backward-compatibility-with-initialization-based-versions
        a_legacy_server_answers_a_modern_probe_as_legacy_servers_do modern
    Any first request is answered, with a result or an error of its era.
        basic/versioning#protocol-version-negotiation whatever_arrives_is_answered
    """,
    tests="tests/protocol/test_negotiation.py::test_",
)
topic.held(
    """
    Requests sent right after initialize are served in order.
        basic/lifecycle#initialization requests_pipelined_behind_initialize_are_served_in_order legacy
    A server sends no requests before notifications/initialized.
        basic/lifecycle#initialization a_server_asks_nothing_before_the_handshake_is_confirmed legacy
    """,
    tests="tests/session/test_lifetime.py::test_",
)
