"""The name normalizer: on every kernel of every recorded capture, and on spellings that none of them has."""

import lzma
import sqlite3
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightsight.events.kernel_names import base_name, communicates, normalized, unqualified
from nightsight.tables import renamed
from tests import ncu
from tests.recorded import DATA

TOKEN = "cw51c" + "XTLSUwv1kAPW1" * 7


@pytest.fixture(scope="module")
def recorded_names() -> pd.DataFrame:
    """One row per kernel of a program of 70 PyTorch operators: as nsys, c++filt and ncu's CSV spell it."""
    text = ncu.content("kernel_names.tsv").decode()
    return pd.DataFrame([line.split("\t") for line in text.splitlines()[1:]], columns=text.splitlines()[0].split("\t"))


@pytest.fixture(scope="module")
def captured_names(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str]]:
    """Demangled, base and mangled name of every kernel in every recorded nsys capture."""
    folder = tmp_path_factory.mktemp("names")
    return sorted({row for path in sorted((DATA / "nsys").glob("*/*.sqlite.xz")) for row in _kernels(path, folder)})


def _kernels(path: Path, folder: Path) -> list[tuple[str, str, str]]:
    file = folder / path.stem
    file.write_bytes(lzma.decompress(path.read_bytes()))
    connection = sqlite3.connect(file)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    statement = """
        SELECT DISTINCT d.value, s.value, m.value FROM CUPTI_ACTIVITY_KIND_KERNEL k
        JOIN StringIds d ON d.id = k.demangledName JOIN StringIds s ON s.id = k.shortName
        JOIN StringIds m ON m.id = k.mangledName
    """
    rows = connection.execute(statement).fetchall() if "CUPTI_ACTIVITY_KIND_KERNEL" in tables else []
    connection.close()
    return rows


def test_kernels_of_all_captures_stay_apart(captured_names: list[tuple[str, str, str]]) -> None:
    assert len(captured_names) > 40
    assert len({normalized(name) for name, _, _ in captured_names}) == len({name for _, _, name in captured_names})


def test_base_names_are_those_of_nsys(captured_names: list[tuple[str, str, str]], recorded_names: pd.DataFrame) -> None:
    for name, base, _ in captured_names:
        assert base_name(name) == base
    assert [base_name(name) for name in recorded_names["nsys"]] == list(recorded_names["base"])


def test_nsys_and_the_demangler_of_torch_profiler_agree(recorded_names: pd.DataFrame) -> None:
    ours = [normalized(name) for name in recorded_names["nsys"]]
    assert [normalized(name) for name in recorded_names["itanium"]] == ours
    assert len(set(ours)) == recorded_names["mangled"].nunique() == len(recorded_names) > 100


def test_the_simplified_names_of_ncus_csv_agree_but_for_namespaces(recorded_names: pd.DataFrame) -> None:
    both = recorded_names[recorded_names["ncu_csv"] != ""]
    assert len(both) > 60
    assert [unqualified(name) for name in both["ncu_csv"]] == [unqualified(name) for name in both["nsys"]]
    assert recorded_names["nsys"].map(unqualified).nunique() == len(recorded_names)


def test_recorded_names_are_settled(recorded_names: pd.DataFrame) -> None:
    for name in pd.concat([recorded_names["nsys"], recorded_names["itanium"], recorded_names["ncu_csv"]]):
        assert normalized(normalized(name)) == normalized(name)
        assert unqualified(normalized(name)) == unqualified(name) == unqualified(unqualified(name))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void k<(int)7, (bool)0>(T1 *)", "k<7, false>(float*)"),
        ("void k<(int)-1, (unsigned long)3>(int)", "void k<-1, 3ul>(int)"),
        ("k<(ns::Mode)2>()", "k<2>()"),
        ("k<(int)(bool)1>()", "k<true>()"),
        ("void a::<unnamed>::k(int)", "a::(anonymous namespace)::k(int)"),
        ("a::_GLOBAL__N__b6de9c8c_10_SoftMax_cu_9f978f63::k(int)", "a::<unnamed>::k(int)"),
        ("void unnamed>::k<8, 1>(unnamed>::S<T1>)", "void <unnamed>::k<(int)8, (bool)1>(<unnamed>::S<T1>)"),
        ("k(const float *, float *)", "k(float const*, float*)"),
        ("k(const char *const *)", "k(char const* const*)"),
        ("k<std::__4::plus<void>>(T1)", "k<std::plus<void> >(int)"),
        ("k<cuda::std::__4::plus<void>>()", "k<cuda::std::__5::plus<void>>()"),
        ("cub::CUB_200802_SM_750_900_NS::k<int>()", "cub::k<int>()"),
        ("k<thrust::THRUST_300001_SM_750_NS::pair<int>>()", "k<thrust::pair<int>>()"),
        ("k<std::__cxx11::string>()", "k<std::string>()"),
        ("void k<f(int)::[lambda(float) (instance 2)]>(T1)", "void k<f(int)::{lambda(float)#2}>(int)"),
        (
            "k<bool f<int>(long)::[lambda(const int *) (instance 1)]::operator ()() const::[lambda() (instance 3)]>()",
            "k<f<int>(unsigned)::{lambda(int const*)#1}::operator()() const::{lambda()#3}>()",
        ),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s16>(T1::Params)", "cutlass::Kernel2<cutlass_80_tensorop_s16>"),
        (
            f"cudapy::__main__::add[abi:v1][abi:{TOKEN}](Array<float, (int)1, C, mutable, aligned>)",
            "cudapy::__main__::add[abi:v2][abi:cw51cXother](Array<float, 1, C, mutable, aligned>)",
        ),
        (f"_ZN6cudapy8__main__3addB2v1B96{TOKEN}E5ArrayIfE", "_ZN6cudapy8__main__3addB2v1B4wxyzE5ArrayIfE"),
        ("cudapy::__main__::add$241(Array<float>)", "cudapy::__main__::add$7(Array<float>)"),
        ("::a::k<::b::c>(T1)", "a::k<b::c>()"),
        ("  void   k<int ,4>( T1 )", "void k<int,4>(T1)"),
    ],
)
def test_spellings_of_one_kernel_are_equal(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("k<(int)4>(T1)", "k<(int)8>(T1)"),
        ("k<float>(T1)", "k<double>(T1)"),
        ("k<const float *>(T1)", "k<float *>(T1)"),
        ("k<unsigned int>(T1)", "k<int>(T1)"),
        ("k(float *)", "k(double *)"),
        ("naive::matmul(int)", "tiled::matmul(int)"),
        ("k<f()::[lambda() (instance 1)]>(T1)", "k<f()::[lambda() (instance 2)]>(T1)"),
        ("k<f(int)::[lambda() (instance 1)]>(T1)", "k<f(long)::[lambda() (instance 1)]>(T1)"),
        ("k<std::function<void (int)>>(T1)", "k<std::function<void (float)>>(T1)"),
        ("triton_poi_fused_add_mul_tanh_0", "triton_poi_fused_add_mul_tanh_1"),
        ("nvjet_sm90_tst_64x48_64x15_2x4_h_bz_NNT", "nvjet_sm90_tst_64x48_64x15_2x4_h_bz_NTT"),
        ("k<-1>(T1)", "k<1>(T1)"),
    ],
)
def test_different_kernels_stay_different(one: str, other: str) -> None:
    assert normalized(one) != normalized(other)


@pytest.mark.parametrize(
    "name",
    [
        *("softmax_kernel", "triton_poi_fused_add_mul_tanh_0", "sm80_xmma_gemm_f32f32_execute_kernel__5x_cublas"),
        *("fusion.12", "cupy_add__float32_float32_float32", "a < b", "int a::*", "k(", "k<(", "", "k]["),
    ],
)
def test_what_is_not_cpp_stays_as_it_is(name: str) -> None:
    assert normalized(name) == unqualified(name) == name


def test_unqualified_leaves_namespaces_out_but_not_what_contains_them() -> None:
    assert unqualified("a::b::k<c::d, e::f<g::h>::i>(T1)") == "k<d,f<h>::i>"
    assert unqualified("a::f(b::c)::{lambda(d::e)#1}") == "f(c)::{lambda(e)#1}"


def test_a_column_of_categories_keeps_its_rows() -> None:
    names = pd.Series(["void k<(int)4>(T1)", "k<4>(int)", "j"], dtype="category")
    settled = pd.Series(renamed(names, lambda distinct: distinct.map(normalized)))
    assert list(settled.astype(str)) == ["k<4>", "k<4>", "j"]


@given(st.text(alphabet="ab1_:<>()[]{},*& ~$#-'.\n\t", max_size=40) | st.text(max_size=20))
def test_any_text_is_settled_at_once(text: str) -> None:
    for settle in (normalized, unqualified):
        settled = settle(text)
        assert settle(settled) == settled


_ATOMS = st.sampled_from(["int", "float", "a::b", "<unnamed>::c", "unsigned int", "(int)3", "(bool)1", "7ul", "T1"])
_TYPES = st.recursive(
    _ATOMS,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda args: f"n::f<{', '.join(args)}>")
        | inner.map(lambda type_: f"const {type_} *")
        | inner.map(lambda type_: f"g({type_})::[lambda({type_}) (instance 2)]")
    ),
    max_leaves=6,
)


@given(st.lists(_TYPES, min_size=1, max_size=3), st.lists(_TYPES, max_size=2))
def test_spaces_and_parameters_of_templates_say_nothing(arguments: list[str], parameters: list[str]) -> None:
    name = f"void a::k<{', '.join(arguments)}>"
    settled = normalized(f"{name}({', '.join(parameters)})")
    spaced = name.replace(", ", " ,").replace("<", "< ").replace("< unnamed", "<unnamed")
    assert settled == normalized(f"{spaced}()")
    assert settled == normalized(settled)
    assert unqualified(settled) == unqualified(name)
    assert settled.startswith("a::k<")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096>)", True),
        ("void nvshmemi_transfer_rma<true>(int)", True),
        ("void deep_ep::internode::dispatch<false>(int)", True),
        ("void vllm::cross_device_reduce_1stage<float, 2>(void)", True),
        ("triton_poi_fused_all_reduce_add_0", False),
        ("reduce_kernel<512, 1>", False),
        ("", False),
    ],
)
def test_kernels_that_wait_for_others_are_known_by_name(name: str, expected: bool) -> None:
    assert communicates(name) is expected
