"""Renders the sample report and the pictures in the documents anew: `make pictures`. Needs Chromium, and no GPU.

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
from tests.gallery import opened, unpacked
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
