/* A control loop that Takt measures and judges: `takt run program.toml`. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#ifdef HAVE_TAKT
#include <takt.h>
#else
#include "without_takt.h"
#endif

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

/* A joint and its controller. Put yours here: read the sensors, compute, command. */
static double step(double *position, double *velocity, double target, double seconds)
{
    const double error = target - *position;
    const double torque = 40.0 * error - 8.0 * *velocity;
    *velocity += torque * seconds;
    *position += *velocity * seconds;
    return error;
}

int main(int argc, char **argv)
{
    const double rate_hz = argc > 1 ? atof(argv[1]) : 500.0;
    if (!(rate_hz >= 1.0 && rate_hz <= 20000.0)) {
        fprintf(stderr, "usage: controller RATE, from 1 to 20000 Hz\n");
        return 2;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    prctl(PR_SET_NAME, "control");

    int error = 0;
    /* Deadline 0: the period. */
    takt_loop *loop = takt_loop_open("control", (uint64_t)(1e9 / rate_hz), 0, &error);
    if (loop == NULL) {
        fprintf(stderr, "controller: %s\n", takt_strerror(error));
        return 1;
    }
    puts("ready");
    fflush(stdout);

    double position = 0.0, velocity = 0.0;
    while (!stop) {
        /* Sleeps until the next release of the grid. Above 0: releases that an overrun has skipped. */
        const int64_t skipped = takt_loop_wait(loop);
        if (skipped < 0) {
            fprintf(stderr, "controller: %s\n", takt_strerror((int)skipped));
            break;
        }
        takt_loop_value(loop, step(&position, &velocity, 1.0, 1.0 / rate_hz));
        takt_loop_end(loop);
    }
    /* However the loop ends, command a stop here. */
    takt_loop_close(loop);
    return 0;
}
