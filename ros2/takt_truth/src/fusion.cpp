// Joins of message_filters, and a lifecycle node.

#include "truth.hpp"

#include "lifecycle_msgs/msg/state.hpp"
#include "message_filters/subscriber.h"
#include "message_filters/sync_policies/approximate_time.h"
#include "message_filters/synchronizer.h"
#include "message_filters/time_synchronizer.h"
#include "programs.hpp"
#include "rclcpp_lifecycle/lifecycle_node.hpp"

namespace truth
{

/// The subscription whose callback runs in this thread: a join runs within that of the message that completed it.
static std::unique_ptr<Run> & arrived()
{
  static thread_local std::unique_ptr<Run> run;
  return run;
}

using Filter = message_filters::Subscriber<Message>;

/// An input of joins, which are called in the order of registration: `begin` before all of them, `end` after.
class Input
{
public:
  Input(Node & node, const std::string & topic)
  : filter(&node, topic), name_(std::string(node.get_fully_qualified_name()) + " subscription " + topic)
  {
    filter.registerCallback(
      std::function<void(const Message::ConstSharedPtr &)>([this](const Message::ConstSharedPtr & message) {
        arrived() = std::make_unique<Run>(name_);
        arrived()->in(message->header.frame_id);
      }));
  }

  void end()
  {
    filter.registerCallback(std::function<void(const Message::ConstSharedPtr &)>([](const Message::ConstSharedPtr &) {arrived().reset();}));
  }

  Filter filter;

private:
  std::string name_;
};

/// What is done with two messages that belong together.
class Join
{
public:
  Join(const std::string & name, double cost_ms, Output<> output)
  : name_(name), cost_ms_(cost_ms), output_(std::move(output))
  {
  }

  void both(const Message::ConstSharedPtr & one, const Message::ConstSharedPtr & other)
  {
    Run run(name_);
    run.in(one->header.frame_id);
    run.in(other->header.frame_id);
    burn(cost_ms_);
    arrived()->out(output_.send(run, one->header.stamp));
  }

private:
  std::string name_;
  double cost_ms_;
  Output<> output_;
};

/// Configured and activated by itself, when it is there.
class Battery : public rclcpp_lifecycle::LifecycleNode
{
public:
  using Return = rclcpp_lifecycle::node_interfaces::LifecycleNodeInterface::CallbackReturn;

  Battery()
  : LifecycleNode("battery")
  {
  }

  Return on_configure(const rclcpp_lifecycle::State &) override
  {
    output_ = std::make_unique<Output<rclcpp_lifecycle::LifecyclePublisher<Message>>>(*this, "/charge");
    timer_ = every(
      *this, 100, [this](Run & run) {
        burn(0.5);
        output_->send(run);
      });
    return Return::SUCCESS;
  }

  Return on_activate(const rclcpp_lifecycle::State & state) override
  {
    output_->publisher()->on_activate();
    return LifecycleNode::on_activate(state);
  }

private:
  std::unique_ptr<Output<rclcpp_lifecycle::LifecyclePublisher<Message>>> output_;
  rclcpp::TimerBase::SharedPtr timer_;
};

void fusion()
{
  auto stereo_camera = make("stereo_camera");
  stereo_camera->timer(
    50, [left = stereo_camera->output("/left"), right = stereo_camera->output("/right"), node = stereo_camera.get()](Run & run) mutable {
      burn(0.8);
      const auto stamp = node->now();
      left.send(run, stamp);
      right.send(run, stamp);
    });

  auto stereo = make("stereo");
  Input left(*stereo, "/left");
  Input right(*stereo, "/right");
  message_filters::TimeSynchronizer<Message, Message> exact(left.filter, right.filter, 10);
  Join both_eyes("/stereo join", 1.0, stereo->output("/depth"));
  exact.registerCallback(&Join::both, &both_eyes);
  left.end();
  right.end();

  // Its inputs: the depth, stamped when the cameras fired, and a sensor of its own with another period.
  auto sonar = make("sonar");
  sonar->timer(
    60, [output = sonar->output("/range"), node = sonar.get()](Run & run) mutable {
      burn(0.2);
      output.send(run, node->now());
    });
  auto fuser = make("fuser");
  Input depth(*fuser, "/depth");
  Input range(*fuser, "/range");
  using Policy = message_filters::sync_policies::ApproximateTime<Message, Message>;
  message_filters::Synchronizer<Policy> approximate(Policy(10), depth.filter, range.filter);
  Join depth_and_range("/fuser join", 0.5, fuser->output("/fused"));
  approximate.registerCallback(&Join::both, &depth_and_range);
  depth.end();
  range.end();
  auto map = make("map");
  map->sink("/fused", 0.5);

  auto battery = std::make_shared<Battery>();
  auto gauge = make("gauge");
  gauge->sink("/charge", 0.3);

  rclcpp::executors::SingleThreadedExecutor executor;
  for (const auto & node : {stereo_camera, stereo, sonar, fuser, map, gauge}) {
    executor.add_node(node);
  }
  executor.add_node(battery->get_node_base_interface());
  battery->configure();
  battery->activate();
  executor.spin();
}

}  // namespace truth
