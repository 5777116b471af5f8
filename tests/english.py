"""Find habits of our English that no native speaker has: `python -m tests.english [FILE...]`, a part of `make lint`.

It reads messages, help, docstrings, comments and documents alike, and the spelling of names also in tests. CONTRIBUTING
lists the words that we use; its table of words to avoid is not checked. Words may be on two lines.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_FILES: Final = (
    "*.md",
    "action.yml",
    "docs/*.md",
    "pipeline/**/*.py",
    "workloads/**/*.py",
    "workloads/*.toml",
    "templates/*.html",
    "templates/macros/*.html",
    "templates/scripts/**/*.js",
    "templates/styles/*.css",
    "templates/ci/**/*",
)
HABITS: Final = {
    r"(?<!there\s)(?<!may\s)\b(?:is|are|was|were|be) no\b(?! longer| more than| \w+er than)": "`is not a ...`",
    r"\banew\b": "again",
    r"\bso (?:many|much|often)\b(?! (?:that|of the time that))": "say how many, or leave it out",
    r"\bof (?:its|their|his|our|your|one's) own\b": "its own ..., a separate ...",
    r"\bstands? for\b": "represents, means, replaces",
    r"\bfrom (?:[\w`%.,{}]+ ){1,4}on(?=[.,;:)]|$| \()": "from ... onwards, after, starting with",
    r"\b(?:wants?|wanted) (?:more|less|fewer|to be|another|an?)\b": "needs",
    r"\bwhat (?:it|they) (?:is|are) of\b": "name the thing",
    r"(?<![.`])\bbesides? (?=[a-z])(?!import|in )": "next to; as well",
    r"\bcalled for\b": "needed",
    r"\bas good as\b": "nearly",
    r"\bby and by\b": "gradually",
    r"\bnothing but\b": "only",
    r"\ball but\b(?= \w+ (?:are|is|was|were))": "all except",
    r"\bgives? back\b": "returns, releases",
    r"\btakes? away\b": "removes",
    r"\bnot any more\b": "no longer",
    r"\bwith each other\b(?= alike)": "alike",
    r"\b(?:is|are|was|were|not|also|be|been) told\b(?! to\b)|\btold (?:as|now|right)\b": "reported, detected, named",
    r"\b(?:tell|keep|kept|told|record)\w* (?:\w+ ){0,5}apart\b": "distinguish, separate",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"(?<!new\s)\bpromis(?:e|es|ed|ing)\b(?![_<(]|\.\w)": "predicted gain",
    r"\bnudg(?:e|es|ed|ing)\b(?![_\[.])": "perturb",
    r"\bwhat (?:passes|pays|goes|(?:is|was|were) got|(?:it|they) (?:gives?|takes?|took|gets?))\b": "name the thing",
    r"\b(?:runs?|ran|stay(?:s|ed)?|leaves?|left|keeps?|kept) (?:\w+ ){0,3}as (?:it|they) (?:is|are|was|were)\b": (
        "unchanged"
    ),
    r"\bgets? (?:rare|short|long|fast|slow|larg|small)e?r?\b": "becomes",
    r"\bcarr(?:y|ies|ied) (?:\w+ ){0,4}on\b(?=[.,;:)]|$)": "amplify, continue",
    r"\bput(?:s|ting)? together\b": "combine",
    r"\bin place of\b": "instead of",
    r"\ball the same\b(?= *[.,;:)]|$)": "still",
    r"\bof (?:theirs|ours|yours)\b": "their own ..., your own ...",
    r"\b(?:for good|now and then|whoever|not surely|none of (?:its|their|our) business)\b": "say it plainly",
    r"\bhas no need of\b|\bhave no need of\b": "does not need",
    r"\bless than (?:two|three|four|five|six|ten|twelve) (?!seconds|minutes|hours|times|percent)\w+s\b": "fewer than",
    r"\b(?:can|could) be had\b": "name what you mean",
    r"\btold by (?:its|their|the)\b|\bnumber that tells\b": "identified by; a checksum",
}
DOCUMENTS: Final = {r"(?<![`_/])\bremed(?:y|ies)\b(?![`_.])": "fix"}
"""Habits in documents only: in the code, a fix is a `Remedy`."""
# cancelled() is a function of GitHub's workflows, and aria-labelledby an attribute of HTML
BRITISH: Final = {
    r"(?<![^\W_])(?:un)?(?:(?:behavi|neighb|col|fav)our|centred|labell(?!edby)|modell|misspelt|spelt)\w*": "American",
    r"(?<![^\W_])(?:un)?(?:normal|optim|initial|recogn|serial|synchron|summar|organ|minim|maxim|util)"
    r"is(?:e[ds]?|er|ing|ation)(?![^\W_])": "-ize",
    r"(?<![^\W_])(?:analys(?:e[dr]?|ers|ing)|grey|centre|licence)(?![^\W_])": "American",
}
_SPELLED: Final = ("tests/**/*.py",)


# the end of a line between two words, with the beginning of the next line of a comment or a string
_SPACE: Final = r"(?: |[ ]?\"?\n[ ]*(?:# |\* |f?\")?)"
_WORDS_TO_AVOID: Final = re.compile(r"^\|[^|\n]+\|[^|\n]+\|[^|\n]*\|$", re.MULTILINE)


def habits(text: str, patterns: Mapping[str, str]) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the words and the advice for each habit in a text."""
    for pattern, advice in patterns.items():
        for match in re.finditer(pattern.replace(" ", _SPACE), text, re.IGNORECASE | re.MULTILINE):
            yield text.count("\n", 0, match.start()) + 1, match[0], advice


def files(patterns: Sequence[str]) -> list[Path]:
    """Return the files of these patterns that hold English."""
    every = {path for pattern in patterns for path in ROOT.glob(pattern)}
    unread = {"blind.py", "blind_cases.py", "fresh.py", "fresh_cases.py", "third.py", "third_cases.py"}
    left_out = {"node_modules", "vendor", *unread, Path(__file__).name}
    return sorted(path for path in every if path.is_file() and not left_out & {*path.parts})


def main(names: Sequence[str]) -> int:
    """Print what was found; return 1 if anything was."""
    everything = HABITS | BRITISH
    if names:
        every = dict.fromkeys(map(Path, names), everything)
    else:
        every = dict.fromkeys(files(_SPELLED), BRITISH) | dict.fromkeys(files(_FILES), everything)
    count = 0
    for path, patterns in every.items():
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.name == "CONTRIBUTING.md":
            text = _WORDS_TO_AVOID.sub("", text)
        elif path.suffix == ".md":
            patterns = patterns | DOCUMENTS  # noqa: PLW2901 (more of them)
        for line, words, advice in sorted(habits(text, patterns)):
            place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            sys.stdout.write(f"{place}:{line}: {words!r}: {advice}\n")
            count += 1
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
