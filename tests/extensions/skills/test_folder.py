"""What a folder of skills may have: each attack is refused with its file named, and has a control that is served."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extensions.skills.folders import skill_text, write_skill
from trio_mcp.extensions.skills.folder import FolderReader, SkillTree, read_regular

MAX = 16 * 1024 * 1024


def read(
    folder: Path, known: dict[str, SkillTree] | None = None, max_size: int = 2 * MAX
) -> tuple[dict[str, SkillTree], dict[str, str]]:
    return FolderReader(str(folder), "skill://", max_size).read(known or {})


def served(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files that are served, by URI; there must be no problem."""
    trees, problems = read(folder)
    assert not problems
    return {file.uri: file.data for tree in trees.values() for file in tree.files.values()}


# --- attacks ------------------------------------------------------------------------------------------------------


def a_link(skill: Path) -> None:
    (skill / "notes").symlink_to("/etc/hostname")


def a_link_inside(skill: Path) -> None:
    (skill / "notes").symlink_to("SKILL.md")


def a_linked_directory(skill: Path) -> None:
    (skill / "notes").symlink_to("/etc")


def a_linked_skill(skill: Path) -> None:
    (skill / "SKILL.md").rename(skill.parent / "elsewhere.md")
    (skill / "SKILL.md").symlink_to("../elsewhere.md")


def a_link_beside(skill: Path) -> None:
    (skill.parent / "latest").symlink_to(skill.name)


def a_fifo(skill: Path) -> None:
    os.mkfifo(skill / "notes")


def a_socket(skill: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(skill / "notes"))


def two_cases(skill: Path) -> None:
    (skill / "Notes.md").write_text("")
    (skill / "notes.md").write_text("")


def two_compositions(skill: Path) -> None:
    (skill / "caf\u00e9.md").write_text("")
    (skill / "cafe\u0301.md").write_text("")


def many_files(skill: Path) -> None:
    for number in range(512):
        (skill / f"{number}.md").write_text("")


def many_bytes(skill: Path) -> None:
    with (skill / "data").open("wb") as file:
        file.truncate(MAX - (skill / "SKILL.md").stat().st_size + 1)


def dots(skill: Path) -> None:
    (skill / "...").write_text("")


def spaced_dots(skill: Path) -> None:
    (skill / ".. ").write_text("")


def a_backslash(skill: Path) -> None:
    (skill / "..\\notes").write_text("")


def a_newline(skill: Path) -> None:
    (skill / "a\nb").write_text("")


def undecodable(skill: Path) -> None:
    Path(os.fsdecode(os.fsencode(skill) + b"/\xff")).write_text("")


def a_long_name(skill: Path) -> None:
    """Three characters in a URI for each byte of a name: a path well within PATH_MAX (4096) is too long for a URI."""
    deep = skill
    for _ in range(14):
        deep = deep / ("\u00e4" * 100)
    deep.mkdir(parents=True)
    (deep / "notes").write_text("")


def too_deep(skill: Path) -> None:
    deep = skill.joinpath(*["d"] * 32)
    deep.mkdir(parents=True)


ATTACKS: list[tuple[Callable[[Path], None], str, str]] = [
    (a_link, "good/notes", "symbolic link"),
    (a_link_inside, "good/notes", "symbolic link"),
    (a_linked_directory, "good/notes", "symbolic link"),
    (a_linked_skill, "good/SKILL.md", "symbolic link"),
    (a_link_beside, "latest", "symbolic link"),
    (a_fifo, "good/notes", "FIFO"),
    (a_socket, "good/notes", "socket"),
    (two_cases, "good/notes.md", "only in case"),
    (two_compositions, "good/caf\u00e9.md", "only in case"),
    (many_files, "good", "more than 512 files"),
    (many_bytes, "good", "16777216 is the limit"),
    (dots, "good/...", "dots"),
    (spaced_dots, "good/.. ", "dots"),
    (a_backslash, "good/..\\notes", "backslash"),
    (a_newline, "good/a\nb", "control character"),
    (undecodable, "good/\\udcff", "not UTF-8"),
    (a_long_name, "", "longer than 8192"),
    (too_deep, "good/" + "/".join(["d"] * 32), "32 directories"),
]


@pytest.mark.parametrize(("attack", "path", "reason"), ATTACKS, ids=[each[0].__name__ for each in ATTACKS])
def test_an_attack_is_refused_by_name(attack: Callable[[Path], None], path: str, reason: str, tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "good", {"real.md": "text"})
    assert served(tmp_path)["skill://good/real.md"] == b"text", "the control must be served"
    attack(skill)
    trees, problems = read(tmp_path)
    assert any(reason in problem and (not path or where == path) for where, problem in problems.items()), problems
    assert "good" not in trees or attack is a_link_beside


def test_the_limits_are_inclusive(tmp_path: Path) -> None:
    """Limits: 512 entries and 16 MiB, `SKILL.md` included."""
    skill = write_skill(tmp_path, "good")
    for number in range(510):
        (skill / f"{number}.md").write_text("")
    with (skill / "data").open("wb") as file:
        file.truncate(MAX - (skill / "SKILL.md").stat().st_size)
    found = served(tmp_path)
    assert (len(found), sum(map(len, found.values()))) == (512, MAX)


@pytest.mark.root
def test_a_device_is_refused(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "good")
    os.mknod(skill / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    trees, problems = read(tmp_path)
    assert not trees
    assert "a device" in problems["good/zero"]


def test_what_is_no_regular_file_when_it_is_opened_is_not_read() -> None:
    """A device that has taken the place of a file since it was found: its size alone would let it through."""
    root = os.open("/dev", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(root, "null", (0, 0, 0, 0))
    finally:
        os.close(root)


def test_opening_a_fifo_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    root = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(root, "pipe", (0, 0, 0, 0))
    finally:
        os.close(root)


def test_a_file_that_changes_while_it_is_read_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mixture of two states would have a digest of its own."""
    file = write_skill(tmp_path, "good", {"log": "one"}) / "log"
    real = os.read

    def read_and_write(descriptor: int, most: int) -> bytes:
        piece = real(descriptor, most)
        if piece == b"one":
            file.write_text("two")
            os.utime(file, ns=(1, 1))  # the clock of the file system may be coarse
        return piece

    monkeypatch.setattr(os, "read", read_and_write)
    trees, problems = read(tmp_path)
    assert not trees
    assert problems == {"good/log": "it can't be read (it changed while it was read)"}


SECRET = b"secret" * 10
REAL = b"x" * len(SECRET)


def naive(folder: Path) -> list[bytes]:
    """Read as one might without care: check each path, and open it again."""
    found = []
    for path in (folder / "good" / "file", folder / "good" / "sub" / "file"):
        try:
            if path.is_file() and path.resolve().is_relative_to(folder):
                found.append(path.read_bytes())
        except OSError:
            pass
    return found


def careful(folder: Path) -> list[bytes]:
    trees, _ = read(folder)
    return [file.data for tree in trees.values() for file in tree.files.values()]


@pytest.mark.parametrize(("reader", "leaks"), [(naive, True), (careful, False)])
def test_links_that_are_swapped_between_check_and_read_lead_nowhere(
    reader: Callable[[Path], list[bytes]], leaks: bool, tmp_path: Path
) -> None:
    """A thread replaces a file and a directory by links that lead out of the folder, and back, as fast as it can.

    The control reads paths that it has checked, and is deceived.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(SECRET)
    folder = tmp_path / "skills"
    skill = write_skill(folder, "good", {"file": REAL, "sub/file": REAL})
    # With these names, the links are no reason to refuse the skill while they are in their own places.
    (skill / ".link").symlink_to(outside / "file")
    (skill / ".linked").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        parked = tmp_path / "parked"
        pairs = ((skill / "file", skill / ".link"), (skill / "sub", skill / ".linked"))
        while not stop.is_set():
            for one, other in pairs:
                for left, right in ((one, other), (one, other)):
                    left.rename(parked)
                    right.rename(left)
                    parked.rename(right)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        found: set[bytes] = set()
        # The control is tried until it is deceived, and both until they have read something real.
        for attempt in range(100_000):
            found.update(reader(folder))
            if SECRET in found or (attempt >= 500 and not leaks and REAL in found):
                break
    finally:
        stop.set()
        swapper.join()
    assert (SECRET in found) is leaks
    assert leaks or REAL in found


# --- what is served -----------------------------------------------------------------------------------------------


def test_every_directory_with_a_skill_file_is_a_skill_at_any_depth(tmp_path: Path) -> None:
    """Resource Mapping, Nested Skills: the files of a nested skill belong to the enclosing skill, too."""
    write_skill(tmp_path, "acme/billing/refunds", {"examples/email.md": "x"})
    write_skill(tmp_path, "acme/billing/refunds/examples/nested", {"deep.md": "y"})
    (tmp_path / "acme" / "README.md").write_text("not in a skill")
    write_skill(tmp_path, "git-workflow")
    trees, problems = read(tmp_path)
    assert not problems
    entries = {skill.entry["uri"]: skill.entry for tree in trees.values() for skill in tree.skills}
    listed = {uri: [each["uri"] for each in entry["resources"]] for uri, entry in entries.items()}
    outer = "skill://acme/billing/refunds"
    inner = f"{outer}/examples/nested"
    assert listed == {
        f"{outer}/SKILL.md": [
            f"{outer}/SKILL.md",
            f"{outer}/examples/email.md",
            f"{inner}/SKILL.md",
            f"{inner}/deep.md",
        ],
        f"{inner}/SKILL.md": [f"{inner}/SKILL.md", f"{inner}/deep.md"],
        "skill://git-workflow/SKILL.md": ["skill://git-workflow/SKILL.md"],
    }


def test_names_that_begin_with_a_dot_are_left_out(tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "good", {".env": "SECRET=1", ".git/config": "x"})
    (skill / ".link").symlink_to("/etc")
    assert list(served(tmp_path)) == ["skill://good/SKILL.md"]


def test_a_name_is_escaped_in_its_uri(tmp_path: Path) -> None:
    """RFC 3986, section 3.3: what a path segment can't contain is percent-encoded, so no name leads elsewhere."""
    write_skill(tmp_path, "good", {"a b#c?d%2e.md": "x", "caf\u00e9": "y"})
    assert sorted(served(tmp_path)) == [
        "skill://good/SKILL.md",
        "skill://good/a%20b%23c%3Fd%252e.md",
        "skill://good/caf%C3%A9",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# no frontmatter\n", "the first line must be ---"),
        ("---\nname: good\ndescription: x\n", "has no end"),
        (skill_text("good").replace("name: good\n", ""), "has no name"),
        (skill_text("good").replace("description: About good\n", ""), "has no description"),
        (skill_text("other"), "differs from that of the directory"),
        (skill_text("Good"), "lower-case"),
        (skill_text("''"), "0 characters"),
        (skill_text("1"), "must be a string"),
        (skill_text("good").replace("About good", "' '"), "description is empty"),
        (skill_text("good").replace("About good", "x" * 1025), "1025 characters"),
        (skill_text("good").replace("About good", "[x]"), "must be a string"),
        (skill_text("good", "metadata: {version: 1.0}\n"), "must map names to strings"),
        (skill_text("good", "metadata: x\n"), "must map names to strings"),
        (skill_text("good", "compatibility: ''\n"), "1 to 500"),
        (skill_text("good", "compatibility: [x]\n"), "1 to 500"),
        (skill_text("good", "a: &a 1\nb: *a\n"), "an anchor (line 4)"),
        ("---\n" + "#" * 65_537 + "\n---\n", "longer than 65536 bytes"),
    ],
)
def test_a_skill_file_that_breaks_a_rule_is_refused(text: str, reason: str, tmp_path: Path) -> None:
    """Skill Format: `SKILL.md` MUST begin with YAML frontmatter that has a name and a description."""
    (write_skill(tmp_path, "good") / "SKILL.md").write_text(text)
    trees, problems = read(tmp_path)
    assert not trees
    assert reason in problems["good/SKILL.md"]


@pytest.mark.parametrize(
    "name", ["-a", "a-", "a--b", "A", "a_b", "a.b", "\u00e4", "a b", "x" * 65], ids=lambda name: name[:8]
)
def test_the_rules_for_names(name: str, tmp_path: Path) -> None:
    """Resource Mapping: the final segment MUST satisfy the Agent Skills specification's naming rules."""
    write_skill(tmp_path, name)
    trees, problems = read(tmp_path)
    assert not trees
    assert problems
    for each, control in enumerate(("a", "1a", "a-b-1", "x" * 64)):
        write_skill(tmp_path / str(each), control)
        assert not read(tmp_path / str(each))[1]


def test_the_folder_itself_is_no_skill(tmp_path: Path) -> None:
    write_skill(tmp_path.parent, tmp_path.name)
    assert "can't be a skill" in read(tmp_path)[1]["SKILL.md"]


def test_all_skills_together_have_a_limit(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_skill(tmp_path, name, {"data": b"x" * 1000})
    assert not read(tmp_path, max_size=4000)[1]
    trees, problems = read(tmp_path, max_size=1500)
    assert list(trees) == ["a"]
    assert "max_size=1500" in problems["b"]


# --- reading again ------------------------------------------------------------------------------------------------


def test_an_unchanged_folder_is_not_opened_for_reading_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        write_skill(tmp_path, f"skill-{number}", {"a/b.md": "x", "c.md": "y"})
    trees, _ = read(tmp_path)
    opened: list[str] = []
    real = os.open

    def counted(path: str, flags: int, *arguments: int, dir_fd: int | None = None) -> int:
        if not flags & os.O_DIRECTORY:
            opened.append(path)
        return real(path, flags, *arguments, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", counted)
    again, _ = read(tmp_path, trees)
    assert again == trees
    assert opened == []
    (tmp_path / "skill-3" / "c.md").write_text("changed")  # the control
    again, _ = read(tmp_path, trees)
    assert opened == ["c.md"]
    assert [path for path in trees if again[path] is not trees[path]] == ["skill-3"]


@pytest.mark.parametrize("attack", [a_fifo, two_cases, many_files, many_bytes, a_linked_skill])
def test_a_skill_that_becomes_invalid_keeps_its_old_state(attack: Callable[[Path], None], tmp_path: Path) -> None:
    skill = write_skill(tmp_path, "good")
    write_skill(tmp_path, "other")
    trees, _ = read(tmp_path)
    attack(skill)
    (tmp_path / "other" / "new.md").write_text("new")
    again, problems = read(tmp_path, trees)
    assert problems
    assert again["good"] is trees["good"]
    assert "other/new.md" in again["other"].files, "the others are read"


def test_a_folder_that_is_gone_takes_no_skill_with_it(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills", "good")
    trees, _ = read(tmp_path / "skills")
    (tmp_path / "skills").rename(tmp_path / "moved")
    again, problems = read(tmp_path / "skills", trees)
    assert again == trees
    assert "can't be opened" in problems[""]
