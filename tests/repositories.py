"""Git repositories of a program whose commits differ in how long its steps take, as far as the fake nsys goes."""

import subprocess
from pathlib import Path

from nightsight.collect.tools import allowed_environment

# a recording that is analyzed quickly: what matters is how runs are made, not what is in them
SMALL = "causes/unfused.sqlite.xz"
_WHO = ("-c", "user.name=Tester", "-c", "user.email=tester@example.invalid", "-c", "init.defaultBranch=main")


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ("git", *_WHO, *arguments), cwd=folder, env=allowed_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def program(fake: Path, factor: float, *, before: str = "") -> str:
    """Return a program whose steps take `factor` times as long as recorded, and 0.1 % more or less by the process."""
    stretch = fake.with_name("stretch")
    return f"""{before}
import random, pathlib
seed = pathlib.Path({str(fake.with_name("runs"))!r})
seed.touch()
seed.open("a").write("x")
noise = random.Random(seed.stat().st_size).gauss(0, 0.001)
pathlib.Path({str(stretch)!r}).write_text(str({factor} * (1 + noise)))
"""


def committed(folder: Path, files: dict[str, str], message: str) -> str:
    """Write files, commit them, and return the commit."""
    if not (folder / ".git").exists():
        folder.mkdir(parents=True, exist_ok=True)
        git(folder, "init", "--quiet")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(folder, "rev-parse", "HEAD")
