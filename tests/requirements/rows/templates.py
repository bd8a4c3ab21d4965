"""``server/resources``, section Resource Templates."""

from __future__ import annotations

from typing import Any

from tests.requirements.case import Case
from tests.requirements.model import LEGACY, MODERN, Topic, since
from trio_mcp import Server, types
from trio_mcp.types import error_codes


def server() -> Server:
    made = Server("templates")

    @made.resource("books://catalogue")
    def catalogue() -> str:
        return "all of them"

    @made.resource("books://{name}", name="book", title="A book", description="A book by name.", mime_type="text/plain")
    def book(name: str) -> str:
        return f"book {name}"

    @made.resource("shelves://{number}{?language}")
    def shelf(number: int, language: str = "en") -> str:
        return f"shelf {number} in {language}"

    @made.resource("files://{+path}", annotations=types.Annotations(audience=["assistant"]))
    def file(path: str) -> str:
        return f"file {path}"

    return made


topic = Topic("Resource templates", server)

TEMPLATES, SECURITY = "server/resources#resource-templates", "server/resources#security-considerations"
LISTED: tuple[Any, ...] = ("resources/templates/list", {}, "resourceTemplates")
BOOK, FILE = (*LISTED, 0), (*LISTED, 2)


def read(uri: str) -> tuple[Any, ...]:
    return "resources/read", {"uri": uri}, "contents", 0, "text"


def missing(section: str, text: str, *uris: str) -> None:
    """Such a URI is refused with the code of the era."""
    for revisions, code in ((LEGACY, error_codes.RESOURCE_NOT_FOUND_LEGACY), (MODERN, error_codes.INVALID_PARAMS)):
        era = "modern" if revisions is MODERN else "legacy"
        params = [{"uri": uri} for uri in uris]
        topic.refuses(section, f"In the {era} era, {text}", "resources/read", *params, code=code, revisions=revisions)


topic.gives(
    TEMPLATES,
    "resources/templates/list answers with the URI template and name of each template.",
    (*LISTED, lambda found: [[each["uriTemplate"], each["name"]] for each in found]),
    [["books://{name}", "book"], ["shelves://{number}{?language}", "shelf"], ["files://{+path}", "file"]],
)
topic.gives(
    TEMPLATES,
    "Templates are not listed as resources, nor resources as templates.",
    ("resources/list", {}, "resources", lambda found: [each["uri"] for each in found]),
    ["books://catalogue"],
)
topic.gives(
    TEMPLATES,
    "A template may have a description and a MIME type.",
    (*BOOK, lambda book: [book["description"], book["mimeType"]]),
    ["A book by name.", "text/plain"],
)
topic.gives(TEMPLATES, "A template may have a title for people.", (*BOOK, "title"), "A book", since("2025-06-18"))
topic.gives(
    "server/resources#annotations",
    "A template may have annotations.",
    (*FILE, "annotations"),
    {"audience": ["assistant"]},
)
for _text, _uri, _expected in (
    ("A URI that a template matches is read, with its variables as they are in the URI.", "books://Emma", "book Emma"),
    ("A variable of a template is percent-decoded, once.", "books://A%20b%2520", "book A b%20"),
    ("Query parameters of a template may be left out.", "shelves://3", "shelf 3 in en"),
    ("Query parameters of a template may be given.", "shelves://3?language=de", "shelf 3 in de"),
    ("A variable with a plus matches several segments of a path.", "files://a/b/c.txt", "file a/b/c.txt"),
    ("A resource with exactly that URI wins over a template that matches it.", "books://catalogue", "all of them"),
):
    topic.gives(TEMPLATES, _text, read(_uri), _expected)


@topic.row(TEMPLATES, "What is read through a template has the URI that was asked for.")
async def uri_of_the_contents(case: Case) -> None:
    async with case.client() as client:
        (contents,) = (await client.read_resource("files://a/b")).contents
        assert contents.uri == "files://a/b"


missing(
    TEMPLATES,
    "a variable without a plus matches one segment only, never a slash, not even an encoded one.",
    "books://a/b",
    "books://a%2Fb",
)
missing(
    SECURITY,
    "a variable without a plus never matches . or .., nor an encoded one.",
    "books://..",
    "books://.",
    "books://%2e%2e",
)
missing(
    SECURITY,
    "a URI whose variables do not fit their types does not exist.",
    "shelves://three",
    "shelves://3.5",
    "shelves://",
)
missing(
    "server/resources#error-handling",
    "a URI that matches no template does not exist.",
    "films://Emma",
    "books:Emma",
    "shelves://3/4",
)
topic.held(
    f"""
    Templates follow RFC 6570.
        {TEMPLATES} expansion_is_that_of_the_rfc
    Matching a template's own expansion returns the values.
        {TEMPLATES} matching_an_expansion_gives_the_values_back
    Matching takes steps in proportion to the length of the URI.
        {SECURITY} the_steps_grow_no_faster_than_the_uri
    """,
    tests="tests/protocol/test_uri_templates.py::test_",
)
