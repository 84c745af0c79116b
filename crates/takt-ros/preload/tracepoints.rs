//! Every function that ROS 2's `tracetools` exports, from Humble (4.1) to rolling (newer than 8.4),
//! with its arguments: the one list from which the stand-in is made.

/// Calls `$each!` with all of them. `Pointer` is an object's address, `Text` a C string, `Gid` 16
/// or 24 bytes, `Flag` a C `bool`.
macro_rules! tracepoints {
    ($each:ident) => {
        $each! {
            rcl_init(context: Pointer);
            rcl_node_init(node: Pointer, rmw: Pointer, name: Text, namespace: Text);
            rmw_publisher_init(rmw_publisher: Pointer, gid: Gid);
            rcl_publisher_init(publisher: Pointer, node: Pointer, rmw_publisher: Pointer, topic: Text, depth: usize);
            rclcpp_publish(publisher: Pointer, message: Pointer);
            rclcpp_intra_publish(publisher: Pointer, message: Pointer);
            rcl_publish(publisher: Pointer, message: Pointer);
            rmw_publish(rmw_publisher: Pointer, message: Pointer, source_ns: i64);
            rmw_subscription_init(rmw_subscription: Pointer, gid: Gid);
            rcl_subscription_init(subscription: Pointer, node: Pointer, rmw_subscription: Pointer, topic: Text, depth: usize);
            rclcpp_subscription_init(subscription: Pointer, object: Pointer);
            rclcpp_subscription_callback_added(object: Pointer, callback: Pointer);
            rmw_take(rmw_subscription: Pointer, message: Pointer, source_ns: i64, taken: Flag);
            rcl_take(message: Pointer);
            rclcpp_take(message: Pointer);
            rcl_service_init(service: Pointer, node: Pointer, rmw_service: Pointer, name: Text);
            rclcpp_service_callback_added(service: Pointer, callback: Pointer);
            rmw_take_request(rmw_service: Pointer, request: Pointer, gid: Gid, sequence: i64, taken: Flag);
            rmw_send_response(rmw_service: Pointer, response: Pointer, gid: Gid, sequence: i64, source_ns: i64);
            rmw_client_init(rmw_client: Pointer, gid: Gid);
            rcl_client_init(client: Pointer, node: Pointer, rmw_client: Pointer, name: Text);
            rmw_send_request(rmw_client: Pointer, request: Pointer, sequence: i64);
            rmw_take_response(rmw_client: Pointer, response: Pointer, sequence: i64, source_ns: i64, taken: Flag);
            rcl_timer_init(timer: Pointer, period_ns: i64);
            rclcpp_timer_callback_added(timer: Pointer, callback: Pointer);
            rclcpp_timer_link_node(timer: Pointer, node: Pointer);
            rclcpp_callback_register(callback: Pointer, symbol: Text);
            callback_start(callback: Pointer, intra_process: Flag);
            callback_end(callback: Pointer);
            rcl_lifecycle_state_machine_init(node: Pointer, machine: Pointer);
            rcl_lifecycle_transition(machine: Pointer, from: Text, to: Text);
            rclcpp_executor_get_next_ready();
            rclcpp_executor_wait_for_work(timeout_ns: i64);
            rclcpp_executor_execute(handle: Pointer);
            rclcpp_ipb_to_subscription(buffer: Pointer, subscription: Pointer);
            rclcpp_buffer_to_ipb(inner: Pointer, buffer: Pointer);
            rclcpp_construct_ring_buffer(buffer: Pointer, capacity: u64);
            rclcpp_ring_buffer_enqueue(buffer: Pointer, index: u64, size: u64, overwritten: Flag);
            rclcpp_ring_buffer_dequeue(buffer: Pointer, index: u64, size: u64);
            rclcpp_ring_buffer_clear(buffer: Pointer);
        }
    };
}
