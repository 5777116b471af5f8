#pragma once

#include "cuda_runtime.h"

inline cudaError_t cudaProfilerStart() {
  note("start");
  return cudaSuccess;
}
inline cudaError_t cudaProfilerStop() {
  note("stop");
  return cudaSuccess;
}
