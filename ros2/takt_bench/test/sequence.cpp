// Prints the first costs of every activity of a plan, for comparison with Takt's own: `sequence NODE < PLAN`.

#include <iostream>

#include "takt_bench/plan.hpp"

namespace
{

void print(const char * kind, const std::string & label, std::uint64_t seed, const takt_bench::Cost & cost)
{
  takt_bench::Random random(seed, label);
  std::cout << kind << '\t' << label;
  for (std::uint64_t index = 0; index < 100; ++index) {
    std::cout << '\t' << cost.ns(index % 4, index, random.draw());
  }
  std::cout << '\n';
}

}  // namespace

int main(int, char ** argv)
{
  const std::string node = argv[1];
  const auto plan = takt_bench::read_plan(std::cin);
  for (const auto & timer : plan.timers) {
    print("timer", node + "/" + timer.name, plan.seed, timer.cost);
  }
  for (const auto & subscription : plan.subscriptions) {
    print("subscription", node + "/" + subscription.name, plan.seed, subscription.cost);
  }
  for (const auto & source : plan.sources) {
    print("source", source.name, plan.seed, source.cost);
  }
  const takt_bench::Window window{0, 100, 400, 3};
  for (const std::uint64_t at_ns : {0, 100, 199, 200, 300, 399, 400, 10000}) {
    std::cout << window.phase(at_ns) << ' ';
  }
  std::cout << '\n';
}
