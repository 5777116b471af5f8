"""The queries of docs/fleet.md give what the page says."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from nightsight.fleet import Store, pack
from nightsight.model.fleet import FILES, conform
from tests.fleets import STEP, made_fleet, summary

QUERIES = re.findall(
    r"```sql\n(.*?)```", (Path(__file__).parents[1] / "docs" / "fleet.md").read_text(encoding="utf-8"), re.DOTALL
)
ASK = """
import json, sys, duckdb
print(json.dumps([duckdb.sql(query).fetchall() for query in sys.argv[1:]]))
"""


@pytest.mark.skipif(find_spec("duckdb") is None, reason="needs duckdb")
def test_the_documented_queries_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fleet = {
        "a": summary("a", causes={"wait": 10.0, "fusion": 5.0}, kernels={"gemm": (10, 1000)}),
        "b": summary("b", gpus=3, causes={"wait": 30.0}, kernels={"gemm": (10, 3000)}, driver="590.1"),
        "c": summary("c", step_ns=2 * STEP, split={"compute": 1.0}),
    }
    store = Store("fleet.summaries")
    for name, each in fleet.items():
        store.write(name, pack(each))
    rows = [(f"place {name}", "", f"{name}.sqlite", 1, name) for name in fleet]
    store.write_files(conform(pd.DataFrame(rows, columns=[column.name for column in FILES]), FILES))
    # in a process of its own: it lists what it leaks when it ends
    asked = subprocess.run([sys.executable, "-c", ASK, *QUERIES], capture_output=True, text=True, check=True)
    causes, kernels, steps = json.loads(asked.stdout)
    expected = made_fleet(list(fleet.values())).causes
    assert [row[:2] for row in causes] == expected[["rule", "captures"]].to_numpy().tolist()
    assert [row[2] for row in causes] == pytest.approx(expected["share_pct"].tolist())
    assert [row[:3] for row in kernels] == [["gemm", "590.1", 300.0], ["gemm", "580.95", 100.0]]
    assert steps == [
        ["a.sqlite", STEP, STEP / 4],
        ["b.sqlite", STEP, STEP / 4],
        ["c.sqlite", 2 * STEP, None],
    ]
