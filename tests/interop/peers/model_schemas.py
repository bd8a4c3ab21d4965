"""Reads schemas for models from standard input, and prints what the vendors' SDKs have against them.

Google's model of a schema forbids fields that it does not know. OpenAI's helper makes a schema strict: one that is
strict stays as it is.
"""

from __future__ import annotations

import copy
import json
import sys
from typing import Any

from google.genai import types
from openai.lib._pydantic import _ensure_strict_json_schema


def plain(value: Any) -> Any:
    """Return a schema with types in lower case, as the SDK writes them in capitals, and numbers as floats."""
    if isinstance(value, dict):
        return {
            key: each.lower() if key == "type" and isinstance(each, str) else plain(each) for key, each in value.items()
        }
    if isinstance(value, list):
        return [plain(each) for each in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def google_says(schema: dict[str, Any]) -> str | None:
    declared = types.FunctionDeclaration(name="f", parameters=types.Schema.model_validate(schema))
    sent = declared.model_dump(mode="json", by_alias=True, exclude_none=True)["parameters"]
    return None if plain(sent) == plain(schema) else f"sent as {sent}"


def openai_says(schema: dict[str, Any]) -> str | None:
    made = _ensure_strict_json_schema(copy.deepcopy(schema), path=(), root=copy.deepcopy(schema))
    return None if made == schema else f"made strict: {made}"


SAY = {"gemini": google_says, "openai-strict": openai_says}

for line in sys.stdin:
    name, dialect, schema = json.loads(line)
    try:
        said = SAY[dialect](schema)
    except Exception as exc:
        said = repr(exc)
    if said is not None:
        print(name, dialect, said)
