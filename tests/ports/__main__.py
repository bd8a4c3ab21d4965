"""Record what the servers of others do, after a change of a case: ``python -m tests.ports [NAME ...]``."""

import json
import sys

import trio

from .cases import CASES, RECORDED
from .originals import seen_of_original


async def record() -> None:
    for name in sys.argv[1:] or CASES:
        seen = await seen_of_original(name)
        (RECORDED / f"{name}.json").write_text(json.dumps(seen, indent=1, ensure_ascii=False) + "\n")
        print(name)


trio.run(record)
