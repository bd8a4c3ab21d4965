"""``server/resources``, section Resource Templates."""

from __future__ import annotations

from typing import Any

from tests.requirements.case import Case
from tests.requirements.model import Topic, since
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

TEMPLATES = "server/resources#resource-templates"


async def listed(case: Case, name: str) -> dict[str, Any]:
    async with case.client() as client:
        found = (await client.request("resources/templates/list"))["resourceTemplates"]
    return dict(next(each for each in found if each["name"] == name))


async def text_of(case: Case, uri: str) -> str:
    async with case.client() as client:
        (contents,) = (await client.request("resources/read", {"uri": uri}))["contents"]
    assert contents["uri"] == uri
    return str(contents["text"])


async def missing(case: Case, *uris: str) -> None:
    async with case.hand() as hand:
        for uri in uris:
            error = await hand.error("resources/read", {"uri": uri})
            assert error.code == (error_codes.INVALID_PARAMS if case.modern else error_codes.RESOURCE_NOT_FOUND_LEGACY)


@topic.row(TEMPLATES, "resources/templates/list answers with the URI template and name of each template.")
async def templates(case: Case) -> None:
    async with case.client() as client:
        found = (await client.request("resources/templates/list"))["resourceTemplates"]
    assert [(each["uriTemplate"], each["name"]) for each in found] == [
        ("books://{name}", "book"),
        ("shelves://{number}{?language}", "shelf"),
        ("files://{+path}", "file"),
    ]


@topic.row(TEMPLATES, "Templates are not listed as resources, nor resources as templates.")
async def apart(case: Case) -> None:
    async with case.client() as client:
        assert [each["uri"] for each in (await client.request("resources/list"))["resources"]] == ["books://catalogue"]
        found = (await client.request("resources/templates/list"))["resourceTemplates"]
    assert "books://catalogue" not in [each["uriTemplate"] for each in found]


@topic.row(TEMPLATES, "A template may have a description and a MIME type.")
async def described(case: Case) -> None:
    template = await listed(case, "book")
    assert (template["description"], template["mimeType"]) == ("A book by name.", "text/plain")


@topic.row(TEMPLATES, "A template may have a title for people.", since("2025-06-18"))
async def title(case: Case) -> None:
    assert (await listed(case, "book"))["title"] == "A book"


@topic.row("server/resources#annotations", "A template may have annotations.")
async def annotations(case: Case) -> None:
    assert (await listed(case, "file"))["annotations"] == {"audience": ["assistant"]}


@topic.row(TEMPLATES, "A URI that a template matches is read, with its variables as they are in the URI.")
async def matched(case: Case) -> None:
    assert await text_of(case, "books://Emma") == "book Emma"


@topic.row(TEMPLATES, "A variable of a template is percent-decoded, once.")
async def decoded(case: Case) -> None:
    assert await text_of(case, "books://War%20and%20Peace%2520") == "book War and Peace%20"


@topic.row(TEMPLATES, "Query parameters of a template may be left out, or given.")
async def query(case: Case) -> None:
    assert await text_of(case, "shelves://3") == "shelf 3 in en"
    assert await text_of(case, "shelves://3?language=de") == "shelf 3 in de"


@topic.row(TEMPLATES, "A variable with a plus matches several segments of a path.")
async def reserved(case: Case) -> None:
    assert await text_of(case, "files://a/b/c.txt") == "file a/b/c.txt"


@topic.row(TEMPLATES, "A variable without a plus matches one segment only, never a slash, not even an encoded one.")
async def one_segment(case: Case) -> None:
    await missing(case, "books://a/b", "books://a%2Fb")


@topic.row(
    "server/resources#security-considerations", "A variable without a plus never matches . or .., nor an encoded one."
)
async def no_dots(case: Case) -> None:
    await missing(case, "books://..", "books://.", "books://%2e%2e")


@topic.row(
    "server/resources#security-considerations",
    "A URI whose variables do not fit their types does not exist.",
)
async def typed(case: Case) -> None:
    await missing(case, "shelves://three", "shelves://3.5", "shelves://")


@topic.row(TEMPLATES, "A resource with exactly that URI wins over a template that matches it.")
async def resource_first(case: Case) -> None:
    assert await text_of(case, "books://catalogue") == "all of them"


@topic.row("server/resources#error-handling", "A URI that matches no template does not exist.")
async def no_match(case: Case) -> None:
    await missing(case, "films://Emma", "books:Emma", "shelves://3/4")


topic.held(
    "expansion",
    TEMPLATES,
    "Templates follow RFC 6570.",
    "tests/protocol/test_uri_templates.py::test_expansion_is_that_of_the_rfc",
)
topic.held(
    "matching_undoes_expansion",
    TEMPLATES,
    "Matching a template's own expansion returns the values.",
    "tests/protocol/test_uri_templates.py::test_matching_an_expansion_gives_the_values_back",
)
topic.held(
    "matching_is_bounded",
    "server/resources#security-considerations",
    "Matching takes steps in proportion to the length of the URI.",
    "tests/protocol/test_uri_templates.py::test_the_steps_grow_no_faster_than_the_uri",
)
