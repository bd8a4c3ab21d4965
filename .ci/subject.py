"""Check the message of a commit: ``subject.py FILE``, the hook `commit-msg` of pre-commit.

The first line is ``area: imperative subject`` of at most 72 characters; a body, if there is one, follows a blank line
and says why.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LONGEST = 72
"""Characters of a subject: what `git log --oneline` shows in a terminal of 80 columns."""

WRITTEN_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
"""The beginnings of subjects that git writes itself."""

AREA = re.compile(r"[a-z0-9_./-]+(,? [a-z0-9_./-]+)*: ")
NOT_IMPERATIVE = re.compile(r"(?:[A-Z]|the |a |an |\w+(?:ed|ing) )")
"""The beginnings of a subject after its area that can't be an imperative: a capital letter, a noun, a participle."""

LOOKS_LIKE_ONE = ("embed ", "exceed ", "feed ", "need ", "proceed ", "seed ", "shed ", "speed ", "bring ", "ping ")
"""Imperatives with the ending of a participle."""


def problems(message: str) -> list[str]:
    """Return everything that is wrong with a message."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if subject.startswith(WRITTEN_BY_GIT):
        return []
    found = []
    area = AREA.match(subject)
    if area is None:
        found.append("begin with the area and a colon, as in 'session: bound the queue of notices'")
    else:
        said = subject[area.end() :]
        if NOT_IMPERATIVE.match(said) and not said.startswith(LOOKS_LIKE_ONE):
            found.append("say in the imperative what the commit does: 'bound', not 'bounded' or 'the bound'")
    if len(subject) > LONGEST:
        found.append(f"shorten the subject to {LONGEST} characters; it has {len(subject)}")
    if subject.endswith("."):
        found.append("leave out the full stop of the subject")
    if len(lines) > 1 and lines[1]:
        found.append("leave the second line blank")
    return found


def main() -> int:
    """Print the problems of the message in the file, and return the exit status."""
    found = problems(Path(sys.argv[1]).read_text())
    for problem in found:
        print(f"commit message: {problem} (CONTRIBUTING, section 'Commits')", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
