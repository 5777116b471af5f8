"""Exports that are damaged with SQL, and all that can be made of what they give."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from nightsight.errors import MissingTable
from nightsight.model.report import Profile
from nightsight.render import FORMATS, Source
from nightsight.stats import REPORTS, stats_table, write_stats
from nightsight.workflows.analysis import build_report
from tests.build import build

PICTURE = """
    nvtx  [step        ][next        ]
    mark  ....x..........y.
    cpu   LLL..LL..SSSSCCC..L..SSSS.C.
    s7    ....aaa..bb...HHH.ccM.....DD
"""

Damage = Callable[..., Path]


def damaged(folder: Path) -> Damage:
    """Write the picture as an export and run SQL statements on it, each with its parameters."""

    def write(*statements: str, parameters: tuple[object, ...] = (), picture: str = PICTURE) -> Path:
        path = folder / "damaged.sqlite"
        path.unlink(missing_ok=True)
        build(picture, path, generation="2021")
        with closing(sqlite3.connect(path)) as connection:
            for statement in statements:
                connection.execute(statement, parameters if "?" in statement else ())
                connection.commit()
        return path

    return write


def everything(profile: Profile) -> set[str]:
    """Make all that can be made of a profile; return the rules of what the report says of it."""
    report = build_report(profile, "damaged")
    for form in FORMATS.values():
        form.render(Source(report, profile))
    for name in REPORTS:
        try:
            write_stats(stats_table(profile, name), "csv")
        except MissingTable as error:
            assert error.message
    return {finding.rule for finding in report.findings}
