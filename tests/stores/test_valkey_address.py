"""The URLs of engines: what they say, and that an error shows no password."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from trio_mcp.stores import ValkeyStores
from trio_mcp.stores.valkey_address import EngineAddress, is_engine

GOOD = {
    "valkey://cache": ("cache", 6379, "", False, 0, None, None),
    "redis://cache:7000/3": ("cache", 7000, "", False, 3, None, None),
    "VALKEYS://Cache.Internal/": ("cache.internal", 6379, "", True, 0, None, None),
    "rediss://ann:p%2Fw%40%23@[::1]:1/15": ("::1", 1, "", True, 15, "ann", "p/w@#"),
    "valkey://:geheim@cache": ("cache", 6379, "", False, 0, None, "geheim"),
    "unix:///run/my%20engine.sock": ("", 0, "/run/my engine.sock", False, 0, None, None),
    "valkey+unix://ann:geheim@/run/engine.sock?db=2": ("", 0, "/run/engine.sock", False, 2, "ann", "geheim"),
}


@pytest.mark.parametrize("url", GOOD)
def test_a_url_names_an_engine_and_who_connects(url: str) -> None:
    address = EngineAddress.parse(url)
    assert (*(getattr(address, name) for name in EngineAddress.__slots__[:7]),) == GOOD[url]
    assert "geheim" not in f"{address} {address!r}"
    assert EngineAddress.parse(str(address).replace(" ", "%20")).database == address.database
    assert is_engine(url)


BAD = {
    "": "the scheme of url must be one of valkey, valkeys, ",
    "desk.db": "got a text without one",
    "http://ann:geheim@cache": "got 'http'",
    "ann:geheim@cache": "got a text without one",
    "valkey://": "has no host",
    "valkey:cache": "has no host",
    "valkey://ann:geheim@": "has no host",
    "valkey://ann@cache": "has a user without a password",
    "valkey://ann:geheim@cache:port": "has a host or a port that can't be read",
    "valkey://ann:geheim@cache:65536": "has a host or a port that can't be read",
    "valkey://ann:geheim@cache:0": "has the port 0",
    "valkey://ann:geheim@[::1": "has a host or a port that can't be read",
    "valkey://ann:geheim#x@cache": "write # as %23",
    "valkey://ann:geheim/x@cache": "/ as %2F",
    "valkey://cache#x": "has a fragment",
    "valkey://ann:geheim@cache/x": "must name the database by a number from 0 to 10000",
    "valkey://ann:geheim@cache/1/2": "must name the database",
    "valkey://ann:geheim@cache/-1": "must name the database",
    "valkey://ann:geheim@cache/\N{SUPERSCRIPT TWO}": "must name the database",
    "valkey://ann:geheim@cache/99999": "must name the database",
    "valkey://ann:geheim@cache?db=1": "has a query: the number of the database follows the host",
    "valkey://ann:ge heim@cache": "has blanks",
    "valkey://ann:geheim@cache\n": "has blanks",
    "valkey://" + "x" * 2000: "more than 2000 characters",
    "unix://": "has no absolute path",
    "unix:///": "has no absolute path",
    "unix://run/engine.sock": "has a host beside a path",
    "unix:///run/engine.sock?x=1": "has a query other than db=",
    "unix:///run/engine.sock?db=x": "must name the database",
}


@pytest.mark.parametrize("url", BAD)
def test_a_bad_url_is_one_clear_error_without_the_password(url: str) -> None:
    with pytest.raises(ValueError, match=r"^(the scheme of )?url ") as caught:
        ValkeyStores(url, prefix="desk")
    assert BAD[url] in str(caught.value)
    assert "geheim" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None  # nor in what is shown above it


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"prefix": ""}, "prefix must be a non-empty string"),
        *(({"prefix": bad}, "no braces or blanks") for bad in ("a b", "a{", "}", "a\n", "a\0", "x" * 101)),
        ({"prefix": "desk", "timeout": 0}, "timeout must be more than 0 seconds"),
        ({"prefix": "desk", "max_events": 0}, "max_events must be at least 1"),
        ({"prefix": "desk", "max_age": -1}, "max_age must be more than 0 seconds"),
    ],
)
def test_a_value_that_is_not_allowed_is_refused(options: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        ValkeyStores("valkey://cache", **options)  # type: ignore[arg-type]


def test_a_path_is_no_engine() -> None:
    for place in ("desk.db", "/tmp/valkey", "valkey", "C:/desk.db", None, 3):
        assert not is_engine(place)


def test_a_missing_extra_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    client = importlib.import_module("trio_mcp.stores.valkey_client")
    client.load_glide.cache_clear()
    monkeypatch.setitem(sys.modules, "glide", None)
    try:
        with pytest.raises(ImportError, match=r"pip install 'trio-mcp\[valkey\]'"):
            ValkeyStores("valkey://cache", prefix="desk")
    finally:
        client.load_glide.cache_clear()


def test_only_these_stores_import_the_client() -> None:
    program = (
        "import sys; from trio_mcp.stores import SqliteStores, ValkeyStores; print('glide' in sys.modules);"
        "ValkeyStores('valkey://cache', prefix='desk'); print('glide' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (found.stdout.split(), found.stderr) == (["False", "True"], "")
