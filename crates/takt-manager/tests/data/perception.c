// A node as perception has them: every 40 ms a frame, of which OpenMP's threads compute the most, and threads that carry messages beside
// it. A line for each frame: time from its release to its end, CPU time of the process, greatest and mean lateness of the messengers.
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MESSENGERS = 3, CHUNKS = 8 };
static const int64_t FRAME_NS = 40000000, MESSAGE_NS = 5000000;
static _Atomic int64_t late_ns, messages, worst_ns;

static int64_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void until(int64_t ns) {
    struct timespec t = {ns / 1000000000LL, ns % 1000000000LL};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

// The same work each time, whatever it takes.
static uint64_t work(long steps, uint64_t x) {
    for (long i = 0; i < steps; i++)
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    return x;
}

static void announce(const char *name) {
    printf("thread %s %ld\n", name, (long)syscall(SYS_gettid));
    fflush(stdout);
}

static void *messenger(void *unused) {
    (void)unused;
    announce("messenger");
    uint64_t x = 1;
    for (int64_t next = now(CLOCK_MONOTONIC);;) {
        next += MESSAGE_NS;
        until(next);
        int64_t late = now(CLOCK_MONOTONIC) - next;
        atomic_fetch_add(&late_ns, late);
        atomic_fetch_add(&messages, 1);
        if (late > atomic_load(&worst_ns))
            atomic_store(&worst_ns, late);
        x = work(20000, x);
        if (x == 7)
            puts("never");
        if (late > MESSAGE_NS)
            next = now(CLOCK_MONOTONIC);
    }
    return NULL;
}

int main(int argc, char **argv) {
    long steps = argc > 1 ? atol(argv[1]) : 500000;
    for (int i = 0; i < MESSENGERS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, messenger, NULL);
    }
    announce("executor");
#pragma omp parallel
    {
        if (omp_get_thread_num() > 0) {
#pragma omp critical
            announce("pool");
        }
    }
    announce("ready");
    uint64_t sums[CHUNKS] = {0}, x = 1;
    for (int64_t next = now(CLOCK_MONOTONIC);;) {
        next += FRAME_NS;
        if (next < now(CLOCK_MONOTONIC))
            next = now(CLOCK_MONOTONIC);
        until(next);
        int64_t used = now(CLOCK_PROCESS_CPUTIME_ID);
        x = work(2 * steps, x);
#pragma omp parallel for schedule(dynamic)
        for (int i = 0; i < CHUNKS; i++)
            sums[i] = work(steps, x + sums[i]);
        for (int i = 0; i < CHUNKS; i++)
            x += sums[i];
        int64_t took = now(CLOCK_MONOTONIC) - next;
        used = now(CLOCK_PROCESS_CPUTIME_ID) - used;
        int64_t n = atomic_exchange(&messages, 0), sum = atomic_exchange(&late_ns, 0);
        printf("frame %lld %lld %lld %lld %llu\n", (long long)took, (long long)used,
               (long long)atomic_exchange(&worst_ns, 0), (long long)(n ? sum / n : 0), (unsigned long long)(x & 1));
        fflush(stdout);
    }
}
