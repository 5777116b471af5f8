"""The command `schema`: the JSON Schema of each of our JSON formats, made from the types that write them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, get_type_hints

from nightsight.collect.doctor import Check
from nightsight.history import HistoryRow
from nightsight.history.rows import FORMAT as HISTORY_FORMAT
from nightsight.model.compare import CHANGES, Comparison, Measures
from nightsight.model.history import Key
from nightsight.model.prove import VERSION as PROOF_FORMAT
from nightsight.model.prove import ProofReport
from nightsight.model.report import REPORT_FORMAT, Environment, Json, Report
from nightsight.model.schema import (
    Schema,
    fields_schema,
    object_schema,
    result_schema,
    schema_of,
    table_schema,
)
from nightsight.render.brief import Brief, BriefCause
from nightsight.render.compare.brief import ComparisonBrief
from nightsight.render.compare.data import COMPARISON_FORMAT
from nightsight.render.fit import FORMAT as BRIEF_FORMAT
from nightsight.render.fleet.brief import FleetBrief
from nightsight.render.page.index import IndexEntry
from nightsight.render.prove.brief import ProofBrief
from nightsight.results import RESULTS
from nightsight.results.gpu_time import TIME_SPLIT
from nightsight.runs.layout import Turn
from nightsight.runs.unprofiled import FORMAT as UNPROFILED_FORMAT
from nightsight.tables import TABLES, UNPROFILED
from nightsight.workflows.history import FORMAT as EVENTS_FORMAT
from nightsight.workflows.index import OF_FOLDER

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Format:
    """A JSON format. title: what it is, and what writes it. version: the value of its field `marker`."""

    title: str
    version: int | None
    make: Callable[[], Schema]
    marker: str = "format"

    def schema(self, name: str) -> Schema:
        """Return its schema. name: of the format."""
        body = self.make()
        head: Schema = {"$schema": _DIALECT, "$id": f"urn:nightsight:{name}:{self.version or 0}", "title": self.title}
        if self.version is None:
            return {**head, **body}
        return {
            **head,
            **body,
            "properties": {self.marker: {"const": self.version}, **body["properties"]},
            "required": [self.marker, *body["required"]],
        }


def _report() -> Schema:
    schema = schema_of(Report)
    named: Json = schema["properties"]["results"]["items"]
    named["allOf"] = [
        {
            "if": {"properties": {"name": {"const": entry.name}}},
            "then": {"$ref": f"#/$defs/{entry.name}"},
        }
        for entry in RESULTS
    ]
    schema["properties"]["windows"]["items"]["properties"]["split"] = {
        "anyOf": [{"type": "null"}, table_schema(TIME_SPLIT.columns)]
    }
    brief = schema_of(Brief, leaves_out_unknown=True)
    of_report = ("title", "facts", "is_cut", "verdict")
    verdict = {name: part for name, part in brief["properties"].items() if name not in of_report}
    required = [name for name in brief["required"] if name not in of_report]
    # it follows from the rest, and files of older versions lack it
    schema["properties"]["verdict"] = object_schema({"text": {"type": "string"}, **verdict}, ["text", *required])
    return {**schema, "$defs": {entry.name: result_schema(entry) for entry in RESULTS}}


def _comparison() -> Schema:
    kinds = get_type_hints(Comparison)
    run_kinds = get_type_hints(Measures)
    of_run = {name: schema_of(kind) for name, kind in run_kinds.items() if name not in ("table", "causes")}
    numbers = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}
    conditions = of_run["conditions"]["items"]["properties"]
    # a median of no sample is not a number
    conditions["samples"] = {"type": ["integer", "null"]}
    run = object_schema({**of_run, "gate": numbers}, about=" ".join((Measures.__doc__ or "").split()))
    properties = {name: schema_of(kind) for name, kind in kinds.items()}
    runs = {"type": "array", "items": run}
    tables = {"changes": _changes_table(), "causes": table_schema()}
    return object_schema({"generator": {"type": "string"}, **properties, **tables, "baseline": runs, "candidate": runs})


def _changes_table() -> Schema:
    table = table_schema()
    table["properties"]["columns"]["allOf"] = [{"contains": {"const": name}} for name in CHANGES]
    return table


def _run() -> Schema:
    schema = schema_of(IndexEntry)
    turn, facts = schema_of(Turn), fields_schema(environment=Environment, parameters=Mapping[str, str])
    times = {"stages_s": schema_of(Mapping[str, float])}
    properties = {name: part for name, part in schema["properties"].items() if name not in OF_FOLDER}
    properties |= {**turn["properties"], **facts["properties"], **times}
    return object_schema(properties, [name for name in schema["required"] if name not in OF_FOLDER])


def _history() -> Schema:
    schema = schema_of(HistoryRow)
    key = object_schema(schema_of(Key)["properties"], ())
    # what is empty is left out
    properties = {"id": {"type": "string"}, **schema["properties"], "key": key}
    return object_schema(properties, ["id", "workload", "time", "values"])


def _events() -> Schema:
    change = fields_schema(
        workload=str, kind=str, name=str, unit=str, baseline=float | None, candidate=float | None,
        change_pct=float | None, state=str, reason=str,
    )  # fmt: skip
    event = fields_schema(
        "a change of level, or several at once", id=str, ids=tuple[str, ...], state=str, direction=str, cause=str,
        time=str, before=str, first_commit=str, last_commit=str, machine=str, workloads=tuple[str, ...], sentence=str,
        link=str,
    )  # fmt: skip
    event["properties"]["changes"] = {"type": "array", "items": change}
    track = fields_schema(
        "a workload on a machine", workload=str, machine=str, key=Mapping[str, str], nights=int, tested_since=str,
        first=str, last=str, proof=str, metrics=Mapping[str, float],
    )  # fmt: skip
    whole = fields_schema(complete=bool, rule=str, problems=tuple[str, ...])
    lists = {"events": {"type": "array", "items": event}, "tracks": {"type": "array", "items": track}}
    return object_schema({**whole["properties"], **lists})


def _brief(kind: type) -> Callable[[], Schema]:
    return lambda: schema_of(kind, leaves_out_unknown=True)


def _show() -> Schema:
    table = object_schema({"table": table_schema(), "more_rows": {"type": "integer"}})
    texts = {"type": "array", "items": {"type": "string"}}
    brief = schema_of(Brief, leaves_out_unknown=True)
    brief["properties"] = {"format": {"const": BRIEF_FORMAT}, **brief["properties"]}
    name = {"type": "string"}
    listed = fields_schema(name=str, title=str, rows=int)
    whole = object_schema(
        {
            "brief": brief,
            "causes": texts,
            "tables": {"type": "array", "items": listed},
            "missing": {"type": "array", "items": fields_schema(name=str, why=str)},
        }
    )
    cause = schema_of(BriefCause, leaves_out_unknown=True)
    cause["properties"] |= {"why": name, "how": name, "evidence": texts, "table": name}
    titled = fields_schema(name=str, title=str)
    part = object_schema({**titled["properties"], **table["properties"]})
    matches = object_schema({"names": texts, "causes": texts, "tables": {"type": "array", "items": part}})
    definition = object_schema(
        {
            **fields_schema(name=str, title=str, help=str, unavailable=str)["properties"],
            "meanings": schema_of(Mapping[str, str]),
            "notes": texts,
            **table["properties"],
        },
        ["name", "title", "help"],
    )
    kinds = {"report": whole, "cause": cause, "table": definition, "kernel": matches, "range": matches}
    told = [
        {
            "if": {"properties": {"kind": {"const": kind}}},
            "then": {key: schema[key] for key in ("properties", "required")},
        }
        for kind, schema in kinds.items()
    ]
    return {**object_schema({"kind": {"enum": list(kinds)}}), "allOf": told}


def _doctor() -> Schema:
    return {"type": "array", "items": schema_of(Check)}


def _unprofiled() -> Schema:
    cell = {"type": ["string", "number", "boolean", "null"]}
    tables = {
        name: {"type": "array", "items": object_schema(dict.fromkeys(TABLES[name], cell), ())} for name in UNPROFILED
    }
    return object_schema(tables, ())


FORMATS: Final[Mapping[str, Format]] = {
    "report": Format("report.json: nightsight profile, nightsight report --format json", REPORT_FORMAT, _report),
    "comparison": Format("A comparison: nightsight compare --format json", COMPARISON_FORMAT, _comparison),
    "proof": Format("proof.json: nightsight prove", PROOF_FORMAT, lambda: schema_of(ProofReport), "nightsight_proof"),
    "brief": Format("The brief of a report: nightsight report --format brief.json", BRIEF_FORMAT, _brief(Brief)),
    "comparison_brief": Format(
        "The brief of a comparison: nightsight compare --format brief.json", BRIEF_FORMAT, _brief(ComparisonBrief)
    ),
    "proof_brief": Format(
        "The brief of proofs: nightsight prove --format brief.json", BRIEF_FORMAT, _brief(ProofBrief)
    ),
    "fleet_brief": Format(
        "The brief of many captures: nightsight fleet --format brief.json", BRIEF_FORMAT, _brief(FleetBrief)
    ),
    "show": Format("One thing of a report: nightsight show --format json", BRIEF_FORMAT, _show),
    "run": Format("run.json: facts about a run, for the index of runs", None, _run),
    "history": Format("A line of a history: nightsight history add", HISTORY_FORMAT, _history),
    "history_events": Format("Events of a history: nightsight history show --format json", EVENTS_FORMAT, _events),
    "doctor": Format("Checks of a machine: nightsight doctor --json", None, _doctor),
    "unprofiled": Format(
        "NAME.unprofiled.json: what was measured without a profiler, next to a capture", UNPROFILED_FORMAT, _unprofiled,
        "unprofiled",
    ),
}  # fmt: skip
"""All JSON formats that we write for others to read, by the name of their schema."""


def schema_text(name: str) -> str:
    """Return the schema of a format as text; the same version gives the same bytes."""
    return json.dumps(FORMATS[name].schema(name), indent=1, ensure_ascii=False) + "\n"
