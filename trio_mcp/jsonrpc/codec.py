"""Bytes to messages and back. Garbage becomes a `Malformed` value; nothing here raises for what a peer sent."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json, to_json

from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Incoming,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    is_request_id,
)
from trio_mcp.jsonrpc.recovery import unparsable
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST

__all__ = ["decode", "encode", "encode_or_replace", "parse"]

_Item = Request | Notification | Response | ErrorResponse | Malformed

# A batch is handled as one: bounded so that one line cannot stand for an unbounded number of requests.
MAX_BATCH = 1000


def decode(data: bytes | bytearray) -> Incoming:
    """Turn one JSON text into a message, or into a `Malformed` that says what is wrong with it.

    Args:
        data: One JSON text in UTF-8, without framing. A number beyond the range of a double arrives as infinity
            (RFC 8259, section 6, leaves that to the receiver); it can't be sent on, see `encode`.
    """
    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as exc:
        return unparsable(bytes(data), str(exc))
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
    plain = _as_json(message)
    try:
        data = to_json(plain)
        # to_json writes NaN and Infinity, which is not JSON. The words may also stand inside a string: compare to know.
        lawful = not (b"NaN" in data or b"Infinity" in data) or data == to_json(plain, inf_nan_mode="null")
    except Exception as exc:  # the content may hold any object, and writing it may run any code
        raise ValueError(f"{type(exc).__name__}: {exc}") from None
    if not lawful:
        raise ValueError("NaN and infinity are no JSON numbers")
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
    if type(message) is Batch:  # one bad answer costs the others nothing
        texts = [text for text, _ in map(encode_or_replace, message.items) if text is not None]  # type: ignore[arg-type]
        return (b"[" + b",".join(texts) + b"]" if texts else None), problem
    if type(message) is Response or type(message) is ErrorResponse:
        error = ErrorData(INTERNAL_ERROR, "the result can't be written as JSON")
        try:
            return encode(ErrorResponse(message.id, error)), problem
        except ValueError:
            pass  # not even the id can be written, so it never came over a wire
    return None, problem


def _as_json(message: Message | Malformed) -> dict[str, Any] | list[Any]:
    if type(message) is Response:
        return {"jsonrpc": "2.0", "id": message.id, "result": message.result}
    if type(message) is Request:
        if message.params is None:
            return {"jsonrpc": "2.0", "id": message.id, "method": message.method}
        return {"jsonrpc": "2.0", "id": message.id, "method": message.method, "params": message.params}
    if type(message) is Notification:
        if message.params is None:
            return {"jsonrpc": "2.0", "method": message.method}
        return {"jsonrpc": "2.0", "method": message.method, "params": message.params}
    if type(message) is ErrorResponse:
        error: dict[str, Any] = {"code": message.error.code, "message": message.error.message}
        if message.error.data is not None:
            error["data"] = message.error.data
        # An id that could not be read is left out: the schema has no null there (JSONRPCErrorResponse, 2025-11-25).
        answered = {} if message.id is None else {"id": message.id}
        return {"jsonrpc": "2.0", **answered, "error": error}
    if type(message) is Batch:
        return [_as_json(item) for item in message.items]
    raise TypeError(f"expected a JSON-RPC message, got {type(message).__name__}")
