"""The reader of ncu's CSV pages: equal to the report they were printed from, in all shapes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nightsight.errors import CaptureError
from nightsight.events.kernel_names import normalized, unqualified
from nightsight.model.report import Profile
from nightsight.read import read, recognize
from nightsight.tables import TABLES
from tests import ncu
from tests.recorded import Recorded

RULE = ["k", "OPT", 'Use "fewer" registers, see /home/me/k.cu', "local", "12.5"]


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Profile]:
    """Write a text as a file and read it."""

    def read_text(text: str) -> Profile:
        path = tmp_path / "some.csv"
        path.write_text(text, encoding="utf-8", newline="")
        return read(path)

    return read_text


def metrics_of(profile: Profile) -> pd.DataFrame:
    """Return metrics as (launch, metric) -> value, unit, text, without instances: no CSV has these."""
    frame = ncu.comparable(profile.table("kernel_metrics"))
    return frame[frame["instance"] == ""].set_index(["launch", "metric"])[["value", "unit", "text"]]


def rules_of(profile: Profile) -> pd.DataFrame:
    columns = ["launch", "section", "rule", "kind", "message", "speedup_kind", "speedup_pct"]
    return ncu.comparable(profile.table("kernel_rules"))[columns].sort_values(columns, ignore_index=True)


# -- the same model as from the report --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "report"),
    [
        ("measure.raw.csv", "measure.ncu-rep"),
        ("measure.base.csv", "measure.ncu-rep"),
        ("measure.raw_norename.csv", "measure.ncu-rep"),
        ("lines.raw.csv", "lines.ncu-rep"),
        ("graph.base.csv", "graph.ncu-rep"),
        ("range.base.csv", "range.ncu-rep"),
    ],
)
def test_a_raw_page_holds_the_metrics_of_its_report(page: str, report: str, recorded: Recorded) -> None:
    ours, truth = metrics_of(recorded.profile(page)), metrics_of(recorded.profile(report))
    assert ours.index.sort_values().equals(truth.index.sort_values())
    both = truth.join(ours.add_suffix("_csv"))
    assert both["text"].equals(both["text_csv"])
    # this release printed no unit for one metric, to which newer libraries give one
    printed = both[both["unit_csv"] != ""]
    assert printed["unit"].equals(printed["unit_csv"])
    assert set(both.index.get_level_values("metric")[both["unit"] != both["unit_csv"]]) <= {"idc__requests.sum"}
    # two decimals, or six of a value whose unit suits that of another launch
    np.testing.assert_allclose(both["value_csv"], both["value"], rtol=5e-5, atol=0.0051)


@pytest.mark.parametrize(
    "page",
    [
        *("measure.raw.csv", "measure.details_plain.csv", "lines.raw.csv", "lines.details.csv"),
        *("graph.base.csv", "range.base.csv"),
    ],
)
def test_launches_are_those_of_the_report(page: str, recorded: Recorded) -> None:
    ours = ncu.comparable(recorded.profile(page).table("profiled_launches"))
    truth = ncu.comparable(recorded.profile(page.partition(".")[0] + ".ncu-rep").table("profiled_launches"))
    assert ours.drop(columns=["name", "mangled_name"]).equals(truth.drop(columns=["name", "mangled_name"]))
    assert ours["name"].map(unqualified).equals(truth["name"].map(unqualified))


def test_names_printed_in_full_are_those_of_the_report(recorded: Recorded) -> None:
    ours, truth = (
        recorded.profile(f"measure.{kind}").table("profiled_launches") for kind in ("raw_norename.csv", "ncu-rep")
    )
    assert list(ours["name"].astype(str).map(normalized)) == list(truth["name"].astype(str).map(normalized))


@pytest.mark.parametrize(
    ("page", "report"),
    [
        ("measure.details.csv", "measure.ncu-rep"),
        ("measure.details_plain.csv", "measure.ncu-rep"),
        ("measure.details_name.csv", "measure.ncu-rep"),
        ("lines.details.csv", "lines.ncu-rep"),
    ],
)
def test_a_details_page_holds_the_rules_of_its_report(page: str, report: str, recorded: Recorded) -> None:
    ours, truth = rules_of(recorded.profile(page)), rules_of(recorded.profile(report))
    assert ours.drop(columns="speedup_pct").equals(truth.drop(columns="speedup_pct"))
    np.testing.assert_allclose(ours["speedup_pct"], truth["speedup_pct"], rtol=1e-3)


@pytest.mark.parametrize("page", ["measure.details_plain.csv", "measure.details_name.csv", "lines.details.csv"])
def test_labels_become_the_names_of_their_metrics(page: str, recorded: Recorded) -> None:
    ours, truth = metrics_of(recorded.profile(page)), metrics_of(recorded.profile(page.partition(".")[0] + ".ncu-rep"))
    assert len(ours) == 86 * len(recorded.profile(page).table("profiled_launches"))
    both = ours.join(truth.add_suffix("_rep"), how="left", validate="one_to_one")
    assert both["text"].equals(both["text_rep"])
    np.testing.assert_allclose(both["value"], both["value_rep"], rtol=0.01, atol=0.0051)


def test_labels_that_collide_are_two_metrics(recorded: Recorded) -> None:
    metrics = metrics_of(recorded.profile("measure.details_plain.csv"))
    share, rate = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "dram__bytes.sum.per_second"
    assert metrics.loc[[(0, share)]].to_numpy().tolist() == [[78.09, "%", ""]]
    assert metrics.loc[[(0, rate)]].to_numpy().tolist() == [[3.76e12, "byte/s", ""]]


def test_unknown_labels_keep_their_section_and_all_their_values(recorded: Recorded) -> None:
    metrics = metrics_of(recorded.profile("measure.details.csv"))
    first = "GPU Speed Of Light Throughput: Compute Throughput Breakdown: SM: Pipe Tma Cycles Active"
    assert metrics.loc[(0, first), "unit"] == "%"
    tensor = [name for launch, name in metrics.index if "Op:hgmma Src:fp16 Sparsity:on" in name and launch == 2]
    assert any(name.endswith(" #2") for name in tensor)


def test_tables_have_the_canonical_columns_and_types(recorded: Recorded) -> None:
    for name in ("measure.raw.csv", "measure.details.csv"):
        profile = recorded.profile(name)
        for table, frame in profile.tables.items():
            assert dict(frame.dtypes.astype(str)) == dict(TABLES[table])
        assert set(profile.missing) == TABLES.keys() - profile.tables.keys()
    assert "raw page" in recorded.profile("measure.raw.csv").missing["kernel_rules"]
    assert recorded.profile("measure.raw.csv").environment.gpu == "NVIDIA H200"
    assert "devices" in recorded.profile("measure.details.csv").missing


@pytest.mark.parametrize("name", ["stream.raw.csv", "stream.details.csv"])
def test_what_ncu_and_the_program_wrote_around_the_table(name: str, recorded: Recorded) -> None:
    profile = recorded.profile(name)
    assert list(profile.table("profiled_launches")["pid"].value_counts()) == [4, 4]
    texts = profile.table("diagnostics")["text"].astype(str)
    assert texts.str.startswith("Note: Running with unmodified GPU clocks").all()
    frames = "".join(ncu.comparable(frame).to_csv() for frame in profile.tables.values())
    assert "/home" not in frames
    assert "127.0.0.1" not in frames


# -- shapes that were not recorded ------------------------------------------------------------------------------------


def test_ids_restart_in_each_process_and_devices_are_kept(written: Callable[..., Profile]) -> None:
    metrics = {"device__attribute_display_name": ("", "NVIDIA T4"), "gpu__time_duration.sum": ("usecond", "2.5")}
    launches = [ncu.identity(0), ncu.identity(1, device=1), ncu.identity(0, pid=9)]
    profile = written(ncu.raw_page(metrics, launches))
    table = profile.table("profiled_launches")
    assert list(zip(table["launch"], table["pid"], table["device"], strict=True)) == [(0, 7, 0), (1, 7, 1), (2, 9, 0)]
    assert profile.environment.gpu == "2 × NVIDIA T4"
    times = metrics_of(profile).xs("gpu__time_duration.sum", level="metric")
    assert list(times["value"]) == [2500.0] * 3
    assert list(table.loc[0, ["grid_x", "grid_y", "grid_z", "block_x"]]) == [8, 2, 1, 64]


def test_a_header_without_shape_and_device(written: Callable[..., Profile]) -> None:
    header = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "x__y.sum")
    profile = written(ncu.page(header, [[""] * 7 + ["inst"], ["0", "7", "p", "h", "void n::k<4>(T1)", "1", "7", "3"]]))
    launch = profile.table("profiled_launches").iloc[0]
    assert (launch["grid_x"], launch["device"], launch["compute_capability"]) == (0, 0, "")
    assert (launch["name"], launch["short_name"]) == ("void n::k<4>(T1)", "k")
    assert metrics_of(profile).to_numpy().tolist() == [[3.0, "inst", ""]]


def test_older_details_pages_lack_the_speedups(written: Callable[..., Profile]) -> None:
    header = (*ncu.DETAILS, *("Rule Name", "Rule Type", "Rule Description"))
    row = [*ncu.identity(), "SpeedOfLight", "", "", "", "SOL", "WRN", 'no, "not" so\nfast']
    rules = written(ncu.page(header, [row])).table("kernel_rules")
    assert (rules.loc[0, "kind"], rules.loc[0, "message"]) == ("warning", 'no, "not" so\nfast')
    assert rules["speedup_pct"].isna().all()


def test_columns_are_found_by_name(written: Callable[..., Profile]) -> None:
    header = ["ID", "Process ID", *reversed([*ncu.DETAILS[2:], *ncu.RULES, "Shiny New Column"])]
    cells = dict(zip(ncu.DETAILS, [*ncu.identity(), "Occupancy", "Achieved Occupancy", "%", "50"], strict=True))
    profile = written(ncu.page(header, [[cells.get(name, "") for name in header]]))
    assert metrics_of(profile).loc[(0, "sm__warps_active.avg.pct_of_peak_sustained_active"), "value"] == 50


def test_rows_of_metrics_and_rules_have_other_widths(written: Callable[..., Profile]) -> None:
    text = ncu.page((*ncu.DETAILS, *ncu.RULES), [[*ncu.identity(), "SpeedOfLight", "", "", "", *RULE]])
    metric = ncu.page([*ncu.identity(), "Some Section", "Some Metric", "Mbyte", "2"], [])
    profile = written(text + metric.replace('"2"\n', '"2",\n') + metric.replace("Some Metric", "Other"))
    names = ["Some Section: Some Metric", "Some Section: Other"]
    assert [name for _, name in metrics_of(profile).index] == names
    assert metrics_of(profile)["value"].tolist() == [2e6, 2e6]
    rule = profile.table("kernel_rules").iloc[0]
    assert rule["message"] == 'Use "fewer" registers, see k.cu'
    assert rule["speedup_pct"] == 12.5


def test_raw_and_details_pages_in_one_file_are_one_model(written: Callable[..., Profile]) -> None:
    raw = ncu.raw_page({"gpu__time_duration.sum": ("ns", "64576")})
    row = [*ncu.identity(), "GPU Speed Of Light Throughput", "Duration", "us", "64.58"]
    profile = written(raw + ncu.page(ncu.DETAILS, [row]))
    assert metrics_of(profile)["value"].tolist() == [64576.0]
    assert len(profile.table("profiled_launches")) == 1
    assert profile.table("kernel_rules").empty


@pytest.mark.parametrize(
    ("ranges", "path"),
    [
        (
            '7  "<default domain>:a:none:none:RGB:0xff:REGISTERED:a"  "nccl:b c:none:none:none:none:ASCII:b c" ',
            "a / nccl:b c",
        ),
        ('7  "<default domain>:torch::f (x):none:none:none:none:ASCII:torch::f (x)" ', "torch::f (x)"),
        ('7  "<default domain>:a:none:none" ', "a"),
        ("", ""),
    ],
)
def test_ranges_around_a_launch(ranges: str, path: str, written: Callable[..., Profile]) -> None:
    column = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
    header = (*ncu.IDENTITY[:4], column, *ncu.IDENTITY[4:], "x__y.sum")
    launch = [*ncu.identity()[:4], ranges, *ncu.identity()[4:]]
    table = written(ncu.page(header, [[""] * 13, [*launch, "1"]])).table("profiled_launches")
    assert list(table["range_path"]) == [path]


@pytest.mark.parametrize("words", ["loss: 0.3", "loss,", 'said "hi"', '"1","2","3","4","5","6","7",'])
def test_a_row_behind_words_without_a_line_end_is_kept(words: str, written: Callable[..., Profile]) -> None:
    page = ncu.raw_page({"x__y.sum": ("", "1")}, [ncu.identity(0), ncu.identity(1)])
    text = page.replace('\n"1",', f'\n{words}"1",').replace('"ID"', f'{words}"ID"')
    try:
        assert len(written(text).table("profiled_launches")) == 2
    except CaptureError:
        # what looks like a row that was cut off is never passed over
        assert words.startswith('"1"')


def test_a_page_of_source_behind_the_table_is_passed_over(written: Callable[..., Profile]) -> None:
    page = ncu.raw_page({"x__y.sum": ("", "1")})
    source = '"Kernel Name","k",\n"1","0x7f","LDG.E R2","5","6","7","8","9","Global","Load","32","0","0","0"\n'
    assert len(written(page + source).table("profiled_launches")) == 1


def test_a_metric_that_is_there_twice_is_read_once(written: Callable[..., Profile]) -> None:
    header, row = (*ncu.IDENTITY, "x__y.sum", "x__y.sum"), [*ncu.identity(), "1", "1"]
    profile = written(ncu.page(header, [[""] * len(ncu.IDENTITY) + ["inst", "inst"], row]))
    assert metrics_of(profile).to_numpy().tolist() == [[1.0, "inst", ""]]


def test_a_file_that_begins_like_json_is_recognized(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text("[INFO] start\n" + ncu.raw_page({"x__y.sum": ("", "1")}))
    assert recognize(path) == "ncu-csv"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_page_that_powershell_wrote_is_read(tmp_path: Path, encoding: str, recorded: Recorded) -> None:
    name = "lines.raw.csv"
    text = ncu.content(name).decode()
    path = tmp_path / name
    mark = "" if encoding == "utf-16" else "\ufeff"
    path.write_bytes((mark + text.replace("\n", "\r\n")).encode(encoding))
    assert recognize(path) == "ncu-csv"
    pd.testing.assert_frame_equal(metrics_of(read(path)), metrics_of(recorded.profile(name)))
