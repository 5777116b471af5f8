// Poisson's equation by multigrid (V-cycles with damped Jacobi sweeps). Each kernel is checked for errors by waiting for
// it; or only its launch is checked; or a cycle is one CUDA graph.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static bool waits = true;
static cudaStream_t stream;

static void check(const char *what) {
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess && waits) error = cudaStreamSynchronize(stream);
    if (error != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
        exit(1);
    }
}

// beyond the wall, where the solution is zero, it has the other sign
__device__ float at(const float *u, int n, int x, int y) {
    const int inner_x = min(max(x, 0), n - 1), inner_y = min(max(y, 0), n - 1);
    const float value = u[inner_y * n + inner_x];
    return inner_x == x && inner_y == y ? value : -value;
}

__global__ void sweep(const float *u, const float *f, float *next, int n, float h2) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    const float around = at(u, n, x - 1, y) + at(u, n, x + 1, y) + at(u, n, x, y - 1) + at(u, n, x, y + 1);
    next[y * n + x] = 0.2f * u[y * n + x] + 0.2f * (around + h2 * f[y * n + x]);
}

__global__ void residual(const float *u, const float *f, float *r, int n, float h2) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    const float around = at(u, n, x - 1, y) + at(u, n, x + 1, y) + at(u, n, x, y - 1) + at(u, n, x, y + 1);
    r[y * n + x] = f[y * n + x] - (4.0f * u[y * n + x] - around) / h2;
}

// the mean of four cells; the correction begins as zero
__global__ void coarsen(const float *r, float *f, float *u, int n) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    const float *first = r + (2 * y) * (2 * n) + 2 * x;
    f[y * n + x] = 0.25f * (first[0] + first[1] + first[2 * n] + first[2 * n + 1]);
    u[y * n + x] = 0.0f;
}

// bilinear: a cell is three times as near to the coarse cell that it is in as to the next one
__global__ void correct(float *u, const float *coarse, int n) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    const int half = n / 2, left = x / 2, top = y / 2, beside = left + (x % 2 ? 1 : -1), above = top + (y % 2 ? 1 : -1);
    const float near = 9.0f * at(coarse, half, left, top) + 3.0f * at(coarse, half, beside, top);
    u[y * n + x] += (near + 3.0f * at(coarse, half, left, above) + at(coarse, half, beside, above)) / 16.0f;
}

__global__ void source(float *f, int n) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < n && y < n) f[y * n + x] = (x - n / 3) * (x - n / 3) + (y - n / 2) * (y - n / 2) < n ? 1.0f : 0.0f;
}

struct Level {
    int n;
    float h2, *u, *f, *other;
};

static const dim3 block(32, 8);

static dim3 blocks(int n) { return dim3((n + 31) / 32, (n + 7) / 8); }

// two sweeps, so that the result is in u again
static void smooth(const Level &level, int pairs) {
    for (int pair = 0; pair < pairs; ++pair) {
        sweep<<<blocks(level.n), block, 0, stream>>>(level.u, level.f, level.other, level.n, level.h2);
        check("sweep");
        sweep<<<blocks(level.n), block, 0, stream>>>(level.other, level.f, level.u, level.n, level.h2);
        check("sweep");
    }
}

static void cycle(const std::vector<Level> &levels, size_t number) {
    const Level &level = levels[number];
    if (number + 1 == levels.size()) {
        smooth(level, 8);
        return;
    }
    smooth(level, 1);
    residual<<<blocks(level.n), block, 0, stream>>>(level.u, level.f, level.other, level.n, level.h2);
    check("residual");
    const Level &below = levels[number + 1];
    coarsen<<<blocks(below.n), block, 0, stream>>>(level.other, below.f, below.u, below.n);
    check("coarsen");
    cycle(levels, number + 1);
    correct<<<blocks(level.n), block, 0, stream>>>(level.u, below.u, level.n);
    check("correct");
    smooth(level, 1);
}

int main(int argc, char **argv) {
    const bool graphed = argc > 1 && !strcmp(argv[1], "graph");
    waits = !(argc > 1 && !strcmp(argv[1], "ahead")) && !graphed;
    const int finest = 1024, coarsest = 4, steps = 1200;
    cudaStreamCreate(&stream);
    std::vector<Level> levels;
    for (int n = finest; n >= coarsest; n /= 2) {
        Level level{n, 1.0f / (float(n) * float(n)), nullptr, nullptr, nullptr};
        for (float **array : {&level.u, &level.f, &level.other}) {
            cudaMalloc(array, size_t(n) * n * sizeof(float));
            cudaMemset(*array, 0, size_t(n) * n * sizeof(float));
        }
        levels.push_back(level);
    }
    cudaDeviceSynchronize();
    source<<<blocks(finest), block, 0, stream>>>(levels[0].f, finest);
    check("source");
    cudaGraphExec_t whole = nullptr;
    if (graphed) {
        cudaGraph_t graph;
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
        cycle(levels, 0);
        cudaStreamEndCapture(stream, &graph);
        cudaGraphInstantiate(&whole, graph, 0);
    }
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        if (graphed)
            cudaGraphLaunch(whole, stream);
        else
            cycle(levels, 0);
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("multigrid_checks %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    float middle = 0;
    cudaMemcpy(&middle, levels[0].u + size_t(finest / 2) * finest + finest / 2, sizeof(float), cudaMemcpyDeviceToHost);
    fprintf(stderr, "u in the middle: %g, %s\n", middle, cudaGetErrorString(cudaGetLastError()));
    return 0;
}
