"""Print which part of each folder the measured tests ran, and fail below a floor.

lines_run.py DATA    reads the file that `pytest --cov` wrote
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import coverage

FLOOR = 92  # percent of all lines: what the last whole run measured, less one


def main() -> None:
    measured = coverage.Coverage(data_file=sys.argv[1])
    measured.load()
    lines: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for file in sorted(Path("trio_mcp").rglob("*.py")):
        _, executable, _, missing, _ = measured.analysis2(str(file))
        for folder in (str(file.parent), "all"):
            lines[folder] += len(executable)
            missed[folder] += len(missing)
    for folder, count in lines.items():
        print(f"{100 * (1 - missed[folder] / count):6.1f} %  {count:6} lines  {folder}")
    if (share := 100 * (1 - missed["all"] / lines["all"])) < FLOOR:
        sys.exit(f"{share:.1f} % of the lines ran, fewer than {FLOOR} %")


if __name__ == "__main__":
    main()
