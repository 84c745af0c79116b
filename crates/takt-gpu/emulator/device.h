// CUDA C as far as the kernels of Takt use it, for the host's C++ compiler. Threads run one after another, blocks likewise, so there
// is no __syncthreads: a kernel that needs it does not compile here. Multiplications and additions are never fused
// (-ffp-contract=off), as NVRTC does with --fmad=false.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __constant__ static const
#define __shared__ static
#define __launch_bounds__(...)

struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct uint3 { unsigned x, y, z; };
#define TAKT_VECTORS(T, N) \
    struct N##2 { T x, y; }; \
    struct N##3 { T x, y, z; }; \
    struct N##4 { T x, y, z, w; }; \
    static inline N##2 make_##N##2(T x, T y) { return {x, y}; } \
    static inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; } \
    static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TAKT_VECTORS(float, float)
TAKT_VECTORS(double, double)
TAKT_VECTORS(int, int)
TAKT_VECTORS(unsigned char, uchar)
TAKT_VECTORS(unsigned short, ushort)
#undef TAKT_VECTORS
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// One kernel runs at a time, so these need not be the thread's own.
static dim3 gridDim, blockDim;
static uint3 blockIdx, threadIdx;
static const int warpSize = 1;

// Seen by the device after some blocks, which is then lost.
extern "C" {
__attribute__((visibility("default"))) volatile bool takt_trapped = false;
}
static inline void __trap() { takt_trapped = true; }

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __syncwarp(unsigned = ~0u) {}
template <class T> static inline T __ldg(const T *at) { return *at; }

#define TAKT_ATOMIC(NAME, EXPRESSION) \
    template <class T> static inline T NAME(T *at, typename std::common_type<T>::type b) { \
        T a = *at; \
        *at = (EXPRESSION); \
        return a; \
    }
TAKT_ATOMIC(atomicAdd, T(a + b))
TAKT_ATOMIC(atomicSub, T(a - b))
TAKT_ATOMIC(atomicMin, b < a ? b : a)
TAKT_ATOMIC(atomicMax, b > a ? b : a)
TAKT_ATOMIC(atomicAnd, T(a & b))
TAKT_ATOMIC(atomicOr, T(a | b))
TAKT_ATOMIC(atomicXor, T(a ^ b))
TAKT_ATOMIC(atomicExch, b)
TAKT_ATOMIC(atomicInc, a >= b ? T(0) : T(a + 1))
#undef TAKT_ATOMIC
template <class T>
static inline T atomicCAS(T *at, typename std::common_type<T>::type expected, typename std::common_type<T>::type value) {
    T old = *at;
    if (old == expected) *at = value;
    return old;
}

template <class A, class B> static inline typename std::common_type<A, B>::type min(A a, B b) {
    typedef typename std::common_type<A, B>::type T;
    return T(b) < T(a) ? T(b) : T(a);
}
template <class A, class B> static inline typename std::common_type<A, B>::type max(A a, B b) {
    typedef typename std::common_type<A, B>::type T;
    return T(b) > T(a) ? T(b) : T(a);
}
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return std::sqrt(a); }
static inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static inline float __fdividef(float a, float b) { return a / b; }
// The C library has these names for itself.
#define __expf(a) expf(a)
#define __logf(a) logf(a)
#define __powf(a, b) powf(a, b)
#define __sinf(a) sinf(a)
#define __cosf(a) cosf(a)
static inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
static inline float __saturatef(float a) { return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f; }
static inline int __float2int_rn(float a) { return (int)std::nearbyint(a); }
static inline int __float2int_rz(float a) { return (int)a; }
static inline int __float2int_rd(float a) { return (int)std::floor(a); }
static inline int __float2int_ru(float a) { return (int)std::ceil(a); }
static inline unsigned __float2uint_rn(float a) { return (unsigned)std::nearbyint(a); }
static inline unsigned __float2uint_rz(float a) { return (unsigned)a; }
static inline float __int2float_rn(int a) { return (float)a; }
static inline float __uint2float_rn(unsigned a) { return (float)a; }
template <class To, class From> static inline To takt_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "same size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
static inline int __float_as_int(float a) { return takt_bits<int>(a); }
static inline unsigned __float_as_uint(float a) { return takt_bits<unsigned>(a); }
static inline float __int_as_float(int a) { return takt_bits<float>(a); }
static inline float __uint_as_float(unsigned a) { return takt_bits<float>(a); }
static inline long long __double_as_longlong(double a) { return takt_bits<long long>(a); }
static inline double __longlong_as_double(long long a) { return takt_bits<double>(a); }
static inline int __popc(unsigned a) { return __builtin_popcount(a); }
static inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
static inline int __clz(int a) { return a ? __builtin_clz((unsigned)a) : 32; }
static inline int __clzll(long long a) { return a ? __builtin_clzll((unsigned long long)a) : 64; }
static inline int __ffs(int a) { return __builtin_ffs(a); }
static inline int __ffsll(long long a) { return __builtin_ffsll(a); }
static inline unsigned __brev(unsigned a) {
    unsigned b = 0;
    for (int i = 0; i < 32; ++i) b = b << 1 | (a >> i & 1);
    return b;
}
static inline int __mul24(int a, int b) { return a * b; }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline long long clock64() { return __builtin_ia32_rdtsc(); }
using std::isfinite;
using std::isinf;
using std::isnan;

// How the device starts a kernel: some blocks of it, all threads of each.
template <class... A, std::size_t... I>
static inline void takt_call(void (*kernel)(A...), void **args, std::index_sequence<I...>) {
    kernel(*static_cast<typename std::decay<A>::type *>(args[I])...);
}
template <class... A>
static inline void takt_run(void (*kernel)(A...), void **args, const unsigned *grid, const unsigned *block,
                            unsigned long long first, unsigned long long count) {
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    for (unsigned long long at = first; at < first + count; ++at) {
        blockIdx = {unsigned(at % grid[0]), unsigned(at / grid[0] % grid[1]), unsigned(at / grid[0] / grid[1])};
        for (unsigned z = 0; z < block[2]; ++z)
            for (unsigned y = 0; y < block[1]; ++y)
                for (unsigned x = 0; x < block[0]; ++x) {
                    threadIdx = {x, y, z};
                    takt_call(kernel, args, std::index_sequence_for<A...>());
                }
    }
}
template <class... A> static inline int takt_sizes(void (*)(A...), std::size_t *sizes, int most) {
    const std::size_t all[] = {sizeof(typename std::decay<A>::type)..., 0};
    for (int i = 0; i < (int)sizeof...(A) && i < most; ++i) sizes[i] = all[i];
    return sizeof...(A);
}
#define TAKT_KERNEL(NAME) \
    extern "C" __attribute__((visibility("default"))) void takt_run_##NAME(void **args, const unsigned *grid, const unsigned *block, \
                                    unsigned long long first, unsigned long long count) { \
        takt_run(&NAME, args, grid, block, first, count); \
    } \
    extern "C" __attribute__((visibility("default"))) int takt_sizes_##NAME(std::size_t *sizes, int most) { return takt_sizes(&NAME, sizes, most); }
