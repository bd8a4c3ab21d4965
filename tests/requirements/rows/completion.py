"""``server/utilities/completion``: what a server that completes arguments has to do."""

from __future__ import annotations

from typing import Any, Literal

from tests.requirements.case import Case
from tests.requirements.model import Topic, since, until
from trio_mcp import Server
from trio_mcp.types import error_codes


def server() -> Server:
    made = Server("completion")

    @made.prompt
    async def trip(city: str, country: str, mood: Literal["lazy", "sporty"], note: str = "") -> str:
        """Plan a trip."""
        return city

    @made.resource("files://{+path}")
    async def file(path: str) -> str:
        return path

    @made.completion(prompt="trip", argument="city")
    async def cities(value: str, settled: dict[str, str]) -> list[str]:
        found = {"DE": ["Ulm", "Uelzen", "Bonn"], "CH": ["Uster"]}.get(settled.get("country", "DE"), [])
        return [city for city in found if city.startswith(value)]

    @made.completion(prompt="trip", argument="country")
    async def countries(value: str) -> list[str]:
        return [f"{value}{number}" for number in range(250)]

    @made.completion(prompt="trip", argument="note")
    async def notes(value: str) -> list[str]:
        raise RuntimeError("the password is hunter2")

    @made.completion(resource="files://{+path}", argument="path")
    async def paths(value: str) -> list[str]:
        return [f"{value}.txt"]

    return made


topic = Topic("Completion", server)

REQUESTING = "server/utilities/completion#requesting-completions"
RESULTS = "server/utilities/completion#completion-results"
REFERENCES = "server/utilities/completion#reference-types"
ERRORS = "server/utilities/completion#error-handling"
PROMPT = {"type": "ref/prompt", "name": "trip"}
TEMPLATE = {"type": "ref/resource", "uri": "files://{+path}"}


def asking(ref: Any, argument: str, value: str, **more: Any) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": argument, "value": value}, **more}


async def completion(case: Case, ref: Any, argument: str, value: str, **more: Any) -> dict[str, Any]:
    async with case.client() as client:
        result = await client.request("completion/complete", asking(ref, argument, value, **more))
    return dict(result["completion"])


async def refused(case: Case, *params: dict[str, Any], code: int = error_codes.INVALID_PARAMS) -> str:
    said = ""
    async with case.hand() as hand:
        for given in params:
            error = await hand.error("completion/complete", given)
            assert error.code == code, error
            said += f"{error.message} {error.data}"
    return said


@topic.row(
    "server/utilities/completion#capabilities", "A server that completes declares the capability.", since("2025-03-26")
)
async def capability(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.completions is not None


@topic.row("schema", "Completion needs no capability, and none is declared.", until("2024-11-05"))
async def no_capability(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.completions is None
    assert (await completion(case, PROMPT, "city", "Ul"))["values"] == ["Ulm"]


@topic.row(REFERENCES, "An argument of a prompt is completed.")
async def of_a_prompt(case: Case) -> None:
    assert (await completion(case, PROMPT, "city", "U"))["values"] == ["Ulm", "Uelzen"]


@topic.row(REFERENCES, "A variable of a resource template is completed.")
async def of_a_template(case: Case) -> None:
    assert (await completion(case, TEMPLATE, "path", "a/b"))["values"] == ["a/b.txt"]


@topic.row(REQUESTING, "An argument whose type lists its values is completed from them.")
async def of_a_type(case: Case) -> None:
    assert (await completion(case, PROMPT, "mood", "sp"))["values"] == ["sporty"]


@topic.row(REQUESTING, "Arguments that are already set are taken into account.", since("2025-06-18"))
async def context(case: Case) -> None:
    found = await completion(case, PROMPT, "city", "U", context={"arguments": {"country": "CH"}})
    assert found["values"] == ["Uster"]


@topic.row(RESULTS, "A completion has at most 100 values, in order.")
async def at_most_100(case: Case) -> None:
    found = await completion(case, PROMPT, "country", "x")
    assert found["values"] == [f"x{number}" for number in range(100)]


@topic.row(RESULTS, "A truncated completion says so, and how many values there are.")
async def cut(case: Case) -> None:
    found = await completion(case, PROMPT, "country", "x")
    assert (found["hasMore"], found["total"]) == (True, 250)


@topic.row(RESULTS, "A complete list of values does not claim that there are more.")
async def whole(case: Case) -> None:
    found = await completion(case, PROMPT, "city", "U")
    assert (found.get("hasMore", False), found.get("total", 2)) == (False, 2)


@topic.row(RESULTS, "If nothing matches, the completion is empty, not an error.")
async def nothing(case: Case) -> None:
    assert (await completion(case, PROMPT, "city", "zzz"))["values"] == []


@topic.row(ERRORS, "Completion for an unknown prompt is refused with -32602.")
async def unknown_prompt(case: Case) -> None:
    await refused(case, asking({"type": "ref/prompt", "name": "unknown"}, "city", "U"))


@topic.row(ERRORS, "Completion for an unknown resource template is refused with -32602.")
async def unknown_template(case: Case) -> None:
    await refused(case, asking({"type": "ref/resource", "uri": "unknown://{x}"}, "x", "U"))


@topic.row(ERRORS, "Completion of an argument that the prompt does not have is refused with -32602.")
async def unknown_argument(case: Case) -> None:
    await refused(case, asking(PROMPT, "street", "U"), asking(TEMPLATE, "street", "U"))


@topic.row(ERRORS, "Completion without a reference, or of an unknown type of reference, is refused with -32602.")
async def malformed_reference(case: Case) -> None:
    await refused(
        case,
        {"argument": {"name": "city", "value": "U"}},
        asking({"type": "ref/tool", "name": "trip"}, "city", "U"),
        asking("trip", "city", "U"),
        asking({"type": "ref/prompt"}, "city", "U"),
    )


@topic.row(ERRORS, "Completion without an argument, or without its value, is refused with -32602.")
async def malformed_argument(case: Case) -> None:
    await refused(
        case, {"ref": PROMPT}, {"ref": PROMPT, "argument": {"name": "city"}}, {"ref": PROMPT, "argument": "city"}
    )


@topic.row(
    "server/utilities/completion#security",
    "A context that is not an object of strings is refused with -32602.",
    since("2025-06-18"),
)
async def malformed_context(case: Case) -> None:
    await refused(
        case,
        asking(PROMPT, "city", "U", context={"arguments": {"country": 7}}),
        asking(PROMPT, "city", "U", context={"arguments": ["CH"]}),
    )


@topic.row(ERRORS, "A completion that fails is refused with -32603, without internal details.")
async def failure(case: Case) -> None:
    assert "hunter2" not in await refused(case, asking(PROMPT, "note", "x"), code=error_codes.INTERNAL_ERROR)
