/*
 * Records a known series of events: `workload THREADS ROUNDS [PAUSE_US]`. Every thread does ROUNDS times: wait for
 * work, take, callback with a publication, and every 16th round one event with fields of all kinds.
 */
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "ros2.h"
#include "kinds.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long rounds;
static long pause_us;

static void *handle(long thread, long what)
{
    return (void *) ((thread + 1) << 20 | what);
}

static void *run(void *argument)
{
    long thread = (long) argument;
    char name[16];
    snprintf(name, sizeof name, "worker-%ld", thread);
    pthread_setname_np(pthread_self(), name);
    for (long round = 0; round < rounds; round++) {
        int64_t stamp = (int64_t) thread << 32 | round;
        lttng_ust_tracepoint(ros2, rclcpp_executor_wait_for_work, -1);
        lttng_ust_tracepoint(ros2, rclcpp_executor_get_next_ready);
        lttng_ust_tracepoint(ros2, rmw_take, handle(thread, 1), handle(thread, 2), stamp - 1, round > 0);
        lttng_ust_tracepoint(ros2, callback_start, handle(thread, 3), round % 2 == 1);
        lttng_ust_tracepoint(ros2, rclcpp_publish, handle(thread, 2));
        lttng_ust_tracepoint(ros2, rcl_publish, handle(thread, 4), handle(thread, 2));
        lttng_ust_tracepoint(ros2, rmw_publish, handle(thread, 5), handle(thread, 2), stamp);
        lttng_ust_tracepoint(ros2, callback_end, handle(thread, 3));
        if (round % 16 == 0) {
            uint16_t values[5] = {1, 2, 3, 4, (uint16_t) round};
            lttng_ust_tracepoint(takt_test, kinds, (int) round, "a \"text\"", values, (size_t) (round % 6), round / 3.0);
        }
        if (pause_us > 0)
            usleep((useconds_t) pause_us);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    if (count < 3)
        return 2;
    long threads = atol(arguments[1]);
    rounds = atol(arguments[2]);
    pause_us = count > 3 ? atol(arguments[3]) : 0;
    uint8_t gid[24] = {1, 2, 3};
    lttng_ust_tracepoint(ros2, rcl_node_init, handle(0, 6), handle(0, 7), "talker", "/robot");
    lttng_ust_tracepoint(ros2, rcl_timer_init, handle(0, 8), 100000000);
    lttng_ust_tracepoint(ros2, rmw_subscription_init, handle(0, 1), gid);
    pthread_t *all = calloc((size_t) threads, sizeof *all);
    for (long thread = 0; thread < threads; thread++)
        pthread_create(&all[thread], NULL, run, (void *) thread);
    for (long thread = 0; thread < threads; thread++)
        pthread_join(all[thread], NULL);
    free(all);
    return 0;
}
