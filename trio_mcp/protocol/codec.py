"""Bytes to messages and back. Garbage becomes a `Malformed` value; nothing here raises for what a peer sent."""

from __future__ import annotations

import re
from typing import Any

from pydantic_core import PydanticSerializationError, from_json, to_json

from trio_mcp.protocol.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Incoming,
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    is_request_id,
)
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR

__all__ = ["decode", "encode", "encode_or_replace", "malformed_from_bytes", "parse"]

_Item = Request | Notification | Response | ErrorResponse | Malformed

# A batch is handled as one: bounded so that one line cannot stand for an unbounded number of requests.
MAX_BATCH = 1000


def decode(data: bytes | bytearray) -> Incoming:
    """Turn one JSON text into a message, or into a `Malformed` that says what is wrong with it.

    Args:
        data: One JSON text in UTF-8, without framing.
    """
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as exc:
        return malformed_from_bytes(bytes(data[:_HEAD]), bytes(data[-_TAIL:]), PARSE_ERROR, f"invalid JSON: {exc}")
    return parse(value)


def parse(value: Any) -> Incoming:
    """Turn parsed JSON into a message, or into a `Malformed`."""
    if type(value) is dict:
        return _parse_object(value)
    if type(value) is list:
        if not value:
            return Malformed(INVALID_REQUEST, "an empty batch")
        if len(value) > MAX_BATCH:
            return Malformed(INVALID_REQUEST, f"a batch of {len(value)} messages; at most {MAX_BATCH} are taken")
        return Batch(
            tuple(
                _parse_object(item) if type(item) is dict else Malformed(INVALID_REQUEST, "a message must be an object")
                for item in value
            )
        )
    return Malformed(INVALID_REQUEST, f"a message must be an object, not {_kind(value)}")


def _parse_object(obj: dict[str, Any]) -> _Item:
    method = obj.get("method")
    if method is None and ("result" in obj or "error" in obj):
        return _parse_answer(obj)
    request_id = obj.get("id")
    known_id = request_id if is_request_id(request_id) else None
    if obj.get("jsonrpc") != "2.0":
        return Malformed(INVALID_REQUEST, '"jsonrpc" must be "2.0"', known_id)
    if type(method) is not str:
        return Malformed(INVALID_REQUEST, '"method" must be a string', known_id)
    params = obj.get("params")
    if params is not None and type(params) is not dict:
        if "id" in obj and known_id is None:
            return Malformed(INVALID_REQUEST, _BAD_ID)
        # By-position parameters are JSON-RPC, but no method of MCP takes them.
        return Malformed(INVALID_PARAMS, f'"params" must be an object, not {_kind(params)}', known_id, "id" in obj)
    if known_id is not None:
        return Request(known_id, method, params)
    if "id" in obj:
        return Malformed(INVALID_REQUEST, _BAD_ID)
    return Notification(method, params)


_BAD_ID = '"id" must be a string or an integer'


def _parse_answer(obj: dict[str, Any]) -> Response | ErrorResponse | Malformed:
    answer_id = obj.get("id")
    known_id = answer_id if is_request_id(answer_id) else None

    def broken(reason: str) -> Malformed:
        return Malformed(INVALID_REQUEST, reason, known_id, expects_answer=False)

    if obj.get("jsonrpc") != "2.0":
        return broken('"jsonrpc" must be "2.0"')
    if known_id is None and answer_id is not None:
        return broken(_BAD_ID)
    if "error" not in obj:
        result = obj["result"]
        if known_id is None:
            return broken("a result without an id")
        if type(result) is not dict:
            return broken(f'"result" must be an object, not {_kind(result)}')
        return Response(known_id, result)
    if "result" in obj:
        return broken('an answer has either "result" or "error", not both')
    error = obj["error"]
    if type(error) is not dict or type(error.get("code")) is not int or type(error.get("message")) is not str:
        return broken('"error" must be an object with an integer "code" and a string "message"')
    return ErrorResponse(known_id, ErrorData(error["code"], error["message"], error.get("data")))


_KINDS = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "an array"}


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "an object")


# --- encoding ---------------------------------------------------------------------------------------------------


def encode(message: Message) -> bytes:
    """Turn a message into one JSON text in UTF-8, without a newline in it.

    Raises:
        ValueError: Its content can't be written as JSON (NaN, infinity, a lone surrogate, a foreign object).
    """
    try:
        data = to_json(_as_json(message))
    except PydanticSerializationError as exc:
        raise ValueError(str(exc)) from None
    # to_json writes NaN and Infinity, which is not JSON; the words may also stand inside a string, so parse to know.
    if b"NaN" in data or b"Infinity" in data:
        from_json(data, allow_inf_nan=False)
    return data


def encode_or_replace(message: Message) -> tuple[bytes | None, str | None]:
    """Encode, and where an answer can't be encoded encode an error answer in its place: the peer is owed one.

    Returns:
        The bytes (None where nothing can be sent), and what was wrong (None where nothing was).
    """
    try:
        return encode(message), None
    except ValueError as exc:
        problem = f"it can't be written as JSON: {exc}"
    match message:
        case Response(id=answered) | ErrorResponse(id=answered):
            error = ErrorData(INTERNAL_ERROR, "the result can't be written as JSON")
            return encode(ErrorResponse(answered, error)), problem
        case _:
            return None, problem


def _as_json(message: Message | Malformed) -> dict[str, Any] | list[Any]:
    match message:
        case Request():
            if message.params is None:
                return {"jsonrpc": "2.0", "id": message.id, "method": message.method}
            return {"jsonrpc": "2.0", "id": message.id, "method": message.method, "params": message.params}
        case Response():
            return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
        case Notification():
            if message.params is None:
                return {"jsonrpc": "2.0", "method": message.method}
            return {"jsonrpc": "2.0", "method": message.method, "params": message.params}
        case ErrorResponse():
            error: dict[str, Any] = {"code": message.error.code, "message": message.error.message}
            if message.error.data is not None:
                error["data"] = message.error.data
            # An id that could not be read is left out: the schema has no null there (JSONRPCErrorResponse, 2025-11-25).
            answered = {} if message.id is None else {"id": message.id}
            return {"jsonrpc": "2.0", **answered, "error": error}
        case Batch():
            return [_as_json(item) for item in message.items]
        case _:
            raise TypeError(f"expected a JSON-RPC message, got {type(message).__name__}")


# --- what can still be learned from a broken text ----------------------------------------------------------------

_HEAD = 4096
_TAIL = 256
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]|[^\s{}\[\]",:]+')
_LAST_ID = re.compile(rb'"id"\s*:\s*(-?\d{1,400}|"(?:[^"\\]|\\.)*")\s*\}\s*$')


def malformed_from_bytes(head: bytes, tail: bytes, code: int, reason: str, limit: int | None = None) -> Malformed:
    """Describe a text that could not be parsed, recovering its id so that the error can be answered.

    Args:
        head: The first few kilobytes of the text.
        tail: The last few hundred bytes (the same as the head, or overlapping it, for a short text).
        code: The JSON-RPC error code of the fault.
        reason: The fault in one line.
        limit: The size limit in bytes, where that was the fault.
    """
    members = _top_level_members(head)
    request_id = members.get(b'"id"')
    if request_id is None and (last := _LAST_ID.search(tail)):
        # The brace that ends the text ends the outermost object, so an id just before it is the message's own.
        request_id = last[1]
    is_answer = b'"method"' not in members and (b'"result"' in members or b'"error"' in members)
    return Malformed(code, reason, _read_id(request_id), expects_answer=not is_answer, limit=limit)


def _top_level_members(head: bytes) -> dict[bytes, bytes | None]:
    """The keys of the outermost object that can be seen, with their values where those are scalars."""
    members: dict[bytes, bytes | None] = {}
    depth = 0
    key: bytes | None = None
    for token in _TOKEN.findall(head):
        if token in b"{[":
            if depth == 1 and key is not None:
                members[key] = None
                key = None
            depth += 1
        elif token in b"}]":
            depth -= 1
        elif depth == 1 and key is None:
            key = token
            members[key] = None
        elif depth == 1 and key is not None:
            members[key] = token
            key = None
    return members


def _read_id(token: bytes | None) -> RequestId | None:
    if token is None:
        return None
    try:
        value = from_json(token, allow_inf_nan=False)
    except ValueError:
        return None
    return value if is_request_id(value) else None
