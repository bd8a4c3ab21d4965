"""examples/sampling with the real SDKs, against local stand-ins of their vendors' interfaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from benchmarks.peers.installs import CACHE
from trio_mcp.schema import ModelSchema

from . import python_peers
from .conftest import installed_peers
from .model_apis import VENDORS, Asked, Refusal, Said, served

pytestmark = [pytest.mark.again, pytest.mark.interop]

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "sampling"
DEADLINE = 60
"""Seconds; no assertion depends on it."""

every_vendor = pytest.mark.parametrize("vendor", VENDORS)
KINDS = {"anthropic": "ANTHROPIC", "openai": "OPENAI", "google": "GEMINI"}
URLS = {
    "anthropic": ("ANTHROPIC_BASE_URL", ""),
    "openai": ("OPENAI_BASE_URL", "/v1"),
    "google": ("GOOGLE_GEMINI_BASE_URL", ""),
}


@pytest.fixture(scope="session")
def models(request: pytest.FixtureRequest) -> Path:
    """Return the interpreter that has the SDKs."""
    return installed_peers(request, lambda say: python_peers.install(say, "models"))


def environment(vendor: str, url: str) -> dict[str, str]:
    name, path = URLS[vendor]
    plain = {key: value for key, value in os.environ.items() if not key.startswith((*KINDS.values(), "GOOGLE"))}
    return plain | {name: url + path, f"{KINDS[vendor]}_API_KEY": "secret", "PYTHONPATH": str(ROOT)}


# --- one request and its reply ------------------------------------------------------------------------------------

PNG = "iVBORw0KGgo="
TOOL = {"name": "distance", "description": "How far?", "inputSchema": {"type": "object", "properties": {}}}


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(id: str, meta: bool = True, **given: Any) -> dict[str, Any]:
    block = {"type": "tool_use", "id": id, "name": "distance", "input": given}
    return block | ({"_meta": {"google.genai/thought-signature": "c2lnbmVk"}} if meta else {})


def result(id: str, words: str, *content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": id, "content": [text(words), *content], **more}


picture = {"type": "image", "data": PNG, "mimeType": "image/png"}
sound = {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"}


HI = [("user", [("text", "Hi")])]
CASES: dict[str, tuple[dict[str, Any], Asked, Said, dict[str, Any]]] = {
    "a text, with everything": (
        {
            "messages": [user(text("Hi"))],
            "systemPrompt": "Be brief.",
            "stopSequences": ["END"],
            "modelPreferences": {"hints": [{"name": "huge"}, {"name": "small"}]},
        },
        Asked("small-1", 100, HI, "Be brief.", None, ("END",)),
        Said([("text", "Hello.")]),
        {"content": [text("Hello.")], "stopReason": "endTurn", "model": "small-1"},
    ),
    "a conversation with a picture, cut off": (
        {
            "messages": [
                user(text("Hi")),
                assistant(text("Yes?")),
                user(text("What is this?"), picture),
            ]
        },
        Asked(
            "big",
            100,
            [
                *HI,
                ("assistant", [("text", "Yes?")]),
                ("user", [("text", "What is this?"), ("media", "image/png", PNG)]),
            ],
        ),
        Said([("text", "A pi")], "maxTokens"),
        {"content": [text("A pi")], "stopReason": "maxTokens", "model": "big"},
    ),
    "a call": (
        {"messages": [user(text("Hi"))], "tools": [TOOL], "toolChoice": {"mode": "required"}},
        Asked("big", 100, HI, tools=(("distance", "How far?", TOOL["inputSchema"]),), choice="required"),
        Said(
            [("text", "I look."), ("call", "c1", "distance", {"town": "Oslo"}), ("call", "c2", "distance", {})],
            "toolUse",
        ),
        {"content": [text("I look."), use("c1", town="Oslo"), use("c2")], "stopReason": "toolUse", "model": "big"},
    ),
    "results": (
        {
            "messages": [
                user(text("Hi")),
                assistant(text("I look."), use("c1", town="Oslo"), use("c2")),
                user(result("c1", "7"), result("c2", "no town", picture, isError=True)),
            ],
            "tools": [TOOL],
            "toolChoice": {"mode": "none"},
        },
        Asked(
            "big",
            100,
            [
                *HI,
                (
                    "assistant",
                    [("text", "I look."), ("call", "c1", "distance", {"town": "Oslo"}), ("call", "c2", "distance", {})],
                ),
                (
                    "user",
                    [("result", "c1", "7", False), ("result", "c2", "no town", True), ("media", "image/png", PNG)],
                ),
            ],
            tools=(("distance", "How far?", TOOL["inputSchema"]),),
            choice="none",
        ),
        Said([("text", "7 km.")]),
        {"content": [text("7 km.")], "stopReason": "endTurn", "model": "big"},
    ),
    "a reason of the vendor's own": (
        {"messages": [user(text("Hi"))]},
        Asked("big", 100, HI),
        Said([], "content_filter"),
        {"content": text(""), "stopReason": "content_filter", "model": "big"},
    ),
}
OWN_REASONS = {"anthropic": "refusal", "openai": "content_filter", "google": "safety"}


@every_vendor
async def test_a_recipe_asks_and_answers(models: Path, vendor: str) -> None:
    """One process for all cases. Then an error, a retry where the SDK makes one, and a cancellation."""
    asked: list[Asked] = []
    own = OWN_REASONS[vendor]
    replies: list[Said | Refusal | None] = [
        Said(said.parts, own if said.stop == "content_filter" else said.stop) for _, _, said, _ in CASES.values()
    ]
    cases = [{"params": {"maxTokens": 100, **params}, "seconds": DEADLINE} for params, _, _, _ in CASES.values()]
    simple = {"maxTokens": 1, "messages": [user(text("Hi"))], "temperature": 0.5}
    replies += [
        Refusal(400, "too long"),
        Refusal(500, "busy"),
        Said([("text", "at last")]),
        None,
        Said([("text", "on")]),
    ]
    cases += [{"params": simple, "seconds": seconds} for seconds in (DEADLINE, DEADLINE, 0.3, DEADLINE)]
    heard = {"maxTokens": 1, "messages": [user(sound)]}
    cases.append({"params": heard, "seconds": DEADLINE})
    if vendor != "anthropic":
        replies.append(Said([("text", "birds")]))
    if vendor == "google":  # its SDK repeats nothing by itself
        replies.remove(Refusal(500, "busy"))

    def answer(request: Asked) -> Said | Refusal | None:
        asked.append(request)
        return replies.pop(0)

    with trio.fail_after(DEADLINE):
        async with served(VENDORS[vendor], answer) as url:
            ended = await trio.run_process(
                [models, Path(__file__).parent / "peers" / "sampling_recipe.py", vendor],
                stdin="".join(f"{json.dumps(case)}\n" for case in cases).encode(),
                env=environment(vendor, url),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
    assert not ended.returncode, ended.stderr.decode()
    found = [json.loads(line) for line in ended.stdout.splitlines()]
    assert not replies
    for one, (name, (_, request, _, reply)) in enumerate(CASES.items()):
        assert asked[one] == request, name
        expected: dict[str, Any] = {"role": "assistant", "_meta": {"usage": {"inputTokens": 12, "outputTokens": 5}}}
        expected |= json.loads(json.dumps(reply).replace("content_filter", own))
        if vendor != "google" and isinstance(expected["content"], list):
            for block in expected["content"]:
                block.pop("_meta", None)
        assert found[one] == expected, name
    refused, late, cancelled, on, sounds = found[len(CASES) :]
    assert "too long" in refused
    assert late["content"] == [text("at last")]
    assert cancelled == "cancelled"
    assert on["content"] == [text("on")]
    # Anthropic's interface has no temperature any more, and takes no sounds.
    if vendor == "anthropic":
        assert asked[-1].temperature is None
        assert sounds == "ValueError: Claude can't be sent a block of type 'audio'"
    else:
        assert asked[-2].temperature == 0.5
        assert asked[-1].messages == [("user", [("media", "audio/wav", "UklGRg==")])]


SPENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "by": {"type": "object", "additionalProperties": {"type": "number"}},
        "days": {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "minItems": 2,
            "maxItems": 2,
        },
        "note": {"type": "string", "format": "uri"},
    },
    "required": ["by"],
}
SPENDING = {"by": {"food": 30, "tram": 4.5}, "days": [3, "May"]}
SPEND = {"name": "distance", "description": "How much?", "inputSchema": SPENT}
DIALECTS: dict[str, Any] = {"openai": "openai-strict", "google": "gemini"}


@every_vendor
async def test_arguments_that_a_vendor_can_not_say_come_back(models: Path, vendor: str) -> None:
    """The stand-ins refuse a schema that breaks a rule of the vendor's dialect."""
    schema = ModelSchema(SPENT, DIALECTS[vendor]) if vendor in DIALECTS else None
    said = SPENDING if schema is None else schema.for_model(SPENDING)
    asked: list[Asked] = []

    def answer(request: Asked) -> Said:
        asked.append(request)
        return Said([("call", "c2", "distance", said)], "toolUse")

    messages = [user(text("Hi")), assistant(use("c1", **SPENDING)), user(result("c1", "ok"))]
    case = {"params": {"maxTokens": 100, "messages": messages, "tools": [SPEND]}, "seconds": DEADLINE}
    with trio.fail_after(DEADLINE):
        async with served(VENDORS[vendor], answer) as url:
            ended = await trio.run_process(
                [models, Path(__file__).parent / "peers" / "sampling_recipe.py", vendor],
                stdin=f"{json.dumps(case)}\n".encode(),
                env=environment(vendor, url),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
    assert not ended.returncode, ended.stderr.decode()
    assert [part for part in asked[0].messages[1][1] if part[0] == "call"] == [("call", "c1", "distance", said)]
    (block,) = json.loads(ended.stdout)["content"]
    assert block["input"] == SPENDING


# --- the whole program --------------------------------------------------------------------------------------------


@every_vendor
async def test_a_program_lets_the_model_plan_a_tour(models: Path, vendor: str, tmp_path: Path) -> None:
    # Beside the package, as the server gets no PYTHONPATH.
    folder = shutil.copytree(RECIPES, tmp_path / "sampling")
    (folder / "trio_mcp").symlink_to(ROOT / "trio_mcp")
    asked: list[Asked] = []
    stops = [{"town": "Bergen", "days": 3}]
    replies = [
        Said([("call", "c1", "distance", {"town": "Bergen"}), ("call", "c2", "distance", {"town": "Rome"})], "toolUse"),
        Said([("call", "c3", "final_response", {"value": stops})], "toolUse"),
    ]

    def answer(request: Asked) -> Said:
        asked.append(request)
        return replies.pop(0)

    with trio.fail_after(DEADLINE):
        async with served(VENDORS[vendor], answer) as url:
            ended = await trio.run_process(
                [models, folder / f"with_{vendor}.py", "three days"],
                env=environment(vendor, url),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )
    assert not ended.returncode, ended.stderr.decode()
    assert json.loads(ended.stdout) == stops
    first, second = asked
    assert first.messages == [("user", [("text", "Plan a tour that begins in Oslo: three days")])]
    assert [name for name, _, _ in first.tools] == ["distance", "final_response"]
    assert (first.choice, first.max_tokens) == ("required", 2000)
    assert second.messages[-1] == (
        "user",
        [
            ("result", "c1", "463", False),
            ("result", "c2", "no such town; there are Bergen, Lillehammer, Trondheim", True),
        ],
    )


def test_the_recipes_are_typed(models: Path) -> None:
    """Against the SDKs' own types, which the environment of the tests does not have."""
    options = ["--strict", "--follow-imports=silent", "--python-executable", str(models)]
    options += ["--cache-dir", str(CACHE / "mypy-models")]  # the usual one is of another environment
    files = map(str, sorted(RECIPES.glob("*.py")))
    ended = subprocess.run([sys.executable, "-m", "mypy", *options, *files], cwd=ROOT, capture_output=True, text=True)
    assert not ended.returncode, ended.stdout
