"""``server/resources``: what a server that offers resources has to do."""

from __future__ import annotations

import base64
from typing import Any

from tests.requirements.case import Case
from tests.requirements.model import LEGACY, MODERN, Topic, since
from trio_mcp import Server, types
from trio_mcp.server.features.resources import ResourceNotFound
from trio_mcp.types import error_codes

ICON = types.Icon(src="https://example.com/i.png", sizes=["any"], theme="dark")
NOTES = types.Annotations(audience=["user"], priority=0.5, last_modified="2025-01-01T00:00:00Z")


def server() -> Server:
    made = Server("resources")

    @made.resource(
        "config://app",
        name="config",
        title="Configuration",
        description="How the app is set up.",
        mime_type="text/plain",
        size=4,
        annotations=NOTES,
        icons=[ICON],
        meta={"com.example/team": "search"},
    )
    def config() -> str:
        return "text"

    @made.resource("image://logo", mime_type="image/png")
    async def logo() -> bytes:
        return b"\x89PNG\xff"

    @made.resource("folder://all")
    async def folder() -> list[types.TextResourceContents]:
        return [types.TextResourceContents(uri=f"folder://all/{name}", text=name) for name in "ab"]

    @made.resource("broken://secret")
    async def broken() -> str:
        raise RuntimeError("the password is hunter2")

    @made.resource("gone://it")
    async def gone() -> str:
        raise ResourceNotFound("gone://it")

    return made


topic = Topic("Resources", server)

LISTING = "server/resources#listing-resources"
READING = "server/resources#reading-resources"
CONTENTS = "server/resources#resource-contents"
DATA = "server/resources#resource"
ERRORS = "server/resources#error-handling"


async def listed(case: Case, uri: str = "config://app") -> dict[str, Any]:
    async with case.client() as client:
        found = (await client.request("resources/list"))["resources"]
    (resource,) = [each for each in found if each["uri"] == uri]
    return dict(resource)


async def read(case: Case, uri: str) -> list[dict[str, Any]]:
    async with case.client() as client:
        return list((await client.request("resources/read", {"uri": uri}))["contents"])


@topic.row("server/resources#capabilities", "A server with resources declares the capability.")
async def capability(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.resources is not None


@topic.row(
    "server/resources#capabilities",
    "A server that announces changes of its resources declares listChanged and subscribe.",
)
async def optional_capabilities(case: Case) -> None:
    async with case.client() as client:
        resources = client.capabilities.resources
    assert resources is not None
    assert (resources.list_changed, resources.subscribe) == (True, True)


@topic.row(LISTING, "resources/list answers with URI and name of each resource.")
async def uris_and_names(case: Case) -> None:
    async with case.client() as client:
        found = (await client.request("resources/list"))["resources"]
    assert [each["uri"] for each in found] == [
        "config://app",
        "image://logo",
        "folder://all",
        "broken://secret",
        "gone://it",
    ]
    assert all(each["name"] for each in found)


@topic.row(LISTING, "resources/list gives the same order each time.")
async def same_order(case: Case) -> None:
    async with case.client() as client:
        assert await client.request("resources/list") == await client.request("resources/list")


@topic.row(DATA, "A resource may have a description and a MIME type.")
async def described(case: Case) -> None:
    resource = await listed(case)
    assert (resource["description"], resource["mimeType"]) == ("How the app is set up.", "text/plain")


@topic.row(DATA, "A resource may say its size in bytes.", since("2025-03-26"))
async def size(case: Case) -> None:
    assert (await listed(case))["size"] == 4


@topic.row(DATA, "A resource may have a title for people.", since("2025-06-18"))
async def title(case: Case) -> None:
    assert (await listed(case))["title"] == "Configuration"


@topic.row(DATA, "A resource may have icons.", since("2025-11-25"))
async def icons(case: Case) -> None:
    assert (await listed(case))["icons"] == [{"src": "https://example.com/i.png", "sizes": ["any"], "theme": "dark"}]


@topic.row("basic#_meta", "A resource may have _meta.", since("2025-06-18"))
async def own_meta(case: Case) -> None:
    assert (await listed(case))["_meta"] == {"com.example/team": "search"}


@topic.row("server/resources#annotations", "A resource may say for whom it is, and how important.")
async def annotations(case: Case) -> None:
    found = (await listed(case))["annotations"]
    assert (found["audience"], found["priority"]) == (["user"], 0.5)


@topic.row("server/resources#annotations", "A resource may say when it was last modified.", since("2025-06-18"))
async def last_modified(case: Case) -> None:
    assert (await listed(case))["annotations"]["lastModified"] == "2025-01-01T00:00:00Z"


@topic.row("server/resources#annotations", "A resource without details has none of their fields, not even as null.")
async def bare(case: Case) -> None:
    assert await listed(case, "image://logo") == {"uri": "image://logo", "name": "logo", "mimeType": "image/png"}


@topic.row(READING, "resources/read answers with contents of the URI that was asked for.")
async def contents_of_the_uri(case: Case) -> None:
    assert [each["uri"] for each in await read(case, "config://app")] == ["config://app"]


@topic.row(CONTENTS, "Text is read as text, with its MIME type.")
async def text(case: Case) -> None:
    (contents,) = await read(case, "config://app")
    assert (contents["text"], contents["mimeType"]) == ("text", "text/plain")
    assert "blob" not in contents


@topic.row(CONTENTS, "Binary data is read as base64, with its MIME type.")
async def blob(case: Case) -> None:
    (contents,) = await read(case, "image://logo")
    assert base64.b64decode(contents["blob"], validate=True) == b"\x89PNG\xff"
    assert contents["mimeType"] == "image/png"
    assert "text" not in contents


@topic.row(READING, "A resource may be read as several contents, each with a URI of its own.")
async def several(case: Case) -> None:
    assert [each["uri"] for each in await read(case, "folder://all")] == ["folder://all/a", "folder://all/b"]


async def refused(case: Case, params: dict[str, Any], method: str = "resources/read") -> Any:
    async with case.hand() as hand:
        return await hand.error(method, params)


@topic.row(ERRORS, "Reading a resource that does not exist is refused with -32602.", MODERN)
async def not_found(case: Case) -> None:
    assert (await refused(case, {"uri": "config://other"})).code == error_codes.INVALID_PARAMS


@topic.row(ERRORS, "Reading a resource that does not exist is refused with -32002.", LEGACY)
async def not_found_before(case: Case) -> None:
    assert (await refused(case, {"uri": "config://other"})).code == error_codes.RESOURCE_NOT_FOUND_LEGACY


@topic.row(ERRORS, "A resource whose function reports it missing is refused like an unknown one.")
async def found_missing(case: Case) -> None:
    gone = await refused(case, {"uri": "gone://it"})
    assert gone.code == (error_codes.INVALID_PARAMS if case.modern else error_codes.RESOURCE_NOT_FOUND_LEGACY)


@topic.row(ERRORS, "The error for a resource that does not exist names its URI in its data.")
async def not_found_uri(case: Case) -> None:
    assert (await refused(case, {"uri": "config://other"})).data == {"uri": "config://other"}


@topic.row(ERRORS, "A resource that fails is refused with -32603, without internal details.")
async def failure(case: Case) -> None:
    error = await refused(case, {"uri": "broken://secret"})
    assert error.code == error_codes.INTERNAL_ERROR
    assert "hunter2" not in f"{error.message} {error.data}"


@topic.row("server/resources#security-considerations", "A URI that is missing or not a string is refused with -32602.")
async def malformed_uri(case: Case) -> None:
    async with case.hand() as hand:
        for params in ({}, {"uri": None}, {"uri": 7}, {"uri": ["config://app"]}):
            assert (await hand.error("resources/read", params)).code == error_codes.INVALID_PARAMS


@topic.row(DATA, "The URI of a resource is taken literally: another spelling of it is another resource.")
async def literal_uri(case: Case) -> None:
    async with case.hand() as hand:
        for uri in ("CONFIG://app", "config://app/", "config://%61pp", "config://app#x"):
            code = (await hand.error("resources/read", {"uri": uri})).code
            assert code in (error_codes.INVALID_PARAMS, error_codes.RESOURCE_NOT_FOUND_LEGACY)


# --- subscriptions of the legacy era ----------------------------------------------------------------------------

SUBSCRIPTIONS = "server/resources#subscriptions"


@topic.row(SUBSCRIPTIONS, "resources/subscribe and resources/unsubscribe are answered with an empty result.", LEGACY)
async def subscribing(case: Case) -> None:
    async with case.hand() as hand:
        assert await hand.result("resources/subscribe", {"uri": "config://app"}) == {}
        assert await hand.result("resources/unsubscribe", {"uri": "config://app"}) == {}


@topic.row(SUBSCRIPTIONS, "Subscribing to a resource that does not exist is refused with -32002.", LEGACY)
async def subscribing_to_nothing(case: Case) -> None:
    error = await refused(case, {"uri": "config://other"}, "resources/subscribe")
    assert error.code == error_codes.RESOURCE_NOT_FOUND_LEGACY


@topic.row(SUBSCRIPTIONS, "Unsubscribing from a resource that was never subscribed to succeeds.", LEGACY)
async def unsubscribing_from_nothing(case: Case) -> None:
    async with case.hand() as hand:
        assert await hand.result("resources/unsubscribe", {"uri": "config://app"}) == {}


@topic.row(SUBSCRIPTIONS, "Subscribing without a URI is refused with -32602.", LEGACY)
async def subscribing_without_uri(case: Case) -> None:
    assert (await refused(case, {}, "resources/subscribe")).code == error_codes.INVALID_PARAMS


topic.held(
    "uri_once",
    DATA,
    "A URI identifies one resource: adding a second one with the same URI fails.",
    "tests/server/test_resources.py::test_a_uri_is_taken_once",
)
topic.held(
    "subscriptions_bounded",
    SUBSCRIPTIONS,
    "The number of subscriptions of one client is bounded.",
    "tests/server/test_resources_changes.py::test_subscriptions_are_bounded",
    LEGACY,
)
topic.held(
    "paths_stay_inside",
    "server/resources#security-considerations",
    "A path from a client never leads outside the served directory.",
    "tests/server/test_resources_paths.py::test_safe_join_never_leaves_whatever_the_path",
)
