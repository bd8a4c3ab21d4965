"""A server written by hand for both eras, whose every habit is a method, so that a mutant overrides one.

`Session` knows messages alone: `serve_lines` gives it a stream, `tests.kit.mutants.web` gives it HTTP. It shares no
code with the library's own server, so that a rule and that server can't be wrong together.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeAlias

import attrs
import jsonschema_rs
import trio

Message: TypeAlias = dict[str, Any]

LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
CACHEABLE = (
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
)
BOTH_ERAS = frozenset(
    [
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
    ]
)
LEGACY_ERA = frozenset(["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"])
MODERN_ERA = frozenset(["server/discover", "subscriptions/listen"])
PAGE = 3
KEY = b"a key that clients don't know"
INFO = {"name": "twin", "version": "1.0"}
TEXT = {"type": "string"}


def _object(required: bool = True, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": [*properties]} if required else {})


_SIZE = {"type": "integer", "minimum": 0, "maximum": 1000, "x-mcp-header": "Size"}
_INTEGER = {"type": "integer", "minimum": -1000, "maximum": 1000}
TOOLS: dict[str, dict[str, Any]] = {
    "add": {"inputSchema": _object(a=_INTEGER, b=_INTEGER), "outputSchema": _object(sum={"type": "integer"})},
    "ask": {"inputSchema": _object()},
    "change": {"inputSchema": _object(kind={**TEXT, "enum": ["tools", "prompts", "resources"]})},
    "echo": {"inputSchema": _object(text=TEXT)},
    "fail": {"inputSchema": _object()},
    "route": {"inputSchema": _object(False, region={**TEXT, "x-mcp-header": "Region"}, size=_SIZE)},
    "show": {"inputSchema": _object()},
    "slow": {"inputSchema": _object(steps={"type": "integer", "minimum": 1, "maximum": 4})},
    "touch": {"inputSchema": _object(uri={**TEXT, "enum": ["memo://one", "memo://two"]})},
}
RESOURCES: dict[str, dict[str, Any]] = {
    "memo://one": {"text": "one"},
    "memo://two": {"text": "two"},
    "memo://three": {"text": "three"},
    "memo://picture": {"blob": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"},
}
TEMPLATES = ["note://{name}", "page://{number}"]
PROMPTS: dict[str, list[str]] = {"greet": ["name"], "hello": [], "compare": ["left", "right"], "bye": []}
NAMES = [f"name{number}" for number in range(150)]
QUESTIONS: dict[str, Message] = {
    "elicitation": {
        "method": "elicitation/create",
        "params": {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": TEXT}}},
    },
    "sampling": {
        "method": "sampling/createMessage",
        "params": {"messages": [{"role": "user", "content": {"type": "text", "text": "Who?"}}], "maxTokens": 10},
    },
    "roots": {"method": "roots/list"},
}

ANSWERS: dict[str, Message] = {
    "elicitation": _object(action={"enum": ["accept", "decline", "cancel"]}),
    "sampling": _object(role={"enum": ["user", "assistant"]}, content={"type": ["object", "array"]}, model=TEXT),
    "roots": _object(roots={"type": "array", "items": {"type": "object"}}),
}
for _schema in ANSWERS.values():
    del _schema["additionalProperties"]


class Refused(Exception):
    """A request that gets an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


def error_response(request_id: Any, refused: Refused) -> Message:
    named = {"id": request_id} if is_id(request_id) else {}
    return {"jsonrpc": "2.0", **named, "error": refused.error}


def parse(text: bytes) -> Any:
    """Return the JSON value of a text, or raise `Refused`."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return json.loads(text.decode(), parse_constant=refuse)
    except (ValueError, RecursionError) as exc:
        raise Refused(-32700, "Parse error") from exc


def is_id(value: Any) -> bool:
    return type(value) in (str, int)


def expects_response(message: Any) -> bool:
    """Return whether a JSON value gets a response: requests, and what can't be told from one."""
    if not isinstance(message, dict):
        return True
    if "method" in message:
        return "id" in message or not isinstance(message["method"], str)
    return "result" not in message and "error" not in message


def key_of(value: Any) -> tuple[str, Any]:
    return type(value).__name__, value


@attrs.define(eq=False)
class Request:
    """A request under way."""

    message: Message
    revision: str
    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    batch: Batch | None = None
    # Where it came from, as far as the transport needs to know.
    origin: Any = None

    @property
    def id(self) -> Any:
        return self.message["id"]

    @property
    def method(self) -> str:
        return str(self.message["method"])

    @property
    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = self.message.get("params", {})
        return params

    @property
    def meta(self) -> dict[str, Any]:
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def modern(self) -> bool:
        return self.revision == MODERN

    @property
    def token(self) -> Any:
        token = self.meta.get("progressToken")
        return token if is_id(token) else None


@attrs.define(eq=False)
class Batch:
    """The responses to a batch, until there are as many as requests."""

    size: int
    responses: list[Message] = attrs.Factory(list)


class Twin:
    """What all sessions of a server share.

    Args:
        session: The class of its sessions.
        web: The class of its HTTP endpoint; None for the healthy one.
    """

    def __init__(self, session: type[Session] | None = None, web: Any = None) -> None:
        self.session = session or Session
        self.web = web
        self.sessions: list[Session] = []
        # The tasks of the extension, which outlive the session that made them.
        self.tasks: dict[str, Any] = {}
        self.served = self.opened = 0
        # Seconds for a step of the slow tool.
        self.pause = 0.05


class Session:
    """A session of a healthy server; in the modern era there is one for each connection or HTTP request.

    Args:
        twin: The server.
        nursery: Runs the requests.
        deliver: Sends a message; also given the request that it belongs to, if any.
        finish: Called when nothing more comes for a request.
    """

    supported: ClassVar[tuple[str, ...]] = (*LEGACY, MODERN)

    def __init__(
        self,
        twin: Twin,
        nursery: trio.Nursery,
        deliver: Callable[[Any, Request | None], None],
        finish: Callable[[Request], None] = lambda request: None,
    ) -> None:
        self.twin = twin
        self.nursery = nursery
        self.deliver = deliver
        self.finish = finish
        self.revision: str | None = None
        self.initialized = False
        self.capabilities: dict[str, Any] = {}
        self.level = "info"
        self.subscribed: set[str] = set()
        self.open: dict[tuple[str, Any], Request] = {}
        self.listening: dict[tuple[str, Any], dict[str, Any]] = {}
        self.asked = 0
        self.questions: dict[str, tuple[trio.Event, list[Message]]] = {}
        twin.sessions.append(self)
        twin.opened += 1
        self.number = twin.opened
        self.opened = trio.current_time()

    def is_alone(self) -> bool:
        """Return whether no session was opened just before this one."""
        return all(each is self or self.opened - each.opened >= 1 for each in self.twin.sessions)

    def close(self) -> None:
        if self in self.twin.sessions:
            self.twin.sessions.remove(self)

    # --- what leaves --------------------------------------------------------------------------------------------------

    def send(self, message: Message, about: Request | None = None) -> None:
        for each in self.outgoing(message, about):
            self.deliver(each, about)

    def outgoing(self, message: Message, about: Request | None) -> Iterator[Any]:
        """Yield what is sent in place of a message; ``about`` is the request that it belongs to."""
        yield message

    def frame(self, message: Any) -> bytes:
        """Return a message as a line."""
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def notify(self, method: str, params: Message | None = None, about: Request | None = None) -> None:
        self.send({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}), about)

    def respond(self, request: Request, response: Message) -> None:
        if (batch := request.batch) is None:
            self.send(response, request)
            return
        batch.responses.append(response)
        if len(batch.responses) == batch.size:
            self.respond_to_batch(batch, request)

    def respond_to_batch(self, batch: Batch, last: Request) -> None:
        self.deliver(batch.responses, last)

    def result(self, request: Request, result: Message) -> Message:
        """Return the result with what its revision adds to every result."""
        if not request.modern:
            return result
        result = {"resultType": "complete"} | result
        result["_meta"] = {f"{PREFIX}serverInfo": INFO} | result.get("_meta", {})
        if request.method in CACHEABLE and result["resultType"] == "complete":
            result |= {"ttlMs": 1000, "cacheScope": "public"}
        return result

    def refuse(self, request_id: Any, refused: Refused) -> Message:
        """Return the error response to a request; without an id if that could not be read."""
        return error_response(request_id, refused)

    # --- what arrives -------------------------------------------------------------------------------------------------

    async def read(self, stream: trio.abc.ReceiveStream) -> None:
        """Receive a line for each message, until the client ends the stream."""
        rest = b""
        while data := await stream.receive_some(65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.strip():
                    self.receive(line)

    def end(self) -> None:
        """Let the requests end that never would by themselves, since nothing more arrives."""
        for listener in self.listening.values():
            listener["request"].scope.cancel()

    def receive(self, text: bytes, origin: Any = None) -> None:
        """Take a text that should be a message."""
        try:
            message = self.parse(text)
        except Refused as refused:
            self.send(self.refuse(None, refused), self.unheard(origin))
            return
        if isinstance(message, list):
            self.receive_batch(message, origin)
        else:
            self.receive_message(message, origin)

    def parse(self, text: bytes) -> Any:
        return parse(text)

    def receive_batch(self, messages: list[Any], origin: Any) -> None:
        if self.revision != "2025-03-26" or not messages:
            self.send(self.refuse(None, Refused(-32600, "No batches")), self.unheard(origin))
            return
        batch = Batch(sum(map(expects_response, messages)))
        for message in messages:
            self.receive_message(message, origin, batch)

    def validate(self, message: Any) -> None:
        """Raise `Refused` unless a JSON value is a message."""
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise Refused(-32600, "No JSON-RPC 2.0 message")
        if "method" in message:
            if not isinstance(message["method"], str) or ("id" in message and not is_id(message["id"])):
                raise Refused(-32600, "Invalid request")
            if not isinstance(message.get("params", {}), dict):
                raise Refused(-32602, "Parameters must be an object")
        elif "result" not in message and "error" not in message:
            raise Refused(-32600, "Neither request nor response")

    def receive_message(self, message: Any, origin: Any, batch: Batch | None = None) -> None:
        try:
            self.validate(message)
        except Refused as refused:
            if expects_response(message):
                named = message.get("id") if isinstance(message, dict) else None
                self.respond(self.unheard(origin, batch), self.refuse(named, refused))
            return
        if "method" not in message:
            self.take_response(message)
        elif "id" not in message:
            self.take_notification(message)
        else:
            self.take_request(message, origin, batch)

    def unheard(self, origin: Any, batch: Batch | None = None) -> Request:
        """Return what stands for a request that could not be read."""
        return Request({"id": None, "method": ""}, "", batch=batch, origin=origin)

    def take_response(self, message: Message) -> None:
        event, got = self.questions.pop(str(message.get("id")), (trio.Event(), []))
        got.append(message)
        event.set()

    def take_notification(self, message: Message) -> None:
        if message["method"] == "notifications/initialized":
            self.initialized = True
        elif message["method"] == "notifications/cancelled":
            self.cancel(message.get("params", {}).get("requestId"))

    def cancel(self, request_id: Any) -> None:
        request = self.open.get(key_of(request_id)) if is_id(request_id) else None
        if request is not None and request.method != "initialize":
            request.scope.cancel()

    def take_request(self, message: Message, origin: Any, batch: Batch | None) -> None:
        meta = message.get("params", {}).get("_meta")
        names = meta.get(f"{PREFIX}protocolVersion") if isinstance(meta, dict) else None
        modern = names is not None or (self.revision is None and message["method"] not in ("initialize", "ping"))
        request = Request(message, MODERN if modern else self.revision or LEGACY[-1], batch=batch, origin=origin)
        self.open[key_of(request.id)] = request
        self.start(request)

    def start(self, request: Request) -> None:
        self.nursery.start_soon(self.run, request)

    async def run(self, request: Request) -> None:
        self.twin.served += 1
        try:
            with request.scope:
                response = await self.response(request)
            if self.open.get(key_of(request.id)) is request:
                del self.open[key_of(request.id)]
            # It may have been done at the same moment.
            if request.scope.cancel_called:
                self.cancelled(request)
            else:
                self.respond(request, response)
        finally:
            self.finish(request)

    async def response(self, request: Request) -> Message:
        """Return the response to a request."""
        try:
            if request.modern:
                self.check_meta(request)
            return {"jsonrpc": "2.0", "id": request.id, "result": self.result(request, await self.answer(request))}
        except Refused as refused:
            return self.refuse(request.id, refused)

    def cancelled(self, request: Request) -> None:
        """Take note that a request was cancelled."""
        if request.batch is not None:
            request.batch.size -= 1
            if request.batch.responses and len(request.batch.responses) == request.batch.size:
                self.respond_to_batch(request.batch, request)

    # --- the answers --------------------------------------------------------------------------------------------------

    def check_meta(self, request: Request) -> None:
        version, capabilities = (
            request.meta.get(f"{PREFIX}protocolVersion"),
            request.meta.get(f"{PREFIX}clientCapabilities"),
        )
        if not isinstance(version, str):
            raise Refused(-32602, "Without a protocol version")
        if version != MODERN:
            raise Refused(
                -32022, "Unsupported protocol version", {"supported": [*self.supported], "requested": version}
            )
        if not isinstance(capabilities, dict):
            raise Refused(-32602, "Without the client's capabilities")
        if request.meta.get(f"{PREFIX}logLevel", "info") not in LEVELS:
            raise Refused(-32602, "Unknown log level")

    async def answer(self, request: Request) -> Message:
        """Return the result of a request."""
        if request.method not in BOTH_ERAS | (MODERN_ERA if request.modern else LEGACY_ERA):
            raise Refused(-32601, f"Unknown method {request.method}")
        result = await getattr(self, request.method.replace("/", "_").lower())(request)
        assert isinstance(result, dict)
        return result

    def declared(self, request: Request) -> Message:
        """Return the capabilities of the server."""
        changes = {"listChanged": True}
        found = {"tools": changes, "prompts": changes, "resources": {"subscribe": True, **changes}, "logging": {}}
        return found | ({"completions": {}} if request.revision != "2024-11-05" else {})

    async def initialize(self, request: Request) -> Message:
        params = request.params
        wants, capabilities, info = params.get("protocolVersion"), params.get("capabilities"), params.get("clientInfo")
        if not isinstance(wants, str) or not isinstance(capabilities, dict) or not isinstance(info, dict):
            raise Refused(-32602, "initialize needs protocolVersion, capabilities and clientInfo")
        if self.revision is not None:
            raise Refused(-32600, "Initialized already")
        self.revision = request.revision = wants if wants in LEGACY else LEGACY[-1]
        self.capabilities = capabilities
        return {"protocolVersion": self.revision, "capabilities": self.declared(request), "serverInfo": INFO}

    async def ping(self, request: Request) -> Message:
        return {}

    async def server_discover(self, request: Request) -> Message:
        return {"supportedVersions": [*self.supported], "capabilities": self.declared(request)}

    # Lists

    def cursor(self, method: str, place: int) -> str:
        seal = hashlib.sha256(KEY + f"{method} {place}".encode()).hexdigest()[:8]
        return base64.urlsafe_b64encode(f"{place}.{seal}".encode()).decode()

    def place(self, request: Request) -> int:
        """Return where the page that a request asks for begins."""
        if "cursor" not in request.params:
            return 0
        for place in range(PAGE, 100, PAGE):
            if request.params["cursor"] == self.cursor(request.method, place):
                return place
        raise Refused(-32602, "Unknown cursor")

    def page(self, request: Request, field: str, items: list[Message]) -> Message:
        place = self.place(request)
        following = {"nextCursor": self.cursor(request.method, place + PAGE)} if place + PAGE < len(items) else {}
        return {field: items[place : place + PAGE], **following}

    def tools(self, request: Request) -> list[Message]:
        """Return the tools as a revision knows them."""
        found = []
        for name, more in TOOLS.items():
            tool = {"name": name, "description": f"The tool {name}.", **more}
            if request.revision >= "2025-03-26":
                tool["annotations"] = {"readOnlyHint": True}
            if request.revision < "2025-06-18":
                tool.pop("outputSchema", None)
            found.append(tool)
        return found

    async def tools_list(self, request: Request) -> Message:
        return self.page(request, "tools", self.tools(request))

    async def resources_list(self, request: Request) -> Message:
        return self.page(request, "resources", [{"uri": uri, "name": uri[7:]} for uri in RESOURCES])

    async def resources_templates_list(self, request: Request) -> Message:
        return self.page(request, "resourceTemplates", [{"uriTemplate": uri, "name": uri[:4]} for uri in TEMPLATES])

    async def prompts_list(self, request: Request) -> Message:
        prompts = [
            {"name": name, "arguments": [{"name": each, "required": True} for each in arguments]}
            for name, arguments in PROMPTS.items()
        ]
        return self.page(request, "prompts", prompts)

    # Tools

    async def tools_call(self, request: Request) -> Message:
        name, arguments = request.params.get("name"), request.params.get("arguments", {})
        if not isinstance(name, str) or name not in TOOLS:
            return self.unknown_tool(request)
        if not isinstance(arguments, dict):
            raise Refused(-32602, "Arguments must be an object")
        if not jsonschema_rs.is_valid(TOOLS[name]["inputSchema"], arguments):
            return self.invalid_arguments(request)
        result = await getattr(self, f"tool_{name}")(request, arguments)
        assert isinstance(result, dict)
        return result

    def unknown_tool(self, request: Request) -> Message:
        raise Refused(-32602, "Unknown tool")

    def invalid_arguments(self, request: Request) -> Message:
        if request.revision < "2025-11-25":
            raise Refused(-32602, "Invalid arguments")
        return self.text("Invalid arguments", failed=True)

    def text(self, text: str, *, failed: bool = False) -> Message:
        return {"content": [{"type": "text", "text": text}]} | ({"isError": True} if failed else {})

    async def tool_add(self, request: Request, arguments: Message) -> Message:
        total = {"sum": arguments["a"] + arguments["b"]}
        structured = {"structuredContent": total} if request.revision >= "2025-06-18" else {}
        return self.text(json.dumps(total)) | structured

    async def tool_echo(self, request: Request, arguments: Message) -> Message:
        return self.text(arguments["text"])

    async def tool_route(self, request: Request, arguments: Message) -> Message:
        return self.text(json.dumps(arguments))

    async def tool_fail(self, request: Request, arguments: Message) -> Message:
        return self.text("It failed", failed=True)

    async def tool_show(self, request: Request, arguments: Message) -> Message:
        content: list[Message] = [
            {"type": "image", "data": RESOURCES["memo://picture"]["blob"], "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "memo://one", "text": "one"}},
        ]
        if request.revision >= "2025-06-18":
            content.append({"type": "resource_link", "uri": "memo://two", "name": "two"})
        return {"content": content}

    async def tool_slow(self, request: Request, arguments: Message) -> Message:
        for step in range(arguments["steps"]):
            await trio.sleep(self.twin.pause)
            self.progress(request, step + 1, arguments["steps"])
            self.log(request, "info", f"step {step}")
        return self.text("done")

    def progress(self, request: Request, progress: float, total: float) -> None:
        if request.token is not None:
            params = {"progressToken": request.token, "progress": progress, "total": total}
            self.notify("notifications/progress", params, request)

    def log(self, request: Request, level: str, data: Any) -> None:
        least = request.meta.get(f"{PREFIX}logLevel") if request.modern else self.level
        if least is not None and LEVELS.index(level) >= LEVELS.index(least):
            self.notify("notifications/message", {"level": level, "logger": "twin", "data": data}, request)

    async def tool_touch(self, request: Request, arguments: Message) -> Message:
        for session in [*self.twin.sessions]:
            session.updated(arguments["uri"])
        return self.text("touched")

    async def tool_change(self, request: Request, arguments: Message) -> Message:
        for session in [*self.twin.sessions]:
            session.changed(arguments["kind"])
        return self.text("changed")

    # Input

    async def tool_ask(self, request: Request, arguments: Message) -> Message:
        declared = request.meta.get(f"{PREFIX}clientCapabilities") if request.modern else self.capabilities
        kinds = [kind for kind in QUESTIONS if self.may_ask(kind, request, declared or {})]
        if request.modern:
            return self.ask_in_result(request, kinds)
        if not kinds or not self.initialized:
            return self.text("The client can't be asked", failed=True)
        return self.text(f"got {await self.ask(request, kinds[0])}")

    def may_ask(self, kind: str, request: Request, declared: Message) -> bool:
        """Return whether a client that declared this can be asked a question of this kind."""
        if kind == "elicitation":
            modes = declared.get(kind)
            return request.revision >= "2025-06-18" and modes is not None and (not modes or "form" in modes)
        return kind in declared

    async def ask(self, request: Request, kind: str) -> Any:
        self.asked += 1
        name = f"question {self.asked}"
        arrived, got = self.questions[name] = (trio.Event(), [])
        self.send({"jsonrpc": "2.0", "id": name} | self.question(kind, request), request)
        with trio.move_on_after(2):
            await arrived.wait()
        if not got:
            self.questions.pop(name, None)
            self.notify("notifications/cancelled", {"requestId": name}, request)
        return got[0].get("result") if got else None

    def question(self, kind: str, request: Request) -> Message:
        return QUESTIONS[kind]

    def state(self, request: Request) -> str:
        return hashlib.sha256(KEY + json.dumps([request.method, request.params["name"]]).encode()).hexdigest()

    def ask_in_result(self, request: Request, kinds: list[str]) -> Message:
        if not kinds:
            raise Refused(-32021, "The client can't be asked", {"requiredCapabilities": {"elicitation": {}}})
        state, responses = request.params.get("requestState"), request.params.get("inputResponses")
        if state is not None and state != self.state(request):
            raise Refused(-32602, "Not a state of this server")
        if responses is not None and not isinstance(responses, dict):
            raise Refused(-32602, "inputResponses must be an object")
        given = responses if responses is not None and state is not None else {}
        if not all(kind in given for kind in kinds):
            asked = {kind: self.question(kind, request) for kind in kinds}
            return {"resultType": "input_required", "inputRequests": asked, "requestState": self.state(request)}
        if not all(self.fits(kind, given[kind]) for kind in kinds):
            raise Refused(-32602, "An input response is invalid")
        return self.text("got " + ", ".join(kinds))

    def fits(self, kind: str, response: Any) -> bool:
        return jsonschema_rs.is_valid(ANSWERS[kind], response)

    # The rest

    def no_resource(self, request: Request, uri: Any) -> Message:
        raise Refused(-32602 if request.modern else -32002, "Resource not found", {"uri": uri})

    async def resources_read(self, request: Request) -> Message:
        uri = request.params.get("uri")
        if not isinstance(uri, str):
            raise Refused(-32602, "uri must be a string")
        if uri in RESOURCES:
            return {"contents": [{"uri": uri, **RESOURCES[uri]}]}
        if uri.startswith(("note://", "page://")) and len(uri) > 7:
            return {"contents": [{"uri": uri, "text": uri[7:]}]}
        return self.no_resource(request, uri)

    async def resources_subscribe(self, request: Request) -> Message:
        uri = request.params.get("uri")
        if not isinstance(uri, str):
            raise Refused(-32602, "uri must be a string")
        self.subscribed.add(uri)
        return {}

    async def resources_unsubscribe(self, request: Request) -> Message:
        uri = request.params.get("uri")
        if not isinstance(uri, str):
            raise Refused(-32602, "uri must be a string")
        self.subscribed.discard(uri)
        return {}

    async def prompts_get(self, request: Request) -> Message:
        name, arguments = request.params.get("name"), request.params.get("arguments", {})
        if not isinstance(name, str) or name not in PROMPTS:
            raise Refused(-32602, "Unknown prompt")
        if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in arguments.values()):
            raise Refused(-32602, "Arguments must be texts")
        if not all(each in arguments for each in PROMPTS[name]):
            raise Refused(-32602, "An argument is missing")
        return {"messages": [{"role": "user", "content": {"type": "text", "text": f"{name} {arguments}"}}]}

    async def completion_complete(self, request: Request) -> Message:
        ref, argument = request.params.get("ref"), request.params.get("argument")
        if not isinstance(ref, dict) or not isinstance(argument, dict):
            raise Refused(-32602, "ref and argument must be objects")
        name, value = argument.get("name"), argument.get("value")
        if not isinstance(name, str) or not isinstance(value, str):
            raise Refused(-32602, "An argument has a name and a value")
        known = {"ref/prompt": ("name", PROMPTS), "ref/resource": ("uri", [*RESOURCES, *TEMPLATES])}
        field, names = known.get(str(ref.get("type")), ("", ()))
        if not isinstance(ref.get(field), str) or ref[field] not in names:
            raise Refused(-32602, "Unknown reference")
        found = [each for each in NAMES if each.startswith(value)]
        return {"completion": self.completion(found)}

    def completion(self, found: list[str]) -> Message:
        return {"values": found[:100], "total": len(found), "hasMore": len(found) > 100}

    async def logging_setlevel(self, request: Request) -> Message:
        if (level := request.params.get("level")) not in LEVELS:
            raise Refused(-32602, "Unknown log level")
        self.level = level
        return {}

    # --- subscriptions ------------------------------------------------------------------------------------------------

    async def subscriptions_listen(self, request: Request) -> Message:
        wanted = request.params.get("notifications")
        if not isinstance(wanted, dict):
            raise Refused(-32602, "notifications must be an object")
        key = key_of(request.id)
        ended, honoured = trio.Event(), self.honoured(wanted)
        self.listening[key] = {"request": request, "wanted": honoured, "ended": ended}
        try:
            self.acknowledge(request, honoured)
            await trio.sleep_forever()
        finally:
            self.listening.pop(key, None)
            ended.set()

    def honoured(self, wanted: Message) -> Message:
        """Return what of a filter the server agrees to."""
        flags = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
        found: Message = {flag: True for flag in flags if wanted.get(flag) is True}
        uris = wanted.get("resourceSubscriptions")
        if isinstance(uris, list):
            found["resourceSubscriptions"] = [uri for uri in uris if isinstance(uri, str)]
        return found

    def acknowledge(self, request: Request, honoured: Message) -> None:
        self.tell_listener(request, "notifications/subscriptions/acknowledged", {"notifications": honoured})

    def tell_listener(self, request: Request, method: str, params: Message) -> None:
        # A subscription whose cancellation was read in this very turn is still listed.
        if not request.scope.cancel_called:
            self.notify(method, params | {"_meta": {f"{PREFIX}subscriptionId": request.id}}, request)

    def updated(self, uri: str) -> None:
        """Tell the client that a resource was changed, if it wants to know."""
        if uri in self.subscribed:
            self.notify("notifications/resources/updated", {"uri": uri})
        for each in [*self.listening.values()]:
            if uri in each["wanted"].get("resourceSubscriptions", ()):
                self.tell_listener(each["request"], "notifications/resources/updated", {"uri": uri})

    def changed(self, kind: str) -> None:
        """Tell the client that a list has changed, if it wants to know."""
        if self.revision is not None:
            self.notify(f"notifications/{kind}/list_changed")
        for each in [*self.listening.values()]:
            if f"{kind}ListChanged" in each["wanted"]:
                self.tell_listener(each["request"], f"notifications/{kind}/list_changed", {})


async def serve_lines(twin: Twin, stream: trio.abc.Stream) -> None:
    """Serve a session over a stream, a line for each message, until the client closes it."""
    outbox, outgoing = trio.open_memory_channel[bytes](100_000)

    async def write() -> None:
        async for line in outgoing:
            await stream.send_all(line)

    async def read(nursery: trio.Nursery) -> None:
        session = twin.session(twin, nursery, lambda message, about: outbox.send_nowait(session.frame(message)))
        try:
            await session.read(stream)
            session.end()
        finally:
            session.close()

    try:
        async with stream, trio.open_nursery() as writer:
            writer.start_soon(write)
            async with outbox, trio.open_nursery() as nursery:
                await read(nursery)
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the client has gone
