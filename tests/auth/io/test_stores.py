"""Where logins are kept: whole, private, and locked for one at a time."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from tests.auth.io.keychain import keychain
from trio_mcp.auth.client.stores.files import FileTokens, default_folder
from trio_mcp.auth.client.stores.keychain import KeyringTokens
from trio_mcp.auth.client.stores.memory import MemoryTokens
from trio_mcp.auth.rules.login import ClientRecord, Login
from trio_mcp.errors import AuthorizationError

KEY, SECRET = "https://mcp.example.com/mcp", "canary-token"
posix = pytest.mark.skipif(sys.platform == "win32", reason="has no modes")


@pytest.fixture(params=[MemoryTokens, FileTokens, KeyringTokens])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with keychain():
        yield request.param()


async def test_a_text_is_kept_until_it_is_replaced_or_removed(store: Any) -> None:
    assert await store.load(KEY) is None
    await store.save(KEY, None)
    for text in ("", "ü€😀 {}\n", SECRET, "x" * 100_000):
        await store.save(KEY, text)
        await store.save("other", "another")
        assert await store.load(KEY) == text
    if not isinstance(store, KeyringTokens):
        assert await store.keys() == [KEY, "other"]
    assert SECRET not in repr(store)
    await store.save(KEY, None)
    assert (await store.load(KEY), await store.load("other")) == (None, "another")


async def test_one_at_a_time_holds_a_lock(store: Any) -> None:
    inside = 0

    async def enter(key: str) -> None:
        nonlocal inside
        async with store.lock(key):
            inside += 1
            assert inside == 1
            await trio.lowlevel.checkpoint()
            inside -= 1

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(enter, KEY)
    async with store.lock(KEY), store.lock("other"):
        # A task that stops waiting holds nothing.
        with trio.move_on_after(0) as scope:
            await enter(KEY)
        assert scope.cancelled_caught
    with pytest.raises(ZeroDivisionError):
        async with store.lock(KEY):
            raise ZeroDivisionError
    await enter(KEY)


async def test_runs_in_several_threads_share_a_store(store: Any) -> None:
    async def count() -> None:
        for _ in range(5):
            async with store.lock(KEY):
                now = int(await store.load(KEY) or 0)
                await store.save(KEY, str(now + 1))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(trio.to_thread.run_sync, trio.run, count)
    assert await store.load(KEY) == "15"


# --- files ----------------------------------------------------------------------------------------------------------


def test_the_folder_is_where_the_user_s_data_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_folder() == FileTokens().folder == tmp_path / "trio-mcp" / "logins"
    monkeypatch.setenv("HOME", "/home/someone")
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_DATA_HOME", ignored)
        assert default_folder() == Path("/home/someone/.local/share/trio-mcp/logins")


@posix
async def test_files_are_their_owner_s_alone(tmp_path: Path) -> None:
    store = FileTokens(tmp_path / "a" / "b")
    before = os.umask(0)
    try:
        await store.save(KEY, SECRET)
        async with store.lock(KEY):
            pass
    finally:
        os.umask(before)
    assert store.folder.stat().st_mode & 0o777 == 0o700
    files = list(store.folder.iterdir())
    assert {path.suffix for path in files} == {".json", ".lock"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert not any(SECRET in path.name or "example" in path.name for path in files)


async def test_a_lock_is_free_after_its_block_though_a_child_has_its_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileTokens(tmp_path / "logins")
    copies: list[int] = []
    real = os.open

    def copying(*args: Any, **options: Any) -> int:
        copies.append(os.dup(made := real(*args, **options)))  # as a fork does
        return made

    monkeypatch.setattr(os, "open", copying)
    for _ in range(2):
        with trio.fail_after(10):
            async with store.lock(KEY):
                pass
    for each in copies:
        os.close(each)


def foreign(path: Path) -> None:
    real = os.fstat

    def fstat(descriptor: int) -> Any:
        found = real(descriptor)
        return os.stat_result([*found[:4], 4242, *found[5:10]])

    os.fstat = fstat  # undone by the test's monkeypatch


def linked(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def replaced(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def edited(**changes: Any) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "readable by all": (lambda path: path.chmod(0o644), "open to other users (mode 0644); if no other user has read"),
    "writable by the group": (lambda path: path.chmod(0o620), "open to other users"),
    "another owner": (foreign, "belongs to another user (uid 4242)"),
    "symbolic link": (linked, "is a symbolic link"),
    "torn": (lambda path: path.write_bytes(path.read_bytes()[:-20]), "is damaged"),
    "empty": (replaced(b""), "is damaged"),
    "zeros": (replaced(bytes(4096)), "is damaged"),
    "not JSON": (replaced(b"\xff\xfe"), "is damaged"),
    "a list": (replaced(b"[]"), "is damaged"),
    "deep": (replaced(b"[" * 100_000), "is damaged"),
    "huge": (replaced(b" " * 2**21), "is damaged"),
    "another version": (edited(trio_mcp=2), "is damaged"),
    "of another key": (edited(key="https://evil.example.com"), "is damaged"),
    "no text": (edited(text=None), "is damaged"),
    # Escaped, as JSON allows: it can't be written as UTF-8, nor be printed.
    "half a character in the key": (edited(key="https://\ud800.example.com"), "is damaged"),
    "half a character in the text": (edited(text="\ud800"), "is damaged"),
    "a number beyond all bounds": (replaced(b'{"trio_mcp": %b}' % (b"1" * 10_000)), "is damaged"),
    "zeros in the key": (edited(key="https://\0"), "is damaged"),
    "a folder": (lambda path: (path.unlink(), path.mkdir(0o700)), "is not a file"),
    "a pipe": (piped, "is not a file"),
}


@posix
@pytest.mark.parametrize("what", DAMAGE)
async def test_a_file_that_may_not_be_ours_is_named_and_not_read(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A list of logins has the others all the same."""
    store = FileTokens(tmp_path / "logins")
    await store.save(KEY, SECRET)
    (path,) = store.folder.iterdir()
    await store.save("other", "text")
    monkeypatch.setattr(os, "fstat", os.fstat)
    damage, match = DAMAGE[what]
    damage(path)
    opened = len(os.listdir("/proc/self/fd"))
    with pytest.raises(AuthorizationError) as caught:
        await store.load(KEY)
    assert len(os.listdir("/proc/self/fd")) == opened
    if what != "another owner":  # which is that of each file then
        assert await store.keys() == ["other"]
    for text in (str(caught.value), *caplog.messages):
        assert text.startswith(f"store failed: {path} ")
        assert match in text
        assert SECRET not in text
    # It can be removed, and so signed out of, unread.
    if what != "a folder":
        await store.save(KEY, None)
        assert await store.load(KEY) is None


FOLDERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "readable by all": (lambda path: path.mkdir(0o755), "open to other users (mode 0755)"),
    "symbolic link": (lambda path: (path.with_name("x").mkdir(0o700), path.symlink_to("x")), "is a symbolic link"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "is a symbolic link"),
    "a file": (lambda path: path.touch(), "is not a folder"),
    "below a file": (lambda path: (path.parent.rmdir(), path.parent.touch()), "Not a directory"),
}


@posix
@pytest.mark.parametrize("what", FOLDERS)
async def test_a_folder_that_may_not_be_ours_is_named_and_not_used(what: str, tmp_path: Path) -> None:
    store = FileTokens(tmp_path / "own" / "logins")
    store.folder.parent.mkdir()
    make, match = FOLDERS[what]
    make(store.folder)

    async def lock() -> None:
        async with store.lock(KEY):
            raise AssertionError

    for act in (lambda: store.load(KEY), store.keys, lambda: store.save(KEY, SECRET), lock):
        with pytest.raises(AuthorizationError) as caught:
            await act()
        assert str(store.folder) in str(caught.value)
        assert match in str(caught.value)


async def test_what_a_killed_process_was_writing_is_removed_later(tmp_path: Path) -> None:
    store = FileTokens(tmp_path / "logins")
    await store.save(KEY, "old")
    (path,) = store.folder.iterdir()
    left, fresh = path.with_name(f".{path.name}.left"), path.with_name(f".{path.name}.fresh")
    for each in (left, fresh):
        each.write_text(SECRET)
    os.utime(left, (0, 0))
    await store.save(KEY, "new")
    # The fresh one may be another process's, which is writing it now.
    assert sorted(store.folder.iterdir()) == sorted([path, fresh])
    assert await store.load(KEY) == "new"


@posix
async def test_processes_share_a_store_and_may_be_killed_at_any_time(tmp_path: Path) -> None:
    written, shared = FileTokens(tmp_path / "written"), FileTokens(tmp_path / "shared")
    await written.save(KEY, "old")
    program = [sys.executable, "-m", "tests.auth.io.killed", str(written.folder), str(shared.folder)]
    await written.save(KEY, "old")
    run = await trio.run_process(program, capture_stdout=True)
    found, counted = json.loads(run.stdout)
    texts = [json.loads(each)["text"] for each in found]  # each of them is whole
    new = texts.index("new")
    assert texts == ["old"] * new + ["new"] * (len(texts) - new)
    assert new > 10
    assert len(texts) - new > 3
    # Nor is what those processes left in anybody's way.
    assert await written.keys() == [KEY]
    assert counted == "24"


# --- keychains ------------------------------------------------------------------------------------------------------


async def test_without_a_keychain_the_files_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring

    errors: list[Exception] = []

    def fail(*_: object) -> None:
        raise errors[-1]

    for name in ("get_password", "set_password", "delete_password"):
        monkeypatch.setattr(keyring, name, fail)
    store = KeyringTokens()
    for error, match in (
        (keyring.errors.NoKeyringError("long advice"), "no keychain is available; use FileTokens() instead"),
        (keyring.errors.KeyringLocked("no"), "the keychain failed: KeyringLocked; unlock it, or use FileTokens()"),
        (RuntimeError(SECRET), "the keychain failed: RuntimeError; unlock it, or use FileTokens()"),
    ):
        errors.append(error)
        for act in (lambda: store.load(KEY), lambda: store.save(KEY, SECRET), lambda: store.save(KEY, None)):
            with pytest.raises(AuthorizationError, match=re.escape(match)):
                await act()


@pytest.mark.parametrize("found", ["\ud800", b"text", UnicodeDecodeError("utf-8", b"\xff", 0, 1, SECRET)], ids=repr)
async def test_an_item_that_is_not_text_is_named(monkeypatch: pytest.MonkeyPatch, found: Any) -> None:
    import keyring

    def get(*_: object) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(keyring, "get_password", get)
    with pytest.raises(AuthorizationError, match=re.escape(f"the keychain's item 'trio-mcp' for {KEY} is damaged")):
        await KeyringTokens().load(KEY)


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'trio-mcp[keyring]'")):
        KeyringTokens()


# --- logins ---------------------------------------------------------------------------------------------------------

CLIENT = ClientRecord("id", "registered", secret=SECRET, method="client_secret_basic", scopes=frozenset({"a"}))
LOGIN = Login(
    "https://mcp.example.com", "https://id.example.com", CLIENT, "https://id.example.com/token", SECRET, "DPoP",
    expires_at=2e9, refresh_token=SECRET, scopes=frozenset({"b", "a"}), asked=frozenset({"c"}), dpop_key=SECRET,
)  # fmt: skip


def test_a_login_is_the_same_after_a_round_trip() -> None:
    bare = Login(None, "i", ClientRecord("id", "given"), "t", "")
    for login in (LOGIN, bare, attrs.evolve(bare, scopes=frozenset())):
        assert Login.from_json(login.to_json()) == login
    assert SECRET not in repr(LOGIN)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2}, {"version": None}, {"issuer": None}, {"issuer": 3}, {"token_type": "MAC"}, {"expires_at": "1"},
        {"expires_at": float("nan")}, {"expires_at": True}, {"scopes": "a b"}, {"scopes": [1]}, {"more": 1},
        {"client": {}}, {"client": {"id": "x", "origin": "stolen"}}, {"client": None},
    ],
    ids=json.dumps,
)  # fmt: skip
def test_nothing_else_is_read_as_a_login(changes: dict[str, Any]) -> None:
    text = json.dumps({**json.loads(LOGIN.to_json()), **changes})
    with pytest.raises(ValueError, match="it was not written by this version of trio_mcp") as caught:
        Login.from_json(text)
    assert SECRET not in str(caught.value)
    for torn in (text[:-9], "", "[]", "null"):
        with pytest.raises(ValueError, match="it was not written by"):
            Login.from_json(torn)
