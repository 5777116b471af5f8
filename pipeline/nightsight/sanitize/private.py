"""Recognizes and replaces private data in the texts of captures of any profiler."""

import contextlib
import getpass
import html
import json
import re
import socket
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import quote

from nightsight.events.frames import is_of_library
from nightsight.sanitize.looks import ADDRESS, HOME, IDENTIFIER, KEY, PATH, RELATIVE, SUSPECT
from nightsight.sanitize.named import (
    ASSIGNMENT,
    ASSIGNMENT_SIGN,
    HOSTS,
    SECRETS,
    USERS,
    assigned_in,
    hosts_in,
    kind_assigned,
    kind_of,
    unquote,
    values_of_options,
    words_of,
)
from nightsight.texts import without_private

KEYS: Final = "keys of services"
PATHS: Final = "paths"
ADDRESSES: Final = "addresses"
IDENTIFIERS: Final = "identifiers of machines and sessions"
FOLDERS: Final = "folders of files in stacks"
MESSAGES: Final = "messages of the profiler with paths, quotes or options"

_MARKS: Final = {USERS: "<user>", HOSTS: "<host>", SECRETS: "<private>", KEYS: "<private>"}

# a name that equals one of these words cannot be distinguished from other text
_GENERIC: Final = """
    root user users admin administrator ubuntu debian fedora centos rocky localhost localdomain local runner
    test tests tester data work worker workspace build builder docker container host node login head master server
    jovyan vscode nobody daemon anyone someone guest default main home shared public private project service vagrant
    pinned pageable managed
    cli batch debug normal short long dev prod interactive
    true false none null yes auto enabled disabled always never
"""
# words in names of kernels, operators, calls, metrics and GPUs that are also short names, or parts of long names
_OF_GPUS: Final = """
    ada adam adamw add addmm alias align all alloc alpha also amax amin ampere and any api arange arch arg args
    array async aten atomic attention attn autograd avg back backward bank base beta bias bind bit bits blackwell
    blas block bmm bool bound buf bus byte cache cast cat char chunk clamp class clip clone col color column comm
    compute cond conda const conv convolution copy cord core cpu create cross cta cub cublas cuda cudnn cufft curand
    cutlass cycle dense dep dev device dgrad dict dim div dma dot double dram driver drop dropout dynamo edge
    elementwise elu emb embedding empty end event exec exp expand expr eye fast fermi feynman fill fix flash flat
    flip float flow flush fma fmha fold for forward frame free full func function fused fusion gamma gather geforce
    gelu gemm gemv gen get global glu gpu grace grad gradient graph green grid group half hash head hinge hook
    hopper host huber id idle index inductor inf init inner inst int into item jit join kepler kernel kernels key
    lamb lane large last launch layer layernorm len lerp linear list load local lock log logic long loop loss
    lovelace lower main major map mark mask matmul max maxwell mean mem memcpy memory memset merge min mini minor
    mish mix mixed mode model module mul multi name named nan native nccl ncu neg net new nll node none nonzero nor
    norm normalize not nsight nsys null num numa nvidia nvjet nvlink nvtx ones only opt optim optimizer out over
    pack pad page pair param part pascal pass path peak per permute philox pin pipe pixel plain plan point pool pow
    prefill prelu prim process prod profiler program python pytorch quadro query queue quick rand random range rank
    rate ratio raw ray red reduce reduction ref reg relu rem rep replay reset reshape rms rng rnn roll rope rot
    round row rubin rule run same sample scalar scale scan scatter sdpa second seed select self sell selu seq set
    sgd sgemm shape share shift sigmoid sign silu simd simt sin size slice slot small smem soft softmax sort space
    sparse spec split sqrt square stack stage stall start stat state step stop store str stream stride sub sum swap
    swish sync sys table tail take tanh task tensor tesla tex text that the thread throughput tile time tma tok
    token top topk torch trace train transform transformer transpose tree tri triton true tune tuple turing type
    unary union unit unsigned update upper use val value var vec vector vera view vision void volta wait warp wave
    weight while word work wrap write xor zero zeros
"""
_COMMON: Final = frozenset(f"{_GENERIC} {_OF_GPUS}".split())
# shorter names occur everywhere; names of the second length are also found inside other words
_LEAST, _LEAST_INSIDE = 3, 6
# a value of this length is an identifier or a key, which ranges do not contain by chance; kernels, too, have long names
_LEAST_VALUE: Final = 16
_SYMBOL: Final = re.compile(r"(?!.*[^_]{12})[A-Za-z_]\w*_\w+_\w+")
_LEAST_SECRET: Final = 4
_NUMBER: Final = re.compile(r"[-+]?[\d.,:x%]+[A-Za-z]?")

# a sign that a text may contain private data
_SIGN: Final = re.compile(r"[/\\=@]|%2F|--|(?:^|[\s\0])-\w", re.IGNORECASE)
_LOGIN: Final = re.compile(r"://([^\s/:@]*):([^\s/@]+)@")
_AT: Final = re.compile(r"(?<![\w.+-])([A-Za-z][\w.+-]*)@([A-Za-z][\w.-]*[A-Za-z0-9])")
_VARIABLE: Final = re.compile(r"([A-Za-z_]\w*)=([^\n\0]*)")
_SEPARATOR: Final = re.compile(r"[/\\]")
_ROUNDS: Final = 8


class Private:
    """The known private data of one capture: it is learned first, and then removed from texts.

    `left_out` counts the items that are not in the result at all. `vocabulary`: words of the format. A name that equals
    one of them, or, if it is long, is a part of one, cannot be distinguished from it.
    """

    def __init__(self, vocabulary: Iterable[str] = ()) -> None:
        self.left_out: Counter[str] = Counter()
        self._replaced: defaultdict[str, set[str]] = defaultdict(set)
        self._vocabulary = "\n".join((*vocabulary, *_MARKS.values(), *sorted(_COMMON), "<path> <address> <id>")).lower()
        self._words = frozenset(re.findall(r"[^\W_]+", self._vocabulary))
        self._known: dict[str, str] = {}
        self._numbered: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._cleaned: dict[str, str] = {}

    # -- learning -------------------------------------------------------------------------------------------------

    def learn_machine(self) -> None:
        """Learn the user and the host of this machine."""
        # the user of a container may have no name
        with contextlib.suppress(OSError, KeyError):
            self._learn(getpass.getuser(), USERS)
        self.learn_host(socket.gethostname())
        self.learn_text(f"{Path.home()}/")

    def learn_host(self, name: str) -> None:
        """Learn a host, with and without its domain."""
        if not ADDRESS.fullmatch(name) or re.search(r"[A-Za-z]", name.rpartition(".")[2]):
            for part in (name, name.partition(".")[0]):
                self._learn(part, HOSTS)

    def learn_value(self, name: str, value: str) -> None:
        """Learn the value of a variable, an option or a fact about the machine, by its name."""
        self.learn_fact(value)
        if "ENVIRONMENT" in name.upper() and (variable := _VARIABLE.fullmatch(value)):
            self.learn_value(variable[1], variable[2])
        elif kind := kind_of(name, value):
            self._learn_kind(kind, value)
        elif name.rpartition(":")[2].upper() == "HOME":
            self._learn_home(value)
        else:
            for word in re.split(r"[\s\0;,=\"']+", value):
                is_long = len(word) >= _LEAST_VALUE and re.search(r"[^\W\d_]", word) and re.search(r"\d", word)
                if is_long and not _SYMBOL.fullmatch(word):
                    self._learn(word, SECRETS)

    def learn_command(self, words: Sequence[str]) -> None:
        """Learn the values of the options of a command line."""
        for kind, value in values_of_options(words):
            self._learn_kind(kind, value)

    def learn_fact(self, text: str) -> None:
        """Learn from a text that no report contains: also the users and hosts of addresses."""
        self.learn_text(text)
        for user, host in _AT.findall(text):
            self._learn(user, USERS)
            self.learn_host(host)

    def learn_text(self, text: str) -> None:
        """Learn the owners of home folders in a text, and the users, hosts and secrets in its variables and options."""
        if not _SIGN.search(text):
            return
        for match in HOME.finditer(text):
            self._learn(match[1].rstrip("."), USERS)
        for user, password in _LOGIN.findall(text):
            self._learn(user, USERS)
            self._learn(password, SECRETS, least=_LEAST_SECRET)
        for name, value in assigned_in(text):
            if name == "HOME":
                self._learn_home(value)
            elif kind := kind_of(name, value):
                self._learn_kind(kind, value)
        self.learn_command(words_of(text))

    def _learn_home(self, folder: str) -> None:
        # home folders may be anywhere on that machine
        self._learn(_SEPARATOR.split(folder.rstrip("/\\"))[-1], USERS)

    def _learn_kind(self, kind: str, value: str) -> None:
        if kind == HOSTS:
            for host in hosts_in(value):
                self.learn_host(host)
        elif kind == USERS:
            for part in {value, *value.split()}:
                self._learn(part, USERS)
        else:
            self._learn(value, SECRETS, least=_LEAST_SECRET)

    def _learn(self, value: str, kind: str, *, least: int = _LEAST) -> None:
        value = value.strip()
        if len(value) >= least and not self._is_common(value):
            self._known.setdefault(value, kind)

    def _is_common(self, value: str) -> bool:
        lower = value.lower()
        is_part = len(value) >= _LEAST_INSIDE and lower in self._vocabulary
        return is_part or lower in self._words or bool(_NUMBER.fullmatch(value))

    # -- cleaning -------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """Clean a text that is the content of a report: names of ranges, kernels and calls."""
        cleaned = self._cleaned.get(text)
        if cleaned is None:
            cleaned = self._cleaned[text] = self._settled(text, self._without_private)
            if len(self._cleaned) > 1 << 16:
                self._cleaned.clear()
        return cleaned

    def message(self, text: str) -> str:
        """Clean a message of a profiler, which the report shows without paths, quotes and options."""
        masked = without_private(text)
        if masked != text:
            self._replaced[MESSAGES].add(text)
        return self.text(masked)

    def file(self, path: str, *, is_relative: bool = False) -> str:
        """Return a file without its folder; a neutral folder or name shows whether it belongs to a library."""
        name = self.words(_SEPARATOR.split(path)[-1])
        is_module = is_of_library(name, is_relative=is_relative)
        if is_of_library(path, is_relative=is_relative):
            clean = name if is_module and not _SEPARATOR.search(path) else f"/site-packages/{name}"
        else:
            clean = f"./{name}" if is_module else name
        if clean != path:
            self._replaced[FOLDERS].add(path)
        return clean

    def function(self, name: str) -> str:
        """Return the name of a function in a stack, as the report shows it."""
        return self.text(without_private(name))

    def words(self, text: str) -> str:
        """Clean a text in the profiler's words, which may name the user or host; paths are those of the profiler."""
        return self._settled(text, self._without_known)

    def _settled(self, text: str, step: Callable[[str], str]) -> str:
        # the text around a replacement can become private in turn
        for _ in range(_ROUNDS):
            again = step(text)
            if again == text:
                break
            text = again
        return text

    def _without_private(self, text: str) -> str:
        # patterns that cover more than a name come first
        text = KEY.sub(self._key, text)
        if ASSIGNMENT_SIGN.search(text):
            text = ASSIGNMENT.sub(self._assignment, text)
        if SUSPECT.search(text):
            text = ADDRESS.sub(self._address, text)
            text = PATH.sub(self._path, text)
            text = IDENTIFIER.sub(lambda match: self._number(match[0], "id", IDENTIFIERS), text)
            text = RELATIVE.sub(self._base_name, text)
        return self._without_known(text)

    def _assignment(self, match: re.Match[str]) -> str:
        value, kind = unquote(match["value"]), kind_assigned(match)
        if not kind or self._is_common(value) or len(value) < _LEAST:
            return match[0]
        self._replaced[kind].add(value)
        return match[0].removesuffix(match["value"]) + match["value"].replace(value, _MARKS[kind])

    def _address(self, match: re.Match[str]) -> str:
        self._replaced[ADDRESSES].add(match[0])
        return "<address>"

    def _base_name(self, match: re.Match[str]) -> str:
        self._replaced[PATHS].add(match[0])
        return match[1]

    def _path(self, match: re.Match[str]) -> str:
        path = match[0].rstrip(")]}.:")
        return self._number(path, "path", PATHS) + match[0][len(path) :]

    def _number(self, text: str, word: str, kind: str) -> str:
        """Return the replacement of a text: different texts stay different, so that they are counted as before."""
        self._replaced[kind].add(text)
        numbers = self._numbered[kind]
        return f"<{word} {numbers.setdefault(text, len(numbers) + 1)}>"

    def _without_known(self, text: str) -> str:
        """Replace known data, keys, and the owners of home folders."""
        text = HOME.sub(self._home, KEY.sub(self._key, text))
        return self._pattern.sub(self._mark, text) if self._pattern else text

    def _home(self, match: re.Match[str]) -> str:
        self._replaced[USERS].add(match[1].lower())
        return match[0].removesuffix(match[1]) + _MARKS[USERS]

    def _key(self, match: re.Match[str]) -> str:
        self._replaced[KEYS].add(match[0])
        return _MARKS[KEYS]

    def _mark(self, match: re.Match[str]) -> str:
        # the pattern equates letters that `lower` does not, such as a dotless i
        kind = self._kinds.get(match[0].lower(), SECRETS)
        self._replaced[kind].add(match[0].lower())
        return _MARKS[kind]

    @property
    def removed(self) -> Counter[str]:
        """The number of different items of each kind that were left out or replaced."""
        return self.left_out + Counter({kind: len(texts) for kind, texts in self._replaced.items()})

    # -- searching ------------------------------------------------------------------------------------------------

    @cached_property
    def _kinds(self) -> dict[str, str]:
        return {form.lower(): kind for value, kind in self._known.items() for form in _forms(value)}

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        """Matches all known data; long names also inside words."""
        forms = {form for value in self._known for form in _forms(value)}
        parts = [
            re.escape(form) if len(form) >= _LEAST_INSIDE else _as_word(form)
            for form in sorted(forms, key=lambda form: (-len(form), form))
        ]
        return re.compile("|".join(parts), re.IGNORECASE) if parts else None

    def found_in(self, text: str) -> bool:
        """Whether a text contains known private data, a key, or a home folder."""
        return bool((self._pattern and self._pattern.search(text)) or KEY.search(text) or HOME.search(text))

    def encoded(self) -> list[bytes]:
        """Return known data, in lower case, as the bytes that a file does not contain by chance."""
        forms = (form.lower().encode() for value in self._known for form in _forms(value))
        return sorted({form for form in forms if len(form) >= _LEAST_INSIDE})


def _as_word(name: str) -> str:
    """Return the pattern of a short name: `ann` occurs in ann_x, ann7 and AnnModel, but not in channel."""
    start = r"(?:(?<![^\W_])|(?-i:(?<=[a-z])(?=[A-Z])))" if name[0].isalnum() else ""
    letter_follows = r"(?:(?![^\W\d_])|(?-i:(?<=[a-z])(?=[A-Z])))"
    end = r"(?![^\W_])" if name[-1].isdigit() else letter_follows if name[-1].isalnum() else ""
    return f"{start}{re.escape(name)}{end}"


def _forms(text: str) -> set[str]:
    """Return a text, and its forms in JSON, HTML, URLs and Unicode's normalizations."""
    normalized = {text, *(unicodedata.normalize(form, text) for form in ("NFC", "NFD"))}
    return {
        form for text in normalized for form in (text, json.dumps(text)[1:-1], html.escape(text), quote(text, safe=""))
    }
