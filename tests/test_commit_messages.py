"""The hook that checks the message of a commit, `.ci/subject.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[1] / ".ci" / "subject.py"


def checked(message: str, directory: Path) -> tuple[int, str]:
    file = directory / "COMMIT_EDITMSG"
    file.write_text(message)
    done = subprocess.run([sys.executable, str(HOOK), str(file)], capture_output=True, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "message",
    [
        "session: bound the queue of notices\n",
        "client group: seed the order of members\n\nA fixed order hid a race.\n# a line that git removes\n",
        "http/server, docs: name the limit that a request has hit\n",
        "Merge branch 'main' into work\n",
        'Revert "session: bound the queue of notices"\n',
    ],
)
def test_a_good_message_passes(message: str, tmp_path: Path) -> None:
    assert checked(message, tmp_path) == (0, "")


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("bound the queue of notices\n", "begin with the area"),
        ("", "begin with the area"),
        ("session: Bound the queue\n", "in the imperative"),
        ("session: bounded the queue\n", "in the imperative"),
        ("session: the queue is bounded\n", "in the imperative"),
        ("session: bound the queue.\n", "full stop"),
        (f"session: bound {'x' * 60}\n", "shorten the subject to 72 characters; it has 75"),
        ("session: bound the queue\nA fixed order hid a race.\n", "second line blank"),
    ],
)
def test_a_bad_message_is_refused_with_what_to_write(message: str, says: str, tmp_path: Path) -> None:
    status, printed = checked(message, tmp_path)
    assert status == 1
    assert says in printed
