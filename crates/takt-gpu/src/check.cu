// Kernels of the check. Each but the first belongs to one measurement.

// A step of the check's frame: reads and writes every word once.
extern "C" __global__ void check_step(const unsigned* from, unsigned* to, unsigned words) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < words) to[i] = from[i] * 3u + 1u;
}

// Arithmetic that the compiler cannot leave out.
__device__ __forceinline__ float check_turn(int rounds) {
    float a = threadIdx.x * 1e-6f;
    for (int i = 0; i < rounds; ++i) a = a * 0.999f + 0.001f;
    return a;
}

// Works for a while and then takes a number: who was done when. `turns` has a place for each, and the next number behind them.
extern "C" __global__ void check_order(unsigned* turns, int who, int all, int rounds, float* out) {
    float a = check_turn(rounds);
    if (a == 12345.0f) out[0] = a;
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) turns[who] = atomicAdd(turns + all, 1u);
}

// Keeps the device busy.
extern "C" __global__ void check_busy(float* out, int rounds) {
    float a = check_turn(rounds);
    if (a == 12345.0f) out[0] = a;
}

// Ends when `flag` is set, which nobody does.
extern "C" __global__ void check_forever(volatile const unsigned* flag, unsigned* out) {
    while (*flag == 0u) {}
    out[0] = 1u;
}

// Ends the context.
extern "C" __global__ void check_trap(unsigned* out) {
    out[0] = 1u;
    __trap();
}
