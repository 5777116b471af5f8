// Large products in TF32, launched ahead of the GPU.
#include <cublas_v2.h>
#include <chrono>
#include <cstdio>

int main(int argc, char **argv) {
    const int n = 8192, steps = 60;
    float *a, *b, *c;
    cudaMalloc(&a, size_t(n) * n * sizeof(float));
    cudaMalloc(&b, size_t(n) * n * sizeof(float));
    cudaMalloc(&c, size_t(n) * n * sizeof(float));
    cudaMemset(a, 0, size_t(n) * n * sizeof(float));
    cudaMemset(b, 0, size_t(n) * n * sizeof(float));
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH);
    const float one = 1, zero = 0;
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, n, b, n, &zero, c, n);
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("native_healthy %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    return 0;
}
