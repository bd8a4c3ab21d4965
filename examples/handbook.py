"""A server that publishes a skill beside its tool, and a client that loads it only as the user has approved it.

$ python examples/handbook.py
"""

from pathlib import Path

import trio

from trio_mcp import Client, Server
from trio_mcp.extensions import SkillEntry, SkillMismatch, Skills

skills = Skills(Path(__file__).with_name("skills"))
server = Server("shop", version="1.0.0", extensions=[skills])


@server.tool
async def refund(order: int) -> str:
    """Give the customer of an order the money back."""
    return f"order {order} is refunded"


approved: dict[tuple[str, str], str | None] = {}
"""What the user has approved: the fingerprint of each skill, by server and URI."""


def is_approved(entry: SkillEntry) -> bool:
    """Return whether the user has approved exactly these files."""
    return entry.fingerprint is not None and approved.get(("shop", entry.uri)) == entry.fingerprint


async def main() -> None:
    async with Client(server, extensions=[Skills()]) as client:
        shop = Skills.of(client)
        [entry] = await shop.entries()  # no file is fetched for this
        print(f"{entry.uri}: {entry.description}")
        print("approved" if is_approved(entry) else "not approved yet")
        approved["shop", entry.uri] = entry.fingerprint  # the user has looked at it, and agreed

        skill = await shop.load(entry)
        print(f"--- from the server shop, not to be trusted ---{skill.body}---")
        print("files:", ", ".join(skill.files()))
        print("template:", await skill.read_text("templates/confirmation.md"), end="")
        try:
            await skill.read("../../../etc/passwd")
        except SkillMismatch as exc:
            print("refused:", exc.reason)
        print("still approved" if is_approved(await shop.get(entry.uri)) else "changed: ask again")


if __name__ == "__main__":
    trio.run(main)
