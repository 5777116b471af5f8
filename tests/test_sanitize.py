"""Sanitized captures: the report is the same, and nothing private is in any byte of them."""

import gzip
import json
import lzma
import re
import shutil
import sqlite3
import string
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.captures import unprofiled_file
from nightsight.errors import CaptureError, MissingTable, UsageError
from nightsight.events.frames import frame_name, is_of_library
from nightsight.progress import silent
from nightsight.read import MOST_BYTES, chrome, read
from nightsight.render import FORMATS
from nightsight.runs.unprofiled import to_text
from nightsight.sanitize import sanitize
from nightsight.sanitize.private import Private
from nightsight.stats import REPORTS, stats_table, write_stats
from nightsight.tables import TABLES, conform
from nightsight.texts import without_private
from nightsight.workflows.opening import Reading, open_file
from tests import kineto, ncu
from tests.build import GENERATIONS, build
from tests.damage import PICTURE
from tests.properties import examples
from tests.recorded import DATA, of_laws

# but the summary, which has no launches: no reader takes it
PAGES = ("ncu/*.details*.csv.xz", "ncu/*.raw*.csv.xz", "ncu/*.base.csv.xz")
RECORDED = of_laws("*.sqlite.xz", "*.json.gz", *PAGES)
READING = Reading(None, MOST_BYTES, silent)
# not a word of anything
TOKEN = "qzvxkwq7"
HOME = f"/home/{TOKEN}/runs"


def cleaned(source: Path, folder: str = "clean") -> Path:
    target = source.parent / folder / source.name
    sanitize(source, target, most_bytes=MOST_BYTES)
    return target


def report_of(path: Path) -> str:
    return open_file(path, FORMATS["json"], READING).report.to_json()


def stats_of(path: Path) -> dict[str, str]:
    profile = read(path)
    texts = {}
    for report in REPORTS:
        try:
            texts[report] = write_stats(stats_table(profile, report), "csv")
        except MissingTable as error:
            texts[report] = str(error)
    return texts


def content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def holds(path: Path, text: str) -> bool:
    return text.lower().encode() in content(path).lower()


# -- recorded captures --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", RECORDED)
def test_the_report_is_the_same_and_what_is_clean_stays_as_it_is(packed: Path, tmp_path: Path) -> None:
    source = tmp_path / packed.name.removesuffix(".xz")
    source.write_bytes(lzma.decompress(packed.read_bytes()) if packed.suffix == ".xz" else packed.read_bytes())
    result = cleaned(source)
    assert report_of(result) == report_of(source)
    again = cleaned(result, "again")
    assert again.read_bytes() == result.read_bytes()


@pytest.mark.parametrize("name", ["train", "unified_memory", "ddp2"])
def test_the_tables_of_nsys_stats_are_the_same(name: str, capture_file: Callable[[str], Path], tmp_path: Path) -> None:
    source = tmp_path / "capture.sqlite"
    shutil.copy(capture_file(name), source)
    before, after = (stats_of(path) for path in (source, cleaned(source)))
    # it prints the folders of source files
    assert {report for report in REPORTS if before[report] != after[report]} <= {"um_cpu_page_faults_sum"}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_exports_of_all_generations_keep_their_report(generation: str, tmp_path: Path) -> None:
    source = build(PICTURE, tmp_path / "capture.sqlite", generation=generation)
    assert report_of(cleaned(source)) == report_of(source)


def test_the_figures_beside_a_capture_go_along(capture_file: Callable[[str], Path], tmp_path: Path) -> None:
    source = tmp_path / "train.sqlite"
    shutil.copy(capture_file("train"), source)
    rows = [
        {"path": path, "instances": 5, "med_ns": 1e6, "on_gpu": True, "host_ns": 10**5}
        for path in ("step", f"load {HOME}/a.bin")
    ]
    columns = {name: [row[name] for row in rows] for name in TABLES["timed_ranges"]}
    unprofiled_file(source).write_text(to_text({"timed_ranges": conform("timed_ranges", pd.DataFrame(columns))}))
    extra = unprofiled_file(cleaned(source))
    assert [row["path"] for row in json.loads(extra.read_text())["timed_ranges"]] == ["step", "load <path 1>"]
    unprofiled_file(source).write_text("{}")
    assert report_of(cleaned(source, "damaged")) == report_of(source)
    assert not unprofiled_file(source.parent / "damaged" / source.name).exists()


# -- planted secrets ----------------------------------------------------------------------------------------------

# texts that are what a report shows: only what looks private, or is known to be, can be taken out of them
CONTENT = {
    ("NVTX_EVENTS", "text"),
    ("StringIds", "value"),
    ("DIAGNOSTIC_EVENT", "text"),
    ("TARGET_INFO_GPU", "name"),
    ("TARGET_INFO_GPU_METRICS", "metricName"),
}
LETTERS = st.text(string.ascii_lowercase, min_size=8, max_size=12).map(lambda text: f"zqx{text}9")


def plant(path: Path, token: str) -> None:
    """Write a secret into each text of an export, in tables and columns that nsys has, and in others."""
    with closing(sqlite3.connect(path)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for column in [row for row in connection.execute(f'PRAGMA table_info("{table}")') if row[2] == "TEXT"]:
                name = column[1]
                if (table, name) in CONTENT:
                    planted = f"{name} || ' /home/{token}/my runs/{token}.bin and {token}@example.org'"
                else:
                    planted = f"'{token}'"
                connection.execute(f'UPDATE "{table}" SET "{name}" = {planted}')
            connection.execute(f'ALTER TABLE "{table}" ADD COLUMN "added" TEXT DEFAULT \'{token}\'')
        connection.execute(f"CREATE TABLE PROCESS_NOTES AS SELECT '{token}' AS note")
        connection.execute(f'CREATE TABLE "{token}" (id INTEGER)')
        connection.execute(f'CREATE TABLE "CUDA_{token.upper()}" (id INTEGER)')
        connection.execute("CREATE TABLE IF NOT EXISTS META_DATA_CAPTURE (name TEXT, value TEXT)")
        connection.execute(
            f"INSERT INTO META_DATA_CAPTURE (name, value) VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'USER={token}')"
        )
        connection.commit()


@pytest.mark.parametrize("name", ["everything", "python_names"])
def test_a_secret_in_any_text_of_an_export_is_gone(
    name: str, capture_file: Callable[[str], Path], tmp_path: Path
) -> None:
    source = tmp_path / "capture.sqlite"
    shutil.copy(capture_file(name), source)
    plant(source, TOKEN)
    assert holds(source, TOKEN)
    result = cleaned(source)
    assert not holds(result, TOKEN)
    assert not holds(result, TOKEN.upper())
    report_of(result)
    assert cleaned(result, "again").read_bytes() == result.read_bytes()


@examples(20)
@given(token=LETTERS, generation=st.sampled_from(GENERATIONS))
def test_no_secret_of_an_export_of_any_generation_survives(
    token: str, generation: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    source = build(PICTURE, tmp_path_factory.mktemp("planted") / "capture.sqlite", generation=generation)
    plant(source, token)
    assert not holds(cleaned(source), token)


def test_pages_that_the_export_has_freed_do_not_get_into_the_result(tmp_path: Path) -> None:
    source = build(PICTURE, tmp_path / "capture.sqlite", generation="2025")
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("CREATE TABLE NOTES (text TEXT)")
        connection.executemany("INSERT INTO NOTES VALUES (?)", [(f"{TOKEN} {row}" * 50,) for row in range(200)])
        connection.commit()
        connection.execute("DROP TABLE NOTES")
        connection.commit()
    assert holds(source, TOKEN)
    result = cleaned(source)
    assert not holds(result, TOKEN)
    with closing(sqlite3.connect(result)) as connection:
        assert connection.execute("PRAGMA freelist_count").fetchone() == (0,)


def test_only_strings_in_use_are_kept_and_threads_of_other_programs_have_no_names(
    capture_file: Callable[[str], Path], tmp_path: Path
) -> None:
    source = tmp_path / "train.sqlite"
    shutil.copy(capture_file("train"), source)
    with closing(sqlite3.connect(source)) as connection:
        connection.execute(f"INSERT INTO StringIds VALUES (900001, '{TOKEN} unused'), (900002, '{TOKEN} thread')")
        connection.execute("INSERT INTO ThreadNames VALUES (900002, 20, 77 << 24)")
        connection.commit()
    assert not holds(cleaned(source), TOKEN)


def test_text_in_a_column_of_numbers_is_refused(tmp_path: Path) -> None:
    source = build(PICTURE, tmp_path / "capture.sqlite", generation="2025")
    with closing(sqlite3.connect(source)) as connection:
        connection.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = '{TOKEN}' WHERE rowid = 1")
        connection.commit()
    with pytest.raises(CaptureError, match="values that are not integers in integer columns") as caught:
        cleaned(source)
    assert TOKEN not in str(caught.value)
    assert list((tmp_path / "clean").iterdir()) == []


def plant_in_trace(value: Any, token: str, field: str = "") -> Any:
    """Write a secret into each text of a trace; where a report shows the text, as a path."""
    if isinstance(value, dict):
        planted = {name: plant_in_trace(item, token, name) for name, item in value.items()}
        return planted | {token: token, "hostname": token, "folder": [f"/home/{token}/x", {"user": token}]}
    if isinstance(value, list):
        return [plant_in_trace(item, token, field) for item in value]
    if not isinstance(value, str) or field in ("ph", "ts", "s", "bp", "cat") or value == "CPU functions":
        return value
    shown = {"name", "Input type", "Concrete Inputs", "Collective name", "dtype", "Call stack"}
    return f"{value} /home/{token}/a" if field in shown or field.startswith("Process Group") else token


@pytest.mark.parametrize("name", ["mini_torch", "ops_2.13.0", "events_2.13.0", "kin"])
def test_a_secret_in_any_text_of_a_trace_is_gone(name: str, tmp_path: Path) -> None:
    if name == "kin":
        document: Any = {"traceEvents": [kineto.kernel(), kineto.call()], "host_name": "there"}
    else:
        document = json.loads(gzip.decompress(next(DATA.rglob(f"{name}.json.gz")).read_bytes()), strict=False)
    source = tmp_path / "trace.json.gz"
    events = document if isinstance(document, list) else document["traceEvents"]
    events += [kineto.call(cat=f"kind {HOME}", ph="i"), kineto.call(pid=TOKEN, tid=TOKEN, id=TOKEN, cat="Trace")]
    source.write_bytes(gzip.compress(json.dumps(plant_in_trace(document, TOKEN)).encode()))
    result = cleaned(source)
    assert not holds(result, TOKEN)
    assert cleaned(result, "again").read_bytes() == result.read_bytes()


def test_what_a_trace_says_of_the_machine_is_taken_out_of_names_as_well(tmp_path: Path) -> None:
    events = (
        kineto.kernel(name=f"fused_{TOKEN}_kernel"),
        kineto.call(args={"correlation": 5, "Trace name": TOKEN}),
        kineto.call(cat="user_annotation", name="rank of box77", args={"hostname": "box77", "stage": "rank"}),
        kineto.call(cat="user_annotation", name=f"step on {TOKEN.upper()} of ann's", args={}),
        kineto.call(cat="python_function", name=f"/home/anette/work/{TOKEN}.py(12): load", args={}),
        {"ph": "M", "name": "thread_name", "pid": 44, "tid": 45, "args": {"name": f"thread 45 ({TOKEN})"}},
    )
    source = kineto.write(tmp_path, *events, host_name=TOKEN, traceName="/home/ann/x.json")
    result = cleaned(source)
    assert not holds(result, TOKEN)
    names = [event["name"] for event in json.loads(result.read_text())["traceEvents"]]
    assert names == [
        "fused_<host>_kernel",
        "cudaLaunchKernel",
        "rank of <host>",
        "step on <host> of <user>'s",
        "./<host>.py(12): load",
        "thread_name",
    ]


def test_counters_of_kernels_are_kept_by_the_names_of_metrics(tmp_path: Path) -> None:
    counters = {"smsp__inst_executed.sum": 5.0, "kineto__tensor_core_insts": 7, f"{TOKEN}__x": 1, TOKEN: 2}
    counted = kineto.kernel(cat="cuda_profiler_range", name="k", args=counters)
    source = kineto.write(tmp_path, counted, kineto.call(), host_name=TOKEN)
    kept = json.loads(cleaned(source).read_text())["traceEvents"][0]["args"]
    assert kept == {"smsp__inst_executed.sum": 5.0, "kineto__tensor_core_insts": 7}


def test_fields_of_a_wrong_type_are_counted_as_before(tmp_path: Path) -> None:
    odd = kineto.kernel(
        args={**kineto.ON_GPU, "correlation": "none", "grid": {"x": 1}, "registers per thread": [TOKEN]}
    )
    source = kineto.write(tmp_path, odd, kineto.call(args={"correlation": True}))
    result = cleaned(source)
    assert report_of(result) == report_of(source)
    assert not holds(result, TOKEN)


def test_a_secret_in_any_text_of_a_page_of_ncu_is_gone(tmp_path: Path) -> None:
    header = [*ncu.IDENTITY, "User", "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"]
    header += ["gpu__time_duration.sum", "device__attribute_display_name", "device__attribute_gpu_pci_bus_id"]
    ranges = f'7 "<default domain>:load {HOME}/x:none:none:RGB:0xff:REGISTERED:load {HOME}/x" "lib:step:{TOKEN}:1" '
    launch = ncu.identity(kernel=f"copy<{TOKEN}>(int)")
    launch[2:4] = [f"/opt/{TOKEN}/bin/program", f"node.{TOKEN}.example.org"]
    cells = [*launch, TOKEN, ranges, "5", f"NVIDIA H200 {HOME}", "48,059"]
    units = [""] * (len(header) - 3) + ["ns", "", ""]
    text = (
        f"my secret is {TOKEN}\n==PROF== Connected to process 7 ({HOME}/program)\n"
        f'==WARNING== cannot read "{TOKEN}" in {HOME}\nHOSTNAME={TOKEN}\n{ncu.page(header, [units, cells])}'
        f"the end of {TOKEN}\n==PROF== Report: {HOME}\n"
    )
    source = tmp_path / "page.csv"
    source.write_text(text)
    result = cleaned(source)
    assert not holds(result, TOKEN)
    assert not holds(result, "48,059")
    launches = read(result).table("profiled_launches")
    assert launches["name"].tolist() == ["copy<<user>>(int)"]
    assert launches["range_path"].tolist() == ["load <path 1> / lib:step"]
    assert cleaned(result, "again").read_bytes() == result.read_bytes()


def test_rules_of_ncu_lose_folders_and_keep_links(tmp_path: Path) -> None:
    rule = "Uncoalesced in /home/anyone/x/scale.cu:7, see https://docs.nvidia.com/a/b.html"
    header = (*ncu.DETAILS, *ncu.RULES)
    source = tmp_path / "page.csv"
    source.write_text(ncu.page(header, [[*ncu.identity(), "Speed", "", "", "", "Coalescing", "OPT", rule, "", ""]]))
    result = cleaned(source)
    assert report_of(result) == report_of(source)
    assert "in scale.cu:7, see https://docs.nvidia.com/a/b.html" in result.read_text()


# -- texts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, (lambda)>(int, T2)", None),
        ("operator/(float2, float2)", None),
        ("kernel<(int)4>(T1::Params) [clone .isra/0]", None),
        ("aten::div/mul", None),
        ("encoder/layers.0/mlp", None),
        ("tokens/s of 3.5/4.5", None),
        ("f(/*unnamed*/ int)", None),
        ("Foo::~Foo()", None),
        ("version 2025.3.2", None),
        ("load /data/a b", "load <path 1> b"),
        ("load (/data/x.bin), then /data/y.bin; /data/x.bin", "load (<path 1>), then <path 2>; <path 1>"),
        ("open ~/x and ~ann/y", "open <path 1> and <path 2>"),
        (r"C:\Users\Ann Example\x.py in D:\runs", "<path 1> in <path 2>"),
        (r"\\server\share\file", "<path 1>"),
        ("src/train/loop.py:12", "loop.py:12"),
        ("GET https://host.example/a?b=c and tcp://10.0.0.1:29500", "GET <address> and <address>"),
        ("from 10.1.2.3 by ann.example@mail.example.org", "from <address> by <address>"),
        ("at 00:1a:2b:3c:4d:5e", "at <address>"),
        ("cd /root", "cd <path 1>"),
        ("q@k.transpose x@w.T probs@value.to(bf16) q@k:out", None),
        ("block1.attn.local rk_conv2d_forward_kernel fused_sk_gemm128_split glue-mnli-bert-base-uncased", None),
        ("x[0::2] c10::add dead::beef face::bad 2048::2", None),
        ("layers[0]/mlp f(x)/g(y)/z 5 ms/step 3/7", None),
        ("--tokenizer gpt2 --max-tokens 128 key=float32x4 tokens=64 user=17 pad_token=mask top-p 0.9", None),
        ("2001:db8::1 fe80::1%eth0 [fd00::5]:80", "<address> <address> [<address>]:80"),
        ("on GPU-86e34f1e-8fd4-7980-eec4-88557e1e7bb3 at 0000:3b:00.0", "on <id 1> at <address>"),
        ("git@host:team/x ann-laptop.local db-0.svc.cluster.local ip-10-0-0-1", "<address> " * 3 + "<address>"),
    ],
)
def test_paths_and_addresses_are_distinguished_from_names(text: str, expected: str | None) -> None:
    assert Private().text(text) == (text if expected is None else expected)


def test_what_is_learned_is_found_as_a_word_or_inside_if_it_is_long() -> None:
    private = Private(["streamId"])
    private.learn_text("HOME=/home/ann PATH=/usr/bin")
    private.learn_text("HOME=/home/root")
    private.learn_value("PROCESS_0:USER_NAME", "berthold")
    private.learn_value("HOSTNAME", "gpu-17.example.org")
    private.learn_value("WANDB_API_KEY", "k3y5")
    private.learn_value("PROCESS_0:ARGUMENT_3", "--run=exp2026abcdefgh17 stream")
    text = private.text("root channel ann_x berthold17 on GPU-17.example.org gpu-17 k3y5 exp2026ABCDEFGH17x stream")
    assert text == "root channel <user>_x <user>17 on <address> <host> <private> <private>x stream"
    assert private.removed["user names"] == 2
    assert private.found_in("cannot Ann")
    assert not private.found_in("cannot")


# a name that is drawn is not a word of any context, nor of a kernel
NAMES = st.text("bdfghjkmpqvwxz", min_size=6, max_size=10).map(lambda text: f"q{text}")
# whatever is drawn stands in one of these, and is found there without being told by anything else
SHOWN = (
    "load /home/{}/runs",
    "gcc -I/opt/{}/include",
    "gcc -L/{}/lib and more",
    "-I/{}/x",
    "gcc -DX=/path/{}/y",
    "gcc -D X=/path/{}",
    "[rank0]/data/{}/x.bin",
    "f(x)/scratch/{}/x",
    "[rank0]/any/{}.bin",
    "load(/srv/x/{})",
    'open "/q/my files/of {} or so"',
    "open '/q/my files/of {}'",
    "at:/mnt/{}/x",
    "à/data/{}",
    "é/any/x/{}.pt",
    "~{}/runs/x",
    "[~{}/runs]",
    "copy //{}/share/x",
    "copy //server/{}/x",
    r"copy \\{}\share\x",
    r"copy \\server\share\{}",
    r"C:\Users\{}\x.py",
    r"C:\My Documents\of {}\x.py",
    "D:/runs/{}",
    "load /data/my {} runs/x",
    "load /data/my runs/of {} x.bin",
    r"load /data/my\ {}\ runs",
    "%2Fdata%2F{}%2Fx",
    "file%3A%2F%2F%2F{}",
    r'{{"a": "\/data\/{}\/x"}}',
    "login --password {}",
    "login --password={}",
    'login --password "{}"',
    "login --api-key {} now",
    "login --user {} now",
    "login --username={}",
    "run --master-addr {} --x",
    "run --rdzv-endpoint={}:29500",
    "run --host {}",
    "password={}",
    '{{"password": "{}"}}',
    "Namespace(user='{}', x=1)",
    "MASTER_ADDR={} x",
    "https://any:{}@example.org/x",
    "https://{}.example.org",
    "at {}.example.com:8080",
    "at {}-1.cluster.local",
    "{}@example.org",
    "ssh {}@there nvidia-smi",
    "scp x ann@{}:/data",
    "2001:db8::1%{}",
)
# what tells of the name elsewhere as well
TELLING = (
    "load /home/{}/runs",
    r"C:\Users\{}\x.py",
    "%2Fhome%2F{}%2Fx",
    "USER={}",
    "SLURM_JOB_USER={}",
    "HOSTNAME={}",
    "SLURM_JOB_NODELIST={}[01-03],other",
    "MASTER_ADDR={}",
    "PGPASSWORD={}",
    "OPENAI_API_KEY={}",
    "postgres://any:{}@db/x",
    "python train.py --password {}",
    "python train.py --password={} --lr 1",
    "python train.py --user {}",
    "python train.py --master_addr={} x",
    "torchrun --rdzv-endpoint {}:29500 x.py",
    "srun -w {}[1-4] x",
    "mpirun -H {}:8,other:8 x",
    "ssh -p 22 {} nvidia-smi",
    "ssh any@{}",
    "mysql -p {} x",
    "mysql -p{}",
    "curl -u any:{} x",
)
KEYS = st.one_of(
    *(
        st.from_regex(pattern, fullmatch=True, alphabet=st.characters(codec="ascii"))
        for pattern in (
            "gh[opsu]_[A-Za-z0-9]{36}",
            "github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}",
            "A(KIA|SIA)[A-Z2-7]{16}",
            r"eyJ[\w-]{20,30}\.eyJ[\w-]{20,40}\.[\w-]{20,43}",
            "hf_[A-Za-z]{34}",
            "sk-[A-Za-z0-9]{48}",
            "sk-proj-[0-9][A-Za-z0-9_-]{40}",
            "xox[bp]-[0-9]{10,13}-[A-Za-z0-9]{24}",
            r"AIza[\w-]{35}",
            "glpat-[A-Za-z0-9_-]{20}",
            "nvapi-[A-Za-z0-9_-]{64}",
            "-----BEGIN (RSA )?PRIVATE KEY-----\n[A-Za-z0-9+/]{64}\n-----END (RSA )?PRIVATE KEY-----",
        )
    )
)


@given(st.sampled_from(SHOWN), NAMES)
def test_what_looks_private_is_taken_out_of_any_text(context: str, name: str) -> None:
    text = Private().text(context.format(name))
    assert name not in text.lower()
    assert Private().text(text) == text


@given(KEYS, st.sampled_from(["{}", "use {} now", "key={}", "k:{},", "({})", "step_{}", "<{}>", '"{}"']))
def test_keys_of_services_are_taken_out_of_any_text(key: str, context: str) -> None:
    for clean in (Private().text, Private().words, Private().message):
        text = clean(context.format(key))
        assert key not in text
        assert key[-12:] not in text


@given(st.sampled_from(TELLING), NAMES)
def test_what_is_learned_once_is_found_everywhere(context: str, name: str) -> None:
    private = Private()
    private.learn_fact(context.format(name))
    for shown in (f"of {name}", f"{name.upper()}_x", f"x{name}y", f"load_{name}", f"{name}01"):
        assert name not in private.text(shown).lower()
        assert name not in private.words(shown).lower()


@pytest.mark.parametrize(
    "written", ["Jürgen W&B", "J\\u00fcrgen W&B", "J%C3%BCrgen%20W%26B", "Jürgen W&amp;B", "Ju\u0308rgen W&B"]
)
def test_a_name_is_found_as_json_html_and_urls_write_it(written: str) -> None:
    private = Private()
    private.learn_value("USER_NAME", "Jürgen W&B")
    assert private.text(f"of {written} x") == "of <user> x"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ann ann_x ann7 AnnModel toAnn x.ann", "<user> <user>_x <user>7 <user>Model to<user> x.<user>"),
        # the limit: short names inside of other words cannot be told from these
        ("channel annotate planned Anne 3ann", "channel annotate planned Anne 3ann"),
        ("n12 n120 n12a n012", "<host> n120 n12a n012"),
    ],
)
def test_short_names_are_found_as_words(text: str, expected: str) -> None:
    private = Private()
    private.learn_value("USER", "ann")
    private.learn_value("HOST", "n12")
    assert private.text(text) == expected


@pytest.mark.parametrize(
    "variable",
    [
        "TOKENIZERS_PARALLELISM=false",
        "MAX_TOKENS=2048",
        "PIP_USER=true",
        "MASTER_ADDR=127.0.0.1",
        "HOST=localhost",
        "USER=max",
        "HOSTNAME=hopper",
        "--kernel=ampere_sgemm_128x64_tn_v2",
        "--tokenizer gpt2",
        "--pad-token mask",
        "--key-dim 64",
        "--host 8080",
        "python -u train.py -p 29500",
        "srun -p batch train",
    ],
)
def test_values_that_are_ordinary_words_stay(variable: str) -> None:
    private = Private()
    private.learn_value("PROCESS_0:ARGUMENT", variable)
    text = (
        "kernel<false, max> 2048 of hopper, train.py on localhost: ampere_sgemm_128x64_tn_v2 gpt2 mask 64 batch train"
    )
    assert private.text(text) == text


def test_the_words_of_a_command_line_are_rows_of_their_own(tmp_path: Path) -> None:
    source = build(PICTURE, tmp_path / "capture.sqlite", generation="2025")
    words = [
        "python",
        "train.py",
        "--password",
        "open sesame",
        "--user",
        "berthold",
        *["x"] * 5,
        "--master-addr",
        "gpu17",
    ]
    with closing(sqlite3.connect(source)) as connection:
        rows = [(f"PROCESS_0:ARGUMENT_{place}", word) for place, word in enumerate(words)]
        # as text, 10 is before 2
        connection.executemany("INSERT INTO META_DATA_CAPTURE (name, value) VALUES (?, ?)", sorted(rows))
        connection.execute("UPDATE NVTX_EVENTS SET textId = NULL, text = 'Open Sesame, berthold on gpu17'")
        connection.commit()
    result = cleaned(source)
    assert holds(result, "<private>, <user> on <host>")
    assert not any(holds(result, word) for word in ("sesame", "berthold", "gpu17"))


def test_after_p_is_a_password_where_the_program_has_one_or_it_looks_so() -> None:
    private = Private()
    private.learn_fact("program -p zqwxk77; other -p 29500; another -p batchwise; sshpass -pswordfish")
    assert private.text("zqwxk77 29500 batchwise swordfish") == "<private> 29500 batchwise <private>"


def test_a_variable_of_an_environment_is_read_to_its_end() -> None:
    private = Private()
    private.learn_value("PROCESS_0:ENVIRONMENT_VARIABLE", "GIT_AUTHOR_NAME=Zoe Quux")
    private.learn_value("PROCESS_0:ENVIRONMENT_VARIABLE", "LSB_MCPU_HOSTS=hst1 8 hst2 8")
    private.learn_value("EXPORT_USER", "carla")
    private.learn_value("DEVICE_DISPLAY_NAME", "box-9")
    assert private.text("Quux hst2 8 carla box-9") == "<user> <host> 8 <user> <host>"


def names_of(path: Path) -> set[str]:
    tables = read(path).tables
    named = ("kernels", "api_calls", "ranges", "cpu_ops", "profiled_launches", "marks", "os_calls")
    return {str(name) for table in named if table in tables for name in tables[table]["name"].unique()}


@pytest.fixture(scope="module")
def real_names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("names")
    names = set[str]()
    for name in ("train", "gelu", "ddp2", "python_names", "ops_2.13.0", "events_2.11.0", "measure.raw", "cuda_graph"):
        (packed,) = (path for end in ("sqlite.xz", "json.gz", "csv.xz") for path in DATA.rglob(f"{name}.{end}"))
        source = folder / packed.name.removesuffix(".xz")
        source.write_bytes(lzma.decompress(packed.read_bytes()) if packed.suffix == ".xz" else packed.read_bytes())
        names |= names_of(source)
    return sorted(names)


def test_real_names_of_kernels_and_operators_stay(real_names: list[str]) -> None:
    private = Private()
    # what is private on a machine is not in these
    for name in ("max", "ray", "adam", "ada", "dot", "ben", "tim", "eva", "hopper", "grace", "former", "node01"):
        private.learn_value("USER", name)
        private.learn_value("HOSTNAME", name)
    assert len(real_names) > 250
    assert [name for name in real_names if private.text(name) != name] == []


PARTS = st.sampled_from(
    [
        *("at::native", "c10", "cub", "void", "float", "a", "T1", "gemm_bf16_128x64", "(lambda)", "<unnamed>", "::"),
        *("[1024, ", "1e-5", "step", "layers.0", "q@k", "x[0::2]", "key", "token", "::~"),
        *"<>()[]{},.:*&=~+-_ 0123456789",
    ]
)


# but `q@k:~` is where somebody works, and what follows `token=` may be one
@given(st.lists(PARTS, max_size=10).map("".join).filter(lambda text: not re.search(r":~|(?:key|token)[=:]", text)))
def test_what_templates_shapes_and_numbers_are_made_of_stays(text: str) -> None:
    assert Private().text(text) == text


def in_an_export(folder: Path, private: str, shown: list[str]) -> Path:
    source = build(PICTURE, folder / "capture.sqlite", generation="2025")
    with closing(sqlite3.connect(source)) as connection:
        connection.execute(
            "INSERT INTO META_DATA_CAPTURE (name, value) VALUES ('PROCESS_0:COMMAND_LINE', ?)", [private]
        )
        for text in shown:
            connection.execute("UPDATE StringIds SET value = value || ' ' || ?", [text])
            connection.execute("UPDATE NVTX_EVENTS SET text = text || ' ' || ? WHERE text IS NOT NULL", [text])
        connection.execute("CREATE TABLE NVTX_BLOBS AS SELECT ? AS data", [zlib.compress(private.encode())])
        connection.execute("UPDATE NVTX_EVENTS SET binaryData = ?, jsonText = ?", [private, json.dumps({"a": shown})])
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("CREATE TABLE NOTES AS SELECT ? AS note", [private * 500])
        connection.execute("DROP TABLE NOTES")
        connection.commit()
    return source


def in_a_trace(folder: Path, private: str, shown: list[str]) -> Path:
    events = [kineto.call(cat="user_annotation", name=text, args={"note": private}) for text in shown]
    last = shown[-2:]
    events += [kineto.call(cat="python_function", name=f"x.py(3): {text}", args={"Call stack": text}) for text in last]
    frames = [kineto.call(cat="cpu_op", name="aten::mm", args={"Concrete Inputs": shown, "Input Dims": [[1, 2]]})]
    return kineto.write(folder, kineto.kernel(), kineto.call(), *events, *frames, command=private)


def in_a_page(folder: Path, private: str, shown: list[str]) -> Path:
    header = [*ncu.IDENTITY, "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"]
    header += ["gpu__time_duration.sum", "device__attribute_display_name"]
    rows = [[""] * (len(header) - 2) + ["ns", ""]]
    for place, text in enumerate(shown):
        ranges = f' "<default domain>:{text}:none:none:none:none:none:{text}" '
        rows.append([*ncu.identity(place, kernel=f"k<{text}>"), ranges, "5", text])
    path = folder / "page.csv"
    path.write_text(f"{private}\n==WARNING== {private}\n{ncu.page(header, rows)}{private}\n")
    return path


@examples(25)
@given(
    shown=st.lists(st.sampled_from(SHOWN), min_size=1, max_size=3),
    telling=st.sampled_from(TELLING),
    names=st.tuples(NAMES, NAMES),
    key=KEYS.filter(lambda key: "\n" not in key),
    write=st.sampled_from([in_an_export, in_a_trace, in_a_page]),
)
def test_nothing_private_survives_in_any_format(
    shown: list[str],
    telling: str,
    names: tuple[str, str],
    key: str,
    write: Callable[[Path, str, list[str]], Path],
) -> None:
    name, other = names
    texts = [*(context.format(name) for context in shown), f"use {key}", f"of {other} here", f"x{other.upper()}y"]
    with TemporaryDirectory() as folder:
        source = write(Path(folder), telling.format(other), texts)
        assert holds(source, name)
        result = cleaned(source)
        assert not any(holds(result, secret) for secret in (*names, key))
        assert zlib.compress(telling.format(other).encode()) not in content(result)
        report_of(result)
        assert cleaned(result, "again").read_bytes() == result.read_bytes()


texts = st.lists(
    st.sampled_from(
        [*"/\\~:.@\"'<>() \n", "home", "ann", "/home/ann", "C:\\", "a.py", "x", "9", "10.0.0.1", "<path 1>", "<…>", "ö"]
    ),
    max_size=12,
).map("".join)


@given(texts | st.text(max_size=30))
def test_a_clean_text_stays_as_it_is(text: str) -> None:
    private = Private()
    private.learn_value("USER", "ann")
    private.learn_value("HOST", "berthold")
    for clean in (private.text, private.message, private.words, private.function, private.file):
        cleaned = clean(text)
        assert clean(cleaned) == cleaned
        assert not private.found_in(cleaned)


@given(st.sampled_from(["", "/home/ann/", "/opt/lib/python3.12/site-packages/torch/", "torch/", "x/", "<a>/"]), texts)
def test_a_file_without_its_folder_is_of_a_library_as_before(folder: str, rest: str) -> None:
    file = f"{folder}{rest}random.py"
    for is_relative in (False, True):
        name = Private().file(file, is_relative=is_relative)
        assert is_of_library(name, is_relative=is_relative) == is_of_library(file, is_relative=is_relative)
        assert frame_name("load", name, 3) == frame_name("load", file, 3)


@given(texts.filter(lambda text: "0.0" not in text and "@" not in text))  # addresses do not stay
def test_a_function_is_called_as_before(text: str) -> None:
    assert without_private(Private().function(text)) == without_private(text)


# -- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "start", "hint"),
    [
        ("x.nsys-rep", b"NVIDIA Tegra Profiler Report", "nsys export --type sqlite"),
        ("x.ncu-rep", b"NVR\0" + bytes(60), "ncu --import FILE.ncu-rep --csv"),
        ("report.json", b'{"format": 3}', "Attach it unchanged"),
    ],
)
def test_other_files_are_refused_with_what_to_do(name: str, start: bytes, hint: str, run: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(start)
    output = run("sanitize", name, "-o", "out", expect=3).output
    assert f"{name} cannot be sanitized: " in output
    assert hint in output
    assert not (tmp_path / "out").exists()


def test_the_input_is_not_written_over(tmp_path: Path) -> None:
    source = build(PICTURE, tmp_path / "capture.sqlite", generation="2025")
    (tmp_path / "link.sqlite").symlink_to(source)
    before = source.read_bytes()
    for target in (source, tmp_path / "link.sqlite"):
        with pytest.raises(UsageError, match="also the input file"):
            sanitize(source, target, most_bytes=MOST_BYTES)
    assert source.read_bytes() == before


@pytest.mark.parametrize("size", [0, 50, 5000])
def test_a_truncated_export_is_refused_as_its_report_is(size: int, tmp_path: Path) -> None:
    source = build(PICTURE, tmp_path / "capture.sqlite", generation="2025")
    source.write_bytes(source.read_bytes()[:size])
    with pytest.raises(CaptureError) as expected:
        report_of(source)
    with pytest.raises(CaptureError) as caught:
        cleaned(source)
    assert str(caught.value) == str(expected.value)


def test_a_database_of_something_else_is_refused_by_its_name(tmp_path: Path) -> None:
    source = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("CREATE TABLE t (x INTEGER)")
    with pytest.raises(CaptureError, match=r"other.sqlite is an SQLite file but not an nsys export"):
        cleaned(source)
    assert list((tmp_path / "clean").iterdir()) == []


def test_nothing_is_written_if_something_private_is_found_in_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Private, "text", lambda _, text: text)
    source = kineto.write(tmp_path, kineto.kernel(name=f"at {TOKEN.upper()}"), kineto.call(), host_name=TOKEN)
    for name in ("trace.json", "trace.json.gz"):
        with pytest.raises(CaptureError, match=r"something private is still in the result for trace.json") as caught:
            sanitize(source, tmp_path / "clean" / name, most_bytes=MOST_BYTES)
        assert TOKEN not in str(caught.value)
    assert list((tmp_path / "clean").iterdir()) == []


@pytest.mark.parametrize("write", [in_an_export, in_a_trace, in_a_page])
@pytest.mark.parametrize(
    ("telling", "shown"), [("USER=zqx", "of Zqx"), ("x", "of ghp_aB3aB3aB3aB3aB3aB3"), ("x", "of /home/zqx")]
)
def test_short_names_keys_and_homes_in_the_result_are_found_by_reading_it_back(
    write: Callable[[Path, str, list[str]], Path],
    telling: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = write(tmp_path, telling, [shown])
    monkeypatch.setattr(Private, "text", lambda _, text: text)
    with pytest.raises(CaptureError, match=rf"something private is still in the result for {source.name}"):
        cleaned(source)
    assert list((tmp_path / "clean").iterdir()) == []


def test_a_large_trace_needs_to_be_allowed(tmp_path: Path) -> None:
    source = kineto.write(tmp_path, kineto.kernel(), kineto.call())
    with pytest.raises(CaptureError, match="too large"):
        sanitize(source, tmp_path / "out.json", most_bytes=100)


def test_a_trace_that_is_allowed_is_also_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = []

    def read_document(path: Path, most_bytes: int) -> chrome.ParsedTrace:
        limits.append(most_bytes)
        return chrome.read_document(path, most_bytes)

    monkeypatch.setattr("nightsight.sanitize.kineto.read_document", read_document)
    source = kineto.write(tmp_path, kineto.kernel(), kineto.call())
    sanitize(source, tmp_path / "out.json", most_bytes=MOST_BYTES + 1)
    assert limits == [MOST_BYTES + 1] * 2


def test_the_command_says_what_it_took_out_and_never_what_it_was(run: Any, tmp_path: Path) -> None:
    source = kineto.write(
        tmp_path, kineto.kernel(), kineto.call(cat="user_annotation", name=f"at {HOME}"), host_name=TOKEN
    )
    result = run("sanitize", source, "-o", tmp_path / "out.json.gz")
    assert result.stdout == f"capture: {tmp_path / 'out.json.gz'}\n"
    assert "removed: 1 paths\n" in result.stderr
    assert "removed: 1 facts about the machine and the capture\n" in result.stderr
    assert TOKEN not in result.output.replace(str(tmp_path), "")
    assert gzip.decompress((tmp_path / "out.json.gz").read_bytes()).startswith(b'{"schemaVersion":1,')


@pytest.mark.parametrize(
    ("name", "value", "private"),
    [
        ("OPENAI_KEY", "sk-short1", "sk-short1"),
        ("DB_PWD", "hunter22x", "hunter22x"),
        ("DATABASE_URL", "postgres://svcaccount:s3cr3tpw9@db/x", "s3cr3tpw9"),
        ("HOME", "/nfs/people/carolx", "carolx"),
    ],
)
def test_variables_are_known_by_what_their_names_say(name: str, value: str, private: str) -> None:
    learned = Private()
    learned.learn_value(name, value)
    learned.learn_value("USER", "alice77")
    # the working folder is no password
    learned.learn_value("PWD", "laying")
    assert private not in learned.text(f"range of {private} here")
    # a dotless i is an i to the pattern
    assert "77" not in learned.text("stage al\u0131ce77")
    assert learned.text("laying") == "laying"
