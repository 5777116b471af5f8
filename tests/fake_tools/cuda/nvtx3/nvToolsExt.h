#pragma once

#include "../cuda_runtime.h"

inline void nvtxRangePushA(const char* name) { note("<" + std::string(name)); }
inline void nvtxRangePop() { note(">"); }
