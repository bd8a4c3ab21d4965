"""A child without a server, which starts in a few milliseconds: ``python -I -S tiny.py LEDGER FAULT``.

It adds its number and id to the ledger, and does what the file FAULT says: ``ready`` and then lives until SIGTERM;
``leave``, ``mute`` (never ready), ``deaf`` (ready, and ignores SIGTERM), ``still`` (ready, and silent from then on),
``busy`` (ready, and tells of busy stores). A second word is for the child with the number 1 alone.
"""

import json
import os
import signal
import sys
import time

mark = json.loads(os.environ["TRIO_MCP_CHILD"])
with open(sys.argv[1], "a") as ledger:
    ledger.write(f"{mark['number']} {os.getpid()} {os.read(mark['control'], 1000).hex()}\n")
with open(sys.argv[2]) as file:
    others, _, first = file.read().partition(" ")
fault = first if first and mark["number"] == 1 else others
if fault == "leave":
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN if fault == "deaf" else lambda *_: sys.exit(0))
if fault != "mute":
    os.write(mark["reports"], b"ready\n")
while True:
    time.sleep(0.05)
    if fault != "still":
        os.write(mark["reports"], b"busy 1\n" if fault == "busy" else b"\n")
