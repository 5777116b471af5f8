"""Renders the sample report, the pictures in the documents and the style page anew: `make pictures`.

Needs Chromium, and no GPU.

The sample is of `tests/gpu/sample.py` on a GPU host. What ncu said of it is in its report.json only, which stays as it
is. The other pictures are of the captures of the worked cases: screenshots, and the ladders of fixes.
"""

import io
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

from PIL import Image

from nightsight.analyze import activities
from nightsight.model.report import Report
from nightsight.progress import silent
from nightsight.read import read
from nightsight.render import FORMATS, Source
from nightsight.runs.unprofiled import with_unprofiled
from nightsight.workflows.opening import Reading, open_file
from tests.browser.chromium import chromium
from tests.comparisons import train_comparison
from tests.gallery import opened, unpacked
from tests.style_page import LOOKS, style_page
from tests.worked import WORKED

ROOT: Final = Path(__file__).parents[1]
SAMPLE: Final = ROOT / "reports" / "sample"
PICTURES: Final = ROOT / "docs" / "img"
CASES: Final = (
    "planted/others/launch",
    "planted/others/loader",
    "nsys/causes/fp32",
    "planted/others/pageable",
    "nsys/causes/unfused",
)
STYLE: Final = ROOT / "reports" / "style"
"""Not in git: the page with every element, and pictures of it."""
STYLED: Final = ("nsys/train/train", "nsys/ddp2/ddp2", "nsys/python_names/python_names", "nsys/everything/everything")
WIDTH: Final = 1280
HEIGHT: Final = 860
COLORS: Final = 160


def main() -> None:
    for worked in WORKED:
        with opened(worked.entry) as source:
            (PICTURES / f"case-{worked.name}.svg").write_bytes(FORMATS["svg"].render(source)[""])
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        scratch = Path(folder)
        sample = SAMPLE / "report.html"
        sample.write_bytes(page(sampled(scratch)))
        for scheme in ("light", "dark"):
            shoot(browser, sample, PICTURES / f"report-{scheme}.png", scheme)
        for name in CASES:
            case = Path(name).name
            html = scratch / f"{case}.html"
            html.write_bytes(page(open_file(unpacked(name, scratch), FORMATS["html"], Reading(None, 1 << 30, silent))))
            shoot(browser, html, PICTURES / f"case-{case}.png", "light", is_cut=True)
        styles(browser, scratch)


def styles(browser: Any, folder: Path) -> None:
    """Write the page with every element, and a picture of it in each look."""
    STYLE.mkdir(exist_ok=True)
    reports = [open_file(unpacked(name, folder), FORMATS["html"], Reading(None, 1 << 30, silent)) for name in STYLED]
    first, *_ = (source.report for source in reports)
    html = STYLE / "style.html"
    html.write_text(
        style_page([*(source.report for source in reports), sampled(folder).report], train_comparison(first))
    )
    for name, look in LOOKS.items():
        tab = browser.new_page(**look)
        if name == "print":
            tab.emulate_media(media="print")
        tab.goto(html.as_uri())
        tab.screenshot(path=STYLE / f"{name}.png", full_page=True)
        tab.close()


def sampled(folder: Path) -> Source:
    """Return the sample: its report as it was made on the GPU host, with the events."""
    capture = unpacked("sample", folder)
    profile = with_unprofiled(read(capture, details=True), capture)
    return Source(
        Report.from_json((SAMPLE / "report.json").read_bytes()), profile, activities=partial(activities, profile)
    )


def page(source: Source) -> bytes:
    return FORMATS["html"].render(source)[""]


def shoot(browser: Any, html: Path, picture: Path, scheme: str, *, is_cut: bool = False) -> None:
    """Take a picture of the first screen; `is_cut`: of no more than the verdict and the causes below it."""
    tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme)
    tab.goto(html.as_uri())
    tab.wait_for_timeout(500)
    last = tab.locator("#verdict").bounding_box()
    height = int(last["y"] + last["height"]) + 12 if is_cut else HEIGHT
    taken = tab.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": min(height, HEIGHT)})
    tab.close()
    Image.open(io.BytesIO(taken)).convert("RGB").quantize(COLORS).save(picture, optimize=True)


if __name__ == "__main__":
    main()
