/* libtracetools.so with LTTng-UST behind it, as ROS 2 builds it: what the preload probe's cost is compared with.
 * cc -O2 -fPIC -shared -I. -o libtracetools.so tracetools.c -llttng-ust -ldl */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "ros2_events.h"

void ros_trace_callback_start(const void * callback, bool intra)
{
  lttng_ust_tracepoint(ros2, callback_start, callback, intra);
}
void ros_trace_callback_end(const void * callback) {lttng_ust_tracepoint(ros2, callback_end, callback);}
void ros_trace_rclcpp_publish(const void * publisher, const void * message)
{
  (void)publisher;
  lttng_ust_tracepoint(ros2, rclcpp_publish, message);
}
void ros_trace_rcl_publish(const void * publisher, const void * message)
{
  lttng_ust_tracepoint(ros2, rcl_publish, publisher, message);
}
void ros_trace_rmw_publish(const void * publisher, const void * message, int64_t timestamp)
{
  lttng_ust_tracepoint(ros2, rmw_publish, publisher, message, timestamp);
}
void ros_trace_rmw_take(const void * subscription, const void * message, int64_t timestamp, bool taken)
{
  lttng_ust_tracepoint(ros2, rmw_take, subscription, message, timestamp, taken);
}
void ros_trace_rclcpp_executor_get_next_ready(void) {lttng_ust_tracepoint(ros2, rclcpp_executor_get_next_ready);}
void ros_trace_rclcpp_executor_wait_for_work(int64_t timeout)
{
  lttng_ust_tracepoint(ros2, rclcpp_executor_wait_for_work, timeout);
}
void ros_trace_rclcpp_executor_execute(const void * handle)
{
  lttng_ust_tracepoint(ros2, rclcpp_executor_execute, handle);
}
