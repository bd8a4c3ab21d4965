"""A client that does a bit of everything, on the official Python SDK (1 or 2) or FastMCP.

Usage: python_client.py v1|v2|fastmcp legacy|auto URL. `ts_client.mjs` is the same in TypeScript.

It goes on whatever a server refuses: what it sends is what matters.
"""

import sys
import warnings
from contextlib import asynccontextmanager

import anyio

warnings.simplefilter("ignore")  # the SDKs warn of what 2026-07-28 deprecates
KIND, MODE, URL = sys.argv[1:]
if KIND == "v1":
    from mcp import ClientSession, types as mcp_types
    from mcp.client.streamable_http import streamable_http_client
else:
    import mcp_types

SIMPLE = {"string": "a", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}, "null": None}


async def elicit(context, params):
    if getattr(params, "mode", "form") == "url":
        return mcp_types.ElicitResult(action="accept")
    schema = params.model_dump(by_alias=True)["requestedSchema"]
    return mcp_types.ElicitResult(action="accept", content=example(schema))


async def sample(context, params):
    content = mcp_types.TextContent(type="text", text="a word")
    return mcp_types.CreateMessageResult(role="assistant", content=content, model="none")


async def roots(context):
    return mcp_types.ListRootsResult(roots=[{"uri": "file:///project", "name": "project"}])


async def ignore(*anything):
    pass


@asynccontextmanager
async def connected():
    if KIND == "v1":
        async with (
            streamable_http_client(URL) as (read, write, _),
            ClientSession(read, write, None, sample, elicit, roots, ignore) as session,
        ):
            yield session, (await session.initialize()).capabilities
    elif KIND == "v2":
        from mcp import Client

        async with Client(
            URL,
            mode=MODE,
            sampling_callback=sample,
            elicitation_callback=elicit,
            list_roots_callback=roots,
            logging_callback=ignore,
        ) as client:
            yield client, client.server_capabilities
    else:
        from fastmcp import Client

        async def fill_in(message, response_type, params, context):
            return await elicit(context, params)

        async with Client(
            URL,
            mode=MODE,
            sampling_handler=lambda messages, params, context: "a word",
            elicitation_handler=fill_in,
            roots=["file:///project"],
        ) as client:
            yield client, client.server_capabilities


def example(schema):
    """Return a simple value that most schemas of this type take."""
    for name in ("const", "default"):
        if name in schema:
            return schema[name]
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    if kind == "object":
        return {name: example(schema.get("properties", {}).get(name, {})) for name in schema.get("required", [])}
    return schema.get("minimum", SIMPLE[kind if isinstance(kind, str) else kind[0]])


async def attempt(function, *arguments, seconds=5, **options):
    with anyio.move_on_after(seconds):
        try:
            result = await function(*arguments, **options)
            return result.model_dump(by_alias=True) if hasattr(result, "model_dump") else {}
        except Exception as error:
            print(repr(error), file=sys.stderr)
    return {}


async def pages(function, field):
    cursor, items = None, []
    for _ in range(10):
        page = await attempt(function, **({"cursor": cursor} if cursor is not None else {}))
        items += page.get(field, [])
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    return items


async def main():
    suffix, progress = ("_mcp", "progress_handler") if KIND == "fastmcp" else ("", "progress_callback")
    async with connected() as (client, capabilities):
        offered = capabilities.model_dump(by_alias=True, exclude_none=True)

        def method(name):
            return getattr(client, name + suffix)

        async def listed(feature, method_name, field):
            return await pages(method(method_name), field) if feature in offered else []

        for tool in await listed("tools", "list_tools", "tools"):
            given = example({"type": "object", **tool["inputSchema"]})
            await attempt(method("call_tool"), tool["name"], given, **{progress: ignore})
            await attempt(method("call_tool"), tool["name"], given, seconds=0.05)
        for resource in await listed("resources", "list_resources", "resources"):
            await attempt(method("read_resource"), str(resource["uri"]))
        await listed("resources", "list_resource_templates", "resourceTemplates")
        for prompt in await listed("prompts", "list_prompts", "prompts"):
            given = {each["name"]: "a" for each in prompt.get("arguments") or []}
            await attempt(method("get_prompt"), prompt["name"], given)
            for name in given if "completions" in offered else ():
                reference = mcp_types.PromptReference(type="ref/prompt", name=prompt["name"])
                await attempt(method("complete"), reference, {"name": name, "value": "a"})
        if MODE == "legacy":
            if "logging" in offered:
                await attempt(client.set_logging_level, "info")
            await attempt(client.ping if KIND == "fastmcp" else client.send_ping)
            await attempt(client.send_roots_list_changed)
        elif KIND == "v2" and offered.get("tools", {}).get("listChanged"):
            with anyio.move_on_after(0.2):
                async with client.listen(tools_list_changed=True):
                    await anyio.sleep_forever()


anyio.run(main)
