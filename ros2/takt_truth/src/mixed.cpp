// Three executors in one process: events, static, and the default one; with a publisher of bursts and a callback that sleeps.

#include "truth.hpp"

#include <thread>

#include "programs.hpp"
#include "rclcpp/experimental/executors/events_executor/events_executor.hpp"

namespace truth
{

template<typename Executor>
static void spin(const std::string & kind, const std::vector<std::shared_ptr<Node>> & nodes)
{
  executor() = kind;
  Executor executor;
  for (const auto & node : nodes) {
    executor.add_node(node);
  }
  executor.spin();
}

void mixed()
{
  auto encoder = make("encoder");
  encoder->source(30, 0.5, "/ticks");
  auto filter = make("filter");
  filter->sink("/ticks", 1.0);
  filter->sink("/scans", 6.0);

  auto relay = make("relay");
  relay->stage("/ticks", 0.5, "/relayed");

  auto scanner = make("scanner");
  scanner->timer(
    50, [output = scanner->output("/scans"), calls = 0](Run & run) mutable {
      burn(0.2);
      const int messages = ++calls % 10 == 0 ? 5 : 0;
      for (int i = 0; i < messages; ++i) {
        output.send(run);
      }
    });
  auto serial = make("serial");
  serial->timer(
    500, [](Run &) {
      burn(0.2);
      std::this_thread::sleep_for(std::chrono::milliseconds(80));
    });
  auto beside = make("beside");
  beside->sink("/plan", 0.5);
  auto consumer = make("consumer");
  consumer->sink("/relayed", 0.3);

  std::thread events([&] {spin<rclcpp::experimental::executors::EventsExecutor>("events", {encoder, filter});});
  std::thread fixed([&] {spin<rclcpp::executors::StaticSingleThreadedExecutor>("static", {relay});});
  spin<rclcpp::executors::SingleThreadedExecutor>("single_threaded", {scanner, serial, beside, consumer});
  events.join();
  fixed.join();
}

}  // namespace truth
