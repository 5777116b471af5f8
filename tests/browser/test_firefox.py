"""Runs `firefox.test.mjs` with Debian's Firefox: Playwright drives only one that it built itself."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.browser.sample_pages import sample_pages
from tests.browser.timeline_page import timeline_page
from tests.browser.timeline_samples import small
from tests.recorded import Recorded

pytestmark = pytest.mark.browser

ROOT: Final = Path(__file__).parents[2]
FRAME: Final = "<!doctype html><title>f</title><iframe width=1200 height=700 sandbox=allow-scripts src=mlp.html>"
# before any fixture narrows PATH
FIREFOX: Final = shutil.which("firefox-esr") or shutil.which("firefox")
NODE: Final = shutil.which("node")
PUPPETEER: Final = ROOT / "templates" / "node_modules" / "puppeteer-core"
NEEDED: Final = {"Firefox": FIREFOX, "Node": NODE, "Puppeteer (make lint installs it)": PUPPETEER.exists()}


@pytest.mark.nightly
def test_the_page_in_firefox(tmp_path: Path, recorded: Recorded) -> None:
    missing = ", ".join(what for what, there in NEEDED.items() if not there)
    if missing:
        # a CI that knows of no Firefox to install says so
        if os.environ.get("CI") == "true" and os.environ.get("WITHOUT_FIREFOX") != "1":
            pytest.fail(f"CI must have {missing}: this test must not be skipped there")
        pytest.skip(f"this machine lacks {missing}")
    sample_pages(tmp_path, recorded)
    (tmp_path / "framed.html").write_text(FRAME, encoding="utf-8")
    (tmp_path / "small.html").write_text(timeline_page(small()), encoding="utf-8")
    (tmp_path / "home").mkdir()
    where = {"PAGES": str(tmp_path), "FIREFOX": str(FIREFOX), "HOME": str(tmp_path / "home")}
    command = [str(NODE), "--test", str(Path(__file__).with_name("firefox.test.mjs"))]
    done = subprocess.run(command, env={**os.environ, **where}, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stdout
    assert "# pass 12\n" in done.stdout
