"""`nightsight schema`: documents of all formats are valid, have no other fields, and mistakes are found."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

from nightsight.cli import main
from nightsight.history import trends
from nightsight.model.report import Report
from nightsight.render import FORMATS, Source
from nightsight.render.brief import identified, render_brief_json
from nightsight.render.compare import comparison_brief_json, comparison_json
from nightsight.render.fleet import fleet_brief_json
from nightsight.render.prove import proof_brief_json
from nightsight.render.show import Choice, shown_json
from nightsight.results import RESULTS
from nightsight.results.entry import NUMBER, TEXT, WHOLE
from nightsight.workflows import schemas
from nightsight.workflows.history import as_json
from tests.comparisons import compared, hostile_comparison, runs, train_comparison
from tests.fleets import made_fleet, summary
from tests.nights import nights, of
from tests.recorded import Recorded
from tests.reports import hostile_report, small_report
from tests.test_cli import USAGE, FakeNsys, error_lines, only_run
from tests.test_render_brief import REAL, report_of
from tests.test_render_briefs import PROOFS

ROOT = Path(__file__).parents[1]
_KINDS: dict[str, type | tuple[type, ...]] = {TEXT: str, WHOLE: int, NUMBER: (int, float)}


def strict(schema: Any) -> Any:
    """Return a schema that allows no other fields, wherever all of an object is described."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    known = {name: strict(part) for name, part in schema.items()}
    # the rest of the object is in `allOf`
    is_whole = schema.get("type") == "object" and "properties" in schema and "allOf" not in schema
    return {**known, "additionalProperties": False} if is_whole and isinstance(schema["properties"], dict) else known


def validator(name: str, *, is_strict: bool = True) -> Draft202012Validator:
    schema = json.loads(schemas.schema_text(name))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(strict(schema) if is_strict else schema)


def problems(name: str, document: Any, *, is_strict: bool = True) -> list[str]:
    if isinstance(document, str | bytes):
        document = json.loads(document)
    errors = validator(name, is_strict=is_strict).iter_errors(document)
    return [f"{error.json_path}: {error.message[:300]}" for error in errors]


def written(report: Report) -> bytes:
    return FORMATS["json"].render(Source(report))[""]


@pytest.fixture(scope="module")
def trained(recorded: Recorded) -> Report:
    return recorded.report("train")


# every sixteenth capture, and all of them at night
@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.nightly] * (number % 16 > 0))
        for number, path in enumerate(REAL)
    ],
)
def test_reports_of_captures_and_their_briefs_are_valid(packed: Path, tmp_path: Path) -> None:
    report = report_of(packed, tmp_path)
    assert problems("report", written(report)) == []
    assert problems("brief", render_brief_json(report)) == []
    types_are_declared(json.loads(written(report)))


def types_are_declared(document: Any) -> None:
    """Check that each cell of a result has the type of its column, which a schema without positions cannot."""
    declared = {entry.name: {column.name: column.type for column in entry.columns} for entry in RESULTS}
    for result in document["results"]:
        for place, name in enumerate(result["table"]["columns"] if result["table"] else ()):
            kind = _KINDS[declared[result["name"]][name]]
            cells = [row[place] for row in result["table"]["rows"] if row[place] is not None]
            is_right = [isinstance(cell, kind) or (kind is int and cell == int(cell)) for cell in cells]
            assert all(is_right), (result["name"], name)


def test_the_sample_and_reports_of_older_versions_are_valid() -> None:
    document = json.loads((ROOT / "reports" / "sample" / "report.json").read_text())
    assert problems("report", document) == []
    # without what was added later
    document.pop("verdict", None)
    for finding in document["findings"]:
        for name in ("path", "code", "proof"):
            finding.pop(name, None)
    assert problems("report", document) == []
    # with what is added later
    document["news"] = document["results"][0]["news"] = document["findings"][0]["news"] = 1
    document["results"][0]["table"]["columns"].append("news_ns")
    document["results"].append({"name": "news", "title": "", "help": "", "table": None})
    assert problems("report", document, is_strict=False) == []


@pytest.mark.parametrize("report", [small_report(), hostile_report(), small_report(results=(), findings=())])
def test_any_report_is_valid(report: Report) -> None:
    # results of tests have other columns than those of the register
    other = {entry.name for entry in RESULTS}
    known = replace(report, results=tuple(replace(each, name=f"{each.name} ") for each in report.results))
    assert not {each.name for each in known.results} & other
    assert problems("report", written(known)) == []
    assert problems("brief", render_brief_json(report)) == []


def test_mistakes_in_a_report_are_found(trained: Report) -> None:
    whole = json.loads(written(trained))

    def mistake(change: Callable[[Any], object]) -> str:
        document = deepcopy(whole)
        change(document)
        return "; ".join(problems("report", document, is_strict=False))

    assert mistake(dict) == ""
    assert "1 was expected" in mistake(lambda document: document.update(format=2))
    assert "'environment' is a required property" in mistake(lambda document: document.pop("environment"))
    assert "is not of type 'string'" in mistake(lambda document: document["findings"][0].update(title=3))
    place = [result["name"] for result in whole["results"]].index("cuda_gpu_kern_sum")
    columns = whole["results"][place]["table"]["columns"]
    lacking = mistake(lambda document: document["results"][place]["table"]["columns"].remove("total_ns"))
    assert f"$.results[{place}].table" in lacking
    assert columns.count("total_ns") == 1
    assert mistake(lambda document: document["results"][place]["table"]["rows"][0].append({}))


def test_comparisons_proofs_and_fleets_are_valid(trained: Report) -> None:
    for comparison in (
        train_comparison(trained),
        compared(runs(trained, "baseline"), runs(trained, "candidate")),
        hostile_comparison(),
    ):
        assert problems("comparison", comparison_json(comparison)) == []
        assert problems("comparison_brief", comparison_brief_json(comparison)) == []
    for proofs in (PROOFS, replace(PROOFS, best=PROOFS.proofs[0], proofs=())):
        assert problems("proof", proofs.to_json()) == []
        assert problems("proof_brief", proof_brief_json(proofs)) == []
    fleet = made_fleet([summary("a", causes={"wait": 40.0}), summary("b")])
    assert problems("fleet_brief", fleet_brief_json(fleet)) == []


def test_answers_are_valid(trained: Report) -> None:
    names = ["", *identified(trained), *(result.name for result in trained.results), "gemm", "forward"]
    checked = validator("show")
    for name in names:
        assert not [*checked.iter_errors(json.loads(shown_json(trained, name, Choice())))]
    document = json.loads(shown_json(trained, "gemm", Choice()))
    assert problems("show", {**document, "kind": "table"})


def test_a_history_is_valid() -> None:
    rows = nights(45, lambda night: 1.2 if night > 30 else 1.0)
    for row in rows:
        assert problems("history", row.line()) == []
    document = json.loads(as_json(trends(of(rows))))
    assert document["events"]
    assert problems("history_events", document) == []


def test_a_run_and_the_checks_of_a_machine_are_valid(
    run: Any, script: Any, fake_nsys: FakeNsys, tmp_path: Path
) -> None:
    fake_nsys()
    run("profile", "--collector", "nsys", "-q", script())
    assert problems("run", (only_run(tmp_path) / "run.json").read_bytes()) == []
    assert problems("report", (only_run(tmp_path) / "report.json").read_bytes()) == []
    assert problems("doctor", run("doctor", "--json").stdout) == []


@pytest.mark.parametrize("path", sorted(REAL[0].parent.glob("*.unprofiled.json"))[::4], ids=lambda path: path.stem)
def test_what_is_next_to_captures_is_valid(path: Path) -> None:
    assert problems("unprofiled", path.read_bytes()) == []


def test_the_command_lists_and_prints_schemas_and_suggests_names(run: Any) -> None:
    lines = run("schema").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(schemas.FORMATS)
    assert all(run("schema", name).stdout == schemas.schema_text(name) for name in ("report", "doctor"))
    error, hint = error_lines(run("schema", "reprot", expect=USAGE))
    assert error == "reprot is not a JSON format"
    assert hint.startswith("Did you mean report? All: report, comparison, ")


def test_each_command_that_prints_json_has_a_schema() -> None:
    of_command = {
        "ab": {"comparison", "comparison_brief"},
        "compare": {"comparison", "comparison_brief"},
        "doctor": {"doctor"},
        "fleet": {"fleet_brief"},
        "history": {"history", "history_events"},
        "profile": {"report", "brief", "run", "unprofiled"},
        "prove": {"proof", "proof_brief"},
        "report": {"report", "brief"},
        "show": {"show"},
        # NVIDIA's format
        "stats": set[str](),
    }

    def prints_json(command: click.Command) -> bool:
        inner = command.commands.values() if isinstance(command, click.Group) else ()
        choices = [str(choice) for each in command.params for choice in getattr(each.type, "choices", ())]
        options = [option for each in command.params for option in each.opts]
        return any("json" in text for text in (*choices, *options)) or any(map(prints_json, inner))

    assert {name for name, command in main.commands.items() if prints_json(command)} == of_command.keys()
    assert set().union(*of_command.values()) == schemas.FORMATS.keys()


@pytest.mark.parametrize("name", schemas.FORMATS)
def test_a_schema_names_its_format_and_version(name: str) -> None:
    schema = json.loads(schemas.schema_text(name))
    version = schemas.FORMATS[name].version
    assert schema["$id"] == f"urn:nightsight:{name}:{version or 0}"
    assert list(schema)[:3] == ["$schema", "$id", "title"]
    if version:
        assert {"const": version} in schema["properties"].values()
