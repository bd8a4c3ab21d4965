"""A client written by hand for both eras, over lines and over HTTP, whose habits are methods that a mutant overrides.

It does a little of everything that a server offers, answers what it is asked, and leaves.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar, TypeAlias

import h11
import trio

from tests.kit.mutants.server import LEGACY, MODERN, PREFIX, Message, is_id
from trio_mcp.http.param_headers import parameter_headers

Connect: TypeAlias = Callable[[], Awaitable[trio.abc.Stream]]

PATIENCE = 15.0
CAPABILITIES: dict[str, Any] = {"roots": {}, "sampling": {}, "elicitation": {}}
INFO = {"name": "twin", "version": "1.0"}
LISTS = {"tools": "tools/list", "prompts": "prompts/list", "resources": "resources/list"}


class GaveUp(Exception):
    """The client has no reason to go on."""


class Client:
    """A healthy client over lines.

    Args:
        connect: Opens a connection to the server.
        nursery: Runs what reads.
    """

    over: ClassVar[str] = "memory"

    def __init__(self, connect: Connect, nursery: trio.Nursery) -> None:
        self.connect = connect
        self.nursery = nursery
        self.modern = True
        self.revision = MODERN
        self.server: Message = {}
        self.agreed = False
        self.counted = 0
        self.pending: dict[Any, tuple[trio.Event, list[Message]]] = {}
        self.stream: trio.abc.Stream | None = None
        self.sending = trio.Lock()

    # --- what it does -------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Open a session, use what the server offers, and leave."""
        await self.open()
        await self.shake_hands()
        for name, method in LISTS.items():
            if self.may_use(name):
                for item in await self.every(method, name):
                    await self.use(name, item)
        if self.may_use("completions") and "prompts" in self.server:
            ref = {"type": "ref/prompt", "name": "any"}
            await self.ask("completion/complete", {"ref": ref, "argument": {"name": "a", "value": ""}})
        await self.give_up_a_call()
        await self.leave()

    async def shake_hands(self) -> None:
        found = await self.ask("server/discover")
        if "result" in found:
            self.server = found["result"]["capabilities"]
            return
        self.modern, self.revision = False, LEGACY[-1]
        found = await self.ask("initialize", self.opening())
        if "result" not in found:
            raise GaveUp
        self.revision = found["result"]["protocolVersion"]
        self.server = found["result"]["capabilities"]
        if not self.speaks(self.revision):
            await self.leave()
            raise GaveUp
        self.agreed = True
        await self.opened()

    def opening(self) -> Message:
        return {"protocolVersion": LEGACY[-1], "capabilities": CAPABILITIES, "clientInfo": INFO}

    def speaks(self, revision: str) -> bool:
        return revision in LEGACY

    async def opened(self) -> None:
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def may_use(self, capability: str) -> bool:
        return capability in self.server

    async def every(self, method: str, field: str) -> list[Message]:
        """Read all pages of a list."""
        found: list[Message] = []
        params: Message = {}
        for _ in range(20):
            page = (await self.ask(method, params)).get("result", {})
            found += page.get(field, [])
            if not self.has_more(page):
                break
            params = {"cursor": self.cursor(page["nextCursor"])}
        return found

    def has_more(self, page: Message) -> bool:
        return "nextCursor" in page

    def cursor(self, given: str) -> str:
        return given

    async def use(self, kind: str, item: Message) -> None:
        if kind == "tools":
            if self.may_call(item):
                await self.call(item)
        elif kind == "prompts":
            arguments = {each["name"]: "x" for each in item.get("arguments", ())}
            await self.ask("prompts/get", {"name": item["name"], "arguments": arguments})
        else:
            await self.ask("resources/read", {"uri": item["uri"]})

    def may_call(self, tool: Message) -> bool:
        """Return whether the names of headers in a tool's schema follow their rules, which matters over HTTP."""
        try:
            parameter_headers(tool["inputSchema"])
        except ValueError:
            return not self.modern or self.over != "http"
        return True

    async def call(self, tool: Message) -> None:
        self.counted += 1
        await self.ask("tools/call", self.arguments(tool), token=self.token(), tool=tool)

    def arguments(self, tool: Message) -> Message:
        """Return the parameters of a call."""
        return {"name": tool["name"], "arguments": sample(tool["inputSchema"])}

    def token(self) -> Any:
        return f"token {self.counted}"

    async def give_up_a_call(self) -> None:
        """Ping, and tell the server that the answer is not wanted."""
        if not self.modern:
            request_id = self.new_id()
            await self.send({"jsonrpc": "2.0", "id": request_id, "method": "ping"})
            await self.cancel(request_id)

    async def cancel(self, request_id: Any) -> None:
        await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})

    # --- requests -----------------------------------------------------------------------------------------------------

    def new_id(self) -> Any:
        self.counted += 1
        return self.counted

    def meta(self) -> Message:
        """Return what each request of the modern era says about the client."""
        return {
            f"{PREFIX}protocolVersion": self.revision,
            f"{PREFIX}clientCapabilities": CAPABILITIES,
            f"{PREFIX}clientInfo": INFO,
        }

    async def ask(self, method: str, params: Message | None = None, *, token: Any = None, tool: Any = None) -> Message:
        """Send a request, and return its response; retry it when the server asks for input."""
        params = dict(params or {})
        response: Message = {}
        for _ in range(5):
            meta = (self.meta() if self.modern else {}) | ({} if token is None else {"progressToken": token})
            request_id = self.new_id()
            body = params | ({"_meta": meta} if meta else {})
            message = {"jsonrpc": "2.0", "id": request_id, "method": method} | ({"params": body} if body else {})
            response = await self.exchange(message, tool)
            result = response.get("result", {})
            asked = result.get("inputRequests", {}).values()
            if not self.is_asked(result) or any(map(self.refuses, asked)):
                break
            token = None if token is None else self.token() + "."
            params |= self.retry(result)
        return response

    def is_asked(self, result: Message) -> bool:
        """Return whether a result asks for input."""
        return result.get("resultType") == "input_required"

    def retry(self, result: Message) -> Message:
        """Return what is added to a request that the server wants input for."""
        added: Message = {}
        if "requestState" in result:
            added["requestState"] = result["requestState"]
        if "inputRequests" in result:
            given = {key: self.answer(question) for key, question in result["inputRequests"].items()}
            added["inputResponses"] = given
        return added

    async def exchange(self, message: Message, tool: Any) -> Message:
        key = (type(message["id"]).__name__, message["id"])
        event, got = self.pending[key] = (trio.Event(), [])
        await self.send(message, tool)
        with trio.move_on_after(PATIENCE):
            await event.wait()
        if not got:
            await self.timed_out(message["id"])
        return got[0] if got else {}

    async def timed_out(self, request_id: Any) -> None:
        await self.cancel(request_id)

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, question: Message) -> Message:
        """Return the result for a question of the server."""
        if question["method"] == "roots/list":
            return {"roots": [{"uri": "file:///home", "name": "home"}]}
        if question["method"] == "sampling/createMessage":
            return {"role": "assistant", "content": {"type": "text", "text": "Hello."}, "model": "none"}
        return {"action": "accept", "content": {"name": "Ann", "age": 3}}

    def refuses(self, question: Message) -> bool:
        """Return whether a question is of a kind that was not declared."""
        params = question.get("params", {})
        return "tools" in params or params.get("mode") == "url"

    async def take(self, message: Any) -> None:
        """Take a message of the server."""
        if not isinstance(message, dict):
            return
        if "method" not in message:
            key = (type(message.get("id")).__name__, message.get("id"))
            if is_id(message.get("id")) and key in self.pending and ("result" in message or "error" in message):
                event, got = self.pending.pop(key)
                got.append(message)
                event.set()
        elif is_id(message.get("id")):
            await self.respond(message)
        else:
            await self.notified(message)

    async def notified(self, message: Message) -> None:
        """Take a notification of the server."""

    async def respond(self, question: Message) -> None:
        await self.send({"jsonrpc": "2.0", "id": question["id"], **self.response(question)})

    def response(self, question: Message) -> Message:
        if question["method"] == "ping":
            return {"result": {}}
        if self.refuses(question):
            return {"error": {"code": -32602, "message": "Not declared"}}
        if question["method"] in ("roots/list", "sampling/createMessage", "elicitation/create"):
            return {"result": self.answer(question)}
        return {"error": {"code": -32601, "message": "Unknown method"}}

    # --- lines --------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        self.stream = await self.connect()
        self.nursery.start_soon(self.read, self.stream)

    async def read(self, stream: trio.abc.Stream) -> None:
        rest = b""
        try:
            while data := await stream.receive_some():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    await self.take(json.loads(line))
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass

    def outgoing(self, message: Message) -> Iterator[Any]:
        """Yield what is sent in place of a message."""
        yield message

    def frame(self, message: Any) -> bytes:
        return json.dumps(message).encode() + b"\n"

    async def send(self, message: Message, tool: Any = None) -> None:
        assert self.stream is not None
        async with self.sending:
            for each in self.outgoing(message):
                await self.stream.send_all(self.frame(each))

    async def leave(self) -> None:
        if self.stream is not None:
            await self.stream.aclose()


class HttpClient(Client):
    """A healthy client over HTTP: a connection for each request."""

    over: ClassVar[str] = "http"

    session: str | None = None

    async def open(self) -> None:
        await trio.lowlevel.checkpoint()

    async def opened(self) -> None:
        await super().opened()
        self.nursery.start_soon(self.listen)

    async def listen(self) -> None:
        """Receive what belongs to no request."""
        await self.fetch("GET", {"Accept": "text/event-stream"} | self.common(), None, None)

    def common(self) -> dict[str, str]:
        """Return the headers that all requests have."""
        opened = {"MCP-Protocol-Version": self.revision} if self.modern or self.agreed else {}
        return opened | self.session_header()

    def session_header(self) -> dict[str, str]:
        return {} if self.session is None else {"Mcp-Session-Id": self.session}

    def accept(self) -> str:
        return "application/json, text/event-stream"

    def headers(self, message: Message, tool: Any) -> dict[str, str]:
        """Return the headers of the POST of a message."""
        found = {"Content-Type": "application/json", "Accept": self.accept()} | self.common()
        if self.modern and "method" in message:
            found["Mcp-Method"] = message["method"]
            name = message.get("params", {}).get("uri", message.get("params", {}).get("name"))
            if message["method"] in ("tools/call", "prompts/get", "resources/read"):
                found["Mcp-Name"] = encoded(name)
            if tool is not None:
                found |= self.parameters(tool, message["params"]["arguments"])
        return found

    def parameters(self, tool: Message, arguments: Message) -> dict[str, str]:
        """Return the headers of a call's arguments."""
        found = {}
        for name, schema in tool["inputSchema"].get("properties", {}).items():
            if "x-mcp-header" in schema and name in arguments:
                value = arguments[name]
                text = json.dumps(value) if isinstance(value, bool) else str(value)
                found[f"Mcp-Param-{schema['x-mcp-header']}"] = encoded(text)
        return found

    async def exchange(self, message: Message, tool: Any) -> Message:
        key = (type(message["id"]).__name__, message["id"])
        _, got = self.pending[key] = (trio.Event(), [])
        with trio.move_on_after(PATIENCE):
            await self.send(message, tool)
        if not got and not self.modern:
            await self.timed_out(message["id"])
        return got[0] if got else {}

    async def send(self, message: Message, tool: Any = None) -> None:
        for each in self.outgoing(message):
            head = self.headers(each if isinstance(each, dict) else message, tool)
            status = await self.fetch("POST", head, self.frame(each), message)
            if status == 404 and self.session is not None and self.expected(message):
                await self.restart()

    def expected(self, message: Message) -> bool:
        return "method" in message and "id" in message

    async def restart(self) -> None:
        """Begin a new session, since the old one has ended."""
        self.session, self.agreed = None, False
        await self.shake_hands_again()
        raise GaveUp

    async def shake_hands_again(self) -> None:
        await self.ask("initialize", self.opening())

    async def fetch(
        self, method: str, headers: dict[str, str], body: bytes | None, message: Any, target: str = "/mcp"
    ) -> int:
        """Make a request, take the messages of its response, and return the status."""
        connection = h11.Connection(h11.CLIENT)
        last, ended = None, False
        async with await self.connect() as stream:
            length = {} if body is None else {"Content-Length": str(len(body))}
            head = h11.Request(
                method=method, target=target, headers=[*({"Host": "127.0.0.1"} | headers | length).items()]
            )
            data = connection.send(head) or b""
            if body is not None:
                data += connection.send(h11.Data(body)) or b""
            await stream.send_all(data + (connection.send(h11.EndOfMessage()) or b""))
            status, text, streams = 0, b"", False
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    connection.receive_data(await stream.receive_some())
                elif isinstance(event, h11.Response):
                    found = {name.decode(): value.decode() for name, value in event.headers}
                    status, streams = event.status_code, found.get("content-type", "").startswith("text/event-stream")
                    self.session = found.get("mcp-session-id", self.session)
                elif isinstance(event, h11.Data):
                    text += event.data
                    if streams:
                        *events, text = text.split(b"\n\n")
                        for each in events:
                            last = await self.take_event(each) or last
                else:
                    ended = isinstance(event, h11.EndOfMessage)
                    break
        if ended and not streams and text.strip():
            await self.take_body(text)
        if last is not None and message is not None and (type(message["id"]).__name__, message["id"]) in self.pending:
            await self.resume(last, message)
        return status

    async def take_body(self, text: bytes) -> None:
        """Take a response as JSON."""
        await self.take(json.loads(text))

    async def take_event(self, text: bytes) -> str | None:
        fields = [line.partition(b":")[::2] for line in text.split(b"\n")]
        found = {name.decode(): value.removeprefix(b" ") for name, value in fields}
        if found.get("data"):
            await self.take(json.loads(found["data"]))
        return found["id"].decode() if "id" in found else None

    async def resume(self, last: str, message: Message) -> None:
        await trio.sleep(0.05)
        headers = {"Accept": "text/event-stream", "Last-Event-ID": last} | self.common()
        await self.fetch("GET", headers, None, None)

    async def leave(self) -> None:
        if self.session is not None:
            await self.fetch("DELETE", self.common(), None, None)


def encoded(value: str) -> str:
    """Return a text as the value of a header."""
    plain = value.isascii() and value.isprintable() and value == value.strip() and not value.startswith("=?base64?")
    return value if plain else f"=?base64?{base64.b64encode(value.encode()).decode()}?="


def sample(schema: Message) -> Message:
    """Return arguments that fit a schema."""
    values = {"integer": 1, "string": "é", "boolean": True, "array": [], "object": {}}
    return {
        name: each["enum"][0] if "enum" in each else values[each["type"]]
        for name, each in schema.get("properties", {}).items()
        if "$ref" not in each
    }


async def run(client: type[Client], connect: Connect) -> None:
    """Run a client."""
    async with trio.open_nursery() as nursery:
        try:
            await client(connect, nursery).run()
        except (GaveUp, trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        nursery.cancel_scope.cancel()
