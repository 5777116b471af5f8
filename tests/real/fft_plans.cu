// Images are filtered with cuFFT: a function makes both plans in each call; or they are made once.
#include <cufft.h>
#include <chrono>
#include <cstdio>
#include <cstring>

__global__ void multiply(cufftComplex *values, const float *filter, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        values[i].x *= filter[i];
        values[i].y *= filter[i];
    }
}

static void transform(cufftHandle there, cufftHandle back, float *image, cufftComplex *values, const float *filter, int count) {
    cufftExecR2C(there, image, values);
    multiply<<<(count + 255) / 256, 256>>>(values, filter, count);
    cufftExecC2R(back, values, image);
}

static void filtered(float *image, cufftComplex *values, const float *filter, int rows, int columns) {
    cufftHandle there, back;
    cufftPlan2d(&there, rows, columns, CUFFT_R2C);
    cufftPlan2d(&back, rows, columns, CUFFT_C2R);
    transform(there, back, image, values, filter, rows * (columns / 2 + 1));
    cufftDestroy(there);
    cufftDestroy(back);
}

int main(int argc, char **argv) {
    const bool once = argc > 1 && !strcmp(argv[1], "once");
    const int rows = 1500, columns = 2000, count = rows * (columns / 2 + 1), steps = 300;
    float *image, *filter;
    cufftComplex *values;
    cudaMalloc(&image, rows * columns * sizeof(float));
    cudaMalloc(&filter, count * sizeof(float));
    cudaMalloc(&values, count * sizeof(cufftComplex));
    cudaMemset(image, 0, rows * columns * sizeof(float));
    cudaMemset(filter, 0, count * sizeof(float));
    cufftHandle there, back;
    if (once) {
        cufftPlan2d(&there, rows, columns, CUFFT_R2C);
        cufftPlan2d(&back, rows, columns, CUFFT_C2R);
    }
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        if (once)
            transform(there, back, image, values, filter, count);
        else
            filtered(image, values, filter, rows, columns);
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("fft_plans %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    return 0;
}
