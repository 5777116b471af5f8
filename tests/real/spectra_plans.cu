// Spectra of windows whose length differs from channel to channel: a plan of cuFFT for each, or plans that are kept.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <cufft.h>
#include <map>

__global__ void power(const float2 *spectrum, float *sum, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] += spectrum[i].x * spectrum[i].x + spectrum[i].y * spectrum[i].y;
}

int main(int argc, char **argv) {
    const bool kept = argc > 1 && !strcmp(argv[1], "kept");
    const int lengths[] = {1024, 1536, 2048, 3072}, batch = 256, longest = 3072, steps = 400;
    float2 *signal, *spectrum;
    float *sum;
    cudaMalloc(&signal, longest * batch * sizeof(float2));
    cudaMalloc(&spectrum, longest * batch * sizeof(float2));
    cudaMalloc(&sum, longest * batch * sizeof(float));
    cudaMemset(signal, 0, longest * batch * sizeof(float2));
    cudaMemset(sum, 0, longest * batch * sizeof(float));
    std::map<int, cufftHandle> plans;
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        for (const int length : lengths) {
            cufftHandle plan;
            if (kept && plans.count(length)) {
                plan = plans[length];
            } else {
                cufftPlan1d(&plan, length, CUFFT_C2C, batch);
                if (kept) plans[length] = plan;
            }
            cufftExecC2C(plan, (cufftComplex *)signal, (cufftComplex *)spectrum, CUFFT_FORWARD);
            power<<<(length * batch + 255) / 256, 256>>>(spectrum, sum, length * batch);
            if (!kept) cufftDestroy(plan);
        }
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("spectra_plans %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    return 0;
}
