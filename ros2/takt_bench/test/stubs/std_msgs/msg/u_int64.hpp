// See rclcpp/rclcpp.hpp beside this.

#ifndef STUB_STD_MSGS_U_INT64_HPP_
#define STUB_STD_MSGS_U_INT64_HPP_

#include <cstdint>

namespace std_msgs::msg
{

struct UInt64
{
  std::uint64_t data;
};

}  // namespace std_msgs::msg

#endif  // STUB_STD_MSGS_U_INT64_HPP_
