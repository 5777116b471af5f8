// Adds two vectors: the extension that workloads/vector_add.py builds with torch.utils.cpp_extension.load.

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

#include <cstdint>
#include <limits>

namespace {

constexpr int kThreads = 256;

__global__ void add_kernel(const float* __restrict__ left, const float* __restrict__ right,
                           float* __restrict__ total, int64_t count) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at < count) {
    total[at] = left[at] + right[at];
  }
}

torch::Tensor add(const torch::Tensor& left, const torch::Tensor& right) {
  TORCH_CHECK(left.is_cuda() && right.is_cuda(), "both vectors must be on a GPU");
  TORCH_CHECK(left.device() == right.device(), "both vectors must be on the same GPU");
  TORCH_CHECK(left.is_contiguous() && right.is_contiguous(), "both vectors must be contiguous");
  TORCH_CHECK(left.scalar_type() == torch::kFloat32 && right.scalar_type() == torch::kFloat32,
              "both vectors must be float32");
  TORCH_CHECK(left.sizes() == right.sizes(), "the vectors differ in size");
  const c10::cuda::CUDAGuard on_their_device(left.device());
  auto total = torch::empty_like(left);
  const int64_t count = left.numel();
  if (count == 0) {
    return total;  // a launch of no blocks is an error
  }
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  TORCH_CHECK(blocks <= std::numeric_limits<int32_t>::max(), "too many elements for one launch");
  add_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, c10::cuda::getCurrentCUDAStream()>>>(
      left.data_ptr<float>(), right.data_ptr<float>(), total.data_ptr<float>(), count);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return total;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("add", &add, "Adds two vectors of float32 on a GPU");
}
