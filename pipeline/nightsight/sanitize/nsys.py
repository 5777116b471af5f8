"""Rewrites an nsys export with only the columns that a report needs, and defines the content of each of them.

Nothing is deleted from the original. The result is a new file, so its pages never contained other data.
"""

import html
import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from nightsight.captures import EXPORT_AGAIN
from nightsight.errors import CaptureError
from nightsight.read.nsys.export import NVTX, OF_PROCESS, payload_of
from nightsight.read.nsys.nccl import facts_of_call, nccl_condition
from nightsight.read.nsys.samples import SAMPLES, frames_of
from nightsight.read.nsys.tables import refuse_foreign
from nightsight.read.sqlite import Database, decoded, read_only
from nightsight.read.vocabulary import OS_CALL
from nightsight.sanitize.private import Private

# the content of a column: a number; an id of StringIds, with the kind of that text; or a text
_NUMBER: Final = ""
_NAME: Final = "name"
_SYMBOL: Final = "symbol"
_FILE: Final = "file"
_FUNCTION: Final = "function"
_TEXT: Final = "text"
_MESSAGE: Final = "message"
_OF_STRINGS: Final = (_NAME, _SYMBOL, _FILE)
# a text with several of these uses is cleaned for the first of them
_BY_CARE: Final = (_FILE, _NAME, _FUNCTION, _SYMBOL)


def _rules_by_column(numbers: str, **others: str) -> Mapping[str, str]:
    return {**dict.fromkeys(numbers.split(), _NUMBER), **others}


_ON_STREAM: Final = "start end deviceId contextId streamId correlationId globalPid greenContextId graphNodeId"
_KEPT: Final[Mapping[str, Mapping[str, str]]] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": _rules_by_column(
        f"{_ON_STREAM} gridX gridY gridZ blockX blockY blockZ registersPerThread staticSharedMemory "
        "dynamicSharedMemory",
        demangledName=_NAME,
        shortName=_NAME,
        mangledName=_NAME,
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": _rules_by_column(f"{_ON_STREAM} bytes copyKind srcKind dstKind virtualAddress"),
    "CUPTI_ACTIVITY_KIND_MEMSET": _rules_by_column(f"{_ON_STREAM} bytes memKind"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _rules_by_column(f"{_ON_STREAM} graphId"),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _rules_by_column(f"{_ON_STREAM} syncType eventId eventSyncId"),
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": _rules_by_column("globalPid streamId correlationId eventId eventSyncId"),
    "CUDA_GRAPH_NODE_EVENTS": _rules_by_column("start end globalTid graphNodeId originalGraphNodeId"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": _rules_by_column(
        "start end globalTid correlationId eventClass returnValue callchainId", nameId=_NAME
    ),
    NVTX: _rules_by_column("start end globalTid endGlobalTid eventType domainId category", textId=_NAME, text=_TEXT),
    "ThreadNames": _rules_by_column("globalTid priority", nameId=_NAME),
    "OSRT_API": _rules_by_column("start end globalTid eventClass", nameId=_NAME),
    "PROFILER_OVERHEAD": _rules_by_column("start end globalTid", nameId=_NAME),
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": _rules_by_column(
        "start globalPid address sourceLine", CpuInstruction=_NAME, sourceFile=_FILE
    ),
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": _rules_by_column("start end globalPid deviceId address numberOfPageFaults"),
    "CUDA_GPU_MEMORY_USAGE_EVENTS": _rules_by_column("start globalPid deviceId memKind bytes memoryOperationType"),
    "GPU_METRICS": _rules_by_column("timestamp typeId metricId value"),
    "TARGET_INFO_GPU_METRICS": _rules_by_column("typeId metricId", metricName=_TEXT),
    "CUDA_CALLCHAINS": _rules_by_column("id stackDepth unresolved", symbol=_SYMBOL, module=_FILE),
    "DIAGNOSTIC_EVENT": _rules_by_column("timestamp severity", text=_MESSAGE),
    "ANALYSIS_DETAILS": _rules_by_column("duration stopTime"),
    "TARGET_INFO_GPU": _rules_by_column(
        "id smCount totalMemory l2CacheSize memoryBandwidth clockRate computeMajor computeMinor", name=_TEXT
    ),
    "TARGET_INFO_CUDA_DEVICE": _rules_by_column("pid cudaId gpuId"),
    "TARGET_INFO_SESSION_START_TIME": _rules_by_column("utcEpochNs"),
}
# tables of names and values: the values to keep, and their patterns
_VERSION: Final = r"[0-9]+(?:\.[0-9]+){0,4}(?:-[0-9a-f]{1,12})?"
_EXPORTED: Final = {"EXPORT_PRODUCT_VERSION": _VERSION, "EXPORT_SCHEMA_VERSION": _VERSION}
_FACTS: Final[Mapping[str, Mapping[str, str]]] = {
    "META_DATA_EXPORT": _EXPORTED,
    "EXPORT_META_DATA": _EXPORTED,
    "META_DATA_CAPTURE": {"CAPTURE_EVENT_TYPE": r"[A-Z][A-Za-z]{1,39}"},
    "TARGET_INFO_SYSTEM_ENV": {
        "NvDriverVersion": _VERSION,
        "CudaDriverVersion": r"[0-9]{1,9}",
        "CpuDescription": r"[^\n]{1,120}",
        "OsDescription": r"[^\n]{1,120}",
    },
}
# tables that a report counts but does not read, by nsys's prefixes: only the number of their rows is kept
_COUNTED: Final = re.compile(
    r"(?:CUPTI|CUDA|CUDLA|CUBLAS|CUDNN|COMPOSITE|SAMPLING|SCHED|OSRT|MPI|UCP|OPENMP|OPENACC|OPENGL|KHR|VULKAN|DX11|DX12|"
    r"DXGI|WDDM|ETW|GENERIC|GPU|NIC|NET|NVVIDEO|NVMEDIA|NVTX|PMU|PERF|SLI|QNX|FECS|D3D11|D3D12|SYSCALL|SOC|DLA|OPENSHMEM|"
    r"NVENC|NVDEC|UNCORE|LINUX|STUTTER|RUNNABLE|TRACE|ARM|CPU)_[A-Z0-9_]{1,60}"
)
_NOT_COUNTED: Final = re.compile(r"NVTX_PAYLOAD_\w+")
# the words of a command line, each in a separate row
_ARGUMENT: Final = re.compile(r"(.*ARG\D*?)_?(\d*)")
_PAYLOAD: Final = "jsonText"
_MARK: Final = 34
_EVENTS: Final = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    NVTX,
    "OSRT_API",
)
# signs of private data in a text; PyTorch's operators are named `aten::mm, seq = 7`
_SIGNS: Final = ("/home/", "Users", "%2F", "%2f", "\\/", "://", "--", " -", "=")
_OPERATOR: Final = "* = *, op_id = *"

VOCABULARY: Final = (
    *_KEPT,
    *_FACTS,
    *(name for columns in _KEPT.values() for name in columns),
    *(name for facts in _FACTS.values() for name in facts),
    f"StringIds id value INTEGER TEXT PRIMARY KEY CREATE TABLE SQLite format {SAMPLES} Frames Function File Line",
    "Cuda NvtxEvents OSRuntime NVIDIA Intel AMD GeForce Tesla Ubuntu Linux",
)


def sanitize_nsys(source: Path, target: Path, private: Private) -> None:
    """Write the parts of the export `source` that a report needs to the new file `target`.

    CaptureError if it is damaged.
    """
    database = Database(source)
    refuse_foreign(database)
    try:
        with closing(sqlite3.connect(target, isolation_level=None, uri=True)) as connection:
            _Copy(connection, database, private).write()
    except sqlite3.Error as error:
        raise CaptureError(
            f"{source.name}: cannot be copied: {error}", "Export it again, or look for disk space."
        ) from error


def texts_of_nsys(path: Path) -> Iterator[str]:
    """Return all texts in an export, and the names of its tables and columns."""
    database = Database(path)
    with closing(sqlite3.connect(read_only(path.absolute()), uri=True)) as connection:
        for table, columns in database.columns.items():
            yield from (table, *columns)
            for column in map(_quote, sorted(columns)):
                values = f"SELECT DISTINCT CAST({column} AS BLOB) FROM {_quote(table)}"  # noqa: S608
                for (text,) in connection.execute(f"{values} WHERE typeof({column}) IN ('text', 'blob')"):
                    yield decoded(text)


class _Copy:
    """An export that is being rewritten."""

    def __init__(self, connection: sqlite3.Connection, database: Database, private: Private) -> None:
        self.connection = connection
        self.source = database
        self.private = private
        self.of_stacks = set[tuple[int, str]]()
        for name, function in {
            "clean_text": lambda text: private.text(decoded(text)),
            "clean_message": lambda text: private.message(decoded(text)),
            "clean_stack": self._stack,
            "clean_call": _call,
        }.items():
            connection.create_function(name, 1, function)
        for statement in (
            "PRAGMA encoding = 'UTF-8'",
            "PRAGMA page_size = 4096",
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "PRAGMA temp_store = MEMORY",
            "CREATE TEMP TABLE used (id INTEGER, use TEXT, PRIMARY KEY (id, use)) WITHOUT ROWID",
        ):
            connection.execute(statement)
        connection.execute("ATTACH ? AS source", [read_only(database.path.absolute())])

    def write(self) -> None:
        self._learn()
        self.connection.execute("BEGIN")
        for table in sorted(self.source.columns):
            if table in _KEPT:
                self._copy(table)
            elif table in _FACTS:
                self._facts(table)
            elif table != "StringIds" and not table.startswith("sqlite_"):
                self._shell(table)
        if "StringIds" in self.source.columns:
            self._strings()
        self.connection.execute("COMMIT")

    # -- learning -------------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Learn private data from all texts of the source, including texts that are not copied."""
        for table in (table for table in _FACTS if table in self.source.columns):
            self._learn_facts(table)
        for table, columns in self.source.columns.items():
            # columns of numbers are left out: a text in one of them is refused later
            numbers = {name for name, use in _KEPT.get(table, {}).items() if use not in (_TEXT, _MESSAGE)}
            names = sorted(columns - numbers)
            for texts in self._rows(table, *names, where=" OR ".join(map(_has_sign, names)) or "0"):
                for text in texts:
                    self.private.learn_text(text)

    def _learn_facts(self, table: str) -> None:
        arguments = []
        for name, value in self._rows(table, "name", "value"):
            if name not in _FACTS[table]:
                self.private.learn_value(name, value)
                self.private.left_out[_kind_of_fact(name)] += 1
                if match := _ARGUMENT.fullmatch(name):
                    arguments.append((match[1], int(match[2] or 0), value))
        for _, words in groupby(sorted(arguments, key=itemgetter(0, 1)), key=itemgetter(0)):
            self.private.learn_command([word for _, _, word in words])

    def _rows(self, table: str, *columns: str, where: str = "1") -> Iterator[tuple[str, ...]]:
        if not columns or not set(columns) <= self.source.columns[table]:
            return
        texts = ", ".join(f"CAST(COALESCE({_quote(column)}, '') AS BLOB)" for column in columns)
        for row in self.connection.execute(f"SELECT {texts} FROM source.{_quote(table)} WHERE {where}"):  # noqa: S608
            yield tuple(decoded(value) for value in row)

    # -- copying --------------------------------------------------------------------------------------------------

    def _copy(self, table: str) -> None:
        """Copy the columns to keep, with their row numbers: gaps in these show damage."""
        present = {name: use for name, use in _KEPT[table].items() if name in self.source.columns[table]}
        if not present:
            self._shell(table)
            return
        numbers = [name for name, use in present.items() if use not in (_TEXT, _MESSAGE)]
        self._refuse_texts(table, numbers)
        expressions = {name: self._expression(table, name, use) for name, use in present.items()}
        if table == NVTX and (payload := self._payloads()):
            expressions[_PAYLOAD] = payload
        self.private.left_out["columns"] += len(self.source.columns[table] - expressions.keys())
        definitions = ", ".join(f"{_quote(name)} {'INTEGER' if name in numbers else 'TEXT'}" for name in expressions)
        self.connection.execute(f"CREATE TABLE main.{_quote(table)} ({definitions})")
        self.connection.execute(
            f"INSERT INTO main.{_quote(table)} (rowid, {', '.join(map(_quote, expressions))}) "  # noqa: S608
            f"SELECT rowid, {', '.join(expressions.values())} FROM source.{_quote(table)}"
        )
        for name, use in present.items():
            if use in _OF_STRINGS:
                self.connection.execute(
                    f"INSERT OR IGNORE INTO used SELECT DISTINCT {_quote(name)}, '{use}' FROM main.{_quote(table)} "  # noqa: S608
                    f"WHERE {_quote(name)} IS NOT NULL"
                )

    def _refuse_texts(self, table: str, numbers: list[str]) -> None:
        """Raise CaptureError if a column of numbers holds anything else: SQLite would copy it."""
        is_other = " OR ".join(f"typeof({_quote(name)}) NOT IN ('integer', 'null')" for name in numbers) or "0"
        if self.connection.execute(f"SELECT 1 FROM source.{_quote(table)} WHERE {is_other} LIMIT 1").fetchone():  # noqa: S608
            raise CaptureError(
                f"{self.source.path.name}: table {table} has values that are not integers in integer columns",
                EXPORT_AGAIN,
            )

    def _expression(self, table: str, name: str, use: str) -> str:
        column = _quote(name)
        if use in (_TEXT, _MESSAGE):
            return f"CASE WHEN {column} IS NOT NULL THEN clean_{use}(CAST({column} AS BLOB)) END"
        if (table, name) == ("OSRT_API", "nameId") and "eventClass" in self.source.columns[table]:
            # reports show only plain calls
            return f'CASE WHEN "eventClass" = {OS_CALL} THEN {column} ELSE -1 END'
        if (table, name) == ("ThreadNames", "nameId") and "globalTid" in self.source.columns[table]:
            # nsys lists the threads of all visible processes, of any user
            return f'CASE WHEN "globalTid" & {OF_PROCESS} IN ({self._processes()}) THEN {column} ELSE -1 END'
        return column

    def _processes(self) -> str:
        queries = [
            f'SELECT "{column}" & {OF_PROCESS} FROM source."{table}"'  # noqa: S608
            for table in _EVENTS
            for column in ("globalTid", "globalPid")
            if column in self.source.columns.get(table, ())
        ]
        return " UNION ".join(queries) or "SELECT NULL"

    def _payloads(self) -> str:
        """Return the expression for the parts of payloads to keep: stacks of Python samples, sizes of NCCL calls."""
        text = payload_of(self.source, schema="source")
        if not text or "eventType" not in self.source.columns[NVTX]:
            return ""
        frames = f"""json_quote(json_extract({text}, '$."{SAMPLES}".Frames'))"""
        stack = f'WHEN "eventType" = {_MARK} AND json_valid({text}) THEN clean_stack(CAST({frames} AS BLOB))'
        return f"CASE {stack} WHEN {nccl_condition(text)} THEN clean_call(CAST({text} AS BLOB)) END"

    def _stack(self, text: bytes) -> str | None:
        frames = frames_of(text or b"")
        for function, file, _ in frames:
            self.of_stacks |= {(function, _FUNCTION), (file, _FILE)}
        if not frames:
            return None
        entries = [dict(zip(("Function", "File", "Line"), frame, strict=True)) for frame in frames]
        return json.dumps({SAMPLES: {"Frames": entries}}, separators=(",", ":"))

    def _facts(self, table: str) -> None:
        self.connection.execute(f"CREATE TABLE main.{_quote(table)} (name TEXT, value TEXT)")
        for name, value in self._rows(table, "name", "value"):
            if name in _FACTS[table] and re.fullmatch(_FACTS[table][name], value):
                self.connection.execute(
                    f"INSERT INTO main.{_quote(table)} VALUES (?, ?)",  # noqa: S608
                    [name, self.private.text(value)],
                )

    def _shell(self, table: str) -> None:
        """Keep only the number of rows of a table, which is the number of its last row."""
        self.private.left_out["tables"] += 1
        if not _COUNTED.fullmatch(table) or _NOT_COUNTED.fullmatch(table) or self.private.found_in(table):
            return
        last = self.source.last_row(table)
        self.connection.execute(f"CREATE TABLE main.{_quote(table)} (id INTEGER PRIMARY KEY)")
        if last > 0:
            self.connection.execute(f"INSERT INTO main.{_quote(table)} VALUES (?)", [last])  # noqa: S608

    def _strings(self) -> None:
        """Copy the strings that the remaining columns use, each cleaned for its use."""
        self._refuse_texts("StringIds", ["id"])
        self.connection.executemany("INSERT OR IGNORE INTO used VALUES (?, ?)", sorted(self.of_stacks))
        clean: dict[str, Callable[[str], str]] = {_NAME: self.private.text, _SYMBOL: self.private.message}
        clean |= {_FILE: _of_html(self.private.file), _FUNCTION: _of_html(self.private.function)}
        cleaners = [clean[use] for use in _BY_CARE]
        self.connection.create_function("clean_string", 2, lambda text, place: cleaners[place](decoded(text)))
        places = " ".join(f"WHEN '{use}' THEN {place}" for place, use in enumerate(_BY_CARE))
        self.connection.execute('CREATE TABLE main."StringIds" (id INTEGER, value TEXT)')
        self.connection.execute(
            'INSERT INTO main."StringIds" '  # noqa: S608
            "SELECT s.id, clean_string(CAST(COALESCE(s.value, '') AS BLOB), u.place) "
            f"FROM (SELECT id, MIN(CASE use {places} END) AS place FROM used GROUP BY id) AS u "
            'JOIN source."StringIds" AS s '
            "ON u.id = s.id ORDER BY s.rowid"
        )
        total, copied = (
            self.connection.execute(f'SELECT COUNT(*) FROM {schema}."StringIds"').fetchone()[0]  # noqa: S608
            for schema in ("source", "main")
        )
        self.private.left_out["strings"] += total - copied


def _has_sign(name: str) -> str:
    """Return the condition that a column contains a text with one of the signs; numbers are skipped quickly."""
    column = _quote(name)
    signs = " OR ".join(f"instr({column}, '{sign}')" for sign in _SIGNS)
    return f"(typeof({column}) IN ('text', 'blob') AND {column} NOT GLOB '{_OPERATOR}' AND ({signs}))"


def _call(text: bytes) -> str | None:
    """Return the whole numbers in the payload of an NCCL call that a report reads."""
    facts = facts_of_call(text)
    return json.dumps(facts, separators=(",", ":")) if facts else None


def _of_html(clean: Callable[[str], str]) -> Callable[[str], str]:
    """Return a function that cleans texts whose names nsys escaped as in HTML; it escapes only if necessary."""

    def cleaned(text: str) -> str:
        plain = clean(html.unescape(text))
        return html.escape(plain, quote=False) if html.unescape(plain) != plain else plain

    return cleaned


def _kind_of_fact(name: str) -> str:
    """Return the kind under which a fact of a capture is counted if it is left out."""
    if "ENVIRONMENT" in name.upper():
        return "environment variables"
    if re.search("ARGUMENT|COMMAND|EXE|WORKING|PATH|FILE|PACKAGE|LAUNCH_APP", name):
        return "parts of command lines"
    return "facts about the machine and the capture"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
