"""FastMCP's client with its tasks: calls that it waits for, and handles; prints what came of each step.

It offers `Client.call_tool`, which waits for a task, and `call_tool_task`, whose handle has `status`, `wait`, `result`
and `cancel`. It does not listen for changes of tasks, has no handle for the id of an earlier task, leaves the task
alone if the call is cancelled, and answers only elicitations. Its requests about tasks have no `Mcp-Name` over HTTP,
although the extension requires it (Streamable HTTP: Routing Headers); with "named" in the request, they get it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport
from fastmcp_tasks import call_tool_task, client_models

REQUEST = json.loads(sys.argv[1])
QUESTIONS: list[str] = []


async def elicit(message: str, response_type: Any, params: Any, context: Any) -> ElicitResult:
    QUESTIONS.append(message)
    return ElicitResult(**REQUEST["elicitations"][message])


def target() -> Any:
    if "url" in REQUEST:
        return REQUEST["url"]
    return StdioTransport(REQUEST["command"], REQUEST["args"], env=REQUEST["env"])


async def waits(client: Client[Any], name: str, arguments: dict[str, Any]) -> Any:
    result = await client.call_tool(name, arguments)
    return result.structured_content["result"]


async def handle(client: Client[Any], name: str, arguments: dict[str, Any]) -> Any:
    task = await call_tool_task(client, name, arguments)
    created = task.create_result
    done = await task.wait(timeout=20)
    result = await task
    return {
        "created": created.status,
        "poll": created.poll_interval_ms,
        "done": done.status,
        "result": result.structured_content["result"],
    }


async def parked(client: Client[Any], name: str, arguments: dict[str, Any]) -> Any:
    task = await call_tool_task(client, name, arguments)
    state = await task.wait(state="input_required", timeout=20)
    asked = [each["params"]["message"] for each in state.input_requests.values()]
    return {"asked": asked, "result": (await task.result()).structured_content["result"]}


async def cancelled(client: Client[Any], name: str, arguments: dict[str, Any]) -> Any:
    task = await call_tool_task(client, name, arguments, raise_on_error=False)
    message = None
    while message is None:
        message = (await task.status()).status_message
    await task.cancel()
    ended = await task.wait(timeout=20)
    return {"message": message, "ended": ended.status, "error": (await task.result()).is_error}


async def unknown(client: Client[Any], name: str, arguments: dict[str, Any]) -> Any:
    task = await call_tool_task(client, name, arguments)
    task.create_result.task_id = "unknown"
    return (await task.status()).status


STEPS: dict[str, Callable[..., Awaitable[Any]]] = {
    each.__name__: each for each in (waits, handle, parked, cancelled, unknown)
}


if REQUEST["named"]:
    for kind in (client_models.GetTaskRequest, client_models.UpdateTaskRequest, client_models.CancelTaskRequest):
        kind.name_param = "taskId"


async def main() -> None:
    outcomes: dict[str, Any] = {}
    async with Client(target(), mode=REQUEST["mode"], elicitation_handler=elicit) as client:
        for step in REQUEST["steps"]:
            try:
                outcome = {"value": await STEPS[step["op"]](client, step["name"], step["arguments"])}
            except Exception as exc:
                outcome = {"error": type(exc).__name__, "message": str(exc)}
            outcomes[f"{step['op']} {step['name']}"] = outcome
    print(json.dumps({"outcomes": outcomes, "questions": QUESTIONS}))


asyncio.run(main())
