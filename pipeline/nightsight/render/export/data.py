"""The report as data for other programs: raw values, with the unit in each column name."""

import io
import re

import pandas as pd
import pyarrow as pa

from nightsight.model.report import Report
from nightsight.render.brief import verdict_document


def render_json(report: Report) -> dict[str, bytes]:
    """Return the whole report as one JSON file, with its verdict."""
    return {"": _utf8(report.to_json(lambda: verdict_document(report)))}


def render_csv(report: Report) -> dict[str, bytes]:
    """Return one CSV file per available result."""
    return {
        f"{name}.csv": _utf8(table.to_csv(index=False, lineterminator="\n")) for name, table in _tables(report).items()
    }


def render_parquet(report: Report) -> dict[str, bytes]:
    """Return one Parquet file per available result."""
    return {f"{name}.parquet": _parquet(table) for name, table in _tables(report).items()}


def _tables(report: Report) -> dict[str, pd.DataFrame]:
    tables = ((result.name, result.table) for result in report.results)
    # names of results from a report.json become file names, so they must not contain path separators
    return {re.sub(r"\W", "_", name): table for name, table in tables if table is not None}


def _parquet(table: pd.DataFrame) -> bytes:
    import pyarrow.parquet  # noqa: PLC0415 (takes 25 ms, and few reports need it)

    texts = table.select_dtypes(include=["category", "object", "string"]).columns
    # one type for all texts and no metadata with the pandas version: the same report gives the same bytes
    arrow = pa.Table.from_pandas(table.astype(dict.fromkeys(texts, "str")), preserve_index=False)
    file = io.BytesIO()
    pyarrow.parquet.write_table(arrow.replace_schema_metadata(None), file)
    return file.getvalue()


def _utf8(text: str) -> bytes:
    """Encode text; lone surrogates, which a damaged name can contain, become escapes."""
    return text.encode("utf-8", "backslashreplace")
