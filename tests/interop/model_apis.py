"""Local stand-ins of the HTTP interfaces of three vendors of language models.

Each reads a request as its vendor's public documentation describes it, and refuses what is not in there; and writes a
reply of that form. Between them is one form for all, so one table of cases serves all three:

- a request is an `Asked`;
- a message is its role and parts: ``("text", text)``, ``("media", type, data)``, ``("call", id, name, arguments)``,
  ``("result", id, text, is_error)``, followed by its pictures;
- a reply is a `Said`, of the same parts.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, ClassVar, Protocol

import attrs
import h11
import trio

from tests.schema.dialect_rules import broken_rules

__all__ = ["VENDORS", "Asked", "Refusal", "Said", "Vendor", "served"]

Part = tuple[Any, ...]

NO_PARAMETERS = {"type": "object", "properties": {}}


@attrs.frozen
class Asked:
    """A request, in the form that all vendors share."""

    model: str
    max_tokens: int
    messages: list[tuple[str, list[Part]]]
    system: str | None = None
    temperature: float | None = None
    stops: tuple[str, ...] = ()
    tools: tuple[tuple[str, str, Any], ...] = ()
    choice: str | None = None


@attrs.frozen
class Said:
    """A reply: its parts, and why it ends, in MCP's words."""

    parts: list[Part]
    stop: str = "endTurn"


@attrs.frozen
class Refusal:
    """An error of the interface."""

    status: int
    text: str


class Vendor(Protocol):
    """One vendor's interface."""

    def path(self, model: str) -> str:
        """Return where requests go."""

    def key(self, headers: dict[str, str]) -> str | None:
        """Return the key in a request's headers."""

    def read(self, target: str, body: dict[str, Any]) -> Asked:
        """Read a request."""

    def write(self, said: Said, model: str) -> dict[str, Any]:
        """Write a reply."""

    def refuse(self, refusal: Refusal) -> dict[str, Any]:
        """Write an error."""


def taken(body: dict[str, Any], *known: str) -> dict[str, Any]:
    """Return a JSON object, which must have no other members than these."""
    assert body.keys() <= set(known), f"unknown: {body.keys() - set(known)}"
    return body


def data_of(url: str) -> Part:
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return ("media", kind, data)


class Anthropic:
    """The Messages API: https://docs.anthropic.com/en/api/messages."""

    choices: ClassVar = {"auto": "auto", "any": "required", "none": "none"}
    stops: ClassVar = {
        "endTurn": "end_turn",
        "maxTokens": "max_tokens",
        "stopSequence": "stop_sequence",
        "toolUse": "tool_use",
    }

    def path(self, model: str) -> str:
        return "/v1/messages"

    def key(self, headers: dict[str, str]) -> str | None:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", headers["anthropic-version"])
        return headers.get("x-api-key") or headers["authorization"].removeprefix("Bearer ")

    def read(self, target: str, body: dict[str, Any]) -> Asked:
        taken(body, "model", "max_tokens", "messages", "system", "stop_sequences", "tools", "tool_choice")
        tools = [taken(tool, "name", "description", "input_schema") for tool in body.get("tools", ())]
        choice = body.get("tool_choice")
        return Asked(
            body["model"],
            body["max_tokens"],
            [
                (each["role"], [part for block in each["content"] for part in self.parts(block)])
                for each in body["messages"]
            ],
            body.get("system"),
            stops=tuple(body.get("stop_sequences", ())),
            tools=tuple((tool["name"], tool["description"], tool["input_schema"]) for tool in tools),
            choice=choice and self.choices[taken(choice, "type")["type"]],
        )

    def parts(self, block: dict[str, Any]) -> list[Part]:
        match block["type"]:
            case "text":
                return [("text", taken(block, "type", "text")["text"])]
            case "image":
                source = taken(block["source"], "type", "media_type", "data")
                assert source["type"] == "base64"
                return [("media", source["media_type"], source["data"])]
            case "tool_use":
                taken(block, "type", "id", "name", "input")
                return [("call", block["id"], block["name"], block["input"])]
            case "tool_result":
                taken(block, "type", "tool_use_id", "content", "is_error")
                (text,), *media = [self.parts(each) for each in block["content"]]
                result = ("result", block["tool_use_id"], text[1], block["is_error"])
                return [result, *(part for each in media for part in each)]
        raise AssertionError(block)

    def write(self, said: Said, model: str) -> dict[str, Any]:
        blocks: list[dict[str, Any]] = []
        for part in said.parts:
            match part:
                case ("text", text):
                    blocks.append({"type": "text", "text": text, "citations": None})
                case ("call", id, name, given):
                    blocks.append({"type": "tool_use", "id": id, "name": name, "input": given})
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": blocks,
            "stop_reason": self.stops.get(said.stop, said.stop),
            "stop_sequence": None,
            "usage": {"input_tokens": 12, "output_tokens": 5},
        }

    def refuse(self, refusal: Refusal) -> dict[str, Any]:
        return {"type": "error", "error": {"type": "invalid_request_error", "message": refusal.text}}


class OpenAI:
    """The Chat Completions API: https://platform.openai.com/docs/api-reference/chat/create."""

    stops: ClassVar = {"endTurn": "stop", "stopSequence": "stop", "maxTokens": "length", "toolUse": "tool_calls"}

    def path(self, model: str) -> str:
        return "/v1/chat/completions"

    def key(self, headers: dict[str, str]) -> str | None:
        return headers["authorization"].removeprefix("Bearer ")

    def read(self, target: str, body: dict[str, Any]) -> Asked:
        taken(
            body, "model", "max_completion_tokens", "messages", "temperature", "stop", "tools", "tool_choice", "stream"
        )
        messages = list(body["messages"])
        system = messages.pop(0)["content"] if messages[0]["role"] == "system" else None
        tools = []
        for tool in body.get("tools", ()):
            assert taken(tool, "type", "function")["type"] == "function"
            function = taken(tool["function"], "name", "description", "parameters", "strict")
            assert function["strict"] is True
            assert broken_rules(function["parameters"], "openai-strict") == []
            shape = function["parameters"] if function["parameters"]["properties"] else NO_PARAMETERS
            tools.append((function["name"], function["description"], shape))
        read: list[tuple[str, list[Part]]] = []
        for message in messages:
            role, parts = self.parts(message)
            if read and read[-1][0] == role == "user":  # results are messages of their own
                read[-1][1].extend(parts)
            else:
                read.append((role, parts))
        return Asked(
            body["model"],
            body["max_completion_tokens"],
            read,
            system,
            body.get("temperature"),
            tuple(body.get("stop", ())),
            tuple(tools),
            body.get("tool_choice"),
        )

    def parts(self, message: dict[str, Any]) -> tuple[str, list[Part]]:
        parts: list[Part] = []
        match taken(message, "role", "content", "tool_calls", "tool_call_id"):
            case {"role": "tool", "tool_call_id": id, "content": str(text)}:
                return "user", [("result", id, text.removeprefix("Error: "), text.startswith("Error: "))]
            case {"role": "assistant", "content": content, **calls}:
                if content is not None:
                    parts.append(("text", content))
                for call in calls.get("tool_calls", ()):
                    function = taken(taken(call, "type", "id", "function")["function"], "name", "arguments")
                    parts.append(("call", call["id"], function["name"], json.loads(function["arguments"])))
                assert parts, "an assistant's message must say something or call"
                return "assistant", parts
            case {"role": "user", "content": list(content)}:
                for part in content:
                    match part:
                        case {"type": "text", "text": text}:
                            parts.append(("text", text))
                        case {"type": "image_url", "image_url": {"url": url}}:
                            parts.append(data_of(url))
                        case {"type": "input_audio", "input_audio": {"data": data, "format": kind}}:
                            parts.append(("media", f"audio/{kind}", data))
                        case _:
                            raise AssertionError(part)
                return "user", parts
        raise AssertionError(message)

    def write(self, said: Said, model: str) -> dict[str, Any]:
        calls = [
            {"id": part[1], "type": "function", "function": {"name": part[2], "arguments": json.dumps(part[3])}}
            for part in said.parts
            if part[0] == "call"
        ]
        texts = [part[1] for part in said.parts if part[0] == "text"]
        message = {"role": "assistant", "content": "".join(texts) or None, "refusal": None}
        if calls:
            message["tool_calls"] = calls
        reason = self.stops.get(said.stop, said.stop)
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17},
        }

    def refuse(self, refusal: Refusal) -> dict[str, Any]:
        return {"error": {"message": refusal.text, "type": "invalid_request_error", "param": None, "code": None}}


SIGNATURE = "c2lnbmVk"


def in_lower_case(schema: Any) -> Any:
    """Return a schema as JSON Schema writes types and the interface takes them; the SDK writes them in capitals."""
    if isinstance(schema, list):
        return [in_lower_case(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {snake_case_to_camel(key): each for key, each in schema.items()}
    if isinstance(found.get("type"), str):
        found["type"] = found["type"].lower()
    if "properties" in found:
        found["properties"] = {name: in_lower_case(each) for name, each in found["properties"].items()}
    for key in ("items", "anyOf"):
        if key in found:
            found[key] = in_lower_case(found[key])
    return found


def snake_case_to_camel(name: str) -> str:
    first, *more = name.split("_")
    return first + "".join(word.capitalize() for word in more)


class Google:
    """The Gemini API: https://ai.google.dev/api/generate-content.

    Names may also be written as in its definition (ProtoJSON), which the SDK does in some places.
    """

    choices: ClassVar = {"AUTO": "auto", "ANY": "required", "NONE": "none"}
    stops: ClassVar = {"endTurn": "STOP", "stopSequence": "STOP", "toolUse": "STOP", "maxTokens": "MAX_TOKENS"}

    def path(self, model: str) -> str:
        return f"/v1/models/{model}:generateContent"

    def key(self, headers: dict[str, str]) -> str | None:
        return headers.get("x-goog-api-key")

    def read(self, target: str, body: dict[str, Any]) -> Asked:
        taken(body, "contents", "systemInstruction", "generationConfig", "tools", "toolConfig")
        config = taken(body["generationConfig"], "maxOutputTokens", "temperature", "stopSequences")
        system = body.get("systemInstruction")
        tools = []
        for tool in body.get("tools", ()):
            for declared in taken(tool, "functionDeclarations")["functionDeclarations"]:
                taken(declared, "name", "description", "parameters")
                shape = in_lower_case(declared.get("parameters", NO_PARAMETERS))
                assert broken_rules(shape, "gemini") == []
                tools.append((declared["name"], declared["description"], shape))
        mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode")
        roles = {"user": "user", "model": "assistant"}
        return Asked(
            target.removeprefix("/v1/models/").removesuffix(":generateContent"),
            config["maxOutputTokens"],
            [
                (roles[each["role"]], [found for part in each["parts"] for found in self.parts(part)])
                for each in body["contents"]
            ],
            system and "".join(part["text"] for part in system["parts"]),
            config.get("temperature"),
            tuple(config.get("stopSequences", ())),
            tuple(tools),
            mode and self.choices[mode],
        )

    def parts(self, part: dict[str, Any]) -> list[Part]:
        match part:
            case {"text": text}:
                return [("text", text)]
            case {"inlineData": {"data": data, **rest}} | {"inline_data": {"data": data, **rest}}:
                return [("media", rest.get("mimeType", rest.get("mime_type")), data)]
            case {"functionCall": call, **rest}:
                # What the model has signed must come back.
                assert rest == {"thoughtSignature": SIGNATURE}
                return [("call", call["id"], call["name"], call.get("args", {}))]
            case {"functionResponse": result}:
                assert result["name"] == "distance"
                ((kind, text),) = result["response"].items()
                media = [found for each in result.get("parts", ()) for found in self.parts(each)]
                return [("result", result["id"], text, {"output": False, "error": True}[kind]), *media]
        raise AssertionError(part)

    def write(self, said: Said, model: str) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"text": "Let me think.", "thought": True}]
        for part in said.parts:
            match part:
                case ("text", text):
                    parts.append({"text": text})
                case ("call", id, name, given):
                    call = {"id": id, "name": name, "args": given}
                    parts.append({"functionCall": call, "thoughtSignature": SIGNATURE})
        reason = self.stops.get(said.stop, said.stop.upper())
        return {
            "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": reason, "index": 0}],
            "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 5, "totalTokenCount": 17},
            "modelVersion": model,
            "responseId": "r1",
        }

    def refuse(self, refusal: Refusal) -> dict[str, Any]:
        return {"error": {"code": refusal.status, "message": refusal.text, "status": "INVALID_ARGUMENT"}}


VENDORS: dict[str, Vendor] = {"anthropic": Anthropic(), "openai": OpenAI(), "google": Google()}


@contextlib.asynccontextmanager
async def served(vendor: Vendor, answer: Callable[[Asked], Said | Refusal | None]) -> AsyncIterator[str]:
    """Serve a vendor's interface on a free port of localhost; yield its URL.

    Args:
        vendor: The vendor.
        answer: Returns the reply to a request; None never replies.
    """

    async def connected(stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        request, body = None, b""
        async with stream:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some())
                elif isinstance(event, h11.Request):
                    request, body = event, b""
                elif isinstance(event, h11.Data):
                    body += event.data
                elif isinstance(event, h11.EndOfMessage):
                    assert request is not None
                    headers = {name.decode(): value.decode() for name, value in request.headers}
                    asked = vendor.read(request.target.decode(), json.loads(body))
                    assert request.method == b"POST"
                    assert request.target.decode() == vendor.path(asked.model), request.target
                    assert vendor.key(headers) == "secret", headers
                    said = answer(asked)
                    if said is None:
                        await trio.sleep_forever()
                    refused = isinstance(said, Refusal)
                    found = vendor.refuse(said) if refused else vendor.write(said, asked.model)  # type: ignore[arg-type]
                    content = json.dumps(found).encode()
                    await stream.send_all(
                        connection.send(
                            h11.Response(
                                status_code=said.status if refused else 200,  # type: ignore[union-attr]
                                headers=[
                                    ("content-type", "application/json"),
                                    ("content-length", str(len(content))),
                                ],
                            )
                        )
                        + connection.send(h11.Data(content))
                        + connection.send(h11.EndOfMessage())
                    )
                    connection.start_next_cycle()
                else:  # closed
                    return

    async with trio.open_nursery() as nursery:
        (listener, *_) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, connected, [listener])
        yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()
