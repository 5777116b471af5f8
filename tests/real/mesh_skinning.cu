// Meshes follow their bones: the matrix of each bone is copied to the GPU by itself, or all of them in one copy.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

struct Matrix {
    float m[12];
};

struct Bone {
    std::string name;
    int parent;
    float angle, speed;
    Matrix world;
};

__global__ void skin(const float4 *rest, const int4 *bones, const float4 *weights, const Matrix *pose, float4 *moved, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const float4 p = rest[i], w = weights[i];
    const int4 b = bones[i];
    const int which[4] = {b.x, b.y, b.z, b.w};
    const float share[4] = {w.x, w.y, w.z, w.w};
    float x = 0, y = 0, z = 0;
    for (int k = 0; k < 4; ++k) {
        const float *m = pose[which[k]].m;
        x += share[k] * (m[0] * p.x + m[1] * p.y + m[2] * p.z + m[3]);
        y += share[k] * (m[4] * p.x + m[5] * p.y + m[6] * p.z + m[7]);
        z += share[k] * (m[8] * p.x + m[9] * p.y + m[10] * p.z + m[11]);
    }
    moved[i] = make_float4(x, y, z, 1);
}

static void animate(std::vector<Bone> &skeleton) {
    for (Bone &bone : skeleton) {
        bone.angle += bone.speed;
        const float c = std::cos(bone.angle), s = std::sin(bone.angle);
        const float before = bone.parent >= 0 ? skeleton[bone.parent].world.m[3] : 0;
        bone.world = {{c, -s, 0, 0.5f * before + 0.1f, s, c, 0, 0, 0, 0, 1, 0}};
    }
}

int main(int argc, char **argv) {
    const bool packed = argc > 1 && !strcmp(argv[1], "packed");
    const int count = 4 << 20, joints = 640, steps = 800;
    std::vector<Bone> skeleton(joints);
    for (int j = 0; j < joints; ++j) skeleton[j] = {"bone" + std::to_string(j), j - 1, 0, 1e-3f * float(j % 7), {}};
    std::vector<float4> rest(count, make_float4(0.5f, 0.2f, 0.1f, 1)), weights(count, make_float4(0.4f, 0.3f, 0.2f, 0.1f));
    std::vector<int4> bones(count);
    for (int i = 0; i < count; ++i) {
        const int first = int((long long)(i) * (joints - 4) / count);
        bones[i] = make_int4(first, first + 1, first + 2, first + 3);
    }
    float4 *d_rest, *d_weights, *d_moved;
    int4 *d_bones;
    Matrix *pose;
    cudaMalloc(&d_rest, count * sizeof(float4));
    cudaMalloc(&d_weights, count * sizeof(float4));
    cudaMalloc(&d_moved, count * sizeof(float4));
    cudaMalloc(&d_bones, count * sizeof(int4));
    cudaMalloc(&pose, joints * sizeof(Matrix));
    cudaMemcpy(d_rest, rest.data(), count * sizeof(float4), cudaMemcpyHostToDevice);
    cudaMemcpy(d_weights, weights.data(), count * sizeof(float4), cudaMemcpyHostToDevice);
    cudaMemcpy(d_bones, bones.data(), count * sizeof(int4), cudaMemcpyHostToDevice);
    std::vector<Matrix> together(joints);
    auto begin = std::chrono::steady_clock::now();
    for (int step = 0; step < steps; ++step) {
        if (step == steps / 2) {
            cudaDeviceSynchronize();
            begin = std::chrono::steady_clock::now();
        }
        animate(skeleton);
        if (packed) {
            for (int j = 0; j < joints; ++j) together[j] = skeleton[j].world;
            cudaMemcpy(pose, together.data(), joints * sizeof(Matrix), cudaMemcpyHostToDevice);
        } else {
            for (int j = 0; j < joints; ++j) cudaMemcpy(pose + j, &skeleton[j].world, sizeof(Matrix), cudaMemcpyHostToDevice);
        }
        skin<<<(count + 255) / 256, 256>>>(d_rest, d_bones, d_weights, pose, d_moved, count);
    }
    cudaDeviceSynchronize();
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    printf("mesh_skinning %s step %.4f ms\n", argc > 1 ? argv[1] : "base", ms / (steps - steps / 2));
    return 0;
}
