// A control loop that Takt measures and judges: `takt run program.toml`.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <sys/prctl.h>

#ifdef HAVE_TAKT
#include <takt.hpp>
#else
#include "without_takt.hpp"
#endif

namespace {

volatile std::sig_atomic_t stop = 0;

void on_signal(int) { stop = 1; }

// A joint and its controller. Put yours here: read the sensors, compute, command.
struct Joint {
    double position = 0.0;
    double velocity = 0.0;

    double step(double target, double seconds) {
        const double error = target - position;
        const double torque = 40.0 * error - 8.0 * velocity;
        velocity += torque * seconds;
        position += velocity * seconds;
        return error;
    }
};

}  // namespace

int main(int argc, char** argv) try {
    const double rate_hz = argc > 1 ? std::atof(argv[1]) : 500.0;
    if (!(rate_hz >= 1.0 && rate_hz <= 20000.0)) {
        std::fprintf(stderr, "usage: controller RATE, from 1 to 20000 Hz\n");
        return 2;
    }
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    prctl(PR_SET_NAME, "control");

    // Without a third argument the deadline is the period.
    takt::loop loop("control", std::chrono::nanoseconds(static_cast<long>(1e9 / rate_hz)));
    std::puts("ready");
    std::fflush(stdout);

    Joint joint;
    while (!stop) {
        loop.wait();  // sleeps until the next release of the grid
        loop.value(joint.step(1.0, 1.0 / rate_hz));
        loop.end();
    }
    // However the loop ends, command a stop here.
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "controller: %s\n", error.what());
    return 1;
}
