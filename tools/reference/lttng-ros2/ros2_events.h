/* The provider `ros2` of tracetools, with the fields of the events that the comparison calls. */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER ros2

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./ros2_events.h"

#if !defined(ROS2_EVENTS_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define ROS2_EVENTS_H

#include <lttng/tracepoint.h>
#include <stdbool.h>
#include <stdint.h>

LTTNG_UST_TRACEPOINT_EVENT(ros2, callback_start,
  LTTNG_UST_TP_ARGS(const void *, of, bool, intra),
  LTTNG_UST_TP_FIELDS(
    lttng_ust_field_integer_hex(uintptr_t, callback, (uintptr_t)of)
    lttng_ust_field_integer(int, is_intra_process, intra)))

LTTNG_UST_TRACEPOINT_EVENT(ros2, callback_end,
  LTTNG_UST_TP_ARGS(const void *, of),
  LTTNG_UST_TP_FIELDS(lttng_ust_field_integer_hex(uintptr_t, callback, (uintptr_t)of)))

LTTNG_UST_TRACEPOINT_EVENT(ros2, rclcpp_publish,
  LTTNG_UST_TP_ARGS(const void *, of),
  LTTNG_UST_TP_FIELDS(lttng_ust_field_integer_hex(uintptr_t, message, (uintptr_t)of)))

LTTNG_UST_TRACEPOINT_EVENT(ros2, rcl_publish,
  LTTNG_UST_TP_ARGS(const void *, by, const void *, of),
  LTTNG_UST_TP_FIELDS(
    lttng_ust_field_integer_hex(uintptr_t, publisher_handle, (uintptr_t)by)
    lttng_ust_field_integer_hex(uintptr_t, message, (uintptr_t)of)))

LTTNG_UST_TRACEPOINT_EVENT(ros2, rmw_publish,
  LTTNG_UST_TP_ARGS(const void *, by, const void *, of, int64_t, at),
  LTTNG_UST_TP_FIELDS(
    lttng_ust_field_integer_hex(uintptr_t, rmw_publisher_handle, (uintptr_t)by)
    lttng_ust_field_integer_hex(uintptr_t, message, (uintptr_t)of)
    lttng_ust_field_integer(int64_t, timestamp, at)))

LTTNG_UST_TRACEPOINT_EVENT(ros2, rmw_take,
  LTTNG_UST_TP_ARGS(const void *, by, const void *, of, int64_t, at, bool, was_taken),
  LTTNG_UST_TP_FIELDS(
    lttng_ust_field_integer_hex(uintptr_t, rmw_subscription_handle, (uintptr_t)by)
    lttng_ust_field_integer_hex(uintptr_t, message, (uintptr_t)of)
    lttng_ust_field_integer(int64_t, source_timestamp, at)
    lttng_ust_field_integer(int, taken, was_taken)))

LTTNG_UST_TRACEPOINT_EVENT(ros2, rclcpp_executor_get_next_ready, LTTNG_UST_TP_ARGS(), LTTNG_UST_TP_FIELDS())

LTTNG_UST_TRACEPOINT_EVENT(ros2, rclcpp_executor_wait_for_work,
  LTTNG_UST_TP_ARGS(int64_t, most),
  LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int64_t, timeout, most)))

LTTNG_UST_TRACEPOINT_EVENT(ros2, rclcpp_executor_execute,
  LTTNG_UST_TP_ARGS(const void *, of),
  LTTNG_UST_TP_FIELDS(lttng_ust_field_integer_hex(uintptr_t, handle, (uintptr_t)of)))

#endif

#include <lttng/tracepoint-event.h>
