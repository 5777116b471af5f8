// Jacobi's method: the residual is copied to pageable memory after each sweep, or after each hundredth.
#include <chrono>
#include <cstdio>
#include <cstring>

__global__ void sweep(const float *from, float *to, float *residual, int n) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x > 0 && y > 0 && x < n - 1 && y < n - 1) {
        const float value = 0.25f * (from[y * n + x - 1] + from[y * n + x + 1] + from[(y - 1) * n + x] + from[(y + 1) * n + x]);
        if (value != from[y * n + x]) *residual = value - from[y * n + x];
        to[y * n + x] = value;
    }
}

int main(int argc, char **argv) {
    const bool rarely = argc > 1 && !strcmp(argv[1], "rarely");
    const int n = 1024, steps = 4000, every = rarely ? 100 : 1;
    float *one, *other, *residual, host = 0;
    cudaMalloc(&one, n * n * sizeof(float));
    cudaMalloc(&other, n * n * sizeof(float));
    cudaMalloc(&residual, sizeof(float));
    cudaMemset(one, 0, n * n * sizeof(float));
    cudaMemset(other, 0, n * n * sizeof(float));
    const dim3 block(32, 8), grid((n + 31) / 32, (n + 7) / 8);
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        sweep<<<grid, block>>>(one, other, residual, n);
        if (step % every == 0) cudaMemcpy(&host, residual, sizeof(float), cudaMemcpyDeviceToHost);
        float *swap = one;
        one = other;
        other = swap;
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("jacobi_waits %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    return 0;
}
