/* A 500 Hz loop in C that writes down what it did: `control [SECONDS [LOG]]`; without SECONDS until SIGINT. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <takt.h>

#define PERIOD_NS 2000000u
#define WORK_NS 200000u
#define LONG_NS 3000000u
#define MOST 200000

typedef struct row {
    uint64_t release_ns, begin_ns, end_ns, skipped;
} row;

static volatile sig_atomic_t running = 1;
static row rows[MOST];

static void stop(int number) {
    (void)number;
    running = 0;
}

static void work(uint64_t until_ns) {
    while (takt_now_ns() < until_ns) {
    }
}

int main(int count, char **arguments) {
    int error = 0;
    const uint64_t end_ns = count > 1 && atof(arguments[1]) > 0 ? takt_now_ns() + (uint64_t)(atof(arguments[1]) * 1e9) : UINT64_MAX;
    /* Every so many jobs one takes 3 ms. */
    const int every = count > 3 ? atoi(arguments[3]) : 0;
    takt_loop *loop = takt_loop_open("control", PERIOD_NS, 0, &error);
    if (loop == NULL) {
        fprintf(stderr, "%s\n", takt_strerror(error));
        return 1;
    }
    signal(SIGINT, stop);
    puts("ready");
    fflush(stdout);
    int jobs = 0;
    while (running && jobs < MOST && takt_now_ns() < end_ns) {
        row *one = &rows[jobs];
        const int64_t skipped = takt_loop_wait(loop);
        if (skipped < 0) {
            fprintf(stderr, "%s\n", takt_strerror((int)skipped));
            return 1;
        }
        one->skipped = (uint64_t)skipped;
        one->release_ns = takt_loop_release_ns(loop);
        one->begin_ns = takt_now_ns();
        takt_loop_input(loop, (uint64_t)jobs + 1);
        takt_loop_stage(loop, "sense");
        work(one->begin_ns + WORK_NS / 2);
        takt_loop_stage(loop, "act");
        work(one->begin_ns + (every > 0 && jobs % every == every - 1 ? LONG_NS : WORK_NS));
        takt_loop_value(loop, 0.25 * jobs);
        one->end_ns = takt_now_ns();
        takt_loop_end(loop);
        jobs++;
    }
    takt_loop_close(loop);
    if (count > 2) {
        FILE *log = fopen(arguments[2], "w");
        if (log == NULL) {
            perror(arguments[2]);
            return 1;
        }
        for (int at = 0; at < jobs; at++) {
            const row *one = &rows[at];
            fprintf(log, "%llu %llu %llu %llu\n", (unsigned long long)one->release_ns, (unsigned long long)one->begin_ns,
                    (unsigned long long)one->end_ns, (unsigned long long)one->skipped);
        }
        fclose(log);
    }
    return 0;
}
