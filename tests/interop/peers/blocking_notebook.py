"""Run a notebook whose cells use the client without async, against the targets that are given; print what it shows."""

import json
import sys

import nbformat
from nbclient import NotebookClient

CELLS = [
    """
import json, sys
from contextlib import ExitStack
from trio_mcp import StdioServerParameters
from trio_mcp.blocking import Client
stack = ExitStack()
""",
    """
stdio = StdioServerParameters(sys.executable, ["-c", "from tests.blocking.serving import *; make_server().run()"])
clients = [stack.enter_context(Client(target)) for target in [stdio, *TARGETS]]
""",
    # The cell before is over, and the kernel's loop has run: the clients are still there.
    "print([client.call_tool('add', {'a': 1, 'b': 2}).data for client in clients])",
    "print([len(list(client.iter_tools())) for client in clients])",
    """
await __import__('asyncio').sleep(0)
print(clients[0].call_tool('count', {'to': 2}, on_progress=print) is not None)
""",
    """
import threading
stack.close()
print([each.name for each in threading.enumerate() if each.name.startswith('Trio of')])
""",
]


def shown_by(cells: list[str]) -> list[str]:
    """Run the cells of a notebook in a kernel, and return what each shows that shows something."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    shown = ["".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells]
    return [text for text in shown if text]


if __name__ == "__main__":
    print(json.dumps(shown_by([f"TARGETS = {sys.argv[1:]!r}", *CELLS])))
