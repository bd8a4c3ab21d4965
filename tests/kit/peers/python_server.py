"""A server with something of everything, on the official Python SDK (1 or 2) or FastMCP, over stdio or HTTP.

Usage: python_server.py v1|v2|fastmcp stdio|http [ISSUER]. Over HTTP it prints its URL. Given the issuer of its tokens,
it is protected, which version 1 never is. `ts_server.mjs` is the same in TypeScript.
"""

import socket
import sys
import warnings
from functools import partial
from typing import Annotated, Literal

import anyio
import uvicorn
from pydantic import BaseModel, Field

KIND, TRANSPORT, *ISSUERS = sys.argv[1:]
if TRANSPORT == "http":
    listener = socket.create_server(("127.0.0.1", 0))
    ORIGIN = f"http://127.0.0.1:{listener.getsockname()[1]}"
protection = {}

# Written without `from __future__ import annotations`: each SDK finds its own Context in the hints.
if KIND == "v1":
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.server.fastmcp.exceptions import ToolError
    from mcp.shared.exceptions import McpError
    from mcp.types import Completion, ErrorData, ToolAnnotations

    server = FastMCP("python-v1", instructions="Call any tool.", log_level="CRITICAL")
elif KIND == "v2":
    from mcp import MCPError
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import Completion, ToolAnnotations

    if ISSUERS:
        import jwt
        from mcp.server.auth.provider import AccessToken
        from mcp.server.auth.settings import AuthSettings

        class Verifier:
            """Checks what the SDK leaves to its users: the signature of a token, and who has issued it."""

            def __init__(self, issuer):
                self.issuer = issuer
                self.keys = jwt.PyJWKClient(f"{issuer}/jwks")

            async def verify_token(self, token):
                try:
                    key = await anyio.to_thread.run_sync(self.keys.get_signing_key_from_jwt, token)
                    claims = jwt.decode(token, key, ["ES256"], issuer=self.issuer, options={"verify_aud": False})
                except jwt.PyJWTError:
                    return None
                return AccessToken(
                    token=token,
                    client_id=claims["client_id"],
                    scopes=claims["scope"].split(),
                    expires_at=claims["exp"],
                    resource=claims["aud"],
                    subject=claims["sub"],
                    claims=claims,
                )

        protection["token_verifier"] = Verifier(*ISSUERS)
        protection["auth"] = AuthSettings(
            issuer_url=ISSUERS[0],
            resource_server_url=f"{ORIGIN}/mcp",
            required_scopes=["read"],
            validate_token_resource=True,
        )
    server = MCPServer("python-v2", version="1", instructions="Call any tool.", log_level="CRITICAL", **protection)
else:
    from fastmcp import Context, FastMCP
    from fastmcp.exceptions import ToolError
    from mcp import MCPError
    from mcp_types import Completion, ToolAnnotations

    if ISSUERS:
        from fastmcp.server.auth import JWTVerifier, RemoteAuthProvider

        verifier = JWTVerifier(
            jwks_uri=f"{ISSUERS[0]}/jwks",
            issuer=ISSUERS[0],
            audience=f"{ORIGIN}/mcp",
            algorithm="ES256",
            required_scopes=["read"],
        )
        protection["auth"] = RemoteAuthProvider(verifier, authorization_servers=ISSUERS, base_url=ORIGIN)
    server = FastMCP("fastmcp", version="1", instructions="Call any tool.", list_page_size=3, **protection)

warnings.simplefilter("ignore")  # the SDKs warn of logging, which 2026-07-28 deprecates
reads = server.tool(annotations=ToolAnnotations.model_validate({"readOnlyHint": True}))


PEOPLE = "peer://people/{name}"


class Item(BaseModel):
    sku: Annotated[str, Field(pattern="^[A-Z]{2}-[0-9]{3}$")]
    count: Annotated[int, Field(ge=1, le=99)] = 1
    tags: Annotated[list[str], Field(max_length=3)] = []


class Order(BaseModel):
    items: Annotated[list[Item], Field(min_length=1, max_length=5)]
    express: bool = False
    note: str | None = None


class Receipt(BaseModel):
    pieces: int
    express: bool
    skus: list[str]


class Colour(BaseModel):
    colour: str


@reads
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@reads
async def echo(text: str, times: Annotated[int, Field(ge=0, le=5)] = 1) -> str:
    """Repeat the text."""
    return text * times


@reads
async def paint(colour: Literal["red", "green", "blue"], shade: float | None = None) -> str:
    """Choose one of three."""
    return f"{colour} {shade}"


@reads
async def order(order: Order) -> Receipt:
    """Take nested objects, and return structured content."""
    pieces = sum(item.count for item in order.items)
    return Receipt(pieces=pieces, express=order.express, skus=[item.sku for item in order.items])


@reads
async def slow(ctx: Context, steps: Annotated[int, Field(ge=1, le=5)] = 3) -> str:
    """Report progress at each of a few steps."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await anyio.sleep(0.02)
    return f"{steps} steps"


@reads
async def fail() -> str:
    """Fail with a message for the caller."""
    raise ToolError("this tool always fails")


@reads
async def crash() -> str:
    """Fail by accident."""
    raise ZeroDivisionError("a secret of the server")


@reads
async def chatty(words: Annotated[list[str], Field(max_length=5)], ctx: Context) -> str:
    """Log each word."""
    for word in words:
        await ctx.info(word)
    return "logged"


if KIND == "v2":
    from mcp.server.mcpserver import Elicit, Resolve

    async def which_colour() -> Elicit[Colour]:
        return Elicit("Which colour?", Colour)

    @reads
    async def ask(answer: Annotated[Colour, Resolve(which_colour)]) -> str:
        """Ask the user."""
        return f"painted {answer.colour}"

    @reads
    async def announce(ctx: Context) -> str:
        """Tell who listens that a list and a resource have changed: the other two can only send it to everybody."""
        await ctx.notify_tools_changed()
        await ctx.notify_resource_updated("peer://text")
        return "announced"

else:

    @reads
    async def ask(ctx: Context) -> str:
        """Ask the user; FastMCP can in the legacy era alone."""
        answer = await ctx.elicit("Which colour?", Colour)
        return answer.action


@server.tool()
async def forget(everything: bool) -> str:
    """Change something: it is not annotated as reading only."""
    return f"forgot {everything}"


@server.resource("peer://text", mime_type="text/plain")
def text() -> str:
    """A resource of text."""
    return "some text"


@server.resource("peer://bytes", mime_type="application/octet-stream")
def blob() -> bytes:
    """A resource of bytes."""
    return bytes(range(256))


@server.resource(PEOPLE, mime_type="text/plain")
def person(name: str) -> str:
    """Return what is known of a person."""
    return f"{name} is a person"


@server.prompt()
def hello() -> str:
    """Say hello."""
    return "Say hello."


@server.prompt()
def greeting(name: str, style: str = "warm") -> str:
    """Greet a person, in a style."""
    return f"Greet {name}, and be {style}."


@server.completion()
async def complete(ref: object, argument: object, context: object) -> Completion:
    if getattr(ref, "name", "greeting") != "greeting" or getattr(ref, "uri", PEOPLE) != PEOPLE:
        said = "no such prompt or template"
        raise McpError(ErrorData(code=-32602, message=said)) if KIND == "v1" else MCPError(-32602, said)
    return Completion(values=[word for word in ("warm", "wild", "cold") if word.startswith(argument.value)])


def main() -> None:
    if TRANSPORT == "stdio":
        server.run(**({"show_banner": False, "log_level": "CRITICAL"} if KIND == "fastmcp" else {}))
        return
    print(f"{ORIGIN}/mcp", flush=True)
    if KIND == "fastmcp":
        options = {"show_banner": False, "log_level": "CRITICAL", "host": "127.0.0.1", "sockets": [listener]}
        anyio.run(partial(server.run_http_async, **options))
    else:
        config = uvicorn.Config(server.streamable_http_app(), log_level="critical", timeout_graceful_shutdown=1)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
