// What a node writes down of itself: `FOLDER/NODE.stamps`, from which Takt reads the latencies of chains after a run. The form is that of
// the Rust crate takt-ros-workload (src/stamps.rs), which describes it; a test of it reads what this file writes.

#ifndef TAKT_BENCH__STAMPS_HPP_
#define TAKT_BENCH__STAMPS_HPP_

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "takt_bench/plan.hpp"

namespace takt_bench
{

inline std::uint64_t clock_ns(clockid_t clock)
{
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000000u + static_cast<std::uint64_t>(now.tv_nsec);
}

/// The identity of an activation, as messages carry it: its activity's number above 48 bits of its index.
inline std::uint64_t identity(std::uint16_t number, std::uint64_t index)
{
  return static_cast<std::uint64_t>(number) << 48 | (index & ((std::uint64_t{1} << 48) - 1));
}

/// One activation. 0: there is none of that.
struct Run
{
  std::uint64_t index{0};
  std::uint64_t release_ns{0};
  std::uint64_t start_ns{0};
  std::uint64_t end_ns{0};
  bool activated{false};
  std::uint64_t input{0};
  std::uint64_t sent_ns{0};
};

class Stamps
{
public:
  Stamps(const std::string & folder, const std::string & node, const Plan & plan)
  {
    const auto path = folder + "/" + node + ".stamps";
    file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0) {
      throw std::runtime_error(path + ": cannot be written");
    }
    std::string head = "takt-stamps\t1\n";
    const auto name = [&head, &node](const auto & all) {
        for (const auto & one : all) {
          head += "activity\t" + std::to_string(one.number) + "\t" + node + "/" + one.name + "\n";
        }
      };
    name(plan.timers);
    name(plan.subscriptions);
    name(plan.sources);
    put(head);
  }

  Stamps(const Stamps &) = delete;
  Stamps & operator=(const Stamps &) = delete;
  ~Stamps() {close(file_);}

  /// From any thread: a line is one system call.
  void write(std::uint16_t number, const Run & run)
  {
    static thread_local std::uint64_t write_ns = 0;
    const auto before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    const auto optional = [](bool there, std::uint64_t value) {return there ? std::to_string(value) : std::string("-");};
    put(
      "run\t" + std::to_string(number) + "\t" + std::to_string(run.index) + "\t" + optional(run.release_ns > 0, run.release_ns) + "\t" +
      std::to_string(run.start_ns) + "\t" + std::to_string(run.end_ns) + "\t" +
      (run.activated ? std::to_string(run.input >> 48) + ":" + std::to_string(run.input & ((std::uint64_t{1} << 48) - 1)) : "-") + "\t" +
      optional(run.sent_ns > 0, run.sent_ns) + "\t" + std::to_string(write_ns) + "\n");
    write_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
  }

  /// Lines that could not be written.
  std::uint64_t unwritten() const {return unwritten_;}

private:
  void put(const std::string & line)
  {
    if (::write(file_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      ++unwritten_;
    }
  }

  int file_{-1};
  std::atomic<std::uint64_t> unwritten_{0};
};

}  // namespace takt_bench

#endif  // TAKT_BENCH__STAMPS_HPP_
