// Bodies attract each other; a block keeps the positions of a tile in shared memory: healthy.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

const int TILE = 256;

__global__ void __launch_bounds__(TILE, 8) pull(const float4 *from, float4 *to, float4 *velocity, int count, float dt) {
    __shared__ float4 tile[TILE];
    const int i = blockIdx.x * TILE + threadIdx.x;
    const float4 own = from[i];
    float x = 0, y = 0, z = 0;
    for (int first = 0; first < count; first += TILE) {
        tile[threadIdx.x] = from[first + threadIdx.x];
        __syncthreads();
#pragma unroll 32
        for (int j = 0; j < TILE; ++j) {
            const float4 other = tile[j];
            const float dx = other.x - own.x, dy = other.y - own.y, dz = other.z - own.z;
            const float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-4f);
            const float force = other.w * inverse * inverse * inverse;
            x += force * dx;
            y += force * dy;
            z += force * dz;
        }
        __syncthreads();
    }
    float4 v = velocity[i];
    v.x += dt * x;
    v.y += dt * y;
    v.z += dt * z;
    velocity[i] = v;
    to[i] = make_float4(own.x + dt * v.x, own.y + dt * v.y, own.z + dt * v.z, own.w);
}

int main(int argc, char **argv) {
    const int count = 132 * 8 * TILE, steps = 100; // 132 multiprocessors with 8 blocks each
    std::vector<float4> bodies(count);
    for (int i = 0; i < count; ++i)
        bodies[i] = make_float4(float(i % 97) / 97, float(i % 89) / 89, float(i % 83) / 83, 1e-6f);
    float4 *one, *other, *velocity;
    cudaMalloc(&one, count * sizeof(float4));
    cudaMalloc(&other, count * sizeof(float4));
    cudaMalloc(&velocity, count * sizeof(float4));
    cudaMemcpy(one, bodies.data(), count * sizeof(float4), cudaMemcpyHostToDevice);
    cudaMemset(velocity, 0, count * sizeof(float4));
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        pull<<<count / TILE, TILE>>>(one, other, velocity, count, 1e-3f);
        float4 *swap = one;
        one = other;
        other = swap;
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("nbody_tiles %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    return 0;
}
