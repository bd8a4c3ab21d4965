"""Compare the statements that we list with a checkout of the specification: ``python -m tests.statements PATH``.

It lists what is new, changed or gone, and the rules whose section does not exist. The exit status is 1 if there is
anything. The rows to change are in ``trio_mcp/conformance/statements``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.statements.compare import differences
from tests.statements.extract import sections, statements as found_in
from trio_mcp.conformance.rules.catalogue import RULES
from trio_mcp.conformance.rules.model import Rule
from trio_mcp.conformance.statements.model import REVISIONS, statements


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.statements", description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path, help="where modelcontextprotocol/modelcontextprotocol is checked out")
    checkout = parser.parse_args().checkout
    try:
        found = list(found_in(checkout, REVISIONS))
    except FileNotFoundError as error:
        parser.error(str(error))
    different = differences(found, statements())
    for each in different:
        print(each)
    lost = [f"{rule.id}: {link}" for rule, link in _lost_links(checkout)]
    print(*lost, sep="\n", end="\n" if lost else "")
    kinds = Counter(each.kind for each in different)
    print(f"{len(found)} statements: " + ", ".join(f"{kinds[kind]} {kind}" for kind in ("new", "changed", "gone")))
    print(f"{len(RULES)} rules: {len(lost)} in a section that does not exist")
    return 1 if different or lost else 0


def _lost_links(checkout: Path) -> Iterator[tuple[Rule, str]]:
    for revision in REVISIONS:
        known = sections(checkout, revision)
        for rule in RULES.values():
            if revision in rule.revisions and rule.link(revision).split(f"/{revision}/")[-1] not in known:
                yield rule, rule.link(revision)


if __name__ == "__main__":
    sys.exit(main())
