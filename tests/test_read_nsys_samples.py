"""Samples of Python's stack: which function they name, without paths, and what is left out."""

import html
import json
import lzma
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.model.report import Profile
from nightsight.read import read
from tests.build import build
from tests.planted.store import packed
from tests.properties import examples

Frames = Sequence[tuple[str, str, int]]

HOME = "/home/someone/secret/"
LIBRARY = "/opt/venv/lib/python3.12/site-packages/torch/nn/linear.py"
PICTURE = "nvtx  [step   ]\nmark  ..x..\ncpu   LL..LL.\ns7    ..aa..bb"
THREAD = 5 << 24 | 7


def sampled(folder: Path, *stacks: Frames | str, is_registered: bool = False, generation: str = "2025") -> Profile:
    """Write an export with these stacks, innermost first, a microsecond apart; a text stands for the whole payload."""
    path = build(PICTURE, folder / "sampled.sqlite", generation=generation)
    with closing(sqlite3.connect(path)) as export:
        strings = dict(export.execute("SELECT value, id FROM StringIds"))

        def of(text: str) -> int:
            if text not in strings:
                strings[text] = max(strings.values()) + 1
                export.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (strings[text], text))
            return int(strings[text])

        def insert(**columns: Any) -> None:
            places = ", ".join("?" * len(columns))
            names = ", ".join(columns)
            row = {"start": 0, "globalTid": THREAD, "domainId": 9} | columns
            names, places = ", ".join(row), ", ".join("?" * len(row))
            export.execute(f"INSERT INTO NVTX_EVENTS ({names}) VALUES ({places})", tuple(row.values()))

        insert(eventType=75, text="Python Periodic Sampling")
        for number, stack in enumerate(stacks):
            payload = stack if isinstance(stack, str) else stored(stack, of)
            text = {"jsonTextId": of(payload)} if is_registered else {"jsonText": payload}
            insert(eventType=34, start=1_000 * number, **text)
        export.commit()
    return read(path)


def stored(stack: Frames, of: Any) -> str:
    keys = ("Function", "File", "Line")
    frames = [
        dict(zip(keys, (of(html.escape(function)), of(html.escape(file)), line), strict=True))
        for function, file, line in stack
    ]
    return json.dumps({"Python Periodic Sampling": {"Thread state": "Running", "Frames": frames}})


def framing(frames: Any) -> str:
    return json.dumps({"Python Periodic Sampling": {"Frames": frames}})


def functions(profile: Profile) -> list[str]:
    return list(profile.table("python_samples")["function"].astype("str"))


@pytest.mark.parametrize("is_registered", [False, True])
def test_the_innermost_function_that_is_not_of_a_library(tmp_path: Path, is_registered: bool) -> None:
    load, main = ("load", f"{HOME}train.py", 12), ("<module>", f"{HOME}main.py", 90)
    in_library: Frames = [("forward", LIBRARY, 114), ("_call", "<frozen importlib._bootstrap>", 3), load, main]
    generated: Frames = [("wrapped", "<string>", 24), main]
    only_library: Frames = [("forward", LIBRARY, 114), ("run", "/usr/lib/python3.12/threading.py", 5)]
    profile = sampled(tmp_path, [load, main], in_library, generated, only_library, is_registered=is_registered)
    main_name, load_name = "<module> (main.py:90)", "load (train.py:12)"
    assert functions(profile) == [load_name, load_name, main_name, "forward (linear.py:114)"]
    table = profile.table("python_samples")
    assert table["start_ns"].tolist() == [0, 1000, 2000, 3000]
    assert set(table[["process", "thread", "pid", "tid"]].itertuples(index=False, name=None)) == {
        (5 << 24, THREAD, 5, 7)
    }
    assert profile.table("marks")["name"].tolist() == ["x"]
    assert profile.findings == ()


def test_what_nightsight_puts_into_a_program_is_not_of_the_program(tmp_path: Path) -> None:
    called = ("called", f"{HOME}nightsight/workloads/injected/naming.py", 129)
    own = ("called", f"{HOME}injected/naming.py", 129)
    load = ("load", f"{HOME}train.py", 12)
    assert functions(sampled(tmp_path, [called, load], [own, load])) == ["load (train.py:12)", "called (naming.py:129)"]


def test_a_stored_capture_has_no_folders_but_tells_which_functions_are_of_libraries(tmp_path: Path) -> None:
    load, called = ("load", f"{HOME}train.py", 12), ("called", f"{HOME}workloads/injected/naming.py", 129)
    stack: Frames = [("forward", LIBRARY, 114), ("wait", "/usr/lib/python3.12/threading.py", 5), called, load]
    profile = sampled(tmp_path, stack)
    stored_path = tmp_path / "stored.sqlite"
    stored_path.write_bytes(lzma.decompress(packed(tmp_path / "sampled.sqlite", Path(HOME))))
    assert stacks(read(stored_path)) == stacks(profile)
    assert stacks(profile) == [
        "load (train.py:12);[called (naming.py:129)];[wait (threading.py:5)];[forward (linear.py:114)]"
    ]
    assert not any(word in stored_path.read_bytes() for word in (b"/home", b"/usr", b"/opt", b"workloads"))


def test_a_private_function_of_an_unknown_file_says_less_than_its_caller(tmp_path: Path) -> None:
    start, main = ("start", "", 121), ("main", "", 7)
    # the file shows that it is the program's own
    own = ("_load", f"{HOME}train.py", 12)
    profile = sampled(tmp_path, [("_releaseLock", "", 243), ("__init__", "", 19), start, main], [own, main])
    assert functions(profile) == ["start (line 121)", "_load (train.py:12)"]


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        (("load", r"C:\Users\someone\secret\train.py", 12), "load (train.py:12)"),
        (("load", "/tmp/ipykernel_7/123.py", 1), "load (123.py:1)"),
        (("cell", "<ipython-input-3-ab>", 2), "cell (<ipython-input-3-ab>:2)"),
        (("load", "", 4), "load (line 4)"),
        (("load", "train.py", 0), "load (train.py)"),
        (("load", "", 0), "load"),
        (("/home/someone/secret", f"{HOME}a.py", 1), "<…> (a.py:1)"),
    ],
)
def test_no_path_is_read(tmp_path: Path, frame: tuple[str, str, int], shown: str) -> None:
    profile = sampled(tmp_path, [frame])
    assert functions(profile) == [shown]
    shown_texts = profile.table("python_samples")["function"].cat.categories
    assert not any("secret" in text or "someone" in text for text in shown_texts)


def stacks(profile: Profile) -> list[str]:
    return list(profile.table("python_samples")["stack"].astype("str"))


def test_a_stack_has_all_frames_the_outermost_first_and_libraries_in_brackets(tmp_path: Path) -> None:
    main, own = ("<module>", "", 9), ("collate", f"{HOME}data.py", 41)
    hidden: Frames = [("a;b\nc", f"{HOME}a;b.py", 1), ("forward", LIBRARY, 114), own, main]
    profile = sampled(tmp_path, [own, main], hidden, [own, main])
    assert stacks(profile) == [
        "<module> (line 9);collate (data.py:41)",
        "<module> (line 9);collate (data.py:41);[forward (linear.py:114)];a,b c (a,b.py:1)",
        "<module> (line 9);collate (data.py:41)",
    ]
    assert len(profile.table("python_samples")["stack"].cat.categories) == 2


def test_of_a_deep_stack_the_innermost_frames_are_read(tmp_path: Path) -> None:
    deep = [("forward", LIBRARY, number + 1) for number in range(255)]
    main, start = ("main", "main.py", 1), ("start", "start.py", 2)
    profile = sampled(tmp_path, [*deep, main], [*deep, main, start])
    assert functions(profile) == ["main (main.py:1)"] * 2
    whole, cut = stacks(profile)
    assert whole.startswith("main (main.py:1);[forward (linear.py:255)];")
    assert cut == f"…;{whole}"


LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
PAYLOAD = st.recursive(
    LEAF,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["Python Periodic Sampling", "Frames", "Function", "File", "Line"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@examples(30)
@given(st.lists(PAYLOAD.map(json.dumps) | PAYLOAD.map(framing) | st.text(), min_size=1, max_size=20))
def test_any_payload_is_read(payloads: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        profile = sampled(Path(folder), *(payload.replace("\0", "") for payload in payloads), [("load", "a.py", 1)])
    assert functions(profile)[-1] == "load (a.py:1)"
    assert all("\n" not in text for text in stacks(profile))


DAMAGED = (
    "",
    "{",
    "[]",
    "12",
    '{"Python Periodic Sampling": {"Frames": []}}',
    '{"Python Periodic Sampling": {"Frames": [{"Function": "one", "File": [1], "Line": -3}]}}',
    '{"Python Periodic Sampling": {"Frames": [{"Function": 1e300}]}}',
    '{"Python Periodic Sampling": {"Frames": "text"}}',
    '{"Python Periodic Sampling": {"Frames": [1, [], "text", {"Line": 1}]}}',
    '{"Python Periodic Sampling": {"Frames": ' + "[" * 900 + "]" * 900 + "}}",
    '{"Python Periodic Sampling": "text"}',
)


@pytest.mark.parametrize("damaged", DAMAGED)
def test_stacks_that_are_damaged_are_left_out_and_counted_if_they_are_many(tmp_path: Path, damaged: str) -> None:
    profile = sampled(tmp_path, damaged, [("load", "train.py", 12)])
    assert functions(profile) == ["load (train.py:12)"]
    (finding,) = profile.findings
    assert (finding.rule, finding.title) == ("damaged_events", "1 of 2 samples of Python's stack were left out")


def test_a_stack_without_names_is_left_out(tmp_path: Path) -> None:
    frame = '{"Python Periodic Sampling": {"Frames": [{"Function": 987654, "File": 987655, "Line": 3}]}}'
    profile = sampled(tmp_path, frame, [("load", "train.py", 12)])
    assert [finding.rule for finding in profile.findings] == ["damaged_names"]
    assert functions(profile)[1] == "load (train.py:12)"


@pytest.mark.parametrize("stacks", [("",), DAMAGED])
def test_an_export_without_stacks_has_no_samples_and_says_how_to_get_them(
    tmp_path: Path, stacks: tuple[str, ...]
) -> None:
    profile = sampled(tmp_path, *stacks)
    assert "python_samples" not in profile.tables
    assert "--python-sampling=true" in profile.missing["python_samples"]
    assert "--include-json=true" in profile.missing["python_samples"]
    assert profile.table("marks")["name"].tolist() == ["x"]


def test_an_export_without_samples_says_how_to_get_them(tmp_path: Path) -> None:
    profile = read(build(PICTURE, tmp_path / "x.sqlite", generation="2021"))
    assert "--python-sampling=true" in profile.missing["python_samples"]
