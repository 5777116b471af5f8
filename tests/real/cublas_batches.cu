// 512 small products: one call of cuBLAS each, with a copy of the result to pageable memory and a wait; or one copy;
// or one batched call.
#include <cublas_v2.h>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

int main(int argc, char **argv) {
    const bool batched = argc > 1 && !strcmp(argv[1], "batched"), together = argc > 1 && !strcmp(argv[1], "together");
    const int n = 128, count = 512, steps = 30;
    const size_t each = size_t(n) * n;
    float *a, *b, *c;
    cudaMalloc(&a, each * count * sizeof(float));
    cudaMalloc(&b, each * count * sizeof(float));
    cudaMalloc(&c, each * count * sizeof(float));
    cudaMemset(a, 0, each * count * sizeof(float));
    cudaMemset(b, 0, each * count * sizeof(float));
    std::vector<float> host(each * count);
    cublasHandle_t handle;
    cublasCreate(&handle);
    const float one = 1, zero = 0;
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        if (batched) {
            cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a, n, each, b, n, each, &zero, c, n, each, count);
            cudaMemcpy(host.data(), c, each * count * sizeof(float), cudaMemcpyDeviceToHost);
        } else {
            for (int i = 0; i < count; ++i) {
                cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, a + i * each, n, b + i * each, n, &zero, c + i * each, n);
                if (!together) cudaMemcpy(host.data() + i * each, c + i * each, each * sizeof(float), cudaMemcpyDeviceToHost);
            }
            if (together) cudaMemcpy(host.data(), c, each * count * sizeof(float), cudaMemcpyDeviceToHost);
        }
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("cublas_batches %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    return 0;
}
