/* What controller.c uses of <takt.h>, for machines without libtakt: the same grid of releases, and no records. Takt then follows the loop
 * by the kernel's events. Delete this file once libtakt is installed. */
#ifndef WITHOUT_TAKT_H
#define WITHOUT_TAKT_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

typedef struct takt_loop {
    uint64_t period_ns, next_ns;
} takt_loop;

static inline uint64_t takt_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline takt_loop *takt_loop_open(const char *name, uint64_t period_ns, uint64_t deadline_ns, int *error)
{
    (void)name;
    (void)deadline_ns;
    takt_loop *loop = malloc(sizeof *loop);
    if (loop == NULL) {
        *error = -1;
        return NULL;
    }
    loop->period_ns = period_ns;
    loop->next_ns = takt_now_ns() + period_ns;
    return loop;
}

static inline int64_t takt_loop_wait(takt_loop *loop)
{
    /* An overrun keeps the phase: the next release is the next one of the grid. */
    const uint64_t now_ns = takt_now_ns();
    uint64_t skipped = 0;
    if (now_ns > loop->next_ns) {
        skipped = (now_ns - loop->next_ns) / loop->period_ns;
        loop->next_ns += skipped * loop->period_ns;
    }
    const struct timespec due = {(time_t)(loop->next_ns / 1000000000u), (long)(loop->next_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR) {
    }
    loop->next_ns += loop->period_ns;
    return (int64_t)skipped;
}

static inline int takt_loop_value(takt_loop *loop, double value)
{
    (void)loop;
    (void)value;
    return 0;
}

static inline int takt_loop_end(takt_loop *loop)
{
    (void)loop;
    return 0;
}

static inline void takt_loop_close(takt_loop *loop)
{
    free(loop);
}

static inline const char *takt_strerror(int error)
{
    (void)error;
    return "out of memory";
}

#endif
