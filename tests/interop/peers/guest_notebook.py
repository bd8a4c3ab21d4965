"""Run a notebook with Trio as a guest of the kernel's loop, as docs/how-to/guest_mode.md says; print what it shows."""

import json

from tests.docs.pages import ROOT, blocks_of
from tests.interop.peers.blocking_notebook import shown_by

PAGE = list(blocks_of(ROOT / "docs" / "how-to" / "guest_mode.md"))
DEFINITIONS = next(block.text for block in PAGE if block.language == "python").partition("\n\nasync def main()")[0]
OPENED, USED, CLOSED = (block.text for block in PAGE if block.language == "text")

CELLS = [
    DEFINITIONS,
    OPENED,
    USED,
    # Interrupting a kernel is a signal. A cell that awaits is cancelled.
    """
import os, signal

cancelled = []

@server.tool
async def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await trio.sleep_forever()
    finally:
        cancelled.append("on the server")
""",
    """
try:
    await call("call_tool", "interrupt")
except asyncio.CancelledError:
    cancelled.append("in the cell")
""",
    "await call('ping')\nprint(cancelled)",
    # A cell that blocks, and awaits nothing, gets KeyboardInterrupt; nothing on Trio does.
    """
import time

try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt:
    pass
""",
    "print((await call('call_tool', 'price', {'item': 'pear'})).data)",
    """
for wrong in (server.run, lambda: trio.run(trio.sleep, 0), lambda: Client(server).__aenter__().send(None)):
    try:
        wrong()
    except RuntimeError as exc:
        print(exc)
""",
    CLOSED,
    "trio.run(trio.sleep, 0)\nprint('ended')",
]

if __name__ == "__main__":
    print(json.dumps(shown_by(CELLS)))
