"""A directory served as resources: nothing outside it can be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.harness import both_eras, client_of
from tests.server.test_resources import read, refused, serving
from trio_mcp.server.features.resources import ResourceNotFound, safe_join


def test_safe_join_stays_in_the_directory(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (tmp_path / "secret").write_text("x")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "file").write_text("x")
    assert safe_join(root, "in/a.txt") == (root / "in/a.txt").resolve()
    assert safe_join(str(root), "in/../b") == (root / "b").resolve()
    for path in (
        "../secret",
        "in/../../secret",
        "/etc/passwd",
        str(root / "in"),
        "link",
        "a\0b",
        "..",
        "x" * 5000,
        "file/x",
    ):
        with pytest.raises(ResourceNotFound):
            safe_join(root, path)


@given(st.text("./a\\\0~é", max_size=12))
def test_safe_join_never_leaves_whatever_the_path(path: str) -> None:
    root = Path("/nowhere/at/all")
    try:
        joined = safe_join(root, path)
    except ResourceNotFound:
        return
    assert joined.is_relative_to(root)
    assert ".." not in joined.parts


@both_eras
async def test_a_directory_is_served_and_nothing_beside_it(revision: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "root/a b").mkdir(parents=True)
    (tmp_path / "root/a b/c.txt").write_text("contents")

    def file(path: str) -> str:
        found = safe_join(tmp_path / "root", path)
        if not found.is_file():
            raise ResourceNotFound
        return found.read_text()

    async with client_of(serving("files://{+path}", file), revision) as client:
        assert (await read(client, "files://a%20b/c.txt"))[0]["text"] == "contents"
        for path in (
            "../secret",
            "%2E%2E/secret",
            "..%2Fsecret",
            "a%20b",
            "none",
            "/etc/passwd",
            "%2Fetc%2Fpasswd",
            "%00",
        ):
            assert (await refused(client, f"files://{path}")).message == "Resource not found"
