"""Computes the GELU of a matrix, in its form with tanh, in implementations that read memory more or less often."""

import argparse
import math
from types import ModuleType

import torch
from torch.nn import functional

from workloads.runner import Step, WorkloadParser, positive, require_memory, run
from workloads.variants import (
    Builder,
    Exact,
    Function,
    add_implementations,
    compiled,
    cuda_extension,
    eager,
    prepare_variants,
    triton_kernels,
)

_COPIES = 8
"""Matrices that exist at once: the input, those of the eager operations, and the float64 check of a part."""

_DECLARATION = "torch::Tensor gelu(torch::Tensor x);"
_CUDA = r"""
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cstdint>
#include <limits>

constexpr int kThreads = 256;

__global__ void gelu_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at < count) {
    const float value = x[at];
    const float inner = 0.7978845608028654f * (value + 0.044715f * value * value * value);
    y[at] = 0.5f * value * (1.0f + tanhf(inner));
  }
}

torch::Tensor gelu(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda(), "x must be on a GPU");
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  TORCH_CHECK(x.scalar_type() == torch::kFloat32, "x must be float32");
  const c10::cuda::CUDAGuard on_its_device(x.device());
  auto y = torch::empty_like(x);
  const int64_t count = x.numel();
  if (count == 0) {
    return y;  // a launch of no blocks is an error
  }
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  TORCH_CHECK(blocks <= std::numeric_limits<int32_t>::max(), "x has too many elements for one launch");
  gelu_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), count);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""


def main() -> None:
    """Run the workload with the options on the command line."""
    parser = WorkloadParser(__doc__)
    parser.add_argument(
        "--dim", type=positive, default=16384, help="rows and columns (default: %(default)s, 512 on a CPU)"
    )
    add_implementations(parser, BUILDERS)
    run(parser, prepare, on_cpu={"dim": 512})


def prepare(options: argparse.Namespace) -> Step:
    """Create the matrix, and return a step that computes its GELU."""
    require_memory(4 * _COPIES * options.dim**2, options.device)
    rows = torch.randn(options.dim, options.dim, device=options.device)
    return prepare_variants(options, BUILDERS, (rows,), EXACT)


def naive(x: torch.Tensor) -> torch.Tensor:
    """Compute it operation by operation: each is a kernel that reads and writes the whole matrix."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def fused(x: torch.Tensor) -> torch.Tensor:
    """Compute it with torch's kernel for it."""
    return functional.gelu(x, approximate="tanh")


def _cuda(device: str) -> Function:
    def build(extension: ModuleType) -> ModuleType:
        built: ModuleType = extension.load_inline(
            name="nightsight_gelu",
            cpp_sources=_DECLARATION,
            cuda_sources=_CUDA,
            functions=["gelu"],
            extra_cuda_cflags=["-O3", "-lineinfo"],
        )
        return built

    function: Function = cuda_extension(device, build).gelu
    return function


def _triton(device: str) -> Function:
    function: Function = triton_kernels(device).gelu
    return function


# an error is relative to x: where the GELU is almost zero, 1 + tanh(...) has few correct digits left in float32
EXACT = Exact(fused, lambda _wanted, x: x.abs())
BUILDERS: dict[str, Builder] = {
    "naive": eager(naive),
    "torch": eager(fused),
    "cuda": _cuda,
    "triton": _triton,
    "compile": compiled(naive),
}

if __name__ == "__main__":
    main()
