"""What a pattern names, here and elsewhere; what users see of a place; and a file from elsewhere on this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from nightsight.errors import CaptureError
from nightsight.fleet import find_files, local_copy
from nightsight.fleet.places import shown


def written(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def names(*patterns: object) -> list[str]:
    return [file.name for file in find_files([str(pattern) for pattern in patterns]).files]


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()


def test_a_pattern_names_files_below_the_folder_they_share(tmp_path: Path) -> None:
    written(tmp_path, "nights/20/a.sqlite", "nights/21/a.sqlite", "nights/21/deep/b.sqlite", "other/c.sqlite")
    assert names(tmp_path / "nights/**/*.sqlite") == ["20/a.sqlite", "21/a.sqlite", "21/deep/b.sqlite"]
    assert names(tmp_path / "nights/*/*.sqlite") == ["20/a.sqlite", "21/a.sqlite"]
    assert names(tmp_path / "nights/20/a.sqlite", tmp_path / "other/c.sqlite") == [
        "nights/20/a.sqlite",
        "other/c.sqlite",
    ]
    assert names(tmp_path / "other/c.sqlite") == ["c.sqlite"]
    # each once
    assert names(tmp_path / "other/c.sqlite", tmp_path / "*/c.sqlite") == ["c.sqlite"]


def test_a_name_has_no_host_that_torch_puts_into_it(tmp_path: Path) -> None:
    handled = "alices-box_7053.1795615349382737875.pt.trace.json"
    root = written(tmp_path, f"a/{handled}", "b/rank_1.1795615349382737875.pt.trace.json")
    assert names(root) == [
        "a/trace_7053.1795615349382737875.pt.trace.json",
        "b/rank_1.1795615349382737875.pt.trace.json",
    ]


def test_a_name_with_signs_of_patterns_is_a_file_if_there_is_one(tmp_path: Path) -> None:
    written(tmp_path, "a[1].sqlite", "a1.sqlite")
    assert names(tmp_path / "a[1].sqlite") == ["a[1].sqlite"]
    assert names(tmp_path / "a[12].sqlite") == ["a1.sqlite"]


def test_a_folder_holds_captures_and_of_runs_their_reports(tmp_path: Path) -> None:
    run = "mlp/20261120-111931"
    written(tmp_path, f"{run}/report.json", f"{run}/report.html", f"{run}/run.json", f"{run}/capture/mlp.sqlite")
    written(tmp_path, "loose/x.sqlite", "loose/trace.json.gz", "loose/notes.txt", "loose/other.json")
    (tmp_path / "mlp" / "latest").symlink_to("20261120-111931")
    assert names(tmp_path) == ["loose/trace.json.gz", "loose/x.sqlite", run]
    # a run as a shell names it
    assert names(tmp_path / run) == ["20261120-111931"]
    assert names(tmp_path / "mlp/*") == ["20261120-111931"]


def test_an_export_counts_and_not_what_it_was_made_of(tmp_path: Path) -> None:
    written(tmp_path, "a.nsys-rep", "a.sqlite", "b.nsys-rep", "page.html")
    listing = find_files([str(tmp_path / "*")])
    assert [file.name for file in listing.files] == ["a.sqlite", "b.nsys-rep"]
    assert listing.notes == (
        "1 .nsys-rep file skipped: the export is there too",
        "1 file skipped: not from a profiler",
    )


def test_what_cannot_be_listed_is_a_line_each(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, "a.sqlite")

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError("403 Forbidden: memory://secret.key@b/*.sqlite")

    monkeypatch.setattr(type(memory), "glob", refused)
    asked = (
        tmp_path / "*.sqlite",
        "memory://secret.key@b/*.sqlite",
        tmp_path / "none.sqlite",
        tmp_path / "*.x",
        "s5://b",
    )
    listing = find_files([str(pattern) for pattern in asked])
    assert [file.name for file in listing.files] == ["a.sqlite"]
    assert [(each.name, each.reason) for each in listing.failures] == [
        ("memory://b/*.sqlite", "cannot be read: 403 Forbidden: memory://b/*.sqlite"),
        (str(tmp_path / "none.sqlite"), "there is no such file"),
        (str(tmp_path / "*.x"), "nothing matches"),
        ("s5://b", "cannot be opened: Protocol not known: s5"),
    ]


def test_a_broken_link_is_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "gone.sqlite").symlink_to(tmp_path / "nowhere")
    written(tmp_path, "a.sqlite")
    listing = find_files([str(tmp_path / "*.sqlite")])
    assert [file.name for file in listing.files] == ["a.sqlite", "nowhere"]
    with pytest.raises(CaptureError, match="cannot be read: No such file"), local_copy(listing.files[1]):
        pass


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://ann:pw@host/x.sqlite?X-Amz-Signature=1#y", "https://host/x.sqlite"),
        ("s3://key:secret@bucket/a?b*.sqlite", "s3://bucket/a?b*.sqlite"),
        ("/tmp/a@b/c.sqlite", "/tmp/a@b/c.sqlite"),
    ],
)
def test_an_address_is_shown_without_what_could_be_secret(url: str, expected: str) -> None:
    assert shown(url) == expected


def test_a_file_elsewhere_is_at_hand_with_what_lies_beside_it(memory: Any) -> None:
    memory.pipe({"/b/run/report.json": b"{}", "/b/run/run.json": b"1", "/b/run/report.unprofiled.json": b"2"})
    memory.pipe("/b/x.sqlite", b"x" * 3_000_000)
    run, capture = find_files(["memory://b"]).files
    assert (run.name, capture.name) == ("run", "x.sqlite")
    with local_copy(run) as (path, first):
        assert sorted(each.name for each in path.parent.iterdir()) == [
            "report.json",
            "report.unprofiled.json",
            "run.json",
        ]
    assert not path.exists()
    memory.pipe("/b/run/run.json", b"3")
    with local_copy(run) as (_, second):
        assert first != second
    with local_copy(capture) as (path, content):
        assert path.read_bytes() == b"x" * 3_000_000
    memory.rm("/b/x.sqlite")
    with pytest.raises(CaptureError, match="cannot be read"), local_copy(capture):
        pass
    assert content


def test_the_same_content_is_the_same_wherever_it_is(tmp_path: Path, memory: Any) -> None:
    written(tmp_path, "a/x.sqlite")
    memory.pipe("/b/y.sqlite", b"a/x.sqlite")
    digests = []
    for file in find_files([str(tmp_path), "memory://b"]).files:
        with local_copy(file) as (_, content):
            digests.append(content)
    assert len(set(digests)) == 1


def test_a_stamp_changes_with_the_file(tmp_path: Path, memory: Any) -> None:
    written(tmp_path, "x.sqlite")
    memory.pipe("/b/x.sqlite", b"1")
    before = find_files([str(tmp_path), "memory://b"]).files
    (tmp_path / "x.sqlite").write_text("longer")
    memory.pipe("/b/x.sqlite", b"2")
    after = find_files([str(tmp_path), "memory://b"]).files
    assert [file.place for file in before] == [file.place for file in after]
    assert all(old.stamp and old.stamp != new.stamp for old, new in zip(before, after, strict=True))
