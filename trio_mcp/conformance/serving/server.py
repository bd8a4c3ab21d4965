"""A generated server at work: it handles the messages of one client as its script says, over any transport."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import trio

from trio_mcp.conformance.members import member_of, object_of
from trio_mcp.conformance.rules.extension_tasks import EXTENSION, TASK_METHODS
from trio_mcp.conformance.rules.history import LISTS, id_key, is_notification, is_request, is_response
from trio_mcp.conformance.serving.script import BASE, Script
from trio_mcp.conformance.serving.tasks import ScriptedTasks
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.types import error_codes, meta

__all__ = ["FOREIGN", "ICON", "MOVED", "ScriptedServer", "Send", "elsewhere"]

Send = Callable[[Any], Awaitable[None]]
"""A function that sends a message on the stream of the request that is being handled, and records it on the tape."""

FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
}
LATE: Final = 0.05
"""Seconds for which a late result waits for another request (an arbitrary choice, longer than one pass of a
client's event loop)."""


def _notice(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}


INSERTED: Final[dict[str, dict[str, Any]]] = {
    "noise": _notice("notifications/x-unknown", of="none"),
    "stray": {"jsonrpc": "2.0", "id": "never-asked", "result": {}},
    "malformed": {"jsonrpc": "2.0"},
}
QUESTIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "ping": ("ping", {}),
    "unknown": ("x-unknown/ask", {"of": "all"}),
}


UNSCRIPTED: Final = ("initialize", "server/discover", "subscriptions/listen", *TASK_METHODS)
"""The methods whose requests always get a plain response."""

TOOL: Final = {"name": "add", "inputSchema": {"type": "object"}}
INFO: Final = {"name": "generated server", "version": "1"}
MISPLACED: Final = ("prompts/get", "resources/read")
"""The methods whose results a server mistakes for tasks."""


def questions(declared: Mapping[str, Any], revision: str, base: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the questions that a client with these capabilities may be asked, each with its method and parameters.

    Args:
        declared: The client's capabilities.
        revision: The revision spoken.
        base: The beginning of the URLs in the questions.
    """
    sampling, modes = declared.get("sampling"), declared.get("elicitation")
    found: list[tuple[str, dict[str, Any]]] = []
    if "roots" in declared:
        found.append(("roots/list", {}))
    if sampling is not None:
        found.append(("sampling/createMessage", SAMPLING))
        if "tools" in sampling:
            with_tools = {**SAMPLING, "tools": [TOOL]}
            found += [
                ("sampling/createMessage", {**with_tools, "toolChoice": {"mode": mode}})
                for mode in ("none", "required")
            ]
    # An empty `elicitation` means forms only, as it did before there were modes (2025-11-25, Elicitation,
    # Capabilities).
    if modes is not None and ("form" in modes or "url" not in modes):
        found.append(("elicitation/create", {"message": "Who are you?", "requestedSchema": FORM}))
        # A form may name its mode or leave it out; older revisions don't have modes.
        if revision >= "2025-11-25":
            found.append(("elicitation/create", {"mode": "form", "message": "Who?", "requestedSchema": FORM}))
    if modes is not None and "url" in modes:
        found.append(("elicitation/create", _by_url(revision, base)))
    return found


def undeclared(declared: Mapping[str, Any], revision: str, base: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the questions that a client with these capabilities must not be asked."""
    every: dict[str, Any] = {"roots": {}, "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}}
    # A capability that the revision does not have yet is not undeclared but unknown, and other rules judge unknown
    # capabilities.
    if revision < "2025-11-25":
        every = {"roots": {}, "sampling": {}, **({"elicitation": {}} if revision >= "2025-06-18" else {})}
    # Allowed questions are recognized by their content: sampling without tools, for example, is the same question
    # whether tools are declared or not.
    allowed = questions(declared, revision, base)
    return [question for question in questions(every, revision, base) if question not in allowed]


SAMPLING: Final[dict[str, Any]] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Say hello."}}],
    "maxTokens": 20,
}


def _by_url(revision: str, base: str) -> dict[str, Any]:
    asked = {"mode": "url", "message": "Please visit this page.", "url": f"{base}/visit"}
    return {**asked, "elicitationId": "visit-1"} if revision == "2025-11-25" else asked


ICON: Final = "/icon.png"
"""The path of an icon, which redirects to `MOVED` on another origin."""
MOVED: Final = "/moved.png"
FOREIGN: Final = "/foreign.png"
"""The path of an icon whose URL names another origin, so that no redirect is needed."""


def elsewhere(base: str) -> str:
    """Return a URL of the same server that belongs to another origin."""
    # Origins are compared as text (RFC 6454, section 5), so `localhost` is another origin, and needs no second server.
    return base.replace("127.0.0.1", "localhost")


class ScriptedServer:
    """A generated server, for one session of one client.

    Args:
        script: The script that the server follows.
        tape: Records which of the server's requests got no response in time.
        number: The number of the connection.
        deadline: Seconds that the client has to respond to a request from the server.
        base: The beginning of the URLs that the server sends.
    """

    def __init__(
        self, script: Script, tape: Tape, number: int, deadline: float, base: str = "https://server.invalid"
    ) -> None:
        self.script = script
        self._tape = tape
        self._number = number
        self._deadline = deadline
        self._base = base
        self._turn = 0
        self._asked = 0
        self._capabilities: Mapping[str, Any] = {}
        self._replies: dict[Any, trio.Event] = {}
        self._running: dict[Any, trio.CancelScope] = {}
        self._states: dict[str, str] = {}
        self._tasks = ScriptedTasks()
        self._newest = trio.Event()

    def next_turn(self, message: Any) -> str:
        """Return the script's next way of responding; ``plain`` for a message that uses up no turn, such as a retry."""
        # The opening always gets a plain response: if it failed, the client would do nothing more, and reach no later
        # turn.
        if not is_request(message) or message["method"] in UNSCRIPTED:
            return "plain"
        # A retry is the second half of a request, not a new one.
        if (message.get("params") or {}).get("requestState") in self._states:
            return "plain"
        turns = self.script.turns
        self._turn += 1
        return turns[self._turn - 1] if self._turn <= len(turns) else "plain"

    async def take(self, message: Any, send: Send, turn: str = "plain") -> None:
        """Handle a message from the client. A request that is cancelled ends without a response."""
        if is_response(message):
            if (waiting := self._replies.get(id_key(message.get("id")))) is not None:
                waiting.set()
        elif is_request(message):
            # Each request has its own cancel scope, because a cancelled request must end without a response and leave
            # the others alone.
            with trio.CancelScope() as scope:
                self._running[id_key(message["id"])] = scope
                await self._meet(message, send, turn)
        elif is_notification(message) and message["method"] == "notifications/cancelled":
            # The scope of a request stays in the table after the response, because a response and a cancellation may
            # cross on their way; cancelling the scope then does nothing.
            running = self._running.get(id_key(member_of(message, "params", "requestId")))
            if running is not None:
                running.cancel("cancelled by the client")

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _meet(self, request: dict[str, Any], send: Send, turn: str) -> None:
        # Each request releases the earlier results that wait because their turn is `late`, so that they come after the
        # result of the new request.
        self._newest.set()
        self._newest = trio.Event()
        request_id, params = request["id"], object_of(request.get("params"))
        if request["method"] == "subscriptions/listen" and self.script.modern:
            await self._listen(request_id, params, send)
        await self._before(turn, params, send)
        if turn == "error":
            await send(_error(request_id, error_codes.INTERNAL_ERROR, "the script asks for this error"))
            return
        response = self._response(request, params, turn)
        await send(response)
        # The second response comes over the same stream: a client must not mistake it for the response to a later
        # request.
        if turn == "again":
            await send(response)

    async def _listen(self, request_id: Any, params: dict[str, Any], send: Send) -> None:
        """Acknowledge a subscription, announce a change if the client wants that, and leave the subscription open."""
        wanted = member_of(params, "notifications", "toolsListChanged")
        offered = {"toolsListChanged": True} if wanted and "tools" in self.script.declared else {}
        # One connection may carry several subscriptions, which the client distinguishes by their ids
        # (basic/patterns/subscriptions).
        fields = {meta.SUBSCRIPTION_ID: request_id}
        # The acknowledgement comes first: the client must know which notifications it will get before the first one
        # comes.
        await send(_notice("notifications/subscriptions/acknowledged", notifications=offered, _meta=fields))
        if offered:
            await send(_notice("notifications/tools/list_changed", _meta=fields))
        await trio.sleep_forever()

    async def _before(self, turn: str, params: dict[str, Any], send: Send) -> None:
        """Do what the script requires before the response: send messages, ask questions, or wait."""
        if turn in INSERTED:
            await send(INSERTED[turn])
        elif turn == "late":
            newest = self._newest
            with trio.move_on_after(LATE):
                await newest.wait()
        elif turn in ("ping", "unknown"):
            await self._ask(*QUESTIONS[turn], send)
        elif turn in ("ask", "undeclared") and not self.script.modern:
            for question in self._questions(turn, self._capabilities):
                await self._ask(*question, send)
        elif turn == "withdrawn":
            for question in self._questions("ask", self._capabilities)[:1]:
                await self._ask(*question, send, withdrawn=True)
        else:
            await self._notify(turn, params, send)

    async def _notify(self, turn: str, params: dict[str, Any], send: Send) -> None:
        """Send the notifications that the script requires, if they are allowed."""
        fields = object_of(params.get("_meta"))
        declared = self.script.declared
        if turn == "progress" and (token := fields.get(meta.PROGRESS_TOKEN)) is not None:
            for done in (1, 2):
                await send(_notice("notifications/progress", progressToken=token, progress=done, total=2))
        # In the modern era a request has to ask for log messages: without that, sending them would be the server's
        # mistake.
        elif turn == "log" and "logging" in declared and (not self.script.modern or meta.LOG_LEVEL in fields):
            # The level is the most severe one, so that the message passes whatever level the client has set.
            await send(_notice("notifications/message", level="emergency", data={"why": "the script"}))
        elif turn == "changed" and "tools" in declared:
            await send(_notice("notifications/tools/list_changed"))

    def _questions(self, turn: str, declared: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        return (undeclared if turn == "undeclared" else questions)(declared, self.script.revision, self._base)

    async def _ask(self, method: str, params: Mapping[str, Any] | None, send: Send, *, withdrawn: bool = False) -> None:
        """Ask the client, and wait for its reply, which only the rules judge."""
        self._asked += 1
        request_id = f"question-{self._asked}"
        # The question is registered before it is sent: the reply may come while this task is still sending.
        replied = self._replies[id_key(request_id)] = trio.Event()
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
        # A model is slow, so the question has a progress token, with which the client may report progress.
        if method == "sampling/createMessage":
            params = {**(params or {}), "_meta": {meta.PROGRESS_TOKEN: request_id}}
        await send({**message, "params": params} if params else message)
        # Nothing waits for the reply: the client should not reply any more, and a reply that is already on its way
        # breaks no rule.
        if withdrawn:
            await send(_notice("notifications/cancelled", requestId=request_id, reason="not needed any more"))
            return
        with trio.move_on_after(self._deadline):
            await replied.wait()
        if not replied.is_set():
            self._tape.note(
                "mark",
                "kit",
                connection=self._number,
                what="overdue",
                id=request_id,
                by="server",
                seconds=self._deadline,
            )

    # --- responses ----------------------------------------------------------------------------------------------------

    def _response(self, request: dict[str, Any], params: dict[str, Any], turn: str) -> dict[str, Any]:
        method = request["method"]
        if (
            self.script.modern
            and turn in ("input", "state", "undeclared")
            # Only the results of these three methods may ask for input (basic/patterns/mrtr#supported-requests).
            and method in ("tools/call", "prompts/get", "resources/read")
        ):
            return _result(request["id"], self._input_required(params, turn))
        content = self._content(method, params)
        if isinstance(content, str):
            code = error_codes.METHOD_NOT_FOUND if content == "unknown method" else error_codes.INVALID_PARAMS
            return _error(request["id"], code, content)
        if self.script.modern:
            if self._makes_task(method, turn):
                content = self._created(params) or content
            content = {"resultType": "complete", **content}
            content["_meta"] = {meta.SERVER_INFO: INFO}
        if turn == "untyped":
            content.pop("resultType", None)
        if turn == "extra":
            content = {**content, "xUnknown": {"any": [1, None]}}
        return _result(request["id"], content)

    def _makes_task(self, method: str, turn: str) -> bool:
        # Where a server makes tasks at all, it makes many, since most clients call few tools.
        if method == "tools/call":
            return self.script.has_tasks and turn in ("task", "plain")
        return turn == "misplaced" and method in MISPLACED

    def _created(self, params: dict[str, Any]) -> dict[str, Any] | None:
        """Return a result that creates a task; None if the client does not declare the extension."""
        declared = object_of(member_of(params, "_meta", meta.CLIENT_CAPABILITIES))
        if EXTENSION not in object_of(declared.get("extensions")):
            return None
        return self._tasks.create(self._input_requests("ask", declared))

    def _input_requests(self, turn: str, declared: Mapping[str, Any]) -> dict[str, Any]:
        asked = enumerate(self._questions(turn, declared))
        return {f"q{at}": {"method": method, "params": question} for at, (method, question) in asked}

    def _input_required(self, params: dict[str, Any], turn: str) -> dict[str, Any]:
        declared = object_of(member_of(params, "_meta", meta.CLIENT_CAPABILITIES))
        # The state must come back unchanged (basic/patterns/mrtr): its quotes, space and other special characters break
        # in clients that put it into JSON, URLs or Base64 by hand.
        state = f'state-{len(self._states)} é"\\ +/='
        self._states[state] = turn
        found: dict[str, Any] = {"resultType": "input_required", "requestState": state}
        if asked := self._input_requests(turn, declared) if turn != "state" else {}:
            found["inputRequests"] = asked
        return found

    def _content(self, method: str, params: dict[str, Any]) -> dict[str, Any] | str:
        """Return the content of a result, or a message that says what is wrong with the request."""
        script = self.script
        opens = {True: ("server/discover",), False: ("initialize", "ping", "logging/setLevel")}
        # Clients that support both eras recognize the server's era by the error for an unknown method, so the server
        # must send exactly that error.
        if method in ("initialize", "server/discover", "ping") and method not in opens[script.modern]:
            return "unknown method"
        match method:
            case "initialize":
                self._capabilities = object_of(params.get("capabilities"))
                return {"protocolVersion": script.answers, "capabilities": self.declared, "serverInfo": INFO}
            case "server/discover":
                return {"supportedVersions": [script.revision], "capabilities": self.declared, **self._caching()}
            case "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe":
                return {}
            case "tools/call":
                called = next((tool for tool in script.tools if tool["name"] == params.get("name")), None)
                done = {"content": [{"type": "text", "text": "done"}]}
                structured = {"structuredContent": {"a": 1}} if called and "outputSchema" in called else {}
                return "unknown tool" if called is None else {**done, **structured}
            case "prompts/get":
                known = any(prompt["name"] == params.get("name") for prompt in script.prompts)
                said = {"role": "user", "content": {"type": "text", "text": "Hello."}}
                return {"messages": [said]} if known else "unknown prompt"
            case "resources/read":
                found = {"uri": params.get("uri"), "mimeType": "text/plain", "text": "hello"}
                known = any(resource["uri"] == params.get("uri") for resource in script.resources)
                return {"contents": [found], **self._caching()} if known else "unknown resource"
            case "completion/complete":
                return {"completion": {"values": ["one", "two"], "hasMore": False}}
            case _ if method in TASK_METHODS and script.has_tasks:
                told = self._tasks.answer(method, params)
                return "unknown task" if told is None else told
            case _ if method in LISTS:
                return self._page(method, params.get("cursor"))
        return "unknown method"

    def _page(self, method: str, cursor: Any) -> dict[str, Any] | str:
        field, _ = LISTS[method]
        items: Sequence[Any] = getattr(self.script, field, ())
        # A client could not make up a cursor like these, or parse it, by accident.
        places = {at: f"{field}→{at}" for at in range(0, len(items), self.script.pages)}
        if self.script.blank and field == "tools":
            # An empty cursor is valid, too: clients that test `if cursor:` stop at an empty cursor, and miss the
            # remaining pages.
            places[self.script.pages] = ""
        starts = {cursor: at for at, cursor in places.items()}
        # A request without a cursor asks for the beginning. A cursor that was never given out gets the error that the
        # specification requires (server/utilities/pagination#error-handling), which shows that a client makes up
        # cursors.
        if cursor is not None and cursor not in starts:
            return "unknown cursor"
        start = starts.get(cursor, 0)
        end = start + self.script.pages
        page: dict[str, Any] = {field: self._shown(items[start:end]), **self._caching()}
        if end < len(items):
            page["nextCursor"] = places[end]
        return page

    def _shown(self, items: Sequence[Any]) -> list[Any]:
        """Return items with this server's URL in place of the placeholder, and with icons if the revision has them."""
        urls = (self._base + ICON, elsewhere(self._base) + FOREIGN)
        icons = {"icons": [{"src": url, "mimeType": "image/png"} for url in urls]}
        shown = [{**item, **icons} if self.script.revision >= "2025-11-25" else item for item in items]
        # The placeholder is replaced in the whole text, as it may be at any depth of a schema.
        found: list[Any] = json.loads(json.dumps(shown).replace(BASE, self._base))
        return found

    def _caching(self) -> dict[str, Any]:
        # No result may be cached: a client that caches results would ask only once, and reach none of the later turns.
        return {"ttlMs": 0, "cacheScope": "private"} if self.script.modern else {}

    @property
    def declared(self) -> dict[str, Any]:
        """The capabilities that the server declares."""
        changing = {"tools": {"listChanged": True}}
        found = {name: changing.get(name, {}) if not self.script.modern else {} for name in self.script.declared}
        return found | ({"extensions": {EXTENSION: {}}} if self.script.has_tasks else {})


def _result(request_id: Any, result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": result}


def _error(request_id: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}
