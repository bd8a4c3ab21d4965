"""Call a recipe of examples/sampling with the parameters that come in lines, and print what it returns, as lines."""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import trio

from trio_mcp import types

ROOT = Path(__file__).parents[3]


async def main(vendor: str) -> None:
    sys.path.insert(0, str(ROOT / "examples" / "sampling"))
    async with AsyncExitStack() as stack:
        recipe: Any
        if vendor == "anthropic":
            import with_anthropic
            from anthropic import AsyncAnthropic

            recipe = with_anthropic.Claude(await stack.enter_async_context(AsyncAnthropic()), ("big", "small-1"))
        elif vendor == "openai":
            import with_openai
            from openai import AsyncOpenAI

            recipe = with_openai.Gpt(await stack.enter_async_context(AsyncOpenAI()), ("big", "small-1"))
        else:
            import with_google
            from google import genai

            recipe = with_google.Gemini(stack.enter_context(genai.Client()), ("big", "small-1"))
        for line in sys.stdin:
            asked = json.loads(line)
            found: Any = "cancelled"
            with trio.move_on_after(asked["seconds"]):
                try:
                    params = types.CreateMessageRequestParams.from_wire(asked["params"])
                    found = (await recipe(params)).to_wire()
                except Exception as exc:
                    found = f"{type(exc).__name__}: {exc}"
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
