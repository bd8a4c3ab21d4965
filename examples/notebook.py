"""A server that keeps a notebook for each person who signs in, and a client that does.

$ python examples/notebook.py                                 # with an authorization server for demos, in one program
$ python examples/notebook.py serve https://id.example.com    # only the server, for people of that issuer
"""

import sys
from collections import defaultdict

import trio

from trio_mcp import Client, Context, Server
from trio_mcp.auth import OAuth, ResourceServer
from trio_mcp.auth.testing import AuthorizationServer, protected

NOTES: dict[tuple[str | None, str], list[str]] = defaultdict(list)

server = Server("notebook", version="1.0.0")


def notes_of(ctx: Context) -> list[str]:
    # A subject says something only together with its issuer.
    assert ctx.principal is not None
    return NOTES[ctx.principal.issuer, ctx.principal.subject]


@server.tool
async def read(ctx: Context) -> list[str]:
    """Read all of my notes."""
    return notes_of(ctx)


@server.tool(scopes=["notes:write"])
async def write(text: str, ctx: Context) -> str:
    """Write a note."""
    notes_of(ctx).append(text)
    return f"note {len(notes_of(ctx))}"


async def main() -> None:
    authority = AuthorizationServer(scopes=["notes:read", "notes:write"])
    async with protected(server, authority, scopes=["notes:read"]) as url:
        for person in ("ada", "grace"):
            authority.settings["user"] = person  # who sits before the browser
            async with Client(url, auth=OAuth(show=authority.show)) as client:
                before = authority.count("authorize")
                print(person, "wrote", (await client.call_tool("write", {"text": f"I am {person}"})).data)
                print(person, "was asked for one scope more:", authority.count("authorize") - before == 1)
                print(person, "reads", (await client.call_tool("read")).data)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        auth = ResourceServer("http://127.0.0.1:8000/mcp", issuers=[sys.argv[2]], scopes=["notes:read"])
        server.run("http", port=8000, auth=auth)
    else:
        trio.run(main)
