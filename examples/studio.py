"""A tool that runs as a task: its server ends in the middle, and the next server continues the task.

$ python examples/studio.py
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import trio
from pydantic import BaseModel

from trio_mcp import Answers, Client, Context, Server
from trio_mcp.extensions import TaskPolicy, Tasks
from trio_mcp.types import ElicitRequestFormParams

halfway = trio.Event()


class Quality(BaseModel):
    quality: str


async def draw(shot: int) -> str:
    print("drawing shot", shot)
    if shot == 2:
        halfway.set()
    await trio.sleep(0.05)
    return f"shot {shot}"


def studio(store: Path) -> Server:
    """Return the server; each process that runs it calls this."""
    server = Server("studio", version="1.0.0", stores=store, extensions=[Tasks()])

    @server.tool(task=TaskPolicy(on_loss="rerun", after=0, poll=0.1))
    async def render(scene: str, ctx: Context) -> str:
        """Render a scene."""
        shots = []
        for number in (1, 2, 3):
            # A value of `once` is in the journal before it is returned, so a completed shot is not drawn again.
            shots.append(await ctx.once(f"shot-{number}", draw, number))
            await ctx.report_progress(number, 3, "drawing")
        choice = await ctx.elicit("Which quality?", Quality)
        return f"{scene} in {choice.data.quality if choice.data else 'any'} quality: {', '.join(shots)}"

    return server


def answer(question: ElicitRequestFormParams) -> dict[str, str]:
    print("asked:", question.message)
    return {"quality": "high"}


async def main() -> None:
    with TemporaryDirectory() as folder:
        store = Path(folder) / "studio.db"
        answers = Answers(elicitation=answer)  # the task asks only questions that the client of its call supports
        async with Client(studio(store), extensions=[Tasks()], answers=answers) as client:
            task = await Tasks.of(client).start("render", {"scene": "dawn"})
            await halfway.wait()
        print("the server has ended")
        async with Client(studio(store), extensions=[Tasks()], answers=answers) as client:
            assert task.id is not None  # what a program would save
            print((await Tasks.of(client).task(task.id).result()).text)


if __name__ == "__main__":
    trio.run(main)
