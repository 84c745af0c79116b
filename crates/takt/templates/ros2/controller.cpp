// A node with a control loop that Takt measures and judges: `takt run program.toml`. The loop has a thread of its own; the executor serves
// topics in another one.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>

#include <pthread.h>

#include <rclcpp/rclcpp.hpp>
#include <std_msgs/msg/float64.hpp>

#ifdef HAVE_TAKT
#include <takt.hpp>
#else
#include "without_takt.hpp"
#endif

namespace {

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

class Controller : public rclcpp::Node {
public:
    Controller() : Node("controller"), rate_hz_(static_cast<double>(declare_parameter("rate", std::int64_t{500}))) {
        if (!(rate_hz_ >= 1.0 && rate_hz_ <= 20000.0)) throw std::invalid_argument("rate: from 1 to 20000 Hz");
        using std_msgs::msg::Float64;
        subscription_ = create_subscription<Float64>(
            "target", 1, [this](const Float64& message) { target_.store(message.data, std::memory_order_relaxed); });
        publisher_ = create_publisher<Float64>("position", 1);
        timer_ = create_wall_timer(std::chrono::milliseconds(20), [this] {
            Float64 message;
            message.data = position_.load(std::memory_order_relaxed);
            publisher_->publish(message);
        });
        thread_ = std::thread([this] { run(); });
    }

    ~Controller() override { thread_.join(); }

private:
    void run() {
        pthread_setname_np(pthread_self(), "control");
        // Without a third argument the deadline is the period.
        takt::loop loop("control", std::chrono::nanoseconds(static_cast<long>(1e9 / rate_hz_)));
        RCLCPP_INFO(get_logger(), "ready");
        Joint joint;
        while (rclcpp::ok()) {
            loop.wait();  // sleeps until the next release of the grid
            loop.value(joint.step(target_.load(std::memory_order_relaxed), 1.0 / rate_hz_));
            position_.store(joint.position, std::memory_order_relaxed);
            loop.end();
        }
        // However the loop ends, command a stop here.
    }

    double rate_hz_;
    std::atomic<double> target_{1.0};
    std::atomic<double> position_{0.0};
    rclcpp::Subscription<std_msgs::msg::Float64>::SharedPtr subscription_;
    rclcpp::Publisher<std_msgs::msg::Float64>::SharedPtr publisher_;
    rclcpp::TimerBase::SharedPtr timer_;
    std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
    rclcpp::init(argc, argv);
    rclcpp::spin(std::make_shared<Controller>());
    rclcpp::shutdown();
    return 0;
}
