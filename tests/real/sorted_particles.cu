// Particles are sorted by cell and their energy is summed with Thrust, which allocates memory each time; or keeps it.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>

struct Pool {
    typedef char value_type;
    std::multimap<std::ptrdiff_t, char *> unused;
    std::map<char *, std::ptrdiff_t> used;
    char *allocate(std::ptrdiff_t bytes) {
        char *memory = nullptr;
        const auto found = unused.lower_bound(bytes);
        if (found != unused.end()) {
            memory = found->second;
            bytes = found->first;
            unused.erase(found);
        } else {
            cudaMalloc(&memory, bytes);
        }
        used[memory] = bytes;
        return memory;
    }
    void deallocate(char *memory, size_t) {
        unused.emplace(used[memory], memory);
        used.erase(memory);
    }
};

__global__ void move(float *position, float *velocity, int *cell, int n, int step) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    position[i] += velocity[i] * 1e-3f;
    velocity[i] = -position[i] * 1e-3f + velocity[i];
    cell[i] = (i * 7919 + step * 104729) & 0xffff;
}

int main(int argc, char **argv) {
    const bool pooled = argc > 1 && !strcmp(argv[1], "pooled");
    const int n = 1 << 17, steps = 1000;
    thrust::device_vector<float> position(n, 0.5f), velocity(n, 0.1f);
    thrust::device_vector<int> cell(n);
    Pool pool;
    float energy = 0;
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        move<<<(n + 255) / 256, 256>>>(
            thrust::raw_pointer_cast(position.data()), thrust::raw_pointer_cast(velocity.data()),
            thrust::raw_pointer_cast(cell.data()), n, step);
        if (pooled) {
            thrust::sort_by_key(thrust::cuda::par(pool), cell.begin(), cell.end(), velocity.begin());
            energy += thrust::reduce(thrust::cuda::par(pool), velocity.begin(), velocity.end());
        } else {
            thrust::sort_by_key(cell.begin(), cell.end(), velocity.begin());
            energy += thrust::reduce(velocity.begin(), velocity.end());
        }
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("sorted_particles %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    return energy > 1e30f;
}
