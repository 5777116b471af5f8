// Flow by the lattice Boltzmann method (D2Q9), one array per direction: neighbouring threads take cells of a column, or of a row.
#include <chrono>
#include <cstdio>
#include <cstring>

__constant__ float weights[9] = {4.f / 9, 1.f / 9, 1.f / 9, 1.f / 9, 1.f / 9, 1.f / 36, 1.f / 36, 1.f / 36, 1.f / 36};
__constant__ int along[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, across[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};

__global__ void start(float *f, int n) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x, cells = size_t(n) * n;
    if (i >= cells) return;
    for (int q = 0; q < 9; ++q) f[q * cells + i] = weights[q] * (1.0f + 0.01f * float(i % 97));
}

__device__ void collide(const float *from, float *to, int row, int column, int n) {
    const size_t cells = size_t(n) * n;
    float f[9], density = 0, u = 0, v = 0;
#pragma unroll
    for (int q = 0; q < 9; ++q) {
        const int r = (row - across[q]) & (n - 1), c = (column - along[q]) & (n - 1);
        f[q] = from[q * cells + size_t(r) * n + c];
        density += f[q];
        u += f[q] * along[q];
        v += f[q] * across[q];
    }
    u /= density;
    v /= density;
    const float square = 1.5f * (u * u + v * v);
#pragma unroll
    for (int q = 0; q < 9; ++q) {
        const float dot = 3.0f * (along[q] * u + across[q] * v);
        const float wanted = weights[q] * density * (1.0f + dot + 0.5f * dot * dot - square);
        to[q * cells + size_t(row) * n + column] = f[q] + 0.6f * (wanted - f[q]);
    }
}

__global__ void flow(const float *from, float *to, int n) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < n) collide(from, to, row, column, n);
}

__global__ void flow_by_rows(const float *from, float *to, int n) {
    const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row < n && column < n) collide(from, to, row, column, n);
}

int main(int argc, char **argv) {
    const bool by_rows = argc > 1 && !strcmp(argv[1], "rows");
    const int n = 4096, steps = 1000; // n: a power of two
    const size_t cells = size_t(n) * n;
    float *one, *other;
    cudaMalloc(&one, 9 * cells * sizeof(float));
    cudaMalloc(&other, 9 * cells * sizeof(float));
    start<<<unsigned((cells + 255) / 256), 256>>>(one, n);
    const dim3 block(32, 8), grid((n + 31) / 32, (n + 7) / 8);
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        if (by_rows)
            flow_by_rows<<<grid, block>>>(one, other, n);
        else
            flow<<<grid, block>>>(one, other, n);
        float *swap = one;
        one = other;
        other = swap;
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("lattice_flow %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    return 0;
}
