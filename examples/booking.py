"""A tool that asks the user. One function serves clients of both eras.

$ python examples/booking.py
$ trio-mcp call examples/booking.py book city=Oslo
"""

from typing import Literal

import trio
from pydantic import BaseModel, Field

from trio_mcp import Answers, Client, Context, Server, types

server = Server("travel", version="1.0.0")


class Stay(BaseModel):
    """The form that the user fills in."""

    nights: int = Field(ge=1, le=30)
    room: Literal["single", "double"] = "single"


@server.tool
async def book(city: str, ctx: Context) -> str:
    """Book a room in a city."""
    # Ask first, act afterwards: in the modern era the function starts again once the answer is there.
    answer = await ctx.elicit(f"How long will you stay in {city}?", Stay)
    if answer.action != "accept":
        return f"nothing booked: {answer.action}"
    return f"a {answer.data.room} room in {city} for {answer.data.nights} nights"


async def ask_user(question: types.ElicitRequestFormParams) -> dict[str, object] | Literal["decline"]:
    """Answer like a user who likes Oslo alone; a real client shows the form."""
    print("asked:", question.message)
    return {"nights": 3, "room": "double"} if "Oslo" in question.message else "decline"


async def main() -> None:
    answers = Answers(elicitation=ask_user, elicitation_modes=["form"])
    for mode in ("legacy", "auto"):
        async with Client(server, mode=mode, answers=answers) as client:
            print(client.protocol_version)
            for city in ("Oslo", "Rome"):
                print((await client.call_tool("book", {"city": city})).data)


if __name__ == "__main__":
    trio.run(main)
