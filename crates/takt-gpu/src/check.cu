// A step of the check's frame: reads and writes every word once.
extern "C" __global__ void check_step(const unsigned* from, unsigned* to, unsigned words) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < words) to[i] = from[i] * 3u + 1u;
}
