"""``server/utilities/completion``: the duties of a server that completes arguments."""

from __future__ import annotations

from typing import Any, Literal

from tests.requirements.case import Case
from tests.requirements.model import SECRET, Topic, since, until
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
        raise RuntimeError(f"the password is {SECRET}")

    @made.completion(resource="files://{+path}", argument="path")
    async def paths(value: str) -> list[str]:
        return [f"{value}.txt"]

    return made


topic = Topic("Completion", server)

PAGE, METHOD = "server/utilities/completion", "completion/complete"
PROMPT = {"type": "ref/prompt", "name": "trip"}
TEMPLATE = {"type": "ref/resource", "uri": "files://{+path}"}


def asking(ref: Any, argument: str, value: str, **more: Any) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": argument, "value": value}, **more}


def values(*asked: Any, **more: Any) -> tuple[Any, ...]:
    return METHOD, asking(*asked, **more), "completion", "values"


@topic.row(f"{PAGE}#capabilities", "A server that completes declares the capability.", since("2025-03-26"))
async def capability(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.completions is not None


@topic.row("schema", "Completion needs no capability, and none is declared.", until("2024-11-05"))
async def no_capability(case: Case) -> None:
    async with case.client() as client:
        assert client.capabilities.completions is None
        assert (await client.request(METHOD, asking(PROMPT, "city", "Ul")))["completion"]["values"] == ["Ulm"]


for _section, _text, _asked, _expected in (
    ("reference-types", "An argument of a prompt is completed.", (PROMPT, "city", "U"), ["Ulm", "Uelzen"]),
    ("reference-types", "A variable of a resource template is completed.", (TEMPLATE, "path", "a/b"), ["a/b.txt"]),
    (
        "requesting-completions",
        "An argument whose type lists its values is completed from them.",
        (PROMPT, "mood", "sp"),
        ["sporty"],
    ),
    (
        "completion-results",
        "A completion has at most 100 values, in order.",
        (PROMPT, "country", "x"),
        [f"x{number}" for number in range(100)],
    ),
    ("completion-results", "If nothing matches, the completion is empty, not an error.", (PROMPT, "city", "zzz"), []),
):
    topic.gives(f"{PAGE}#{_section}", _text, values(*_asked), _expected)
topic.gives(
    f"{PAGE}#requesting-completions",
    "Arguments that are already set are taken into account.",
    values(PROMPT, "city", "U", context={"arguments": {"country": "CH"}}),
    ["Uster"],
    since("2025-06-18"),
)
topic.gives(
    f"{PAGE}#completion-results",
    "A truncated completion says so, and how many values there are.",
    (METHOD, asking(PROMPT, "country", "x"), "completion", lambda found: [found["hasMore"], found["total"]]),
    [True, 250],
)
topic.gives(
    f"{PAGE}#completion-results",
    "A complete list of values does not claim that there are more.",
    (
        METHOD,
        asking(PROMPT, "city", "U"),
        "completion",
        lambda it: [it.get("hasMore", False), it.get("total", 2)],
    ),
    [False, 2],
)
for _text, *_params in (
    (
        "Completion for an unknown prompt is refused with -32602.",
        asking({"type": "ref/prompt", "name": "unknown"}, "city", "U"),
    ),
    (
        "Completion for an unknown resource template is refused with -32602.",
        asking({"type": "ref/resource", "uri": "unknown://{x}"}, "x", "U"),
    ),
    (
        "Completion of an argument that the prompt or template does not have is refused with -32602.",
        asking(PROMPT, "street", "U"),
        asking(TEMPLATE, "street", "U"),
    ),
    (
        "Completion without a reference, or of an unknown type of reference, is refused with -32602.",
        {"argument": {"name": "city", "value": "U"}},
        asking({"type": "ref/tool", "name": "trip"}, "city", "U"),
        asking("trip", "city", "U"),
        asking({"type": "ref/prompt"}, "city", "U"),
    ),
    (
        "Completion without an argument, or without its value, is refused with -32602.",
        {"ref": PROMPT},
        {"ref": PROMPT, "argument": {"name": "city"}},
        {"ref": PROMPT, "argument": "city"},
    ),
):
    topic.refuses(f"{PAGE}#error-handling", _text, METHOD, *_params)
topic.refuses(
    f"{PAGE}#security",
    "A context that is not an object of strings is refused with -32602.",
    METHOD,
    asking(PROMPT, "city", "U", context={"arguments": {"country": 7}}),
    asking(PROMPT, "city", "U", context={"arguments": ["CH"]}),
    revisions=since("2025-06-18"),
)
topic.refuses(
    f"{PAGE}#error-handling",
    "A completion that fails is refused with -32603, without internal details.",
    METHOD,
    asking(PROMPT, "note", "x"),
    code=error_codes.INTERNAL_ERROR,
)
