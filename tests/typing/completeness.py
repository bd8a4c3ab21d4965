"""Measure how many public names have types that all checkers see alike: ``python -m tests.typing.completeness``.

Pyright counts every public name of the installed package. Fails below `FLOOR`, and says which names lack a type.
"""

from __future__ import annotations

import json
import subprocess
import sys

FLOOR = 93.4  # percent: what was reached last; raise it with the score


def main() -> None:
    command = ["pyright", "--verifytypes", "trio_mcp", "--ignoreexternal", "--outputjson"]
    # Its status is 1 unless everything has a type.
    measured = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)[
        "typeCompleteness"
    ]
    score = 100 * measured["completenessScore"]
    print(f"{score:.1f} % of {sum(measured['exportedSymbolCounts'].values())} public names have a complete type")
    if score < FLOOR:
        # What is "partially unknown" follows from these.
        for symbol in measured["symbols"]:
            for found in symbol["diagnostics"]:
                if "missing type annotation" in found["message"]:
                    print(symbol["name"])
        sys.exit(f"fewer than {FLOOR} %")


if __name__ == "__main__":
    main()
