"""Compare the statements that we list with a checkout of the specification: ``python -m tests.statements PATH``.

``--tasks PATH`` also compares those of the tasks extension, with a checkout of modelcontextprotocol/ext-tasks.

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
from tests.statements.extract import of_extension, sections, statements as found_in
from trio_mcp.conformance.rules.catalogue import RULES
from trio_mcp.conformance.rules.model import Rule
from trio_mcp.conformance.statements.model import EXTENSIONS, REVISIONS, statements


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.statements", description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path, help="where modelcontextprotocol/modelcontextprotocol is checked out")
    parser.add_argument("--tasks", type=Path, help="where modelcontextprotocol/ext-tasks is checked out")
    given = parser.parse_args()
    checkout, listed = given.checkout, statements()
    try:
        found = list(found_in(checkout, REVISIONS))
    except FileNotFoundError as error:
        parser.error(str(error))
    if given.tasks is not None:
        found += of_extension(given.tasks, "extensions/tasks", REVISIONS)
    else:
        listed = tuple(each for each in listed if not each.places[0].section.startswith("extensions/tasks"))
    different = differences(found, listed)
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
            if rule.section.partition("#")[0] in EXTENSIONS:
                continue
            if revision in rule.revisions and rule.link(revision).split(f"/{revision}/")[-1] not in known:
                yield rule, rule.link(revision)


if __name__ == "__main__":
    sys.exit(main())
