// Components, for containers of one and of several threads.

#include "truth.hpp"

#include "rclcpp_components/register_node_macro.hpp"

namespace truth
{

/// With the name and topics that it is declared with below, and pipes within the process where the container is told so.
#define COMPONENT(CLASS, NAME, ...) \
  class CLASS : public Node \
  { \
public: \
    explicit CLASS(const rclcpp::NodeOptions & options) \
    : Node(NAME, options) \
    { \
      __VA_ARGS__ \
    } \
  }

COMPONENT(Camera, "camera", source(40, 1.0, "/image"););
COMPONENT(Rectify, "rectify", stage("/image", 2.0, "/rect"););
COMPONENT(Detect, "detect", stage("/rect", 3.0, "/objects"););

COMPONENT(Lidar, "lidar", source(50, 1.0, "/points"););
COMPONENT(Ground, "ground", stage("/points", 2.0, "/free"););
COMPONENT(
  Clusters, "clusters",
  stage("/points", 3.0, "/clusters", create_callback_group(rclcpp::CallbackGroupType::Reentrant)););
COMPONENT(Tracker, "tracker", sink("/objects", 1.0); sink("/clusters", 0.5););

}  // namespace truth

RCLCPP_COMPONENTS_REGISTER_NODE(truth::Camera)
RCLCPP_COMPONENTS_REGISTER_NODE(truth::Rectify)
RCLCPP_COMPONENTS_REGISTER_NODE(truth::Detect)
RCLCPP_COMPONENTS_REGISTER_NODE(truth::Lidar)
RCLCPP_COMPONENTS_REGISTER_NODE(truth::Ground)
RCLCPP_COMPONENTS_REGISTER_NODE(truth::Clusters)
RCLCPP_COMPONENTS_REGISTER_NODE(truth::Tracker)
