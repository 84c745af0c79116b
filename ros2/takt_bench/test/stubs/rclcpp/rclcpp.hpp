// Declarations of what node.cpp uses of rclcpp (Jazzy), for a compiler to check the rest of it where no ROS 2 is installed. It does
// nothing and cannot be linked.

#ifndef STUB_RCLCPP_HPP_
#define STUB_RCLCPP_HPP_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#define RMW_GID_STORAGE_SIZE 16u
#define RMW_MESSAGE_INFO_SEQUENCE_NUMBER_UNSUPPORTED UINT64_MAX

struct rmw_gid_t
{
  const char * implementation_identifier;
  std::uint8_t data[RMW_GID_STORAGE_SIZE];
};

struct rmw_message_info_t
{
  std::uint64_t publication_sequence_number;
  rmw_gid_t publisher_gid;
};

namespace rclcpp
{

void init(int argc, char const * const * argv);
bool shutdown();
bool ok();

struct KeepLast
{
  explicit KeepLast(std::size_t depth);
};

struct QoS
{
  explicit QoS(const KeepLast & history);
};

class MessageInfo
{
public:
  const rmw_message_info_t & get_rmw_message_info() const;
};

template<typename MessageT>
class Publisher
{
public:
  using SharedPtr = std::shared_ptr<Publisher>;
  void publish(const MessageT & message);
  std::size_t get_subscription_count() const;
};

template<typename MessageT>
class Subscription
{
public:
  using SharedPtr = std::shared_ptr<Subscription>;
};

class TimerBase
{
public:
  using SharedPtr = std::shared_ptr<TimerBase>;
};

class Time
{
public:
  std::int64_t nanoseconds() const;
};

struct TimerInfo
{
  Time expected_call_time;
  Time actual_call_time;
};

class NodeOptions
{
public:
  NodeOptions & start_parameter_services(bool start);
  NodeOptions & start_parameter_event_publisher(bool start);
  NodeOptions & enable_rosout(bool enable);
};

class Node
{
public:
  explicit Node(const std::string & name, const NodeOptions & options = NodeOptions());

  template<typename MessageT>
  typename Publisher<MessageT>::SharedPtr create_publisher(const std::string &, const QoS &) {return {};}

  template<typename MessageT, typename CallbackT>
  typename Subscription<MessageT>::SharedPtr create_subscription(
    const std::string &, const QoS &, CallbackT && callback)
  {
    MessageT message{};
    MessageInfo info;
    callback(message, info);
    return {};
  }

  template<typename Rep, typename Ratio, typename CallbackT>
  TimerBase::SharedPtr create_wall_timer(std::chrono::duration<Rep, Ratio>, CallbackT callback)
  {
    callback(TimerInfo{});
    return {};
  }
};

namespace executors
{

class SingleThreadedExecutor
{
public:
  void add_node(std::shared_ptr<Node> node);
  void spin();
  void cancel();
};

}  // namespace executors
}  // namespace rclcpp

#endif  // STUB_RCLCPP_HPP_
