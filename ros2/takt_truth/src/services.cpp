// A service and an action between two processes, beside ordinary timers and topics.

#include "truth.hpp"

#include <thread>

#include "programs.hpp"
#include "rclcpp_action/rclcpp_action.hpp"
#include "std_srvs/srv/trigger.hpp"
#include "takt_truth/action/reach.hpp"

namespace truth
{

using std_srvs::srv::Trigger;
using Reach = takt_truth::action::Reach;

/// A request's identifier: the middleware numbers the requests of a client, and the service sees the number.
static std::string request(std::int64_t number) {return "/asker>/locate.request#" + std::to_string(number);}
static std::string response(std::int64_t number) {return "/locator>/locate.response#" + std::to_string(number);}

void plan()
{
  auto planner = make("planner");
  planner->source(50, 3.0, "/plan");
  auto follower = make("follower");
  follower->stage("/plan", 1.5, "/cmd");
  follower->sink("/odom", 0.5);
  auto joystick = make("joystick");
  joystick->source(100, 0.2, "/cmd");

  auto asker = make("asker");
  auto place = std::make_shared<Output<>>(*asker, "/place");
  auto client = asker->create_client<Trigger>("/locate");
  asker->timer(
    100, [client, place](Run & run) {
      burn(0.3);
      // Requests that nobody answers are kept by the client for ever.
      if (!client->service_is_ready()) {
        return;
      }
      auto number = std::make_shared<std::int64_t>(-1);
      auto sent = client->async_send_request(
        std::make_shared<Trigger::Request>(), [place, number](rclcpp::Client<Trigger>::SharedFuture) {
          Run answered("/asker client /locate");
          answered.in(response(*number));
          burn(0.5);
          place->send(answered);
        });
      *number = sent.request_id;
      run.out(request(*number));
    });

  auto arm_client = make("arm_client");
  auto done = std::make_shared<Output<>>(*arm_client, "/arm_done");
  auto progress = std::make_shared<Output<>>(*arm_client, "/arm_progress");
  auto goals = rclcpp_action::create_client<Reach>(arm_client, "/reach");
  auto count = std::make_shared<std::uint64_t>(0);
  arm_client->timer(
    500, [goals, done, progress, count](Run & run) {
      if (!goals->action_server_is_ready()) {
        return;
      }
      Reach::Goal goal;
      goal.id = "/arm_client>/reach.goal#" + std::to_string((*count)++);
      rclcpp_action::Client<Reach>::SendGoalOptions options;
      options.result_callback = [done](const rclcpp_action::ClientGoalHandle<Reach>::WrappedResult & result) {
          Run ended("/arm_client action /reach");
          ended.in(result.result->id);
          burn(0.3);
          done->send(ended);
        };
      options.feedback_callback =
        [progress](rclcpp_action::ClientGoalHandle<Reach>::SharedPtr, const std::shared_ptr<const Reach::Feedback> feedback) {
          Run heard("/arm_client feedback /reach");
          heard.in(feedback->id);
          burn(0.2);
          progress->send(heard);
        };
      burn(0.3);
      run.out(goal.id);
      goals->async_send_goal(goal, options);
    });

  auto dig_client = make("dig_client");
  auto dug = std::make_shared<Output<>>(*dig_client, "/dug");
  auto digs = rclcpp_action::create_client<Reach>(dig_client, "/dig");
  auto dig_count = std::make_shared<std::uint64_t>(0);
  dig_client->timer(
    400, [digs, dug, dig_count](Run & run) {
      // A thread for each goal: a new publisher that no plan knew. Where that is not what is looked at, no goals are sent.
      static const bool sends = variable("TAKT_TRUTH_GOAL_THREADS", "0") == "1";
      if (!sends || !digs->action_server_is_ready()) {
        return;
      }
      Reach::Goal goal;
      goal.id = "/dig_client>/dig.goal#" + std::to_string((*dig_count)++);
      rclcpp_action::Client<Reach>::SendGoalOptions options;
      options.result_callback = [dug](const rclcpp_action::ClientGoalHandle<Reach>::WrappedResult & result) {
          Run ended("/dig_client action /dig");
          ended.in(result.result->id);
          burn(0.3);
          dug->send(ended);
        };
      burn(0.2);
      run.out(goal.id);
      digs->async_send_goal(goal, options);
    });

  rclcpp::executors::SingleThreadedExecutor executor;
  for (const auto & node : {planner, follower, joystick, asker, arm_client, dig_client}) {
    executor.add_node(node);
  }
  executor.spin();
}

void serve()
{
  auto locator = make("locator");
  auto service = locator->create_service<Trigger>(
    "/locate",
    [](const std::shared_ptr<rmw_request_id_t> header, const Trigger::Request::SharedPtr, Trigger::Response::SharedPtr answer) {
      Run run("/locator service /locate");
      run.in(request(header->sequence_number));
      burn(2.0);
      answer->success = true;
      run.out(response(header->sequence_number));
    });
  auto place_sink = make("place_sink");
  place_sink->sink("/place", 0.5);
  place_sink->sink("/arm_done", 0.5);
  place_sink->sink("/arm_progress", 0.2);
  place_sink->sink("/dug", 0.2);

  auto arm_server = make("arm_server");
  using Goal = rclcpp_action::ServerGoalHandle<Reach>;
  auto server = rclcpp_action::create_server<Reach>(
    arm_server, "/reach",
    [](const rclcpp_action::GoalUUID &, std::shared_ptr<const Reach::Goal>) {return rclcpp_action::GoalResponse::ACCEPT_AND_EXECUTE;},
    [](std::shared_ptr<Goal>) {return rclcpp_action::CancelResponse::ACCEPT;},
    [](std::shared_ptr<Goal> goal) {
      Run run("/arm_server action /reach");
      run.in(goal->get_goal()->id);
      burn(2.0);
      auto feedback = std::make_shared<Reach::Feedback>();
      feedback->id = "/arm_server>/reach.feedback:" + goal->get_goal()->id;
      run.out(feedback->id);
      goal->publish_feedback(feedback);
      auto result = std::make_shared<Reach::Result>();
      result->id = "/arm_server>/reach.result:" + goal->get_goal()->id;
      run.out(result->id);
      goal->succeed(result);
    });

  // As most servers of actions do: each goal in a thread of its own.
  auto dig_server = make("dig_server");
  auto digging = rclcpp_action::create_server<Reach>(
    dig_server, "/dig",
    [](const rclcpp_action::GoalUUID &, std::shared_ptr<const Reach::Goal>) {return rclcpp_action::GoalResponse::ACCEPT_AND_EXECUTE;},
    [](std::shared_ptr<Goal>) {return rclcpp_action::CancelResponse::ACCEPT;},
    [](std::shared_ptr<Goal> goal) {
      std::thread(
        [goal] {
          executor() = "thread";
          Run run("/dig_server work /dig");
          run.in(goal->get_goal()->id);
          burn(3.0);
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          auto result = std::make_shared<Reach::Result>();
          result->id = "/dig_server>/dig.result:" + goal->get_goal()->id;
          run.out(result->id);
          goal->succeed(result);
        }).detach();
    });

  rclcpp::executors::SingleThreadedExecutor executor;
  for (const auto & node : {locator, place_sink, arm_server, dig_server}) {
    executor.add_node(node);
  }
  executor.spin();
}

}  // namespace truth
