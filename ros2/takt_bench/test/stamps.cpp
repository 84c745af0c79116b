// Writes two activations of each activity of a node, for a test of Takt's reader: `stamps FOLDER NODE`.

#include <fstream>

#include "takt_bench/plan.hpp"
#include "takt_bench/stamps.hpp"

int main(int, char ** argv)
{
  const std::string folder = argv[1];
  const std::string node = argv[2];
  std::ifstream file(folder + "/" + node + ".plan");
  const auto plan = takt_bench::read_plan(file);
  takt_bench::Stamps stamps(folder, node, plan);
  const auto write = [&stamps](std::uint16_t number) {
      takt_bench::Run bare;
      bare.start_ns = 10;
      bare.end_ns = 20;
      stamps.write(number, bare);
      takt_bench::Run whole;
      whole.index = 1;
      whole.release_ns = 29;
      whole.start_ns = 30;
      whole.sent_ns = 35;
      whole.end_ns = 40;
      whole.activated = true;
      whole.input = takt_bench::identity(7, (std::uint64_t{1} << 40) + 3);
      stamps.write(number, whole);
    };
  for (const auto & timer : plan.timers) {
    write(timer.number);
  }
  for (const auto & subscription : plan.subscriptions) {
    write(subscription.number);
  }
  for (const auto & source : plan.sources) {
    write(source.number);
  }
  return stamps.unwritten() == 0 ? 0 : 1;
}
