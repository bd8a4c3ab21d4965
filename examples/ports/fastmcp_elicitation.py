"""FastMCP's example elicitation.py: tools that ask the user. A form is a model, for a single value too.

$ trio-mcp call examples/ports/fastmcp_elicitation.py survey
"""

from pydantic import BaseModel

from trio_mcp import Context, Server

server = Server("Elicitation Demo")


class Name(BaseModel):
    value: str


class SurveyResponse(BaseModel):
    favorite_color: str
    lucky_number: int


@server.tool
async def greet(ctx: Context) -> str:
    """Greet the user by name (asks for their name)."""
    answer = await ctx.elicit("What is your name?", Name)
    return f"Hello, {answer.data.value}!" if answer.action == "accept" else "Maybe next time!"


@server.tool
async def survey(ctx: Context) -> str:
    """Run a short survey collecting structured info."""
    answer = await ctx.elicit("Quick survey — tell us about yourself:", SurveyResponse)
    if answer.action != "accept":
        return "Survey skipped."
    return f"Got it — you like {answer.data.favorite_color} and your lucky number is {answer.data.lucky_number}."


if __name__ == "__main__":
    server.run()
