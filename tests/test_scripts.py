"""The page's scripts without a browser: their own tests in Node, what they do as Python does, how they are bundled."""

import json
import os
import random
import shutil
import struct
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest

from nightsight.events.ranges import NUMBER, without_numbers
from nightsight.model.report import Profile
from nightsight.render.page.scripts import bundle
from nightsight.render.timeline.columns import columns
from nightsight.texts import middle_cut
from nightsight.units import SCALES, format_cell, format_value, scale_for, split
from tests.test_render_timeline_detail import busy_profile
from tests.timeline_payload import decode, timeline_payload

ROOT: Final = Path(__file__).parents[1]
SCRIPTS: Final = ROOT / "templates" / "scripts"
NODE: Final = shutil.which("node")
if NODE is None and "CI" in os.environ:
    raise RuntimeError("CI needs node")
in_node = pytest.mark.skipif(NODE is None, reason="there is no node on this machine")


def evaluate(module: str, names: str, expression: str, data: object) -> Any:
    """Return what an expression of names of a module makes of `data`."""
    code = f"""
        import {{ readFileSync }} from "node:fs";
        import {{ {names} }} from {json.dumps((SCRIPTS / module).as_uri())};
        const data = JSON.parse(readFileSync(0, "utf8"));
        process.stdout.write(JSON.stringify({expression}));
    """
    command = [str(NODE), "--input-type=module", "-e", code]
    done = subprocess.run(command, input=json.dumps(data), capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return json.loads(done.stdout)


@in_node
def test_the_scripts_pass_their_own_tests() -> None:
    files = sorted(map(str, (ROOT / "tests" / "scripts").glob("*.test.mjs")))
    assert files
    done = subprocess.run([str(NODE), "--test", *files], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout


def many_values(unit: str) -> list[float]:
    noise = random.Random(unit)
    ties = [place + 0.5 for place in range(12)] + [0.125, 0.375, 0.0625, 2.0625, 1.0005, 0.0005, 0.00049, 1e-9]
    edges = [scale * factor for scale, _ in SCALES[unit] for factor in (0.9994, 0.9999999, 1, 1.0001, 999.95, 12.3125)]
    spread = [10 ** noise.uniform(-6, 19) for _ in range(300)]
    whole = [float(noise.randrange(10 ** noise.randrange(1, 17))) for _ in range(100)]
    bits = (struct.unpack("<d", struct.pack("<Q", noise.getrandbits(62)))[0] for _ in range(200))
    wild = [value for value in bits if 1e-12 < value < 1e27]
    values = [*ties, *edges, *spread, *whole, *wild, 0.0]
    return [*values, *(-value for value in values)]


@in_node
@pytest.mark.parametrize("unit", list(SCALES))
def test_numbers_read_as_python_writes_them(unit: str) -> None:
    name, values = f"x_{unit}" if unit else "x", many_values(unit)
    assert split(name)[1] == unit
    scales = [scale_for(unit, sample) for sample in ([], [3.0], [1.5, 2e4], [1e5, 7e9], [5e13], [0.004, 80.0], [1e20])]
    described = [{"unit": unit, "divisor": scale.divisor, "decimals": scale.decimals} for scale in scales]
    expected = [[format_cell(value, name, scale=scale) for value in [*values, None]] for scale in scales]
    cells = "data.columns.map((column) => data.values.map((value) => formatCell(value, column)))"
    written = evaluate("numbers.js", "formatCell", cells, {"columns": described, "values": [*values, None]})
    assert written == expected
    alone = evaluate(
        "numbers.js", "formatValue", f"data.map((value) => formatValue(value, {json.dumps(unit)}))", values
    )
    assert alone == [format_value(value, name) for value in values]


@in_node
def test_the_page_has_the_units_that_python_has() -> None:
    expected = {unit: [list(scale) for scale in scales] for unit, scales in SCALES.items()}
    assert evaluate("numbers.js", "SCALES", "SCALES", None) == expected


@in_node
def test_durations_in_the_timeline_read_as_in_tables() -> None:
    values = [abs(value) for value in many_values("ns")]
    written = evaluate("timeline/text.js", "durationText", "data.map(durationText)", values)
    assert written == [format_value(value, "x_ns") for value in values]


@in_node
def test_numbers_are_read_back_from_what_is_printed() -> None:
    texts = [
        ("1,234.500", "ms"),
        ("80 ns", "ms"),
        ("<0.1", "%"),
        (">\N{MINUS SIGN}0.001", "s"),
        ("–", "s"),
        ("66.70", "TB/s"),
        ("7", ""),
    ]
    values = evaluate("numbers.js", "readNumber", "data.map((text) => readNumber(...text))", texts)
    assert values == [1_234_500_000, 80, 0.05, -500_000, None, 66_700_000_000_000, 7]


@in_node
def test_a_long_text_is_cut_as_python_does() -> None:
    texts = ["short", "x" * 121, "emoji 😀" * 40, "ab" * 60]
    cut = evaluate("tables/model.js", "TableModel", "data.map((text) => TableModel.cut(text))", texts)
    assert cut == [middle_cut(text, 120) for text in texts]


@in_node
def test_columns_are_read_as_they_were_written() -> None:
    noise = np.random.default_rng(0)
    edges = [edge + step for bits in range(7, 53) for edge in (1 << bits, -(1 << bits)) for step in (-1, 0, 1)]
    values = {
        "small": noise.integers(-128, 128, 1000),
        "zero": np.zeros(5, dtype=np.int64),
        "none": np.empty(0, dtype=np.int64),
        "long": noise.integers(-(1 << 53) + 1, 1 << 53, 1000),
        **{f"edge {edge}": np.array([0, edge, 1]) for edge in edges},
    }
    written = columns(values)
    data = {"header": written.header(3), "bytes": [7, 7, 7, *written.body.data]}
    read = (
        "Object.entries(readColumns(data.header, Uint8Array.from(data.bytes))).map(([name, all]) => [name, [...all]])"
    )
    decoded = dict(evaluate("timeline/columns.js", "readColumns", read, data))
    assert decoded == {name: column.tolist() for name, column in values.items()}


def busy(*, drift_ns: int = 0) -> Profile:
    """Return a busy program, its later half `drift_ns` after the first."""
    profile = busy_profile(3000, streams=3)
    middle = profile.table("ranges")["start_ns"].median()
    moved = {
        name: frame.assign(**{at: frame[at] + drift_ns * (frame["start_ns"] > middle) for at in ("start_ns", "end_ns")})
        for name, frame in profile.tables.items()
    }
    return Profile(moved)


@in_node
@pytest.mark.parametrize(
    ("profile", "most_bytes"),
    [(busy(), 1_000_000), (busy(drift_ns=3_600 * 10**9), 1_000_000), (busy(), 20_000), (busy(), 7_000)],
    ids=["exact", "an hour of nothing in between", "an exact part", "merged"],
)
def test_the_timeline_is_what_python_put_into_it(profile: Profile, most_bytes: int) -> None:
    payload = timeline_payload(profile, most_bytes=most_bytes)
    assert payload
    decoded = decode(payload)
    read = """await (async () => {
        const { gunzipSync } = await import("node:zlib");
        const timeline = new TimelineData(new Uint8Array(gunzipSync(Buffer.from(data, "base64"))));
        return timeline.layers.map((layer) => timeline.rows.map((_, row) => {
            const events = [];
            for (let at = layer.begin[row]; at < layer.begin[row + 1]; at++) {
                const call = layer.launch[at];
                const launch = call < 0 ? null : [layer.rowOf(call), call - layer.begin[layer.rowOf(call)]];
                const [name, details] = [timeline.name(layer, at), timeline.details(layer, at)];
                events.push([layer.start[at], layer.end[at], name, details, launch, layer.events?.[at] ?? 1]);
            }
            return events;
        }));
    })()"""
    data = evaluate("timeline/data.js", "TimelineData", read, payload.decode())
    expected = [[[list(event) for event in row] for row in layer] for layer in decoded.layers]
    assert data == json.loads(json.dumps(expected))
    assert (decoded.header["layers"][0]["quantum_ns"] == 1) == (most_bytes == 1_000_000)
    assert decoded.header["layers"][0]["is_merged"] == (most_bytes < 10_000)


@in_node
def test_what_is_a_repetition_in_tables_is_one_in_the_timeline() -> None:
    names = [
        "step 7",
        "step_8",
        "h2d",
        "fc1",
        "fc2",
        "9",
        "(10)",
        "é11",
        "x 12.5",
        "12x",
        "a #",
        "v1 2",
        "٣",
        "Batch-3",
    ]
    expression = f'data.map((name) => name.replace(new RegExp({json.dumps(NUMBER)}, "g"), "#"))'
    assert evaluate("numbers.js", "SCALES", expression, names) == without_numbers(pd.Index(names)).tolist()


def modules(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (folder / f"{name}.js").write_text(text, encoding="utf-8")
    return folder / "main.js"


def run(script: str) -> str:
    return subprocess.run([str(NODE), "-e", script], capture_output=True, text=True, check=True).stdout


@in_node
def test_modules_become_one_script_in_which_names_do_not_meet(tmp_path: Path) -> None:
    entry = modules(
        tmp_path,
        main="""import { a } from "./a.js";
import {
  B,
  c,
} from "./b.js";
const own = 3;
console.log(a(), new B().own, c, own);
""",
        a="""import { c } from "./b.js";
const own = 1;
export function a() {
  return own + c;
}
""",
        b="""const own = 2;
/** @type {number} */
export const c = 10;
export class B {
  /**
   * Two.
   */
  own = /** @type {number} */ (own);
}
""",
    )
    text = bundle(entry)
    assert run(text) == "11 2 10 3\n"
    assert "Two." not in text
    assert text.count("const c = 10") == 1


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"main": 'import { a } from "./a.js";\n', "a": 'import { b } from "./main.js";\nexport const a = b;\n'},
            "main.js",
        ),
        ({"main": 'import { b } from "./a.js";\n', "a": "export const a = 1;\n"}, "does not export: b"),
        ({"main": 'import a from "./a.js";\n', "a": "export default 1;\n"}, "cannot bundle `import a from"),
        ({"main": 'import { a as b } from "./a.js";\n', "a": "export const a = 1;\n"}, "does not export: as"),
        ({"main": "export let a = 1;\n"}, "cannot bundle `export let a"),
        ({"main": "export default 1;\n"}, "cannot bundle `export default"),
        ({"main": 'import { a } from "left-pad";\n'}, "cannot bundle `import { a } from"),
    ],
)
def test_what_cannot_be_bundled_is_refused(tmp_path: Path, texts: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bundle(modules(tmp_path, **texts))


def test_a_wheel_has_what_the_page_is_made_of_and_not_the_tools_that_check_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    files = (ROOT / "templates").iterdir()
    of_page = {file.name for file in files if file.suffix in (".html", ".svg") or file.is_dir()}
    assert {Path(path).name for path in included if path != "workloads"} == of_page - {
        "node_modules",
        "__pycache__",
        "ci",
    }
    assert all(target == f"nightsight/{path}" for path, target in included.items())


def test_all_scripts_are_in_the_page() -> None:
    text = "".join(bundle(SCRIPTS / entry) for entry in ("main.js", "trend/main.js", "fleet/main.js"))
    files = list(SCRIPTS.rglob("*.js"))
    assert len(files) > 25
    for file in files:
        assert file.read_text(encoding="utf-8").split("\n", 1)[0] in text, file.name
