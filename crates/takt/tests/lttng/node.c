/*
 * A node `/robot/talker` with a timer of 20 ms, for so many rounds: `node ROUNDS`.
 */
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "ros2.h"

#include <stdlib.h>
#include <time.h>

static void *handle(long what)
{
    return (void *) (1L << 20 | what);
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    lttng_ust_tracepoint(ros2, rcl_node_init, handle(1), handle(2), "talker", "/robot");
    lttng_ust_tracepoint(ros2, rcl_timer_init, handle(3), 20000000);
    lttng_ust_tracepoint(ros2, rclcpp_timer_callback_added, handle(3), handle(4));
    lttng_ust_tracepoint(ros2, rclcpp_timer_link_node, handle(3), handle(1));
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (long round = atol(arguments[1]); round > 0; round--) {
        lttng_ust_tracepoint(ros2, rclcpp_executor_wait_for_work, -1);
        next.tv_nsec += 20000000;
        if (next.tv_nsec >= 1000000000) {
            next.tv_nsec -= 1000000000;
            next.tv_sec++;
        }
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
        lttng_ust_tracepoint(ros2, callback_start, handle(4), 0);
        for (volatile long i = 0; i < 200000; i++)
            ;
        lttng_ust_tracepoint(ros2, callback_end, handle(4));
    }
    return 0;
}
