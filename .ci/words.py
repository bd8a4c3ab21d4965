"""Find words that this project does not use; CONTRIBUTING, section "Words", says what to write instead.

words.py            looks at everything that git tracks
words.py FILE ...   looks at these files
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

BANNED = {
    r"\bis none\b": "say what it is instead: 'is malformed', 'is not a form', 'there is none'",
    r"(?<!\bthere )(?<!\bThere )\bis no (?!longer\b|more than\b|later\b|earlier\b|larger\b|other\b)": "'is not a ...'",
    r"\bis another( now|[.,;:])": "'has changed', 'differs'",
    r"\b([Nn]obody|[Ww]hoever|[Ss]omebody)\b": "name the one who acts: the client, the caller, no task",
    r"\bfor ever\b": "'forever'",
    r"\b[Aa] HTTP\b": "'an HTTP'",
    r"\bof ours\b": "'our'",
    r"([Hh]andshake[- ]|(_|\b)handshake_)era(_|\b)": "'legacy era'",
    r'"""(Tell whether|Note that (a|an|the|its|it|one|this)\b)': "'Return whether', 'Record that'",
    r"\b(can't|must not) hold\b(?! (up|[\w ]+ up)\b)": "'contain'",
    r"\b(is|was|be|for it) to (get through|be had)\b": "'complete', 'is available'",
    r"\b(can't|cannot) be had\b": "'is not available'",
    r"\bgone on with\b": "'resumed', 'continued'",
    r"^\s+\w+: (It is|It is not|It is none|Not so|It does|It does not|They do|They don't)\.$": "say when it is raised",
}

# In the package alone: the tests and pages are still to be read for these.
BANNED_IN_PACKAGE = {
    r"\btold from\b": "'distinguished from'",
    r"\ball the same\b(?!, )": "'even so', 'still'",
    r"\banew\b": "'again'",
    r'(# |"""|\. )Chosen[.:]': "'An arbitrary choice', '(arbitrary)'",
    r'(^\s*# |""")What\b': "begin with the thing itself: 'The fields that ...'",
}

# The words themselves stand here, and what the published specification says is quoted as it is.
EXEMPT = {".ci/words.py", "CONTRIBUTING.md", "LICENSE"}
SUFFIXES = {".py", ".md", ".toml", ".yml", ".yaml", ".mjs", ".ts"}


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if Path(name).suffix in SUFFIXES and name not in EXEMPT]


def main() -> int:
    found = 0
    for name in sys.argv[1:] or tracked():
        banned = BANNED | (BANNED_IN_PACKAGE if name.startswith("trio_mcp/") else {})
        for number, line in enumerate(Path(name).read_text().splitlines(), 1):
            for pattern, instead in banned.items():
                if match := re.search(pattern, line):
                    found += 1
                    print(f"{name}:{number}: {match.group().strip()!r}: {instead}")
    if found:
        print(f"{found} found", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
