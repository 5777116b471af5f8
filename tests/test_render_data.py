import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from nightsight.model.report import Report
from nightsight.render import FORMATS, Source
from tests.recorded import Recorded
from tests.reports import HOSTILE, kernel_table, result, small_report

ROOT = Path(__file__).parent.parent
AVAILABLE = {"gpu_time", "cuda_gpu_kern_sum", "launch_overhead", "diagnostics"}


PRINT_ALL = """
import sys
from nightsight.model.report import Report
from nightsight.render import FORMATS, Source
from tests.reports import hostile_report, small_report
from tests.timeline import draw

events = draw("nvtx  [load      ]\\ncpu   L........L..\\ns7    .a.........b")
bare = small_report(results=(), findings=(), benchmark=None)
for report in (Report.from_json(sys.stdin.read()), small_report(), hostile_report(), bare):
    for name, form in FORMATS.items():
        for file, content in form.render(Source(report, events)).items():
            sys.stdout.buffer.write(f"{name} {file} {len(content)}\\n".encode() + content)
"""


@pytest.mark.nightly
def test_every_format_of_every_report_is_the_same_bytes_in_every_process(recorded: Recorded) -> None:
    report = recorded.report("train").to_json().encode()
    written = [rendered(report, seed=seed) for seed in ("1", "2")]
    assert written[0] == written[1]
    assert all(f"{name} ".encode() in written[0] for name in FORMATS)


def rendered(report: bytes, *, seed: str) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    command = [sys.executable, "-c", PRINT_ALL]
    return subprocess.run(command, input=report, env=environment, cwd=ROOT, check=True, capture_output=True).stdout


@pytest.mark.parametrize("name", ["html", "json", "markdown"])
def test_single_file_formats_have_one_unnamed_file(name: str) -> None:
    assert list(FORMATS[name].render(Source(small_report()))) == [""]


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_table_formats_have_one_file_per_available_result(name: str) -> None:
    suffix = FORMATS[name].suffix
    assert suffix == f".{name}"
    assert set(FORMATS[name].render(Source(small_report()))) == {f"{table}{suffix}" for table in AVAILABLE}


def test_json_reads_back() -> None:
    report = small_report()
    written = FORMATS["json"].render(Source(report))[""]
    assert Report.from_json(written.decode()).to_json() == report.to_json()


def test_csv_has_names_as_they_are_even_if_a_spreadsheet_takes_them_for_formulas() -> None:
    names = ["@SUM(1+1)", '=HYPERLINK("http://x","y")', "-1+1", "\t=1"]
    report = small_report(results=(result("nvtx_sum", pd.DataFrame({"name": names})),))
    text = FORMATS["csv"].render(Source(report))["nvtx_sum.csv"].decode()
    assert [row["name"] for row in csv.DictReader(io.StringIO(text))] == names


def test_csv_has_raw_values_under_column_names() -> None:
    lines = FORMATS["csv"].render(Source(small_report()))["cuda_gpu_kern_sum.csv"].decode().splitlines()
    assert lines[0] == "time_pct,total_ns,instances,stddev_ns,name"
    assert lines[2] == '33.333333333333336,1000000,10,,"add(int, float *, float *)"'


def test_parquet_keeps_types_and_missing_values() -> None:
    written = FORMATS["parquet"].render(Source(small_report()))["cuda_gpu_kern_sum.parquet"]
    frame = pq.read_table(io.BytesIO(written)).to_pandas()
    assert frame["total_ns"].dtype == "int64"
    assert frame["stddev_ns"].isna().all()
    assert list(frame["name"]) == list(kernel_table()["name"])


def test_categories_and_read_back_text_give_the_same_parquet() -> None:
    table = kernel_table()
    kinds = [table, table.astype({"name": "category"}), table.astype({"name": object})]
    files = {
        FORMATS["parquet"].render(Source(small_report(results=(result("k", kind),))))["k.parquet"] for kind in kinds
    }
    assert len(files) == 1


def test_half_a_surrogate_pair_is_written_as_its_escape() -> None:
    written = FORMATS["json"].render(Source(small_report(title="\ud800")))[""]
    assert json.loads(written.decode())["title"] == "\ud800"


def test_a_file_name_cannot_lead_out_of_its_folder() -> None:
    report = small_report(results=(result("../../etc/x", kernel_table(HOSTILE[:1])),))
    assert list(FORMATS["csv"].render(Source(report))) == ["______etc_x.csv"]
