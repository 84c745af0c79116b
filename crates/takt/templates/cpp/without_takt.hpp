// What controller.cpp uses of <takt.hpp>, for machines without libtakt: the same grid of releases, and no records. Takt then follows the
// loop by the kernel's events. Delete this file once libtakt is installed.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>

#include <time.h>

namespace takt {

class loop {
public:
    loop(const char* /*name*/, std::chrono::nanoseconds period) : period_ns_(period.count()), next_ns_(now_ns() + period_ns_) {}
    loop(const loop&) = delete;
    loop& operator=(const loop&) = delete;

    std::uint64_t wait() {
        // An overrun keeps the phase: the next release is the next one of the grid.
        const std::int64_t now = now_ns();
        const std::int64_t skipped = now > next_ns_ ? (now - next_ns_) / period_ns_ : 0;
        next_ns_ += skipped * period_ns_;
        const timespec due = {static_cast<time_t>(next_ns_ / 1'000'000'000), static_cast<long>(next_ns_ % 1'000'000'000)};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr) == EINTR) {
        }
        next_ns_ += period_ns_;
        return static_cast<std::uint64_t>(skipped);
    }
    void value(double) {}
    void end() {}

private:
    static std::int64_t now_ns() {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
    }

    std::int64_t period_ns_;
    std::int64_t next_ns_;
};

}  // namespace takt
