// One node of the workload on rclcpp. See README.md for how it is started and what it says.

#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rclcpp/rclcpp.hpp"
#include "std_msgs/msg/u_int64.hpp"
#include "takt_bench/plan.hpp"
#include "takt_bench/stamps.hpp"

namespace
{

using Message = std_msgs::msg::UInt64;
using Publisher = rclcpp::Publisher<Message>::SharedPtr;
using takt_bench::Cost;
using takt_bench::Plan;
using takt_bench::Random;
using takt_bench::Run;
using takt_bench::Stamps;
using takt_bench::Target;
using takt_bench::Window;
using takt_bench::clock_ns;

void sleep_until(std::uint64_t at_ns)
{
  timespec at{};
  at.tv_sec = static_cast<time_t>(at_ns / 1000000000u);
  at.tv_nsec = static_cast<long>(at_ns % 1000000000u);
  // A signal ends the sleep early.
  while (clock_ns(CLOCK_MONOTONIC) < at_ns) {
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr);
  }
}

/// Uses up CPU time of this thread, however long it is kept from running.
void burn(std::uint64_t ns)
{
  const auto end_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
  volatile std::uint64_t kept = 0;
  std::uint64_t value = ns | 1;
  while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns) {
    for (int i = 0; i < 4000; ++i) {
      value = value * 6364136223846793005u + 1442695040888963407u;
    }
    kept = value;
  }
  static_cast<void>(kept);
}

/// What a callback or source does: compute, then publish.
class Activity
{
public:
  Activity(
    std::uint16_t number, Cost cost, Random random, std::vector<Publisher> publishers, const Window & window,
    Stamps & stamps)
  : number_(number), cost_(std::move(cost)), random_(random), publishers_(std::move(publishers)), window_(window),
    stamps_(stamps)
  {
  }

  /// Computes. The activation has begun.
  Run compute()
  {
    Run run;
    run.start_ns = clock_ns(CLOCK_MONOTONIC);
    burn(cost_.ns(window_.phase(run.start_ns), index_, random_.draw()));
    run.index = index_++;
    return run;
  }

  void publish(Run & run)
  {
    Message message;
    message.data = takt_bench::identity(number_, run.index);
    if (!publishers_.empty()) {
      run.sent_ns = clock_ns(CLOCK_MONOTONIC);
    }
    for (const auto & publisher : publishers_) {
      publisher->publish(message);
    }
  }

  /// It is over, and written down.
  void end(Run & run)
  {
    run.end_ns = clock_ns(CLOCK_MONOTONIC);
    stamps_.write(number_, run);
  }

private:
  std::uint16_t number_;
  Cost cost_;
  Random random_;
  std::vector<Publisher> publishers_;
  const Window & window_;
  Stamps & stamps_;
  std::uint64_t index_{0};
};

/// Messages that did not come: gaps in the numbers of each publisher. The transport is reliable and its queues short, so what is
/// missing was overwritten in one of them.
class Gaps
{
public:
  void seen(const rclcpp::MessageInfo & info)
  {
    const auto & rmw = info.get_rmw_message_info();
    Gid gid;
    std::copy_n(std::begin(rmw.publisher_gid.data), gid.size(), gid.begin());
    const auto number = rmw.publication_sequence_number;
    if (number == RMW_MESSAGE_INFO_SEQUENCE_NUMBER_UNSUPPORTED) {
      return;
    }
    const auto known = last_.find(gid);
    if (known != last_.end() && number > known->second + 1) {
      missing_ += number - known->second - 1;
    }
    last_[gid] = number;
  }

  std::uint64_t missing() const {return missing_;}

private:
  using Gid = std::array<std::uint8_t, RMW_GID_STORAGE_SIZE>;
  std::map<Gid, std::uint64_t> last_;
  std::uint64_t missing_{0};
};

class BenchNode
{
public:
  BenchNode(const std::string & name, const Plan & plan, Stamps & stamps)
  : plan_(plan), stamps_(stamps), node_(std::make_shared<rclcpp::Node>(name, options())), heard_(plan.subscriptions.size())
  {
    for (const auto & timer : plan_.timers) {
      auto activity = make(timer.number, name + "/" + timer.name, timer.cost, timer.targets);
      timers_.push_back(
        node_->create_wall_timer(
          std::chrono::nanoseconds(timer.period_ns), [activity](const rclcpp::TimerInfo & info) {
            auto run = activity->compute();
            run.release_ns = static_cast<std::uint64_t>(info.expected_call_time.nanoseconds());
            activity->publish(run);
            activity->end(run);
          }));
    }
    for (std::size_t i = 0; i < plan_.subscriptions.size(); ++i) {
      subscribe(name, i);
    }
    for (const auto & source : plan_.sources) {
      sources_.push_back({source, make(source.number, source.name, source.cost, source.targets)});
    }
  }

  /// Until all that is to be subscribed to is, or ten seconds have gone: then the run will say what is missing.
  void match() const
  {
    const auto until_ns = clock_ns(CLOCK_MONOTONIC) + 10000000000u;
    for (const auto & [topic, publisher] : publishers_) {
      while (publisher.first->get_subscription_count() < publisher.second &&
        clock_ns(CLOCK_MONOTONIC) < until_ns && rclcpp::ok())
      {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  }

  void run(const Window & window)
  {
    window_ = window;
    std::vector<std::thread> threads;
    for (auto & source : sources_) {
      threads.emplace_back([this, &source]() {drive(source.first, *source.second);});
    }
    rclcpp::executors::SingleThreadedExecutor executor;
    executor.add_node(node_);
    // `spin` and nothing else takes its callbacks as the executor is known to; so another thread ends it.
    threads.emplace_back(
      [this, &executor]() {
        sleep_until(window_.end_ns);
        executor.cancel();
      });
    sleep_until(window_.start_ns);
    executor.spin();
    for (auto & thread : threads) {
      thread.join();
    }
  }

  std::uint64_t missing() const
  {
    std::uint64_t sum = 0;
    for (const auto & gaps : gaps_) {
      sum += gaps->missing();
    }
    return sum;
  }

private:
  /// Without the services and topics that every node has beside its own: they would be callbacks of the model as well.
  static rclcpp::NodeOptions options()
  {
    return rclcpp::NodeOptions()
           .start_parameter_services(false)
           .start_parameter_event_publisher(false)
           .enable_rosout(false);
  }

  Publisher publisher(const Target & target)
  {
    const auto known = publishers_.find(target.topic);
    if (known != publishers_.end()) {
      return known->second.first;
    }
    auto made = node_->create_publisher<Message>(target.topic, rclcpp::QoS(rclcpp::KeepLast(10)));
    publishers_[target.topic] = {made, target.subscriptions};
    return made;
  }

  std::shared_ptr<Activity> make(
    std::uint16_t number, const std::string & label, const Cost & cost, const std::vector<Target> & targets)
  {
    std::vector<Publisher> publishers;
    for (const auto & target : targets) {
      publishers.push_back(publisher(target));
    }
    return std::make_shared<Activity>(number, cost, Random(plan_.seed, label), publishers, window_, stamps_);
  }

  void subscribe(const std::string & node, std::size_t index)
  {
    const auto & spec = plan_.subscriptions[index];
    auto activity = make(spec.number, node + "/" + spec.name, spec.cost, spec.targets);
    auto gaps = std::make_shared<Gaps>();
    gaps_.push_back(gaps);
    const auto needed = std::find_if(
      plan_.subscriptions.begin(), plan_.subscriptions.end(),
      [&spec](const takt_bench::Subscription & other) {return other.topic == spec.needs;});
    const auto other = static_cast<std::size_t>(needed - plan_.subscriptions.begin());
    const bool filters = !spec.needs.empty();
    std::function<void(const Message &, const rclcpp::MessageInfo &)> callback =
      [this, activity, gaps, index, other, filters](const Message & message, const rclcpp::MessageInfo & info) {
        gaps->seen(info);
        auto run = activity->compute();
        run.activated = true;
        run.input = message.data;
        heard_[index] = true;
        const bool passes = !filters || (other < heard_.size() && heard_[other]);
        if (passes) {
          if (filters) {
            heard_[other] = false;
          }
          activity->publish(run);
        }
        activity->end(run);
      };
    subscriptions_.push_back(
      node_->create_subscription<Message>(
        spec.topic, rclcpp::QoS(rclcpp::KeepLast(spec.depth)), callback));
  }

  void drive(const takt_bench::Source & source, Activity & activity) const
  {
    // The kernel keeps 15 bytes of a name.
    pthread_setname_np(pthread_self(), source.name.substr(0, 15).c_str());
    const auto period_ns = std::max<std::uint64_t>(source.period_ns, 1);
    for (auto next_ns = window_.start_ns; next_ns < window_.end_ns; ) {
      const auto release_ns = next_ns;
      sleep_until(release_ns);
      const auto now_ns = clock_ns(CLOCK_MONOTONIC);
      next_ns += period_ns;
      if (next_ns < now_ns) {
        // Releases that were missed are skipped, and the grid is kept.
        next_ns += (now_ns - next_ns + period_ns - 1) / period_ns * period_ns;
      }
      auto run = activity.compute();
      run.release_ns = release_ns;
      const auto every = source.incomplete_every;
      if (every == 0 || run.index % every != every - 1) {
        activity.publish(run);
      }
      activity.end(run);
    }
  }

  const Plan & plan_;
  Stamps & stamps_;
  Window window_;
  std::shared_ptr<rclcpp::Node> node_;
  std::map<std::string, std::pair<Publisher, std::size_t>> publishers_;
  std::vector<rclcpp::TimerBase::SharedPtr> timers_;
  std::vector<rclcpp::Subscription<Message>::SharedPtr> subscriptions_;
  std::vector<std::pair<takt_bench::Source, std::shared_ptr<Activity>>> sources_;
  std::vector<std::shared_ptr<Gaps>> gaps_;
  /// Which subscriptions have had a message since a filter last let something through.
  std::vector<bool> heard_;
};

}  // namespace

int main(int argc, char ** argv)
{
  if (argc < 3) {
    std::cerr << "usage: takt_bench_node FOLDER NODE\n";
    return 2;
  }
  try {
    const std::string name = argv[2];
    const std::string path = std::string(argv[1]) + "/" + name + ".plan";
    std::ifstream file(path);
    if (!file) {
      throw std::runtime_error(path + ": cannot be read");
    }
    const auto plan = takt_bench::read_plan(file);
    Stamps stamps(argv[1], name, plan);
    rclcpp::init(argc, argv);
    {
      BenchNode node(name, plan, stamps);
      node.match();
      std::cout << "ready" << std::endl;
      Window window;
      if (!(std::cin >> window.start_ns >> window.phases_ns >> window.end_ns >> window.phases)) {
        throw std::runtime_error("no window came");
      }
      node.run(window);
      std::cout << "dropped 0 overwritten " << node.missing() << " unwritten " << stamps.unwritten() << std::endl;
    }
    rclcpp::shutdown();
    return 0;
  } catch (const std::exception & error) {
    std::cerr << "takt_bench_node: " << error.what() << "\n";
    return 1;
  }
}
