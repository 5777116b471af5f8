"""Numbers and texts of tables: JavaScript writes what Python writes."""

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from nightsight.render.table.view import middle_cut
from nightsight.units import DIGITS, MOST_DECIMALS, SCALES, format_cell, scale_for, split

pytestmark = pytest.mark.browser

SCRIPTS = Path(__file__).parents[2] / "templates" / "scripts"


def script_of(*names: str) -> str:
    return "\n".join((SCRIPTS / f"{name}.js").read_text(encoding="utf-8") for name in names)


def many_values(unit: str) -> list[float]:
    noise = random.Random(unit)
    ties = [place + 0.5 for place in range(12)] + [0.125, 0.375, 0.0625, 2.0625, 1.0005, 0.0005, 0.00049, 1e-9]
    edges = [scale * factor for scale, _ in SCALES[unit] for factor in (0.9994, 0.9999999, 1, 1.0001, 999.95, 12.3125)]
    spread = [10 ** noise.uniform(-6, 19) for _ in range(300)]
    whole = [float(noise.randrange(10 ** noise.randrange(1, 17))) for _ in range(100)]
    bits = (struct.unpack("<d", struct.pack("<Q", noise.getrandbits(62)))[0] for _ in range(200))
    wild = [value for value in bits if 1e-12 < value < 1e27]
    values = [*ties, *edges, *spread, *whole, *wild, 0.0, float("nan"), float("inf")]
    return [*values, *(-value for value in values)]


@pytest.mark.parametrize("unit", list(SCALES))
def test_numbers_read_as_python_writes_them(unit: str, browser: Any) -> None:
    name, values = f"x_{unit}" if unit else "x", many_values(unit)
    assert split(name)[1] == unit
    scales = [scale_for(unit, sample) for sample in ([], [3.0], [1.5, 2e4], [1e5, 7e9], [5e13], [0.004, 80.0], [1e20])]
    columns = [{"unit": unit, "divisor": scale.divisor, "decimals": scale.decimals} for scale in scales]
    expected = [[format_cell(value, name, scale=scale) for value in values] for scale in scales]
    known = [value if abs(value) < float("inf") else None for value in values]
    page = browser.new_page()
    written = page.evaluate(
        f"([digits, columns, values]) => {{ {script_of('tables_numbers')}; const numbers = new TableNumbers(digits);"
        "return columns.map(column => values.map(value => numbers.cell(value, column))) }",
        [{"scales": SCALES, "digits": DIGITS, "most_decimals": MOST_DECIMALS}, columns, known],
    )
    page.close()
    assert written == expected


def test_numbers_are_read_back_from_what_is_printed(browser: Any) -> None:
    texts = [
        ("1,234.500", "ms"),
        ("80 ns", "ms"),
        ("<0.1", "%"),
        (">-0.001", "s"),
        ("–", "s"),
        ("66.70", "TB/s"),
        ("7", ""),
    ]
    page = browser.new_page()
    values = page.evaluate(
        f"texts => {{ {script_of('tables_numbers')}; return texts.map(text => TableNumbers.read(...text)) }}", texts
    )
    page.close()
    assert [None if value != value else value for value in values] == [  # noqa: PLR0124 (NaN)
        *(1_234_500_000, 80, 0.05, -500_000, None, 66_700_000_000_000, 7),
    ]


def test_a_long_text_is_cut_as_python_does(browser: Any) -> None:
    texts = ["short", "x" * 121, "emoji 😀" * 40, "ab" * 60]
    page = browser.new_page()
    cut = page.evaluate(
        f"texts => {{ {script_of('tables_model')}; return texts.map(text => TableModel.cut(text)) }}", texts
    )
    page.close()
    assert cut == [middle_cut(text, 120) for text in texts]
