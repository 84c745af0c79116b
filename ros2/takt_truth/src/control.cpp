// Timers and topics in one thread: several nodes and callbacks to one executor.

#include "truth.hpp"

#include "programs.hpp"

namespace truth
{

void base()
{
  auto wheels = make("wheels");
  wheels->source(20, 0.5, "/wheel_ticks");
  auto odometry = make("odometry");
  odometry->stage("/wheel_ticks", 1.0, "/odom");
  auto motors = make("motors");
  motors->sink("/cmd", 1.0);
  auto gyro = make("gyro");
  gyro->source(25, 0.4, "/gyro_rate");

  rclcpp::executors::SingleThreadedExecutor executor;
  for (const auto & node : {wheels, odometry, motors, gyro}) {
    executor.add_node(node);
  }
  executor.spin();
}

}  // namespace truth
