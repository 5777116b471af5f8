"""Recognizes private values by the names of their variables and options: users, hosts, and secrets."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

USERS: Final = "user names"
HOSTS: Final = "host names"
SECRETS: Final = "values of environments and command lines"

_USER: Final = re.compile(
    r"(?:\w*_)?(?:USERS?|USER_?NAME|USER_?ID|LOGNAME|LOGIN|ACTOR|ACCOUNT(?:_NAME)?|(?:AUTHOR|COMMITTER)_NAME|OWNER)",
    re.IGNORECASE,
)
_HOST: Final = re.compile(
    r"\w*HOSTS?(?:_?NAMES?|_?LIST)?|\w*NODE_?(?:LIST|NAMES?|ALIASES)|\w*ENDPOINTS?|\w*TOPOLOGY_ADDR|DISPLAY|COORDINATOR"
    r"|(?:\w*_)?(?:MASTER|SERVER|HEAD|COORDINATOR|SCHEDULER|LEADER|PEER|RDZV|RENDEZVOUS|CONTROLLER|NODE)"
    r"_?(?:ADDR(?:ESS)?|IP(?:_?ADDR)?|NODE|NAME|HOST)|SSH_(?:CONNECTION|CLIENT)"
    r"|(?:DNS_?|HOST_?)?DOMAIN_?NAME|USER(?:DNS)?DOMAIN|COMPUTERNAME|DEVICE_(?:DISPLAY_)?NAME",
    re.IGNORECASE,
)
_SECRET: Final = re.compile(
    r"\w*(?:PASSW|PASSPHRASE|SECRET|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL|(?:AUTH|ACCESS|BEARER)_?TOKEN)\w*",
    re.IGNORECASE,
)
# names that may also be ordinary words: `--key-dim 64`, `pad_token=mask`
_MAYBE_SECRET: Final = re.compile(
    r"\w*(?:TOKEN(?!I[SZ])|PRIVATE|COOKIE|SIGNATURE)\w*|(?:\w*_)?(?:KEY|PASS|PWD|AUTH|PAT)(?:_\w*)?", re.IGNORECASE
)
_ORDINARY: Final = re.compile(r"[a-z_]{,11}|[A-Z_]{,11}|[A-Z][a-z]{,10}")
# a folder is not a password
_FOLDER: Final = re.compile(r"(?:OLD)?PWD", re.IGNORECASE)
# definite names: in a range or an event, `node_name=add` may not be a host, and `key=float32x4` may not be a secret
PLAIN: Final = re.compile(
    r"user(?:_?name)?|logname|host(?:_?name)?|\w*master_addr(?:ess)?|\w*endpoint|\w*node_?list"
    r"|\w*(?:token|cookie|signature|pwd)\w*",
    re.IGNORECASE,
)

_NAME_PARTS: Final = (
    "passw|passphrase|pass|pwd|secret|token|key|auth|credential|cookie|private|signature|pat|user|login|logname|owner"
    "|account|host|addr|endpoint|node|coordinator"
)
# --password X, --password=X, password=X, "password": "X"
ASSIGNMENT: Final = re.compile(
    rf"(?<![\w-])(?:--?(?P<option>[\w-]{{,40}}?(?:{_NAME_PARTS})[\w-]{{,40}})(?:[ \0]+|\s?=\s?)"
    rf"|(?P<name>\w{{,40}}?(?:{_NAME_PARTS})\w{{,40}})[\"']?\s?(?P<sign>[=:])\s?)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|(?!-)[^\s\0\"';,()<>\[\]{}]+)",
    re.IGNORECASE,
)
# a quick check, which most texts do not pass
ASSIGNMENT_SIGN: Final = re.compile(rf"(?:{_NAME_PARTS})[\w\"'-]{{,40}}(?:\s?[=:]|[ \0])", re.IGNORECASE)

_VARIABLE: Final = re.compile(r"(?:^|(?<=[\s\0;,\"']))([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s\0;\"']*)")
_OPTION: Final = re.compile(r"(--?)([A-Za-z][\w.-]*?)(?:=(.*))?", re.DOTALL)
_WORD: Final = re.compile(r"(?:[^\s\0;\"']|\"[^\"]*\"|'[^']*')+")
_QUOTES: Final = str.maketrans("", "", "\"'")
_TARGET: Final = re.compile(r"(?:([\w.+-]+)@)?([A-Za-z][\w.-]*)(?::.*)?", re.DOTALL)
_RANGE: Final = re.compile(r"([^,\[\]]*)\[([\d,-]+)\]([^,\[\]]*)")
_MOST_NODES: Final = 512
_MIXED: Final = re.compile(r"(?=\S*[A-Za-z])(?=\S*\d)[^\s/.]{6,}")

_SHELLS: Final = frozenset(("ssh", "scp", "sftp", "rsync", "mosh", "pdsh"))
_WITH_VALUE: Final = frozenset(f"-{letter}" for letter in "bcDEeFIiJLlmOopQRSWw")
_DATABASES: Final = frozenset(("mysql", "mysqldump", "mysqladmin", "mariadb", "mongo", "mongosh"))
_REGISTRIES: Final = frozenset(("docker", "podman", "nerdctl", "skopeo", "helm", "oc", "az", "twine"))
_LAUNCHERS: Final = frozenset(("mpirun", "mpiexec", "orterun", "prterun", "horovodrun", "deepspeed"))
# the meaning of short options, with the programs that have them: python's -u means something else
_SHORT: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "p": (SECRETS, _DATABASES | _REGISTRIES | {"sshpass"}),
    "a": (SECRETS, frozenset(("redis-cli",))),
    "u": (USERS, _DATABASES | _REGISTRIES | {"curl", "sudo"}),
    "U": (USERS, frozenset(("psql", "pg_dump", "pg_restore", "smbclient"))),
    "l": (USERS, _SHELLS),
    "h": (HOSTS, _DATABASES | {"psql", "pg_dump", "pg_restore", "redis-cli"}),
    "H": (HOSTS, _LAUNCHERS),
    "w": (HOSTS, frozenset(("srun", "sbatch", "salloc", "pdsh"))),
}


def kind_of(name: str, value: str) -> str:
    """Return the kind of private data in a variable or an option, or ""."""
    # nsys: PROCESS_0:USER_NAME
    name = name.rpartition(":")[2].lstrip("-").replace("-", "_")
    for kind, names in ((USERS, _USER), (HOSTS, _HOST), (SECRETS, _SECRET)):
        if names.fullmatch(name):
            return kind
    is_maybe = _MAYBE_SECRET.fullmatch(name) and not _FOLDER.fullmatch(name) and not _ORDINARY.fullmatch(value)
    return SECRETS if is_maybe else ""


def kind_assigned(match: re.Match[str]) -> str:
    """Return the kind of a match of `ASSIGNMENT`, or "": in names of ranges, few words before `=` are variables."""
    value, name = unquote(match["value"]), match["name"]
    if match["option"]:
        return kind_of(match["option"], value)
    is_variable = match["sign"] == "=" and (name.isupper() or PLAIN.fullmatch(name))
    return kind_of(name, value) if is_variable or _SECRET.fullmatch(name) else ""


def unquote(value: str) -> str:
    """Return a value without the quotes around it."""
    return value[1:-1] if value[:1] in ("'", '"') and value[:1] == value[-1:] else value


def assigned_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the variables in a text with their values: environment variables, and definite secrets."""
    for name, value in _VARIABLE.findall(text):
        if name.isupper() or _SECRET.fullmatch(name):
            yield name, unquote(value)


def words_of(command: str) -> list[str]:
    """Return the words of a command line, without quotes."""
    return [word.rstrip(",").translate(_QUOTES) for word in _WORD.findall(command)]


def values_of_options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the private values of options in a command line, as kind and value, and the hosts and users of logins."""
    programs = set[str]()
    is_shell = False
    for previous, word, following in zip(("", *words), words, (*words[1:], ""), strict=False):
        programs.add(word.rpartition("/")[2])
        if is_shell and previous not in _WITH_VALUE and not word.startswith("-"):
            if target := _TARGET.fullmatch(word):
                yield HOSTS, target[2]
                if target[1]:
                    yield USERS, target[1]
            is_shell = False
        is_shell = is_shell or word.rpartition("/")[2] in _SHELLS
        option = _OPTION.fullmatch(word)
        if not option:
            continue
        dashes, name, value = option.groups()
        if value is None:
            value = "" if following.startswith("-") else following
        if kind := kind_of(name, value):
            yield kind, value
        elif dashes == "-":
            yield from _short(name, value, programs)


def _short(name: str, value: str, programs: set[str]) -> Iterator[tuple[str, str]]:
    kind, programs_with_option = _SHORT.get(name[0], ("", frozenset[str]()))
    if programs_with_option & programs:
        value = name[1:] or value
        user, _, password = value.partition(":") if kind == USERS else (value, "", "")
        yield kind, user
        if password:
            yield SECRETS, password
    elif name == "p" and _MIXED.fullmatch(value):
        yield SECRETS, value


def hosts_in(value: str) -> Iterator[str]:
    """Yield the hosts of a list: `a,b`, `node[01-03,7]`, `a:8 b:8`, `tcp://a:29500`."""
    for part in re.split(r"[\s;]+|,(?![^\[\]]*\])", value):
        name = re.sub(r"^\w+://|^[^@/]*@", "", part)
        if match := _RANGE.match(name):
            yield match[1].rstrip("-_.")
            for number in _node_numbers(match[2]):
                yield f"{match[1]}{number}{match[3].partition(':')[0]}"
        else:
            yield re.split(r"[:/(]", name, maxsplit=1)[0]


def _node_numbers(spans: str) -> Iterator[str]:
    for span in spans.split(","):
        first, _, last = span.partition("-")
        if first.isdecimal() and (last or first).isdecimal():
            for number in range(int(first), min(int(last or first), int(first) + _MOST_NODES) + 1):
                yield f"{number:0{len(first)}}"
