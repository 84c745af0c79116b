// A 1 kHz loop in C++17, and a thread beside it that takes its newest value: `control [SECONDS]`; without it until SIGINT.
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <thread>

#include <takt.hpp>

using namespace std::chrono_literals;

struct state {
    double position;
    double velocity;
    std::uint64_t job;
};

static volatile std::sig_atomic_t running = 1;

int main(int count, char **arguments) {
    std::signal(SIGINT, [](int) { running = 0; });
    const auto begin = takt::clock::now();
    const auto seconds = std::chrono::duration<double>(count > 1 ? std::atof(arguments[1]) : 1e9);
    try {
        const auto granted = takt::thread_settings().other(0).prefault_stack(64 << 10).apply();
        if (granted.differences != 0) {
            std::cerr << granted.why << '\n';
        }
        auto newest = takt::exchange<state>::create();
        takt::mutex lock;
        double shared = 0;
        std::atomic<bool> done{false};
        std::uint64_t seen = 0, torn = 0;
        std::thread monitor([&] {
            takt::loop slow("monitor", 10ms);
            while (!done) {
                slow.wait();
                state value{};
                seen = newest.read(value);
                torn += value.velocity != 2 * value.position || (seen != 0 && value.job + 1 != seen);
                const std::lock_guard<takt::mutex> held(lock);
                shared += value.position;
            }
        });
        takt::loop control("control", 1ms);
        std::cout << "ready" << std::endl;
        std::uint64_t jobs = 0;
        while (running != 0 && takt::clock::now() - begin < seconds) {
            control.wait();
            const double position = 0.001 * static_cast<double>(jobs);
            newest.write(state{position, 2 * position, jobs});
            {
                const std::lock_guard<takt::mutex> held(lock);
                shared += 1;
            }
            control.value(position);
            control.end();
            ++jobs;
        }
        done = true;
        monitor.join();
        std::cout << jobs << " jobs, " << seen << " seen, " << torn << " torn" << std::endl;
        return torn == 0 && seen > 0 && shared > 0 ? 0 : 1;
    } catch (const takt::error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
