// A CUDA on the CPU, for the logic of unified_memory.cu where there is no GPU: what is called is printed to stderr.
// FAKE_CUDA says what is wrong with the machine. Kernels are run by `emulated`, in place of <<<...>>>.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#define __global__

enum cudaError_t {
  cudaSuccess,
  cudaErrorNoDevice,
  cudaErrorInsufficientDriver,
  cudaErrorNoKernelImageForDevice,
  cudaErrorMemoryAllocation,
  cudaErrorUnknown
};
enum cudaDeviceAttr { cudaDevAttrConcurrentManagedAccess };
enum cudaMemLocationType { cudaMemLocationTypeDevice, cudaMemLocationTypeHost };
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
struct cudaDeviceProp {
  char name[32];
};
struct Index {
  unsigned x;
};
constexpr int cudaCpuDeviceId = -1;
inline Index blockIdx, threadIdx, blockDim, gridDim;

inline bool is_so(const char* trouble) {
  const char* said = std::getenv("FAKE_CUDA");
  return said && std::strcmp(said, trouble) == 0;
}
inline void note(const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); }

inline const char* cudaGetErrorString(cudaError_t error) { return error == cudaErrorUnknown ? "unknown error" : "no such thing"; }
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return is_so("no device") ? cudaErrorNoDevice : cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = !is_so("no migration");
  return cudaSuccess;
}
inline cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = 1000000;
  return cudaSuccess;
}
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  std::strcpy(properties->name, "NVIDIA H200");
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaMallocManaged(T** memory, size_t bytes) {
  *memory = static_cast<T*>(std::malloc(bytes));
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
#if CUDART_VERSION >= 13000
inline cudaError_t cudaMemPrefetchAsync(void*, size_t, cudaMemLocation where, unsigned, void*) {
  note(where.type == cudaMemLocationTypeHost ? "to host" : "to device");
#else
inline cudaError_t cudaMemPrefetchAsync(void*, size_t, int device, void*) {
  note(device == cudaCpuDeviceId ? "to host" : "to device");
#endif
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() { return is_so("no kernel") ? cudaErrorNoKernelImageForDevice : cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return is_so("fault") ? cudaErrorUnknown : cudaSuccess; }

template <typename Kernel, typename... Arguments>
void emulated(unsigned blocks, unsigned threads, Kernel kernel, Arguments... arguments) {
  note("launch " + std::to_string(blocks) + " x " + std::to_string(threads));
  gridDim.x = blocks;
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks && !is_so("lost work"); ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {
      kernel(arguments...);
    }
  }
}
