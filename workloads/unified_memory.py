"""Adds two vectors in managed memory with a native CUDA program, which faults and moves pages more or less."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from workloads.contract import CannotRun, WorkloadParser, at_most, compiler_error, positive, write_benchmark

SOURCE = Path(__file__).with_suffix(".cu")
PARTS = ("one-thread", "many-threads", "prefetched")
CAPABILITIES = {
    r"\bV100\b": "7.0",
    r"\bT4\b": "7.5",
    r"\bA100\b": "8.0",
    r"\bA30\b": "8.0",
    r"\bGeForce RTX 30\d\d\b": "8.6",
    r"\bL4(0[SG]?)?\b": "8.9",
    r"\bGeForce RTX 40\d\d\b": "8.9",
    r"\bG?H[12]00\b": "9.0",
    r"\bG?B200\b": "10.0",
    r"\bGeForce RTX 50\d\d\b": "12.0",
}
"""The compute capability of a GPU, by a part of its name: the driver's answer is checked against it."""
_MOST = 1 << 48


def main() -> None:
    """Build the program for the GPUs of this machine, and run it with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--size", type=at_most(_MOST, positive), default=1 << 20, help="elements of a vector (default: %(default)s)"
    )
    parser.add_argument(
        "--part", choices=(*PARTS, "all"), default="all", help="part of the work to do (default: %(default)s)"
    )
    parser.add_argument(
        "--fatbin",
        action="store_true",
        help="build for every architecture that nvcc knows of those in the table, with PTX for newer ones",
    )
    options = parser.parse_args()
    if options.device == "cpu":
        parser.error("without a GPU no pages move: omit --device cpu")
    try:
        nvcc = find_nvcc()
        program = build(nvcc, architectures(gpus(), nvcc, is_fat=options.fatbin))
    except CannotRun as reason:
        parser.error(str(reason))
    trials = options.trials if options.benchmark else 0
    numbers = (options.size, options.iterations, options.warmup, trials)
    command = [str(program), *map(str, numbers), options.part]
    if not trials:
        sys.stdout.flush()
        os.execv(program, command)  # noqa: S606 (the program takes our place: signals and its exit status are its own)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    name, *step_ns = done.stdout.splitlines()
    facts = {"device": "cuda", "device_name": name, "cuda": version(nvcc)}
    write_benchmark(options, parser.parameters(options), [float(text) for text in step_ns], facts)


def gpus() -> dict[str, str]:
    """Return the compute capability of each kind of GPU here, from the driver, otherwise from the table."""
    # older drivers lack the second field
    answers = (output_of("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader") for fields in _FIELDS)
    listed = next(filter(None, answers), "")
    found = {}
    for line in filter(None, map(str.strip, listed.replace("No devices were found", "").splitlines())):
        name, _, reported = (part.strip() for part in line.partition(","))
        tabled = next((value for pattern, value in CAPABILITIES.items() if re.search(pattern, name)), "")
        reported = reported if re.fullmatch(r"\d+\.\d", reported) else ""
        if reported and tabled and reported != tabled:
            print(f"the table says {tabled} of {name}, but its driver {reported}: taking that", file=sys.stderr)
        if not reported and not tabled:
            raise CannotRun(f"the architecture of {name} is unknown: its driver does not say it, and no table has it")
        found[name] = reported or tabled
    if not found:
        raise CannotRun("no NVIDIA GPU was found: nvidia-smi is missing, or lists none")
    return found


_FIELDS = ("name,compute_cap", "name")


def find_nvcc() -> str:
    """Return the path of nvcc: of CUDA_HOME or CUDA_PATH, on PATH, or where the CUDA toolkit puts it."""
    homes = filter(None, map(os.environ.get, ("CUDA_HOME", "CUDA_PATH")))
    places = (*(f"{home}/bin/nvcc" for home in homes), "nvcc", "/usr/local/cuda/bin/nvcc")
    found = next(filter(None, map(shutil.which, places)), None)
    if found is None:
        raise CannotRun("nvcc was not found: install the CUDA toolkit, or set CUDA_HOME")
    return found


def version(nvcc: str) -> str:
    """Return the release of an nvcc, such as 13.0; "" if unknown."""
    release = re.search(r"release (\d+\.\d+)", output_of(nvcc, "--version"))
    return release[1] if release else ""


def architectures(found: dict[str, str], nvcc: str, *, is_fat: bool) -> list[str]:
    """Return the nvcc options for the target GPUs: those of this machine, or with `is_fat` those in the table."""
    listed = re.findall(r"compute_(\d+)(\d)\b", output_of(nvcc, "--list-gpu-arch"))
    known = {f"{major}.{minor}" for major, minor in listed}
    newest = max(known, key=_number, default="")
    for name, capability in found.items():
        is_newer = _number(capability) > _number(newest)
        if known and capability not in known and not (is_fat and is_newer):
            advice = "use a newer CUDA toolkit, or --fatbin" if is_newer else "use an older CUDA toolkit"
            raise CannotRun(f"nvcc {version(nvcc)} cannot build for {name} (architecture {capability}): {advice}")
    wanted = {*found.values(), *(CAPABILITIES.values() if is_fat else ())}
    built = sorted(wanted & known if known else wanted, key=_number)
    if left_out := sorted(wanted - set(built), key=_number):
        print(f"not built for {', '.join(left_out)}, which nvcc {version(nvcc)} does not know", flush=True)
    kinds = [(capability, "sm") for capability in built]
    if is_fat:
        kinds.append((built[-1], "compute"))
    digits = [(capability.replace(".", ""), kind) for capability, kind in kinds]
    return [word for digit, kind in digits for word in ("-gencode", f"arch=compute_{digit},code={kind}_{digit}")]


def build(nvcc: str, wanted: list[str]) -> Path:
    """Return the program; build it unless it exists for this source, these GPUs and this nvcc."""
    compiler = shutil.which(os.environ.get("CXX", ""))
    options = ["-O3", "-lineinfo", *(["-ccbin", compiler] if compiler else []), *wanted]
    identity = json.dumps([SOURCE.read_text(encoding="utf-8"), options, output_of(nvcc, "--version")])
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nightsight"
        program = cache / f"{SOURCE.stem}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        if program.is_file():
            return program
        cache.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=cache, prefix=".build-") as folder:
            aside = Path(folder) / program.name
            command = [nvcc, *options, "-o", str(aside), str(SOURCE)]
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
            )
            if done.returncode or not aside.is_file():
                reason = compiler_error(done.stdout.decode(errors="replace")) or f"exit status {done.returncode}"
                raise CannotRun(f"nvcc could not build the program: {reason}")
            aside.replace(program)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CannotRun(f"the program cannot be kept in {cache}: {reason}; set XDG_CACHE_HOME") from error
    return program


def output_of(*command: str) -> str:
    """Return what a command prints, without surrounding space; "" if it cannot be run or fails."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else ""


def _number(capability: str) -> tuple[int, ...]:
    return tuple(int(part) for part in capability.split(".") if part)


if __name__ == "__main__":
    main()
