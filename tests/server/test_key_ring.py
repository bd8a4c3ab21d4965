"""`KeyRing`: keys in a file, which several processes rotate without refusing any client."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.server.input_harness import Name, accept, hand_client, text_of
from trio_mcp import Accepted, Client, Context, InputOptions, Server
from trio_mcp.server.base_server import core_of
from trio_mcp.server.input.request_state import RequestState, StateRefused, StateSealer
from trio_mcp.stores import KeyRing, MemoryStores, SqliteStores

NOW = 1_000_000
TTL = 600.0


@attrs.define
class Clock:
    now: float = NOW

    def __call__(self) -> float:
        return self.now


def line(made: int, letter: str) -> str:
    return f"{made} {base64.urlsafe_b64encode(letter.encode() * 32).decode().rstrip('=')}"


def write(path: Path, *lines: str, mode: int = 0o600) -> None:
    path.touch()
    path.chmod(mode)
    path.write_text("".join(f"{each}\n" for each in lines), "latin-1")


def letters(keys: Iterable[bytes]) -> str:
    """Return keys as the letters that they were made of."""
    return "".join(chr(key[0]) for key in keys)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "desk.keys"


@pytest.mark.parametrize(
    ("made", "accepted"),
    [
        ([0], "a"),  # the oldest signs at once
        ([-1000, 0], "ab"),  # a new one waits for the other processes to read it
        ([-1000, -59], "ab"),
        ([-1000, -60], "ba"),
        ([-2000, -660], "ba"),  # the last state that the old key signed is about to expire
        ([-2000, -661], "b"),
        ([-3000, -2000, -100], "cb"),
        ([-3000, -200, -100], "cab"),
        ([-3000, 3600], "ab"),  # of a clock that is an hour ahead
        ([-3000, -1000, 3600, 7200], "bcd"),
    ],
)
def test_a_key_signs_a_minute_after_it_was_made_and_is_accepted_for_the_lifetime_of_a_state(
    path: Path, made: list[int], accepted: str
) -> None:
    """The first key signs; the order of the lines means nothing."""
    lines = [line(NOW + each, letter) for each, letter in zip(made, "abcd", strict=False)]
    for order in (lines, lines[::-1]):
        write(path, *order)
        ring = KeyRing.file(path)
        ring.check(NOW)
        found = letters(ring.keys(NOW, TTL))
        assert found[0] == accepted[0]
        assert sorted(found) == sorted(accepted)


def test_two_rotations_refuse_no_state(path: Path) -> None:
    """Processes look at the file at different times; each opens what any other has sealed, until it has expired."""
    clock = Clock()
    write(path, line(NOW - 5000, "a"))
    processes = [StateSealer("desk", KeyRing.file(path), clock, lifetime=TTL) for _ in range(3)]
    sealed: list[tuple[float, str]] = []
    signers = set()
    for second in range(0, 2000, 20):
        clock.now = NOW + second
        for number, letter in ((200, "b"), (500, "c")):  # the second one comes while states of the first are waiting
            if second // 20 == number // 20:
                with path.open("a") as file:
                    file.write(line(int(clock.now), letter) + "\n")
        one = processes[second // 20 % 3]
        sealed.append((clock.now, one.seal(RequestState(round=second), "m", {}, None, TTL)))
        ring = KeyRing.file(path)
        signers.add(letters(ring.keys(clock.now, TTL))[0])
        sealed = [each for each in sealed if each[0] + TTL >= clock.now]
        other = processes[(second // 20 + 1) % 3]
        for made, token in sealed:
            assert other.open(token, "m", {}, None).round == made - NOW
    assert signers == {"a", "b", "c"}


def test_what_an_old_key_has_signed_is_refused_when_its_line_is_gone(path: Path) -> None:
    """So a key is revoked."""
    clock = Clock()
    write(path, line(NOW - 100, "a"))
    sealer = StateSealer("desk", KeyRing.file(path), clock)
    token = sealer.seal(RequestState(), "m", {}, None, TTL)
    write(path, line(NOW - 50, "b"))
    clock.now += 9
    sealer.open(token, "m", {}, None)  # the file has not been looked at yet
    clock.now += 1
    with pytest.raises(StateRefused):
        sealer.open(token, "m", {}, None)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "no file": (lambda path: None, "can't be read: No such file"),
    "a folder": (lambda path: path.mkdir(), r"is not a file|can't be read"),
    "a named pipe": (lambda path: os.mkfifo(path, 0o600), "is not a file"),
    "an empty file": (lambda path: write(path), r"has no keys: add one, with .*KeyRing\.add"),
    "a key alone": (lambda path: write(path, line(1, "a"), line(1, "b").split()[1]), "because of line 2: each line"),
    "three words": (lambda path: write(path, line(1, "a") + " x"), "line 1"),
    "a time with a sign": (lambda path: write(path, line(-1, "a")), "line 1"),
    "a time that is malformed": (lambda path: write(path, "nan " + line(1, "a").split()[1]), "line 1"),
    "a time beyond all clocks": (lambda path: write(path, line(10**13, "a")), "line 1"),
    "a short key": (lambda path: write(path, f"1 {'A' * 42}"), "line 1: .* at least 32 bytes"),
    "no Base64": (lambda path: write(path, f"1 {'A' * 42}!"), "line 1"),
    "garbage": (lambda path: write(path, bytes(range(256)).decode("latin-1")), "line 1"),
    "a key of tomorrow": (lambda path: write(path, line(NOW + 86_400, "a")), "may sign yet: .* 1086400, lies in"),
    "too long": (lambda path: write(path, *[line(1, "a")] * 2000), "more than 65536 bytes"),
    "too many": (lambda path: write(path, *[line(1, "a")] * 101), "more than 100 keys"),
    "for the group": (lambda path: write(path, line(1, "a"), mode=0o640), "open to other users .mode 0640.: run"),
    "for all": (lambda path: write(path, line(1, "a"), mode=0o604), "mode 0604.: run chmod 600"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_one_clear_error_that_shows_no_key(path: Path, name: str) -> None:
    spoil, text = BAD[name]
    spoil(path)
    with pytest.raises(ValueError, match=text) as caught:
        KeyRing.file(path).check(NOW)
    assert str(path) in str(caught.value)
    assert "YWFh" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_goes_bad_leaves_the_keys_as_they_were_and_is_logged_once(
    path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(path, line(NOW - 100, "x"))
    ring = KeyRing.file(path)
    assert letters(ring.keys(NOW, TTL)) == "x"
    path.unlink()
    BAD[name][0](path)
    for later in range(10, 60, 5):
        assert letters(ring.keys(NOW + later, TTL)) == "x"
    logged = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert len(logged) == 1
    assert "stay in use" in logged[0].getMessage()
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    write(path, line(NOW - 100, "y"))
    assert letters(ring.keys(NOW + 70, TTL)) == "y"


def test_permissions_that_change_are_noticed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, line(NOW - 100, "a"))
    ring = KeyRing.file(path)
    ring.keys(NOW, TTL)
    path.chmod(0o644)
    ring.keys(NOW + 10, TTL)
    assert "open to other users" in caplog.text


def test_the_file_is_looked_at_when_the_clock_is_set_back(path: Path) -> None:
    write(path, line(NOW - 10_000, "a"))
    ring = KeyRing.file(path)
    ring.keys(NOW, TTL)
    write(path, line(NOW - 10_000, "b"))
    assert letters(ring.keys(NOW - 3600, TTL)) == "b"
    # If no key may sign yet, the oldest does: there is no other one to do it.
    assert letters(ring.keys(NOW - 20_000, TTL)) == "b"


def test_an_added_key_joins_those_of_the_file(path: Path) -> None:
    KeyRing.add(path)
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(path.read_text().rstrip("\n"))  # as an editor may leave it
    KeyRing.add(path)
    ring = KeyRing.file(path)
    ring.check(float("inf"))
    keys = ring.keys(4e9, TTL)
    assert [len(key) for key in keys] == [32]  # the other one has long been replaced
    assert len(path.read_text().splitlines()) == 2
    path.chmod(0o644)
    with pytest.raises(ValueError, match="open to other users"):
        KeyRing.add(path)


@pytest.mark.parametrize("text", ["-_" * 21 + "A", "-_" * 21 + "A=", "+/" * 21 + "A="])
def test_both_kinds_of_base64_are_read(path: Path, text: str) -> None:
    write(path, f"1 {text}")
    assert KeyRing.file(path).keys(NOW, TTL) == (base64.b64decode("+/" * 21 + "A="),)


def test_the_repr_shows_no_key(path: Path) -> None:
    write(path, line(NOW, "a"))
    ring = KeyRing.file(path)
    ring.check(NOW)
    assert repr(ring) == f"KeyRing(_path={str(path)!r})"
    with pytest.raises(TypeError, match="path must be a string or a path, got 7"):
        KeyRing.file(7)  # type: ignore[arg-type]


def asking(name: str = "desk", **settings: Any) -> Server:
    server = Server(name, **settings)

    @server.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Who are you?", Name)
        return f"hello {answer.data.name}" if isinstance(answer, Accepted) else "hello"

    return server


async def test_a_server_reads_the_file_when_it_starts(path: Path) -> None:
    server = asking(input=InputOptions(key=KeyRing.file(path)))
    with pytest.raises(ValueError, match="can't be read: No such file"):
        async with Client(server):
            raise AssertionError("it has started")
    KeyRing.add(path)
    async with hand_client(server, replies=lambda question: accept(name="Ann")) as peer:
        assert text_of(await peer.tool("greet")) == "hello Ann"


async def test_a_server_whose_stores_other_processes_share_needs_a_key_to_ask(
    path: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without one, what another process asked would be refused here."""
    KeyRing.add(path)
    stores = SqliteStores(tmp_path / "desk.db")
    for settings, works in (
        ({"stores": stores}, False),
        ({"stores": stores, "input": InputOptions(key=KeyRing.file(path))}, True),
        ({"stores": stores, "input": InputOptions(key=bytes(32))}, True),
        ({"stores": MemoryStores()}, True),
        ({}, True),
    ):
        caplog.clear()
        async with hand_client(asking(**settings), replies=lambda question: accept(name="Ann")) as peer:
            result = await peer.tool("greet")
            assert (text_of(result) == "hello Ann") is works
            assert ("give all of them the same, Server(input=InputOptions(key=…))" in caplog.text) is not works
            assert bool(result.get("isError")) is not works


async def test_a_token_from_elsewhere_is_refused_as_invalid_without_a_key(tmp_path: Path) -> None:
    """What a client sends is never this server's error."""
    async with hand_client(asking(stores=SqliteStores(tmp_path / "desk.db"))) as peer:
        error = await peer.error("tools/call", {"name": "greet", "requestState": "1.x.y"})
        assert error.code == -32602


async def test_the_supervisors_key_takes_the_place_of_none(tmp_path: Path) -> None:
    @attrs.frozen
    class Inherited:
        key: bytes

    stores = SqliteStores(tmp_path / "desk.db")
    server = asking(stores=stores)
    core_of(server).inherited = Inherited(bytes(32))
    async with hand_client(server, replies=lambda question: accept(name="Ann")) as peer:
        assert text_of(await peer.tool("greet")) == "hello Ann"
