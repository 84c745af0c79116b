// What a node does: read from a file that Takt writes, one record a line, fields separated by tabs.
//
//   takt-bench  2
//   seed        SEED
//   timer       NUMBER  NAME  PERIOD_NS  COST  TARGETS
//   subscription NUMBER NAME  TOPIC  DEPTH  NEEDS  COST  TARGETS
//   source      NUMBER  NAME  PERIOD_NS  COST  TARGETS  INCOMPLETE_EVERY
//
// NUMBER is unique in the system; messages and stamps bear it. Of a source every INCOMPLETE_EVERYth reading (0: none) is not published.
// COST is five fields: JITTER  PEAK_EVERY  PEAK_FACTOR  and the milliseconds of every phase, separated by commas.
// TARGETS is one field: topics with the number of their subscriptions, `/odom:2,/tf:1`; `-`: none. NEEDS is a topic or `-`.
//
// Costs and their randomness are those of the Rust crate takt-ros-workload; a test of it compares them.

#ifndef TAKT_BENCH__PLAN_HPP_
#define TAKT_BENCH__PLAN_HPP_

#include <cstddef>
#include <cstdint>
#include <istream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace takt_bench
{

/// CPU time of an activation.
struct Cost
{
  double jitter{0.0};
  std::uint64_t peak_every{0};
  double peak_factor{1.0};
  std::vector<double> ms;

  std::uint64_t ns(std::size_t phase, std::uint64_t index, double random) const
  {
    const double usual = ms.empty() ? 0.0 : ms[phase < ms.size() ? phase : ms.size() - 1];
    const bool peak = peak_every > 0 && index % peak_every == peak_every - 1;
    return static_cast<std::uint64_t>(usual * (1.0 + jitter * random) * (peak ? peak_factor : 1.0) * 1e6);
  }
};

/// splitmix64, begun with the seed and the FNV-1a hash of a name.
class Random
{
public:
  Random(std::uint64_t seed, const std::string & name)
  {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char byte : name) {
      hash = (hash ^ static_cast<unsigned char>(byte)) * 0x00000100000001b3u;
    }
    state_ = seed ^ hash;
  }

  /// From 0 up to, without, 1.
  double draw()
  {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>((z ^ (z >> 31)) >> 11) / static_cast<double>(std::uint64_t{1} << 53);
  }

private:
  std::uint64_t state_;
};

/// A topic to publish to.
struct Target
{
  std::string topic;
  /// Subscriptions that it is to have before the node is ready.
  std::size_t subscriptions{0};
};

struct Timer
{
  std::uint16_t number{0};
  std::string name;
  std::uint64_t period_ns{0};
  Cost cost;
  std::vector<Target> targets;
  /// Of a source: every so many readings are incomplete and not published. 0: none.
  std::uint64_t incomplete_every{0};
};

struct Subscription
{
  std::uint16_t number{0};
  std::string name;
  std::string topic;
  std::size_t depth{10};
  /// A message filter: publishes only when something has come on this topic since it last published. Empty: always.
  std::string needs;
  Cost cost;
  std::vector<Target> targets;
};

/// A thread that publishes in a loop of its own.
using Source = Timer;

struct Plan
{
  std::uint64_t seed{1};
  std::vector<Timer> timers;
  std::vector<Subscription> subscriptions;
  std::vector<Source> sources;
};

/// When a run begins and ends, CLOCK_MONOTONIC nanoseconds. From `phases_ns` to the end the phases divide the time equally.
struct Window
{
  std::uint64_t start_ns{0};
  std::uint64_t phases_ns{0};
  std::uint64_t end_ns{0};
  std::size_t phases{1};

  std::size_t phase(std::uint64_t at_ns) const
  {
    if (at_ns <= phases_ns || end_ns <= phases_ns) {
      return 0;
    }
    const auto length = static_cast<long double>(end_ns - phases_ns);
    const auto phase =
      static_cast<std::size_t>(static_cast<long double>(at_ns - phases_ns) * phases / length);
    return phase < phases ? phase : phases - 1;
  }
};

namespace detail
{

inline std::vector<std::string> split(const std::string & text, char at)
{
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at); ) {
    parts.push_back(part);
  }
  return parts;
}

inline std::uint16_t number(const std::string & field)
{
  const auto number = std::stoul(field);
  if (number >= 65535) {
    throw std::runtime_error("a number is below 65535, not " + field);
  }
  return static_cast<std::uint16_t>(number);
}

inline Cost cost(const std::vector<std::string> & fields, std::size_t from)
{
  Cost cost;
  cost.jitter = std::stod(fields.at(from));
  cost.peak_every = std::stoull(fields.at(from + 1));
  cost.peak_factor = std::stod(fields.at(from + 2));
  for (const auto & ms : split(fields.at(from + 3), ',')) {
    cost.ms.push_back(std::stod(ms));
  }
  return cost;
}

inline std::vector<Target> targets(const std::string & field)
{
  std::vector<Target> targets;
  if (field == "-") {
    return targets;
  }
  for (const auto & entry : split(field, ',')) {
    const auto colon = entry.rfind(':');
    if (colon == std::string::npos) {
      throw std::runtime_error("a target looks like /topic:2, not " + entry);
    }
    targets.push_back({entry.substr(0, colon), std::stoul(entry.substr(colon + 1))});
  }
  return targets;
}

}  // namespace detail

/// Throws std::exception on anything else than a plan.
inline Plan read_plan(std::istream & stream)
{
  Plan plan;
  std::string line;
  if (!std::getline(stream, line) || line != "takt-bench\t2") {
    throw std::runtime_error("not a plan of this version: its first line is " + line);
  }
  while (std::getline(stream, line)) {
    const auto fields = detail::split(line, '\t');
    if (fields.empty()) {
      continue;
    }
    if (fields[0] == "seed") {
      plan.seed = std::stoull(fields.at(1));
    } else if (fields[0] == "timer" || fields[0] == "source") {
      Timer timer;
      timer.number = detail::number(fields.at(1));
      timer.name = fields.at(2);
      timer.period_ns = std::stoull(fields.at(3));
      timer.cost = detail::cost(fields, 4);
      timer.targets = detail::targets(fields.at(8));
      if (fields[0] == "source") {
        timer.incomplete_every = std::stoull(fields.at(9));
      }
      (fields[0] == "timer" ? plan.timers : plan.sources).push_back(timer);
    } else if (fields[0] == "subscription") {
      Subscription subscription;
      subscription.number = detail::number(fields.at(1));
      subscription.name = fields.at(2);
      subscription.topic = fields.at(3);
      subscription.depth = std::stoul(fields.at(4));
      subscription.needs = fields.at(5) == "-" ? "" : fields.at(5);
      subscription.cost = detail::cost(fields, 6);
      subscription.targets = detail::targets(fields.at(10));
      plan.subscriptions.push_back(subscription);
    } else {
      throw std::runtime_error("unknown record " + fields[0]);
    }
  }
  return plan;
}

}  // namespace takt_bench

#endif  // TAKT_BENCH__PLAN_HPP_
