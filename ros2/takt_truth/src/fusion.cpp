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
static std::string & arrived()
{
  static thread_local std::string name;
  return name;
}

using Input = message_filters::Subscriber<Message>;

static std::unique_ptr<Input> input(Node & node, const std::string & topic)
{
  auto made = std::make_unique<Input>(&node, topic);
  const auto name = std::string(node.get_fully_qualified_name()) + " subscription " + topic;
  made->registerCallback(
    std::function<void(const Message::ConstSharedPtr &)>([name](const Message::ConstSharedPtr &) {arrived() = name;}));
  return made;
}

/// What is done with two messages that belong together.
class Join
{
public:
  Join(double cost_ms, Output<> output)
  : cost_ms_(cost_ms), output_(std::move(output))
  {
  }

  void both(const Message::ConstSharedPtr & one, const Message::ConstSharedPtr & other)
  {
    Run run(arrived());
    run.in(one->header.frame_id);
    run.in(other->header.frame_id);
    burn(cost_ms_);
    output_.send(run, one->header.stamp);
  }

private:
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
  auto left = input(*stereo, "/left");
  auto right = input(*stereo, "/right");
  message_filters::TimeSynchronizer<Message, Message> exact(*left, *right, 10);
  Join both_eyes(1.0, stereo->output("/depth"));
  exact.registerCallback(&Join::both, &both_eyes);

  // Its inputs: the depth, stamped when the cameras fired, and a sensor of its own with another period.
  auto sonar = make("sonar");
  sonar->timer(
    60, [output = sonar->output("/range"), node = sonar.get()](Run & run) mutable {
      burn(0.2);
      output.send(run, node->now());
    });
  auto fuser = make("fuser");
  auto depth = input(*fuser, "/depth");
  auto range = input(*fuser, "/range");
  using Policy = message_filters::sync_policies::ApproximateTime<Message, Message>;
  message_filters::Synchronizer<Policy> approximate(Policy(10), *depth, *range);
  Join depth_and_range(0.5, fuser->output("/fused"));
  approximate.registerCallback(&Join::both, &depth_and_range);
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
