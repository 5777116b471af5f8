"""Names of every kind in damaged exports: bytes that are no text, a great many, and none."""

import pytest

from nightsight.read import read
from nightsight.stats import stats_table
from tests.damage import Damage, everything
from tests.reports import analyzed

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
LAST = 2**63 - 1
FIRST_MARK = "rowid = (SELECT MIN(rowid) FROM NVTX_EVENTS WHERE eventType = 34)"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"a\x00b", "a\x00b"),
        ("\u202egnp.exe".encode(), "\u202egnp.exe"),
        (b"k\xff\xfe", "k\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"n" * 4096, "n" * 4096),
        (b"", ""),
        (b"<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
    ids=["NUL", "right-to-left", "no UTF-8", "surrogate", "4 kB", "empty", "markup"],
)
def test_any_name_survives_in_every_table(damage: Damage, written: bytes, shown: str) -> None:
    registered = "UPDATE StringIds SET value = CAST(? AS TEXT)"
    inline = "UPDATE NVTX_EVENTS SET text = CAST(? AS TEXT)"
    profile = read(damage(registered, inline, parameters=(written,)))
    for table in ("kernels", "api_calls", "ranges", "marks"):
        assert set(profile.table(table)["name"].astype("str")) == {shown}
    everything(profile)
    assert stats_table(profile, "cuda_gpu_kern_sum")["Name"].tolist() == [shown]


@pytest.mark.nightly
def test_two_hundred_thousand_distinct_names(damage: Damage) -> None:
    count = 200_000
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    kernel = f"SELECT * FROM {KERNEL} WHERE rowid = 1"
    path = damage(
        f"INSERT INTO StringIds {numbers} SELECT 1000 + i, 'kernel ' || i FROM n",
        f"CREATE TABLE one AS {kernel}",
        f"INSERT INTO {KERNEL} {numbers} SELECT one.* FROM n CROSS JOIN one",
        f"UPDATE {KERNEL} SET start = start + 1000 * rowid, end = end + 1000 * rowid, correlationId = NULL, "
        "demangledName = 1000 + rowid - 3, shortName = 1000 + rowid - 3 WHERE rowid > 3",
    )
    profile = read(path)
    assert len(stats_table(profile, "cuda_gpu_kern_sum")) == count + 3
    result = analyzed(profile, "cuda_gpu_kern_sum")
    assert result.rows["instances"].sum() == count + 3


def test_marks_without_a_text_or_each_with_its_own(damage: Damage) -> None:
    count = 10_000
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
    path = damage(
        "UPDATE NVTX_EVENTS SET text = NULL WHERE eventType = 34",
        f"INSERT INTO NVTX_EVENTS (start, eventType, text, globalTid) {numbers} "
        "SELECT 5000 + i, 34, 'loss ' || i, (SELECT MIN(globalTid) FROM NVTX_EVENTS WHERE eventType = 34) FROM n",
    )
    profile = read(path)
    assert (profile.table("marks")["name"] == "").sum() == 2
    result = analyzed(profile, "nvtx_marks")
    assert len(result.rows) == count + 1
    assert result.rows["name"].iloc[0] == ""
    everything(profile)
