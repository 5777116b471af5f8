// Batches come from pinned memory on a stream for copies, while products in TF32 use the batch before.
#include <cublas_v2.h>
#include <chrono>
#include <cstdio>
#include <cstring>

int main(int argc, char **argv) {
    const int n = 4096, steps = 200, products = 6;
    const size_t bytes = size_t(n) * n * sizeof(float);
    float *host[2], *batch[2], *weights, *result;
    cudaEvent_t arrived[2], used[2];
    for (int i = 0; i < 2; ++i) {
        cudaMallocHost(&host[i], bytes);
        memset(host[i], 0, bytes);
        cudaMalloc(&batch[i], bytes);
        cudaEventCreateWithFlags(&arrived[i], cudaEventDisableTiming);
        cudaEventCreateWithFlags(&used[i], cudaEventDisableTiming);
    }
    cudaMalloc(&weights, bytes);
    cudaMalloc(&result, bytes);
    cudaMemset(weights, 0, bytes);
    cudaStream_t copies, work;
    cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking);
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasSetStream(handle, work);
    cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH);
    const float one = 1, zero = 0;
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        const int i = step % 2;
        cudaStreamWaitEvent(copies, used[i], 0);
        cudaMemcpyAsync(batch[i], host[i], bytes, cudaMemcpyHostToDevice, copies);
        cudaEventRecord(arrived[i], copies);
        cudaStreamWaitEvent(work, arrived[i], 0);
        for (int product = 0; product < products; ++product)
            cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, batch[i], n, weights, n, &zero, result, n);
        cudaEventRecord(used[i], work);
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("pipelined_healthy %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    return 0;
}
