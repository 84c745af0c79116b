/*
 * The tracepoints of ROS 2's tracetools that a node with a timer has.
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER ros2

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "ros2.h"

#if !defined(ROS2_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define ROS2_H

#include <lttng/tracepoint.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(ros2, rcl_node_init,
    LTTNG_UST_TP_ARGS(const void *, node, const void *, rmw, const char *, name, const char *, space),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, node_handle, node)
        lttng_ust_field_integer_hex(const void *, rmw_handle, rmw)
        lttng_ust_field_string(node_name, name)
        lttng_ust_field_string(namespace, space)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, rcl_timer_init,
    LTTNG_UST_TP_ARGS(const void *, timer, int64_t, period),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, timer_handle, timer)
        lttng_ust_field_integer(int64_t, period, period)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, rclcpp_timer_callback_added,
    LTTNG_UST_TP_ARGS(const void *, timer, const void *, callback),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, timer_handle, timer)
        lttng_ust_field_integer_hex(const void *, callback, callback)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, rclcpp_timer_link_node,
    LTTNG_UST_TP_ARGS(const void *, timer, const void *, node),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, timer_handle, timer)
        lttng_ust_field_integer_hex(const void *, node_handle, node)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, rclcpp_executor_wait_for_work,
    LTTNG_UST_TP_ARGS(int64_t, timeout),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int64_t, timeout, timeout)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, callback_start,
    LTTNG_UST_TP_ARGS(const void *, callback, int, intra),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, callback, callback)
        lttng_ust_field_integer(int, is_intra_process, intra)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, callback_end,
    LTTNG_UST_TP_ARGS(const void *, callback),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer_hex(const void *, callback, callback)))

#endif

#include <lttng/tracepoint-event.h>
