"""docs/how-to/interactive.md: what it says that Trio's REPL prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import blocks_of

ROOT = Path(__file__).resolve().parents[2]


def test_what_the_page_types_into_the_repl_prints_what_it_says(tmp_path: Path) -> None:
    typed: list[str] = []
    printed: list[str] = []
    for block in blocks_of(ROOT / "docs" / "how-to" / "interactive.md"):
        if block.file_name is not None:
            (tmp_path / block.file_name).write_text(block.text)
        for line in block.text.splitlines() if block.language == "text" else []:
            prompt = re.match(r"(>>>|\.\.\.) ?", line)
            (typed if prompt else printed).append(line[prompt.end() :] if prompt else line)
    assert len(typed) == 9
    repl = subprocess.run(
        [sys.executable, "-m", "trio"],
        input="\n".join(typed) + "\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert repl.returncode == 0, repl.stderr
    assert "Traceback" not in repl.stderr
    assert re.sub(r"(>>> |\.\.\. )", "", repl.stdout).split("\n")[:-1] == printed
