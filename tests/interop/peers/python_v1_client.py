"""The official Python SDK's client below 2 over WebSocket, in an environment of its own.

It runs the steps of ts_script.mjs, takes the same input and prints the same report.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from functools import partial
from typing import Any

import anyio
from mcp import ClientSession, McpError, types
from pydantic import AnyUrl
from websockets.exceptions import ConnectionClosed

warnings.simplefilter("ignore", DeprecationWarning)  # it gives up WebSocket in its version 2
from mcp.client.websocket import websocket_client  # noqa: E402 - after the filter

REQUEST = json.loads(sys.argv[1])
AWAITED = {"notifications/resources/updated", "notifications/tools/list_changed"}


def plain(model: Any) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


class Script:
    """The session, and what it has seen."""

    def __init__(self) -> None:
        self.session: ClientSession
        self.questions: list[str] = []
        self.logs: list[Any] = []
        self.notifications: list[Any] = []
        self.errors: list[Any] = []
        self.heard: list[str] = []
        self.enough = anyio.Event()
        self.cancelling: anyio.CancelScope | None = None

    # --- what the server asks and tells ---

    async def elicit(self, context: object, params: Any) -> types.ElicitResult:
        self.questions.append(params.message)
        return types.ElicitResult(**REQUEST["elicitations"][params.message])

    async def sample(self, context: object, params: object) -> types.CreateMessageResult:
        return types.CreateMessageResult(**REQUEST["sample"])

    async def roots(self, context: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=REQUEST["roots"])

    async def log(self, params: Any) -> None:
        self.logs.append(plain(params))

    async def handle(self, message: Any) -> None:
        if isinstance(message, Exception):
            self.errors.append({"kind": type(message).__name__, "message": str(message)})
            return
        if not isinstance(message, types.ServerNotification):
            return
        note = plain(message)
        self.notifications.append(note)
        if note["method"] in AWAITED:
            self.heard.append(note["method"])
            if len(self.heard) == 2:
                self.enough.set()
        if note["method"] == "notifications/progress" and self.cancelling:
            # This client has no way to cancel a call but by hand; its progress token is the call's id.
            params = types.CancelledNotificationParams(requestId=note["params"]["progressToken"])
            await self.session.send_notification(types.ClientNotification(types.CancelledNotification(params=params)))
            self.cancelling.cancel()
            self.cancelling = None

    # --- the steps ---

    async def call(self, step: dict[str, Any], progress: list[Any]) -> Any:
        async def show(done: float, total: float | None, message: str | None) -> None:
            progress.append({"progress": done, "total": total, "message": message})

        with anyio.CancelScope() as scope:
            self.cancelling = scope if step.get("cancelOnProgress") else None
            wanted = show if step.get("progress") or step.get("cancelOnProgress") else None
            return plain(
                await self.session.call_tool(
                    step["name"], step["arguments"], progress_callback=wanted, meta=step.get("meta")
                )
            )
        raise RuntimeError("no longer wanted")

    async def listen(self, step: dict[str, Any]) -> list[str]:
        uri = AnyUrl(step["uri"])
        self.heard.clear()
        await self.session.subscribe_resource(uri)
        await self.session.call_tool(step["announce"], {"uri": step["uri"]})
        await self.enough.wait()
        await self.session.unsubscribe_resource(uri)
        return sorted(self.heard)

    async def echo(self, size: int) -> int:
        (block,) = (await self.session.call_tool("echo", {"text": "x" * size})).content
        assert isinstance(block, types.TextContent)
        return len(block.text)

    async def leave(self) -> None:
        begun = anyio.Event()

        async def show(*_: object) -> None:
            begun.set()

        call = partial(self.session.call_tool, "slow", {"seconds": 3600}, progress_callback=show)
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await begun.wait()
            group.cancel_scope.cancel()

    async def step(self, step: dict[str, Any], progress: list[Any]) -> Any:
        session = self.session
        match step["op"]:
            case "list_tools":
                return plain(await session.list_tools())
            case "ping":
                return plain(await session.send_ping())
            case "read":
                return plain(await session.read_resource(AnyUrl(step["uri"])))
            case "prompt":
                return plain(await session.get_prompt(step["name"], step["arguments"]))
            case "complete":
                ref = types.PromptReference(**step["ref"])
                return plain(await session.complete(ref, step["argument"]))
            case "listen":
                return await self.listen(step)
            case "large":
                return await self.echo(step["size"])
            case "leave":
                return await self.leave()
            case "closed":
                while True:
                    await session.send_ping()
            case _:
                return await self.call(step, progress)

    async def run_step(self, step: dict[str, Any], progress: list[Any]) -> dict[str, Any]:
        try:
            with anyio.fail_after(30):
                return {"result": await self.step(step, progress), "progress": progress}
        except McpError as error:
            described = {"kind": "McpError", "code": error.error.code, "message": error.error.message}
        except Exception as error:
            described = {"kind": type(error).__name__, "code": None, "message": str(error)}
        return {"error": described, "progress": progress}

    async def run(self, url: str) -> dict[str, Any]:
        greeting: dict[str, Any] = {}
        steps: list[Any] = []
        try:
            await self.converse(url, greeting, steps)
        except* ConnectionClosed as group:
            # With a code other than 1000 and 1001 this client raises an error, which cancels what is in flight.
            error = {"kind": "ConnectionClosed", "code": None, "message": str(group.exceptions[0])}
            steps[-1] = steps[-1] | {"error": error}
            steps += [{"error": error}] * (len(REQUEST["steps"]) - len(steps))
        return {
            "protocolVersion": greeting["protocolVersion"],
            "era": "legacy",
            "serverInfo": greeting["serverInfo"],
            "capabilities": greeting["capabilities"],
            "instructions": greeting.get("instructions"),
            "steps": steps,
            "notifications": self.notifications,
            "errors": self.errors,
            "logs": self.logs,
            "questions": self.questions,
        }

    async def converse(self, url: str, greeting: dict[str, Any], steps: list[Any]) -> None:
        async with contextlib.AsyncExitStack() as stack:
            streams = await stack.enter_async_context(websocket_client(url))
            self.session = await stack.enter_async_context(
                ClientSession(
                    *streams,
                    elicitation_callback=self.elicit,
                    sampling_callback=self.sample,
                    list_roots_callback=self.roots,
                    logging_callback=self.log,
                    message_handler=self.handle,
                )
            )
            greeting.update(plain(await self.session.initialize()))
            for step in REQUEST["steps"]:
                steps.append({"progress": (progress := [])})
                steps[-1] = await self.run_step(step, progress)


if __name__ == "__main__":
    print(json.dumps(anyio.run(Script().run, REQUEST["url"])))
