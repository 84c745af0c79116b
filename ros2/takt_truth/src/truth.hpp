// What every node of the test system shares: how it computes, publishes, and writes down what it did.
//
// Each process appends to `$TAKT_TRUTH_DIR/PID.truth`. Lines, fields parted by tabs:
//
//   process  NAME  PID
//   run  CALLBACK  EXECUTOR  TID  RELEASE  START  END  CPU  INPUTS  OUTPUTS  BEFORE
//
// RELEASE is a timer's planned expiry as rcl tells it, 0 for others; START and END are CLOCK_MONOTONIC nanoseconds within the callback,
// CPU its thread's CPU time between the two. INPUTS and OUTPUTS are lists, parted by commas, of IDENTIFIER@STAMP; an identifier is that of a message,
// `NODE>TOPIC#NUMBER`, and travels within it. An output's stamp is the time just before it was published, an input's is 0. BEFORE is when this thread had written its line before this one: a callback ends a little
// after that, and never long after unless it is kept from running.

#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rclcpp/rclcpp.hpp"
#include "sensor_msgs/msg/temperature.hpp"

namespace truth
{

/// One type for all topics: its header's stamp is what joins compare, its frame carries the identifier.
using Message = sensor_msgs::msg::Temperature;

inline std::uint64_t clock_ns(clockid_t clock)
{
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u + static_cast<std::uint64_t>(now.tv_nsec);
}

inline std::string variable(const char * name, const char * otherwise)
{
  const char * value = std::getenv(name);
  return value != nullptr && *value != 0 ? value : otherwise;
}

/// Uses up CPU time of this thread, times the load of this run.
inline void burn(double ms)
{
  static const double scale = std::stod(variable("TAKT_TRUTH_SCALE", "1"));
  const auto end_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + static_cast<std::uint64_t>(ms * scale * 1e6);
  volatile std::uint64_t kept = 0;
  std::uint64_t value = end_ns | 1;
  while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns) {
    for (int i = 0; i < 2000; ++i) {
      value = value * 6364136223846793005u + 1442695040888963407u;
    }
    kept = value;
  }
  static_cast<void>(kept);
}

/// The file of this process. One write for a line, so that a kill loses none that was written.
inline void put(const std::string & line)
{
  static const int file = [] {
      const auto path = variable("TAKT_TRUTH_DIR", ".") + "/" + std::to_string(getpid()) + ".truth";
      const int opened = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      if (opened < 0) {
        throw std::runtime_error(path + ": cannot be written; set TAKT_TRUTH_DIR to a folder that can");
      }
      const auto head = "process\t" + variable("TAKT_TRUTH_PROCESS", "unnamed") + "\t" + std::to_string(getpid()) + "\n";
      if (write(opened, head.data(), head.size()) < 0) {
        throw std::runtime_error(path + ": no room");
      }
      return opened;
    }();
  if (write(file, line.data(), line.size()) < 0) {
    std::abort();
  }
}

/// What executor the calling thread works for; set by the programs, told by the launcher for component containers.
inline std::string & executor()
{
  static thread_local std::string kind = variable("TAKT_TRUTH_EXECUTOR", "single_threaded");
  return kind;
}

/// One activation of a callback, from construction to destruction.
class Run
{
public:
  explicit Run(const std::string & callback, std::uint64_t release_ns = 0)
  : callback_(callback), release_ns_(release_ns), cpu_ns_(clock_ns(CLOCK_THREAD_CPUTIME_ID)), start_ns_(clock_ns(CLOCK_MONOTONIC))
  {
  }

  ~Run()
  {
    const auto end_ns = clock_ns(CLOCK_MONOTONIC);
    const auto cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns_;
    put(
      "run\t" + callback_ + "\t" + executor() + "\t" + std::to_string(syscall(SYS_gettid)) + "\t" + std::to_string(release_ns_) + "\t" +
      std::to_string(start_ns_) + "\t" + std::to_string(end_ns) + "\t" + std::to_string(cpu_ns) + "\t" + inputs_ + "\t" + outputs_ +
      "\t" + std::to_string(written_ns()) + "\n");
    written_ns() = clock_ns(CLOCK_MONOTONIC);
  }

  Run(const Run &) = delete;
  Run & operator=(const Run &) = delete;

  void in(const std::string & id) {inputs_ += (inputs_.empty() ? "" : ",") + id + "@0";}
  void out(const std::string & id)
  {
    outputs_ += (outputs_.empty() ? "" : ",") + id + "@" + std::to_string(clock_ns(CLOCK_MONOTONIC));
  }

private:
  static std::uint64_t & written_ns()
  {
    static thread_local std::uint64_t at_ns = 0;
    return at_ns;
  }

  std::string callback_;
  std::uint64_t release_ns_;
  std::uint64_t cpu_ns_;
  std::uint64_t start_ns_;
  std::string inputs_;
  std::string outputs_;
};

/// A publisher that numbers its messages. `Any` is a plain or a lifecycle publisher.
template<typename Any = rclcpp::Publisher<Message>>
class Output
{
public:
  template<typename Node>
  Output(Node & node, const std::string & topic)
  : publisher_(node.template create_publisher<Message>(topic, 10)), name_(std::string(node.get_fully_qualified_name()) + ">" + topic)
  {
  }

  /// The message's identifier.
  std::string send(Run & run, rclcpp::Time stamp = rclcpp::Time())
  {
    auto message = std::make_unique<Message>();
    message->header.stamp = stamp;
    message->header.frame_id = name_ + "#" + std::to_string(number_++);
    const auto id = message->header.frame_id;
    run.out(id);
    publisher_->publish(std::move(message));
    return id;
  }

  std::shared_ptr<Any> publisher() const {return publisher_;}

private:
  std::shared_ptr<Any> publisher_;
  std::string name_;
  std::uint64_t number_{0};
};

using TimerBody = std::function<void (Run &)>;
using MessageBody = std::function<void (Run &, const Message &)>;

/// A timer whose callback is `body(run)`.
template<typename Node>
rclcpp::TimerBase::SharedPtr every(
  Node & node, int ms, TimerBody body, rclcpp::CallbackGroup::SharedPtr group = nullptr)
{
  const auto name = std::string(node.get_fully_qualified_name()) + " timer " + std::to_string(ms) + "ms";
  return rclcpp::create_wall_timer(
    std::chrono::milliseconds(ms),
    [name, body](const rclcpp::TimerInfo & info) {
      Run run(name, static_cast<std::uint64_t>(info.expected_call_time.nanoseconds()));
      body(run);
    }, group, node.get_node_base_interface().get(), node.get_node_timers_interface().get());
}

/// A subscription whose callback is `body(run, message)`.
template<typename Node>
rclcpp::Subscription<Message>::SharedPtr on(
  Node & node, const std::string & topic, MessageBody body, rclcpp::CallbackGroup::SharedPtr group = nullptr)
{
  const auto name = std::string(node.get_fully_qualified_name()) + " subscription " + topic;
  rclcpp::SubscriptionOptions options;
  options.callback_group = group;
  return node.template create_subscription<Message>(
    topic, 10,
    [name, body](Message::ConstSharedPtr message) {
      Run run(name);
      run.in(message->header.frame_id);
      body(run, *message);
    }, options);
}

/// A node whose parts are held by it.
class Node : public rclcpp::Node
{
public:
  using rclcpp::Node::Node;

  void timer(int ms, TimerBody body, rclcpp::CallbackGroup::SharedPtr group = nullptr) {held_.push_back(every(*this, ms, body, group));}
  void subscription(const std::string & topic, MessageBody body, rclcpp::CallbackGroup::SharedPtr group = nullptr)
  {
    held_.push_back(on(*this, topic, body, group));
  }
  Output<> output(const std::string & topic) {return Output<>(*this, topic);}

  /// Computes and publishes in time with a timer.
  void source(int ms, double cost_ms, const std::string & topic, rclcpp::CallbackGroup::SharedPtr group = nullptr)
  {
    timer(
      ms, [cost_ms, output = output(topic)](Run & run) mutable {
        burn(cost_ms);
        output.send(run);
      }, group);
  }
  /// Computes at each message, and publishes.
  void stage(const std::string & from, double cost_ms, const std::string & to, rclcpp::CallbackGroup::SharedPtr group = nullptr)
  {
    subscription(
      from, [cost_ms, output = output(to)](Run & run, const Message & message) mutable {
        burn(cost_ms);
        output.send(run, message.header.stamp);
      }, group);
  }
  /// Computes at each message.
  void sink(const std::string & from, double cost_ms, rclcpp::CallbackGroup::SharedPtr group = nullptr)
  {
    subscription(from, [cost_ms](Run &, const Message &) {burn(cost_ms);}, group);
  }

private:
  std::vector<std::shared_ptr<void>> held_;
};

inline std::shared_ptr<Node> make(const std::string & name) {return std::make_shared<Node>(name);}

}  // namespace truth
