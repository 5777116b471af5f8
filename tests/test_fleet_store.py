"""Where summaries are kept: whole or not at all, and never those of another version."""

from pathlib import Path
from typing import Any

import fsspec
import pandas as pd
import pytest

from nightsight.errors import CaptureError
from nightsight.fleet import Store, pack, store
from nightsight.model.fleet import FILES, TABLES, conform
from tests.fleets import summary


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()
        return "memory://fleet/kept"
    return str(tmp_path / "kept")


def noted(*rows: tuple[str, str, str, int | None, str]) -> pd.DataFrame:
    return conform(pd.DataFrame(rows, columns=[column.name for column in FILES]), FILES)


def test_what_was_kept_is_read_and_nothing_else(place: str) -> None:
    assert Store(place).read(["a"]) == {}
    kept = summary("a", causes={"wait": 5.0}, kernels={"gemm": (3, 90)})
    Store(place).write("a", pack(kept))
    read = Store(place).read(["a", "b", "a"])
    assert list(read) == ["a"]
    for name in TABLES:
        pd.testing.assert_frame_equal(read["a"][name], kept[name])


@pytest.mark.parametrize("damage", ["missing", "half", "empty", "text", "other columns"])
def test_a_summary_that_is_half_written_or_damaged_is_not_there(damage: str, tmp_path: Path) -> None:
    Store(str(tmp_path)).write("a", pack(summary("a", kernels={"gemm": (3, 90)})))
    path = tmp_path / "kernels" / "a.parquet"
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "other columns":
        path.write_bytes((tmp_path / "causes" / "a.parquet").read_bytes())
    else:
        path.write_bytes({"half": content[: len(content) // 2], "empty": b"", "text": b"hello"}[damage])
    assert Store(str(tmp_path)).read(["a"]) == {}


def test_a_summary_of_another_version_is_not_there(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(store, "SUMMARY", "nightsight 0.0.1, summary 1")
        Store(place).write("a", pack(summary("a")))
        Store(place).write_files(noted(("p", "s", "a.sqlite", 1, "a")))
    assert Store(place).read(["a"]) == {}
    assert len(Store(place).files()) == 0
    Store(place).write("a", pack(summary("a")))
    assert list(Store(place).read(["a"])) == ["a"]


def test_files_are_noted_by_place_and_others_stay(place: str) -> None:
    Store(place).write_files(noted(("p", "s", "a.sqlite", 1, "a"), ("q", "s", "b.sqlite", 2, "b")))
    Store(place).write_files(noted(("p", "t", "a.sqlite", 3, "c")))
    files = Store(place).files()
    assert files[["place", "stamp", "capture"]].to_numpy().tolist() == [["p", "t", "c"], ["q", "s", "b"]]


def test_a_size_may_be_unknown(place: str) -> None:
    Store(place).write_files(noted(("p", "", "a.sqlite", None, "a"), ("q", "s", "b.sqlite", 10**15, "b")))
    sizes = Store(place).files()["bytes"]
    assert (sizes.isna().tolist(), sizes[1]) == ([True, False], 10**15)


def test_nothing_is_left_aside(tmp_path: Path) -> None:
    Store(str(tmp_path)).write("a", pack(summary("a")))
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["a.parquet"] * len(TABLES)


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CaptureError, match=r"the summaries in .*file cannot be written: Not a directory"):
        Store(str(tmp_path / "file")).write("a", pack(summary("a")))
    with pytest.raises(CaptureError, match=r"the summaries in nowhere://x: cannot be opened: Protocol not known"):
        Store("nowhere://x")

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("403 Forbidden")

    monkeypatch.setattr(fsspec.get_filesystem_class("memory"), "cat", refused)
    with pytest.raises(CaptureError, match=r"the summaries in memory://x cannot be read: 403 Forbidden"):
        Store("memory://x").read(["a"])
