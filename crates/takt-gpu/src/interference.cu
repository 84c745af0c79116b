// Work that gets in the way, each kernel of one kind.

// Arithmetic alone: chains of multiply-adds that never leave the registers.
extern "C" __global__ void interfere_compute(float* out, int rounds) {
    float a = threadIdx.x * 1e-6f, b = 1.0f, c = 0.5f, d = 0.25f;
    for (int i = 0; i < rounds; ++i) {
        a = a * 0.999f + 0.001f;
        b = b * 0.998f + 0.002f;
        c = c * 0.997f + 0.003f;
        d = d * 0.996f + 0.004f;
    }
    // Never so, but the compiler cannot know.
    if (a + b + c + d == 12345.0f) out[blockIdx.x] = a;
}

// Memory alone: reads and writes every word, block after block of the grid.
extern "C" __global__ void interfere_memory(const unsigned* from, unsigned* to, unsigned words) {
    unsigned step = gridDim.x * blockDim.x;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += step) to[i] = from[i] + 1u;
}
