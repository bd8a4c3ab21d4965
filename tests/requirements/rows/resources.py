"""``server/resources``: the duties of a server that offers resources."""

from __future__ import annotations

from typing import Any

from tests.peer import Peer
from tests.requirements.case import Case
from tests.requirements.model import LEGACY, MODERN, SECRET, Topic, since
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
        raise RuntimeError(f"the password is {SECRET}")

    @made.resource("gone://it")
    async def gone() -> str:
        raise ResourceNotFound("gone://it")

    return made


topic = Topic("Resources", server)

PAGE = "server/resources"
LISTING, READING, CONTENTS = f"{PAGE}#listing-resources", f"{PAGE}#reading-resources", f"{PAGE}#resource-contents"
DATA, ERRORS, ANNOTATIONS = f"{PAGE}#resource", f"{PAGE}#error-handling", f"{PAGE}#annotations"
LISTED: tuple[Any, ...] = ("resources/list", {}, "resources")
CONFIG = (*LISTED, 0)
NOT_FOUND = ((LEGACY, "-32002", error_codes.RESOURCE_NOT_FOUND_LEGACY), (MODERN, "-32602", error_codes.INVALID_PARAMS))


def read(uri: str) -> tuple[Any, ...]:
    return "resources/read", {"uri": uri}, "contents"


@topic.row(f"{PAGE}#capabilities", "A server with resources declares the capability, listChanged and subscribe.")
async def capability(case: Case) -> None:
    async with case.client() as client:
        resources = client.capabilities.resources
    assert resources is not None
    assert (resources.list_changed, resources.subscribe) == (True, True)


topic.gives(
    LISTING,
    "resources/list answers with URI and name of each resource, in the order of their registration.",
    (*LISTED, lambda found: [f"{each['name']} {each['uri']}" for each in found]),
    ["config config://app", "logo image://logo", "folder folder://all", "broken broken://secret", "gone gone://it"],
)
for _field, _text, _expected, _revisions in (
    ("description", "A resource may have a description.", "How the app is set up.", since("2024-11-05")),
    ("mimeType", "A resource may have a MIME type.", "text/plain", since("2024-11-05")),
    ("size", "A resource may say its size in bytes.", 4, since("2025-03-26")),
    ("title", "A resource may have a title for people.", "Configuration", since("2025-06-18")),
):
    topic.gives(DATA, _text, (*CONFIG, _field), _expected, _revisions)
topic.gives(
    DATA,
    "A resource may have icons.",
    (*CONFIG, "icons"),
    [{"src": "https://example.com/i.png", "sizes": ["any"], "theme": "dark"}],
    since("2025-11-25"),
)
topic.gives(
    "basic#_meta", "A resource may have _meta.", (*CONFIG, "_meta"), {"com.example/team": "search"}, since("2025-06-18")
)
topic.gives(
    ANNOTATIONS,
    "A resource may say for whom it is, and how important.",
    (*CONFIG, "annotations", lambda found: [found["audience"], found["priority"]]),
    [["user"], 0.5],
)
topic.gives(
    ANNOTATIONS,
    "A resource may say when it was last modified.",
    (*CONFIG, "annotations", "lastModified"),
    "2025-01-01T00:00:00Z",
    since("2025-06-18"),
)
topic.gives(
    ANNOTATIONS,
    "A resource without details has none of their fields, not even as null.",
    (*LISTED, 1),
    {"uri": "image://logo", "name": "logo", "mimeType": "image/png"},
)
topic.gives(
    CONTENTS,
    "Text is read as text, with its MIME type and the URI that was asked for.",
    read("config://app"),
    [{"uri": "config://app", "text": "text", "mimeType": "text/plain"}],
)
topic.gives(
    CONTENTS,
    "Binary data is read as base64, with its MIME type.",
    read("image://logo"),
    [{"uri": "image://logo", "blob": "iVBOR/8=", "mimeType": "image/png"}],
)
topic.gives(
    READING,
    "A resource may be read as several contents, each with a URI of its own.",
    (*read("folder://all"), lambda found: [each["uri"] for each in found]),
    ["folder://all/a", "folder://all/b"],
)

for _revisions, _code, code in NOT_FOUND:
    for _text, *_uris in (
        ("Reading a resource that does not exist", "config://other"),
        ("Reading a resource whose function reports it missing", "gone://it"),
        (
            "Reading another spelling of a resource's URI",
            *("CONFIG://app", "config://app/", "config://%61pp", "config://app#x"),
        ),
    ):
        params = [{"uri": uri} for uri in _uris]
        _text = f"{_text} is refused with {_code}."
        topic.refuses(ERRORS, _text, "resources/read", *params, code=code, revisions=_revisions)


@topic.row(ERRORS, "The error for a resource that does not exist names its URI in its data.")
async def not_found_uri(hand: Peer) -> None:
    error = await hand.error("resources/read", {"uri": "config://other"})
    assert error.data == {"uri": "config://other"}


topic.refuses(
    ERRORS,
    "A resource that fails is refused with -32603, without internal details.",
    "resources/read",
    {"uri": "broken://secret"},
    code=error_codes.INTERNAL_ERROR,
)
topic.refuses(
    f"{PAGE}#security-considerations",
    "A URI that is missing or not a string is refused with -32602.",
    "resources/read",
    *({}, {"uri": None}, {"uri": 7}, {"uri": ["config://app"]}),
)

# --- subscriptions of the legacy era ----------------------------------------------------------------------------

SUBSCRIPTIONS = f"{PAGE}#subscriptions"
for _method in "resources/subscribe", "resources/unsubscribe":
    topic.gives(
        SUBSCRIPTIONS, f"{_method} is answered with an empty result.", (_method, {"uri": "config://app"}), {}, LEGACY
    )
topic.gives(
    SUBSCRIPTIONS,
    "Unsubscribing from a resource that was never subscribed to succeeds.",
    ("resources/unsubscribe", {"uri": "image://logo"}),
    {},
    LEGACY,
)
topic.refuses(
    SUBSCRIPTIONS,
    "Subscribing to a resource that does not exist is refused with -32002.",
    "resources/subscribe",
    {"uri": "config://other"},
    code=error_codes.RESOURCE_NOT_FOUND_LEGACY,
    revisions=LEGACY,
)
topic.refuses(
    SUBSCRIPTIONS, "Subscribing without a URI is refused with -32602.", "resources/subscribe", {}, revisions=LEGACY
)
topic.held(
    """
    A URI identifies one resource: adding a second one with the same URI fails.
        server/resources#resource resources.py::test_a_uri_is_taken_once
    The number of subscriptions of one client is bounded.
        server/resources#subscriptions listen.py::test_subscriptions_are_bounded legacy
    A path from a client never leads outside the served directory.
        server/resources#security-considerations resources.py::test_safe_join_never_leaves_whatever_the_path
    """,
    tests="tests/server/test_",
)
