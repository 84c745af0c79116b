/* What one record of a job costs the loop, by several ways of recording: `costs [ROUNDS]`. Records come in bursts that every way can
 * take: 1000 in 20 ms. Printed are the median and the 99 % quantile of the bursts' means, in nanoseconds for each record.
 *
 *   clock     reading CLOCK_MONOTONIC twice, which each of the others does as well
 *   takt      takt_loop_release, takt_loop_end; says whether a session takes the records
 *   stamped   the same of an input that has a time stamp: without a session nobody reads the clock
 *   lttng     a tracepoint of LTTng-UST with the same fields (-DLTTNG); records where `lttng start` was
 *   fprintf   a line in a buffered file
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <takt.h>

#ifdef LTTNG
#define LTTNG_UST_TRACEPOINT_DEFINE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#include "costs-tp.h"
#endif

#define BURST 1000
#define MAX_ROUNDS 10000

static double means[MAX_ROUNDS];
static FILE *file;
static takt_loop *loop;

static void clock_alone(uint64_t number) {
    (void)number;
    const volatile uint64_t begin = takt_now_ns(), end = takt_now_ns();
    (void)begin;
    (void)end;
}

static void with_takt(uint64_t number) {
    (void)number;
    takt_loop_release(loop, 0);
    takt_loop_end(loop);
}

static void with_takt_stamped(uint64_t number) {
    takt_loop_release(loop, number + 1);
    takt_loop_end(loop);
}

static void with_fprintf(uint64_t number) {
    const uint64_t begin = takt_now_ns(), end = takt_now_ns();
    fprintf(file, "%llu %llu %llu\n", (unsigned long long)number, (unsigned long long)begin, (unsigned long long)end);
}

#ifdef LTTNG
static void with_lttng(uint64_t number) {
    const uint64_t begin = takt_now_ns(), end = takt_now_ns();
    lttng_ust_tracepoint(takt_costs, job, number, begin, begin, end, 0, 0.0);
}
#endif

static int by_size(const void *one, const void *other) {
    const double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void measure(const char *name, void (*record)(uint64_t), int rounds) {
    uint64_t number = 0;
    for (int round = 0; round < rounds; round++) {
        const struct timespec pause = {0, 20000000};
        nanosleep(&pause, NULL);
        const uint64_t begin = takt_now_ns();
        for (int at = 0; at < BURST; at++) {
            record(number++);
        }
        means[round] = (double)(takt_now_ns() - begin) / BURST;
    }
    qsort(means, (size_t)rounds, sizeof *means, by_size);
    printf("%-10s %8.1f ns median %8.1f ns p99\n", name, means[rounds / 2], means[rounds * 99 / 100]);
    fflush(stdout);
}

int main(int count, char **arguments) {
    const int asked = count > 1 ? atoi(arguments[1]) : 200;
    const int rounds = asked < 1 ? 1 : asked > MAX_ROUNDS ? MAX_ROUNDS : asked;
    file = fopen("/dev/null", "w");
    int error = 0;
    loop = takt_loop_open_driven("costs", 0, &error);
    if (loop == NULL || file == NULL) {
        fprintf(stderr, "%s\n", takt_strerror(error));
        return 1;
    }
    puts("ready");
    fflush(stdout);
    /* Until a session has come, where one is to come. */
    for (int at = 0; count > 2 && at < 1000 && takt_loop_attached(loop) == 0; at++) {
        const struct timespec pause = {0, 10000000};
        takt_loop_release(loop, 0);
        takt_loop_end(loop);
        nanosleep(&pause, NULL);
    }
    measure("clock", clock_alone, rounds);
    measure(takt_loop_attached(loop) == 1 ? "takt, on" : "takt, off", with_takt, rounds);
    measure("stamped", with_takt_stamped, rounds);
#ifdef LTTNG
    measure("lttng", with_lttng, rounds);
#endif
    measure("fprintf", with_fprintf, rounds);
    takt_loop_close(loop);
    fclose(file);
    return 0;
}
