"""The code of fixes: it is in the language of the program, and only where it is certain."""

import ast
from typing import Any

import pytest

from nightsight.events.frameworks import CUDA, CUPY, JAX, NUMBA, PYTORCH
from nightsight.model.report import Finding
from nightsight.results.code import CODE, CPP, PYTHON, SHELL, Code, code_for, language_of
from nightsight.results.rules import RULE
from nightsight.results.switches import SWITCH
from tests.test_advise import COPY, GRAPH, KEPT_WAITING, advise_on

ALL = [pytest.param(code, id=f"{rule}-{code.framework}") for rule, codes in CODE.items() for code in codes]


def code_of(row: dict[str, Any], framework: str = PYTORCH, **changes: Any) -> str:
    (finding,) = advise_on({**row, "gain_pct": 60.0}, framework=framework, **changes)
    return finding.code


@pytest.mark.parametrize("code", ALL)
def test_code_is_valid_in_the_language_of_its_framework(code: Code) -> None:
    language = language_of(code.lines)
    assert (language == CPP) == (code.framework == CUDA and language != SHELL)
    if language == PYTHON:
        # a decorator needs a function
        ast.parse(
            f"{code.lines}\ndef f(): ..." if code.lines.startswith("@") and "def " not in code.lines else code.lines
        )
    assert code.framework in {PYTORCH, JAX, CUPY, NUMBA, CUDA}
    assert max(map(len, code.lines.split("\n"))) <= 88


def test_code_belongs_to_rules_and_no_text_repeats_it() -> None:
    assert CODE.keys() <= RULE.keys()
    for rule, codes in CODE.items():
        texts = "\n".join((RULE[rule].remedy, RULE[rule].action, *RULE[rule].remedies.values()))
        assert not [code.lines for code in codes if code.lines.split("  #")[0] in texts]


def test_code_is_that_of_the_framework_or_of_pytorch_if_it_is_unknown() -> None:
    compiled = SWITCH["compile_graphs"].code
    assert [code_of(GRAPH, framework=name) for name in ("", PYTORCH)] == [compiled, compiled]
    assert "jax.lax.scan" in code_of(GRAPH, framework=JAX)
    assert "cudaGraphLaunch" in code_of(GRAPH, framework=CUDA)
    assert code_of(GRAPH, framework=NUMBA) == ""


def test_code_is_only_for_the_kind_of_cause_that_it_fixes() -> None:
    to_gpu, to_host = ({**COPY, "name": kinds} for kinds in ("Host-to-Device", "Device-to-Host"))
    assert "pin_memory=True" in code_of(to_gpu)
    assert "record_stream" in code_of({**to_gpu, "rule": "exposed_copy"})
    assert code_of(to_host) == ""
    loader = {**KEPT_WAITING, "path": "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ / collate"}
    assert code_of(loader) == SWITCH["loader_workers"].code
    assert code_of(KEPT_WAITING) == ""
    assert code_for("compilation", PYTORCH, "cudnn_generated_fort_native_sdpa").endswith("enable_cudnn_sdp(False)")
    assert code_for("compilation", PYTORCH, "Code is compiled in `f`") == ""
    # eager loading does not keep a module that each step loads
    plans, module = (
        f"Modules are loaded, most time in cuModuleLoadData\n\nstep\n{name}" for name in ("vector_fft", "a")
    )
    assert "cufft_plan_cache" in code_for("loading", PYTORCH, plans)
    assert "cufftPlan1d" in code_for("loading", CUDA, plans)
    assert {code_for("loading", name, module) for name in (PYTORCH, CUDA)} == {""}
    lazily = "Modules are loaded, most time in cuLibraryLoadData"
    assert code_for("loading", CUDA, lazily) == SWITCH["eager_loading"].code


def test_what_happens_once_has_no_code() -> None:
    once = {**KEPT_WAITING, "rule": "loading", "name": "cuLibraryLoadData"}
    assert code_of(once) == "CUDA_MODULE_LOADING=EAGER"
    assert code_of(once, repetitions=0, of_repetitions=0) == ""


def test_the_code_of_an_older_report_is_unknown() -> None:
    assert Finding("wait", "advice", "It waits", "").code == ""
