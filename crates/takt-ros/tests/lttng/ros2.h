/*
 * Tracepoints for the tests with LTTng: the provider `ros2` with the fields that ROS 2's tracetools documents.
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER ros2

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "ros2.h"

#if !defined(ROS2_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define ROS2_H

#include <lttng/tracepoint.h>
#include <stdint.h>

/* One or two handles. */
LTTNG_UST_TRACEPOINT_EVENT(ros2, callback_start,
    LTTNG_UST_TP_ARGS(const void *, callback, int, intra),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, callback, callback)
        lttng_ust_field_integer(int, is_intra_process, intra)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, callback_end,
    LTTNG_UST_TP_ARGS(const void *, callback),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer_hex(const void *, callback, callback)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, rclcpp_publish,
    LTTNG_UST_TP_ARGS(const void *, message),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer_hex(const void *, message, message)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, rcl_publish,
    LTTNG_UST_TP_ARGS(const void *, publisher, const void *, message),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, publisher_handle, publisher)
        lttng_ust_field_integer_hex(const void *, message, message)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, rmw_publish,
    LTTNG_UST_TP_ARGS(const void *, publisher, const void *, message, int64_t, stamp),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, rmw_publisher_handle, publisher)
        lttng_ust_field_integer_hex(const void *, message, message)
        lttng_ust_field_integer(int64_t, timestamp, stamp)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, rmw_take,
    LTTNG_UST_TP_ARGS(const void *, subscription, const void *, message, int64_t, stamp, int, taken),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, rmw_subscription_handle, subscription)
        lttng_ust_field_integer_hex(const void *, message, message)
        lttng_ust_field_integer(int64_t, source_timestamp, stamp)
        lttng_ust_field_integer(int, taken, taken)))
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
LTTNG_UST_TRACEPOINT_EVENT(ros2, rmw_subscription_init,
    LTTNG_UST_TP_ARGS(const void *, subscription, const uint8_t *, gid),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer_hex(const void *, rmw_subscription_handle, subscription)
        lttng_ust_field_array(uint8_t, gid, gid, 24)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, rclcpp_executor_wait_for_work,
    LTTNG_UST_TP_ARGS(int64_t, timeout),
    LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int64_t, timeout, timeout)))
LTTNG_UST_TRACEPOINT_EVENT(ros2, rclcpp_executor_get_next_ready,
    LTTNG_UST_TP_ARGS(),
    LTTNG_UST_TP_FIELDS())

#endif

#include <lttng/tracepoint-event.h>
