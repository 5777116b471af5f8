// Adds two vectors in managed memory, in ways that fault, wait and move pages more or less: the program that
// workloads/unified_memory.py builds and starts with ELEMENTS ITERATIONS WARMUP TRIALS PART.
//
// With TRIALS of 0 it runs for a profiler: ranges around its steps, of which cudaProfilerStart and cudaProfilerStop mark
// the measured ones. Otherwise it prints the GPU's name, and the time of a step in ns for each trial.

#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

namespace {

constexpr int kFailed = 1;
constexpr int kCannotRun = 2;
constexpr int kThreads = 256;
constexpr int64_t kPart = 10;  // managed memory is at most one of so many parts of what is free

__global__ void add(const float* x, float* y, int64_t count) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t at = first; at < count; at += stride) {
    y[at] = x[at] + y[at];
  }
}

[[noreturn]] void stop(int status, const std::string& reason) {
  std::fprintf(stderr, "unified_memory: error: %s\n", reason.c_str());
  std::exit(status);
}

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) {
    return;
  }
  const bool is_lacking = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ||
                          error == cudaErrorNoKernelImageForDevice || error == cudaErrorMemoryAllocation;
  stop(is_lacking ? kCannotRun : kFailed, std::string(what) + ": " + cudaGetErrorString(error));
}

class Range {
 public:
  explicit Range(const char* name) { nvtxRangePushA(name); }
  ~Range() { nvtxRangePop(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

struct Vectors {
  float* x;
  float* y;
  int64_t count;
  int device;
};

std::string in_gb(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g GB", bytes / 1e9);
  return text;
}

Vectors allocated(int64_t count) {
  Vectors vectors{nullptr, nullptr, count, 0};
  require(cudaGetDevice(&vectors.device), "no GPU can be used");
  int migrates = 0;
  require(cudaDeviceGetAttribute(&migrates, cudaDevAttrConcurrentManagedAccess, vectors.device), "cudaDeviceGetAttribute");
  if (!migrates) {
    stop(kCannotRun, "here pages do not move on demand (concurrentManagedAccess is 0, as in WSL and on some virtual GPUs)");
  }
  size_t free_bytes = 0, total_bytes = 0;
  require(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  const double on_host = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const double least = std::min(static_cast<double>(free_bytes), on_host);
  const size_t bytes = static_cast<size_t>(count) * sizeof(float);
  if (2.0 * static_cast<double>(bytes) * kPart > least) {
    stop(kCannotRun, "--size " + std::to_string(count) + " needs " + in_gb(2.0 * static_cast<double>(bytes)) +
                         " of managed memory, and at most " + in_gb(least / kPart) +
                         " are used: a tenth of what the GPU has free, or of the host's memory");
  }
  require(cudaMallocManaged(&vectors.x, bytes), "cudaMallocManaged");
  require(cudaMallocManaged(&vectors.y, bytes), "cudaMallocManaged");
  return vectors;
}

void fill(const Vectors& vectors) {
  const Range range("fill");
  std::fill_n(vectors.x, vectors.count, 1.0f);
  std::fill_n(vectors.y, vectors.count, 2.0f);
}

void prefetch(const Vectors& vectors, int device) {
  const Range range("prefetch");
  for (float* values : {vectors.x, vectors.y}) {
    const size_t bytes = static_cast<size_t>(vectors.count) * sizeof(float);
#if CUDART_VERSION >= 13000
    cudaMemLocation where{};
    where.type = device == cudaCpuDeviceId ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
    where.id = device == cudaCpuDeviceId ? 0 : device;
    require(cudaMemPrefetchAsync(values, bytes, where, 0, nullptr), "cudaMemPrefetchAsync");
#else
    require(cudaMemPrefetchAsync(values, bytes, device, nullptr), "cudaMemPrefetchAsync");
#endif
  }
  require(cudaDeviceSynchronize(), "prefetch");
}

void launch(const Vectors& vectors, bool is_wide) {
  const Range range("add");
  const int64_t blocks = std::min<int64_t>((vectors.count + kThreads - 1) / kThreads, std::numeric_limits<int32_t>::max());
  if (is_wide) {
    add<<<static_cast<unsigned>(blocks), kThreads>>>(vectors.x, vectors.y, vectors.count);
  } else {
    add<<<1, 1>>>(vectors.x, vectors.y, vectors.count);
  }
  require(cudaGetLastError(), "add");
  require(cudaDeviceSynchronize(), "add");
}

void check(const Vectors& vectors, const char* part) {
  const Range range("check");
  const int64_t right = std::count(vectors.y, vectors.y + vectors.count, 3.0f);
  if (right != vectors.count) {
    stop(kFailed, std::string(part) + ": " + std::to_string(vectors.count - right) + " of " +
                      std::to_string(vectors.count) + " elements are not 3");
  }
}

void step(const Vectors& vectors, const std::string& part) {
  if (part == "one-thread" || part == "all") {
    const Range range("one thread");
    fill(vectors);
    launch(vectors, false);
    check(vectors, "one thread");
  }
  if (part == "many-threads" || part == "all") {
    const Range range("many threads");
    fill(vectors);
    launch(vectors, true);
    check(vectors, "many threads");
  }
  if (part == "prefetched" || part == "all") {
    const Range range("prefetched");
    prefetch(vectors, cudaCpuDeviceId);
    fill(vectors);
    prefetch(vectors, vectors.device);
    launch(vectors, true);
    prefetch(vectors, cudaCpuDeviceId);
    check(vectors, "prefetched");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    stop(kCannotRun, "it is started by unified_memory.py");
  }
  const int64_t count = std::atoll(argv[1]), iterations = std::atoll(argv[2]);
  const int64_t warmup = std::atoll(argv[3]), trials = std::atoll(argv[4]);
  const std::string part = argv[5];
  const Vectors vectors = allocated(count);
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, vectors.device), "cudaGetDeviceProperties");
  {
    const Range range("warmup");
    for (int64_t number = 0; number < warmup; ++number) {
      step(vectors, part);
    }
  }
  if (trials) {
    std::printf("%s\n", properties.name);
    for (int64_t trial = 0; trial < trials; ++trial) {
      const auto begin = std::chrono::steady_clock::now();
      for (int64_t number = 0; number < iterations; ++number) {
        step(vectors, part);
      }
      const std::chrono::duration<double, std::nano> passed = std::chrono::steady_clock::now() - begin;
      std::printf("%.1f\n", passed.count() / static_cast<double>(iterations));
    }
  } else {
    require(cudaProfilerStart(), "cudaProfilerStart");
    {
      const Range range("measure");
      for (int64_t number = 0; number < iterations; ++number) {
        const Range step_range("step");
        step(vectors, part);
      }
    }
    require(cudaProfilerStop(), "cudaProfilerStop");
    std::printf("%lld steps on %s\n", static_cast<long long>(iterations), properties.name);
  }
  require(cudaFree(vectors.x), "cudaFree");
  require(cudaFree(vectors.y), "cudaFree");
  return 0;
}
