"""What the everything-server asks its clients: `Context.elicit` and its kin, and the same with `InputRequired`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from trio_mcp import Context, InputRequired, Server, types


class Account(BaseModel):
    username: str = Field(description="The user's response")
    email: str = Field(description="The user's email address")


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


class Confirmation(BaseModel):
    ok: bool


class Subject(BaseModel):
    context: str


class Defaults(BaseModel):
    name: str = Field("John Doe", description="User name")
    age: int = Field(30, description="User age")
    score: float = Field(95.5, description="User score")
    status: Literal["active", "inactive", "pending"] = Field("active", description="User status")
    verified: bool = Field(True, description="Verification status")


Option = Literal["option1", "option2", "option3"]
Titled = (
    Annotated[Literal["value1"], Field(title="First Option")]
    | Annotated[Literal["value2"], Field(title="Second Option")]
    | Annotated[Literal["value3"], Field(title="Third Option")]
)
ENUM_NAMES = {"enumNames": ["Option One", "Option Two", "Option Three"]}


class Choices(BaseModel):
    untitledSingle: Option = Field("option1", description="One option")
    titledSingle: Titled = Field("value1", description="One option with titles")
    legacyEnum: Literal["opt1", "opt2", "opt3"] = Field(
        "opt1", description="One option, in the old form", json_schema_extra={**ENUM_NAMES}
    )
    untitledMulti: list[Option] = Field(["option1"], description="Some options", min_length=1, max_length=3)
    titledMulti: list[Titled] = Field(["value1"], description="Some options with titles", min_length=1, max_length=3)


def text_of(reply: types.CreateMessageResult) -> str:
    return " ".join(block.text for block in reply.content_as_list if isinstance(block, types.TextContent))


# --- awaited -----------------------------------------------------------------------------------------------------


async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the model."""
    return f"LLM response: {text_of(await ctx.sample(prompt, max_tokens=100))}"


async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user."""
    answer = await ctx.elicit(message, Account)
    return f"User response: action={answer.action}, content={answer.data and answer.data.model_dump_json()}"


async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask the user with a form that has defaults."""
    answer = await ctx.elicit("Please review the form.", Defaults)
    return f"Elicitation completed: action={answer.action}, content={answer.data and answer.data.model_dump_json()}"


async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask the user to choose."""
    answer = await ctx.elicit("Please choose.", Choices)
    return f"Elicitation completed: action={answer.action}, content={answer.data and answer.data.model_dump_json()}"


async def test_missing_capability(ctx: Context) -> str:
    """Need what the client has not declared."""
    ctx.require_client_capability("sampling")
    return "the client can sample"


async def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress, then ask."""
    await ctx.report_progress(50, 100)
    await ctx.elicit("Go on?", Confirmation)
    return "went on"


async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask one thing."""
    answer = await ctx.elicit("What is your name?", Name, key="user_name")
    return f"Hello, {answer.data.name}!" if answer.data else f"No name: {answer.action}"


async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the model."""
    return text_of(await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question"))


async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask for the roots."""
    return f"Found {len(await ctx.list_roots(key='client_roots'))} root(s)"


async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask the user, the model, and for the roots, all at once."""
    name, greeting, roots = await ctx.gather(
        ctx.elicit("What is your name?", Name, key="user_name"),
        ctx.sample("Generate a greeting", max_tokens=50, key="greeting"),
        ctx.list_roots(key="client_roots"),
    )
    return f"{text_of(greeting)} {name.data and name.data.name}, {len(roots)} root(s)"


async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask, and trust no state that was tampered with."""
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"confirmed: {answer.data and answer.data.ok}"


async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks the user."""
    answer = await ctx.elicit("What context should the prompt use?", Subject, key="user_context")
    return f"Prompt with context: {answer.data.context if answer.data else 'none'}"


# --- returned ----------------------------------------------------------------------------------------------------


async def test_input_required_result_request_state(ctx: Context) -> str | InputRequired:
    """Ask, with a state to have back."""
    if "confirm" in ctx.input_responses and ctx.input_state == {"step": "confirm"}:
        return "state-ok: confirmed"
    return InputRequired({"confirm": ctx.elicit("Please confirm", Confirmation)}, state={"step": "confirm"})


async def test_input_required_result_multi_round(ctx: Context) -> str | InputRequired:
    """Ask twice, one after the other."""
    match ctx.input_state, ctx.input_responses:
        case {"round": 1}, {"step1": types.ElicitResult(content={"name": name})}:
            color = ctx.elicit("Step 2: What is your favorite color?", Color)
            return InputRequired({"step2": color}, state={"round": 2, "name": name})
        case {"round": 2, "name": name}, {"step2": types.ElicitResult(content={"color": color})}:
            return f"{name} likes {color}"
    return InputRequired({"step1": ctx.elicit("Step 1: What is your name?", Name)}, state={"round": 1})


async def test_input_required_result_capabilities(ctx: Context) -> str | InputRequired:
    """Ask only what the client can answer."""
    questions = {
        "elicitation": lambda: ctx.elicit("What is your name?", Name),
        "sampling": lambda: ctx.sample("Say hello.", max_tokens=50),
    }
    declared = {name: ask() for name, ask in questions.items() if name in ctx.client_capabilities}
    return "the client can answer nothing" if ctx.input_responses or not declared else InputRequired(declared)


TOOLS = (
    test_sampling,
    test_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_missing_capability,
    test_streaming_elicitation,
    test_input_required_result_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_multiple_inputs,
    test_input_required_result_tampered_state,
    test_input_required_result_request_state,
    test_input_required_result_multi_round,
    test_input_required_result_capabilities,
)


def add_questions(server: Server) -> None:
    """Register all that ask."""
    for tool in TOOLS:
        server.add_tool(tool)
    server.add_prompt(test_input_required_result_prompt)
