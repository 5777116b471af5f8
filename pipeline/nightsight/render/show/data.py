"""What `nightsight show --format json` prints: the same as the lines, with raw values and full names."""

from dataclasses import asdict

from nightsight.model.report import Json, Report, table_json
from nightsight.render.brief import brief, identified
from nightsight.render.fit import FORMAT, brief_document, known, one_line
from nightsight.render.show.answers import Answer, Cause, Choice, Matches, Rows, Table, Whole, answer
from nightsight.results import entry_of


def shown_json(report: Report, name: str, choice: Choice) -> str:
    """Return what has a name, or the report, as JSON on one line; see `answer`."""
    return one_line({"format": FORMAT, **_document(answer(report, name, choice))})


def _document(found: Answer) -> dict[str, Json]:
    match found:
        case Whole():
            return _whole(found.report)
        case Cause():
            return _cause(found)
        case Table():
            return _table(found)
        case Matches():
            return {
                "kind": found.kind,
                "names": list(found.names),
                "causes": list(found.causes),
                "tables": [
                    {"name": part.result.name, "title": part.result.title, **_rows(part)} for part in found.tables
                ],
            }


def _whole(report: Report) -> dict[str, Json]:
    tables = [
        {"name": result.name, "title": result.title, "rows": len(result.rows)}
        for result in report.results
        if result.table is not None
    ]
    missing = [{"name": result.name, "why": result.unavailable} for result in report.results if result.table is None]
    document, causes = brief_document(brief(report)), list(identified(report))
    return {"kind": "report", "brief": document, "causes": causes, "tables": tables, "missing": missing}


def _cause(found: Cause) -> dict[str, Json]:
    finding = found.finding
    return {
        "kind": "cause",
        **known(asdict(found.brief)),
        "kernels": list(found.kernels),
        "why": finding.detail,
        "how": finding.remedy,
        "evidence": list(finding.evidence),
        "table": finding.source,
    }


def _table(found: Table) -> dict[str, Json]:
    result, rows = found.result, found.rows
    definition = {"kind": "table", "name": result.name, "title": result.title, "help": result.help}
    if rows is None:
        return {**definition, "unavailable": result.unavailable}
    entry = entry_of(result.name)
    meanings = {each.name: each.meaning for each in (entry.columns if entry else ()) if each.name in rows.columns}
    return {**definition, "meanings": meanings, **_rows(rows), "notes": list(result.notes)}


def _rows(rows: Rows) -> dict[str, Json]:
    """Return rows as in report.json; more_rows: how many are left out."""
    return {"table": table_json(rows.shown), "more_rows": rows.more}
