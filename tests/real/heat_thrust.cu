// Heat in a plate: each step makes a vector of Thrust and reduces the change; or two vectors are reused; or the change is also asked for rarely.
#include <thrust/device_vector.h>
#include <thrust/inner_product.h>
#include <chrono>
#include <cstdio>
#include <cstring>

struct Change {
    __host__ __device__ float operator()(float a, float b) const { return a > b ? a - b : b - a; }
};

struct Larger {
    __host__ __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

__global__ void heat(const float *from, float *to, int n) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    const int i = y * n + x;
    const bool edge = x == 0 || y == 0 || x == n - 1 || y == n - 1;
    to[i] = edge ? from[i] : from[i] + 0.2f * (from[i - 1] + from[i + 1] + from[i - n] + from[i + n] - 4 * from[i]);
}

int main(int argc, char **argv) {
    const bool rarely = argc > 1 && !strcmp(argv[1], "rarely"), reused = rarely || (argc > 1 && !strcmp(argv[1], "reused"));
    const int n = 2048, steps = 2000, every = rarely ? 100 : 1;
    thrust::device_vector<float> plate(n * n), kept(reused ? n * n : 0);
    thrust::fill(plate.begin(), plate.begin() + n, 100.0f);
    const dim3 block(32, 8), grid((n + 31) / 32, (n + 7) / 8);
    float change = 0;
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        if (reused) {
            heat<<<grid, block>>>(thrust::raw_pointer_cast(plate.data()), thrust::raw_pointer_cast(kept.data()), n);
            if (step % every == 0) change = thrust::inner_product(plate.begin(), plate.end(), kept.begin(), 0.0f, Larger(), Change());
            plate.swap(kept);
        } else {
            thrust::device_vector<float> next(n * n);
            heat<<<grid, block>>>(thrust::raw_pointer_cast(plate.data()), thrust::raw_pointer_cast(next.data()), n);
            change = thrust::inner_product(plate.begin(), plate.end(), next.begin(), 0.0f, Larger(), Change());
            plate.swap(next);
        }
        if (change < 1e-9f) break;
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("heat_thrust %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    return 0;
}
