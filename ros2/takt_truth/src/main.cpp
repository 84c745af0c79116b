// takt_truth_nodes PROGRAM: one process of the test system. takt_truth_nodes load CONTAINER CLASS...: loads components into a container, and ends.

#include "truth.hpp"

#include <cstring>
#include <iostream>

#include "composition_interfaces/srv/load_node.hpp"
#include "programs.hpp"

/// Asks a container for components, with pipes within the process.
static int load(const std::vector<std::string> & words)
{
  using composition_interfaces::srv::LoadNode;
  auto node = std::make_shared<rclcpp::Node>(
    "loader", rclcpp::NodeOptions().start_parameter_services(false).start_parameter_event_publisher(false).enable_rosout(false));
  auto client = node->create_client<LoadNode>(words.at(2) + "/_container/load_node");
  if (!client->wait_for_service(std::chrono::seconds(60))) {
    std::cerr << "takt_truth: no container " << words.at(2) << " within a minute\n";
    return 1;
  }
  for (std::size_t i = 3; i < words.size(); ++i) {
    auto request = std::make_shared<LoadNode::Request>();
    request->package_name = "takt_truth";
    request->plugin_name = words[i];
    rclcpp::Parameter pipes("use_intra_process_comms", true);
    request->extra_arguments.push_back(pipes.to_parameter_msg());
    auto answer = client->async_send_request(request);
    if (rclcpp::spin_until_future_complete(node, answer, std::chrono::seconds(60)) != rclcpp::FutureReturnCode::SUCCESS) {
      std::cerr << "takt_truth: " << words[i] << ": no answer within a minute\n";
      return 1;
    }
    const auto said = answer.get();
    if (!said->success) {
      std::cerr << "takt_truth: " << words[i] << ": " << said->error_message << "\n";
      return 1;
    }
  }
  return 0;
}

int main(int argc, char ** argv)
{
  const auto words = rclcpp::init_and_remove_ros_arguments(argc, argv);
  const std::vector<std::pair<std::string, void (*)()>> programs = {
    {"base", truth::base}, {"plan", truth::plan}, {"serve", truth::serve}, {"fusion", truth::fusion}, {"mixed", truth::mixed}};
  try {
    if (words.size() > 3 && words[1] == "load") {
      return load(words);
    }
    for (const auto & [name, program] : programs) {
      if (words.size() == 2 && words[1] == name) {
        program();
        rclcpp::shutdown();
        return 0;
      }
    }
  } catch (const std::exception & error) {
    std::cerr << "takt_truth: " << error.what() << "\n";
    return 1;
  }
  std::cerr << "usage: takt_truth_nodes base|plan|serve|fusion|mixed, takt_truth_nodes load CONTAINER CLASS...\n";
  return 2;
}
