// Video in managed memory: the background of a camera is learned on the GPU, and the host looks where something moves.
// Pages migrate when they are touched, or they are prefetched, or the frames are copied from pinned memory.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

const int width = 1920, height = 1080, cell = 8;

__global__ void subtract(const uchar3 *frame, float3 *background, unsigned char *moved, float rate) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    const int i = y * width + x;
    const uchar3 p = frame[i];
    float3 b = background[i];
    const float r = p.x - b.x, g = p.y - b.y, u = p.z - b.z;
    b.x += rate * r;
    b.y += rate * g;
    b.z += rate * u;
    background[i] = b;
    if (r * r + g * g + u * u > 2500.0f) moved[(y / cell) * (width / cell) + x / cell] = 1;
}

static double center(const unsigned char *moved) {
    long count = 0, sum = 0;
    for (int y = 0; y < height / cell; ++y)
        for (int x = 0; x < width / cell; ++x)
            if (moved[y * (width / cell) + x]) {
                ++count;
                sum += x;
            }
    return count ? double(sum) / double(count) : 0.0;
}

int main(int argc, char **argv) {
    const bool prefetches = argc > 1 && !strcmp(argv[1], "prefetch"), copies = argc > 1 && !strcmp(argv[1], "explicit");
    const int steps = 600, recorded = 8;
    const size_t pixels = size_t(width) * height, bytes = pixels * sizeof(uchar3);
    const size_t cells = size_t(width / cell) * (height / cell);
    std::vector<std::vector<unsigned char>> camera(recorded, std::vector<unsigned char>(bytes));
    for (int n = 0; n < recorded; ++n)
        for (size_t i = 0; i < bytes; ++i) camera[n][i] = (unsigned char)((i * 7 + (i / 5000 == size_t(n) ? 100 : 0)) % 251);
    uchar3 *frame, *d_frame = nullptr;
    float3 *background;
    unsigned char *moved, *d_moved = nullptr;
    if (copies) {
        cudaMallocHost(&frame, bytes);
        cudaMallocHost(&moved, cells);
        cudaMalloc(&d_frame, bytes);
        cudaMalloc(&d_moved, cells);
    } else {
        cudaMallocManaged(&frame, bytes);
        cudaMallocManaged(&moved, cells);
    }
    cudaMalloc(&background, pixels * sizeof(float3));
    cudaMemset(background, 0, pixels * sizeof(float3));
    cudaMemLocation gpu{}, cpu{};
    gpu.type = cudaMemLocationTypeDevice;
    gpu.id = 0;
    cpu.type = cudaMemLocationTypeHost;
    const dim3 block(32, 8), grid((width + 31) / 32, (height + 7) / 8);
    double path = 0;
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        memcpy(frame, camera[step % recorded].data(), bytes);
        if (copies) {
            cudaMemcpyAsync(d_frame, frame, bytes, cudaMemcpyHostToDevice);
            cudaMemsetAsync(d_moved, 0, cells);
            subtract<<<grid, block>>>(d_frame, background, d_moved, 0.05f);
            cudaMemcpyAsync(moved, d_moved, cells, cudaMemcpyDeviceToHost);
        } else {
            if (prefetches) {
                cudaMemPrefetchAsync(frame, bytes, gpu, 0, 0);
                cudaMemPrefetchAsync(moved, cells, gpu, 0, 0);
            }
            cudaMemsetAsync(moved, 0, cells);
            subtract<<<grid, block>>>(frame, background, moved, 0.05f);
            if (prefetches) {
                cudaMemPrefetchAsync(moved, cells, cpu, 0, 0);
                cudaMemPrefetchAsync(frame, bytes, cpu, 0, 0);
            }
        }
        cudaDeviceSynchronize();
        path += center(moved);
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("frames_managed %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    fprintf(stderr, "mean path %.3f, %s\n", path / steps, cudaGetErrorString(cudaGetLastError()));
    return 0;
}
