"""The programs of examples/ print what they promise, and start as their first lines say."""

from __future__ import annotations

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests import forks

EXAMPLES = Path(__file__).parents[2] / "examples"

DEADLINE = 60
"""Seconds; no assertion depends on it."""

PRINTED = {
    "greeter_client": """
        speaking 2026-07-28
        greet: Greet some people.
        1 of 2
        2 of 2
        ['Hello, Ada!', 'Hello, Grace!']
    """,
    "script": """
        library://shelves is {"novels":["emma","ulysses"],"poems":["raven"]}
        Write a review of Emma that gives it 4 stars.
    """,
    "library": """
        resource library://shelves
        template book://{shelf}/{title}
        library://shelves is {"novels":["emma","ulysses"],"poems":["raven"]}
        book://poems/raven is Once upon a midnight dreary …
        refused: Resource not found (error -32602)
        completed ['novels']
        user: Write a review of Emma that gives it 4 stars.
    """,
    "booking": """
        2025-11-25
        asked: How long will you stay in Oslo?
        a double room in Oslo for 3 nights
        asked: How long will you stay in Rome?
        nothing booked: decline
        2026-07-28
        asked: How long will you stay in Oslo?
        a double room in Oslo for 3 nights
        asked: How long will you stay in Rome?
        nothing booked: decline
    """,
    "race": """
        client: fast: part 1
        client: fast: part 2
        client: fast: part 3
        client: got the file from fast
        server: slow stopped, another mirror was faster
    """,
    "handbook": """
        skill://shop/returns/SKILL.md: Take an item back. Use it when a customer wants to return something.
        not approved yet
        --- from the server shop, not to be trusted ---
        # Returns

        1. Ask when the item was bought. After 30 days it can't be returned.
        2. Call the tool `refund` with the number of the order.
        3. Answer with the text in `templates/confirmation.md`.
        ---
        files: SKILL.md, templates/confirmation.md
        template: Your money is on its way. It takes three days.
        refused: the path leads out of the skill
        still approved
    """,
    "jobs": """
        started job://1
        job://1 is at 3 steps done
    """,
    "studio": """
        drawing shot 1
        drawing shot 2
        the server has ended
        drawing shot 2
        drawing shot 3
        asked: Which quality?
        dawn in high quality: shot 1, shot 2, shot 3
    """,
    "clock": """
        the model sees ['show', 'wind_up']
        its policy has {'connectDomains': ['https://time.example']}
        the page has the theme dark
        the page shows {'hour': 3, 'zone': 'UTC'}
        the page calls tick: 59
        the page is refused: the page's server has no tool 'wind_up' for pages (error -32602)
        the page is refused: Invalid URL: only http and https URLs can be opened (error -32000)
        the model reads {"hour":3,"zone":"UTC"}
        the page is told: the conversation has moved on
    """,
    "prices": """
        changed: price://pear
        tools: ['change_price', 'buy']
    """,
    "notebook": """
        ada wrote note 1
        ada was asked for one scope more: True
        ada reads ['I am ada']
        grace wrote note 1
        grace was asked for one scope more: True
        grace reads ['I am grace']
    """,
    "chat": """
        welcome, Ada
        Grace: hello, Ada
    """,
    "watcher": """
        ['names', 'a.txt']
        ['names', 'a.txt', 'b.txt']
        changed: folder:///a.txt
    """,
    "web_app": """
        Hello, Ada!
        ['Ada']
    """,
    "compose": """
        ['notes__keep', 'clock__minutes']
        ['notes://all']
        1
        120
        2026-07-28 180
    """,
    "agent": """
        weather__forecast({"city": "Oslo"}): snow
        weather__forecast({"city": "Atlantis"}): failed: no such city: Atlantis
        weather__forcast({"city": "Rome"}): failed: server 'weather': unknown tool: 'forcast'; did you mean \
'weather__forecast'? (error -32602)
        mail__send({"to": "ada@example.com", "text": "Take your skis to Oslo."}): sent to ada@example.com: Take your \
skis to Oslo.
        I told Ada to take her skis.
    """,
}
"""What the programs print that run to their end."""

COMMANDS = {
    "trio-mcp call examples/greeter.py greet names=Ada names=Grace": '["Hello, Ada!","Hello, Grace!"]',
    "trio-mcp read examples/library.py book://novels/emma": "Emma Woodhouse, handsome, clever, and rich …",
    "trio-mcp list examples/compose.py:office": "tools",
}
"""Command lines of the programs, and the first line that each prints."""

NOT_RUN = {
    "trio-mcp call examples/booking.py book city=Oslo": "asks on a terminal",
    "python examples/prices.py serve": "serves until it is interrupted",
    "python examples/notebook.py serve https://id.example.com": "serves until it is interrupted",
    "python examples/chat.py serve": "serves until it is interrupted",
    "python examples/watcher.py FOLDER": "serves until it is interrupted",
    "hypercorn -k trio --bind 127.0.0.1:8000 examples.web_app:app": "serves until it is interrupted",
    "python examples/host.py mcp.json": "has tests of its own",
    "python examples/egg_timer.py": "has tests of its own",
}
"""Command lines that no test here runs as they are, and why."""


def load(name: str) -> Any:
    """Return a program as a module of its own, with fresh state."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_program_is_listed_and_run() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    listed = re.findall(r"^\| \[(\w+)\.py\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert names == set(listed)
    assert names == {*PRINTED, "greeter", "host", "egg_timer"}
    commands = {
        name: re.findall(r"^\$ (.+?)(?:  +#.*)?$", (EXAMPLES / f"{name}.py").read_text(), re.MULTILINE)
        for name in names
    }
    own = {f"python examples/{name}.py" for name in PRINTED}
    assert {line for lines in commands.values() for line in lines} == own | COMMANDS.keys() | NOT_RUN.keys()
    for name, lines in commands.items():
        assert any(name in line for line in lines), name


@pytest.mark.parametrize("name", PRINTED)
async def test_a_program_prints_what_it_promises(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    main = load(name).main
    with trio.fail_after(DEADLINE):
        await (main() if inspect.iscoroutinefunction(main) else trio.to_thread.run_sync(main))
    assert capfd.readouterr().out.splitlines() == [line.strip() for line in PRINTED[name].strip().splitlines()]


@pytest.mark.again
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_a_program_works(line: str) -> None:
    command = [*forks.command("trio_mcp", *forks.LOADED), *line.split()[1:]]
    done = subprocess.run(command, cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout.splitlines()[:1]) == (0, [COMMANDS[line]]), done.stderr
