// SPDX-License-Identifier: Apache-2.0
//
// takt.hpp: the library of your own loop for C++17. Header-only, over takt.h.
//
//     #include <takt.hpp>
//     using namespace std::chrono_literals;
//
//     takt::loop control("control", 2ms);                  // 500 Hz, deadline = period
//     while (running) {
//         control.wait();                                  // sleeps until the release, begins the job
//         control.stage("sense"); read_sensors();
//         control.stage("act");   write_motors();
//         control.value(error);
//         control.end();                                   // the next wait would end it, too
//     }
//
// Constructors throw takt::error. Without exceptions (TAKT_NO_EXCEPTIONS, which is set by itself under -fno-exceptions) use
// loop::open and exchange::create, which return an empty object and set a std::error_code; a mutex says whether it is one.
// Functions of a running loop never throw: they return what takt.h says, negative for an error.
#ifndef TAKT_HPP
#define TAKT_HPP

#include "takt.h"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#if !defined(TAKT_NO_EXCEPTIONS) && !defined(__cpp_exceptions)
#define TAKT_NO_EXCEPTIONS 1
#endif

namespace takt {

/// What takt_strerror says, as a category of std::error_code.
class error_category final : public std::error_category {
public:
    const char *name() const noexcept override { return "takt"; }
    std::string message(int code) const override { return takt_strerror(code); }
};

inline const std::error_category &category() noexcept {
    static const error_category one;
    return one;
}

/// An error of takt.h, negative or positive; 0 is none.
inline std::error_code code(int error) noexcept { return {error < 0 ? -error : error, category()}; }

#ifndef TAKT_NO_EXCEPTIONS
/// What constructors throw.
class error : public std::system_error {
public:
    error(int number, const std::string &what) : std::system_error(takt::code(number), what) {}
};
#endif

/// CLOCK_MONOTONIC, which std::chrono::steady_clock is on Linux.
using clock = std::chrono::steady_clock;

namespace detail {
template <class Rep, class Period>
constexpr std::uint64_t ns(std::chrono::duration<Rep, Period> time) noexcept {
    const auto count = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    return count > 0 ? static_cast<std::uint64_t>(count) : 0;
}

inline clock::time_point at(std::uint64_t ns) noexcept {
    return clock::time_point(std::chrono::duration_cast<clock::duration>(std::chrono::nanoseconds(static_cast<std::int64_t>(ns))));
}

inline void set(std::error_code &to, int error) noexcept { to = error == 0 ? std::error_code() : takt::code(error); }
} // namespace detail

/// Says that a loop is released by an input, not by time.
struct driven_t {};
inline constexpr driven_t driven{};

/// A loop. It may be moved, and is used by one thread at a time.
class loop {
public:
    /// None.
    loop() noexcept = default;

#ifndef TAKT_NO_EXCEPTIONS
    /// Declares a loop that is released by time. A deadline of zero is the period.
    explicit loop(const char *name, std::chrono::nanoseconds period, std::chrono::nanoseconds deadline = {}) {
        int failed = 0;
        raw_.reset(takt_loop_open(name, detail::ns(period), detail::ns(deadline), &failed));
        check(name, failed);
    }

    /// Declares a loop that an input releases. A deadline of zero says that there is none.
    loop(driven_t, const char *name, std::chrono::nanoseconds deadline = {}) {
        int failed = 0;
        raw_.reset(takt_loop_open_driven(name, detail::ns(deadline), &failed));
        check(name, failed);
    }
#endif

    /// The same without exceptions: an empty loop and a set `failed` when it cannot be declared.
    static loop open(const char *name, std::chrono::nanoseconds period, std::chrono::nanoseconds deadline,
                     std::error_code &failed) noexcept {
        int number = 0;
        loop made(takt_loop_open(name, detail::ns(period), detail::ns(deadline), &number));
        detail::set(failed, number);
        return made;
    }

    static loop open(driven_t, const char *name, std::chrono::nanoseconds deadline, std::error_code &failed) noexcept {
        int number = 0;
        loop made(takt_loop_open_driven(name, detail::ns(deadline), &number));
        detail::set(failed, number);
        return made;
    }

    /// Whether there is a loop.
    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Sleeps until the next release and begins its job; returns how many releases were passed over, or an error.
    std::int64_t wait() noexcept { return takt_loop_wait(raw_.get()); }

    /// The first half of wait, for those who sleep in their own way: sets `release`, and returns how many were passed over.
    std::int64_t next(clock::time_point &release) noexcept {
        std::uint64_t ns = 0;
        const auto skipped = takt_loop_next(raw_.get(), &ns);
        release = detail::at(ns);
        return skipped;
    }

    /// The second half of wait.
    int begin() noexcept { return takt_loop_begin(raw_.get()); }

    /// Of a driven loop: begins a job that was released now.
    int release() noexcept { return takt_loop_release(raw_.get(), 0); }

    /// Of a driven loop: begins a job that was released at that time.
    int release(clock::time_point at) noexcept { return takt_loop_release(raw_.get(), detail::ns(at.time_since_epoch())); }

    /// Sequence number of the input that this job consumes.
    int input(std::uint64_t sequence) noexcept { return takt_loop_input(raw_.get(), sequence); }

    /// A named stage of the job begins.
    int stage(const char *name) noexcept { return takt_loop_stage(raw_.get(), name); }

    /// A value of interest of this job.
    int value(double value) noexcept { return takt_loop_value(raw_.get(), value); }

    /// The job is done.
    int end() noexcept { return takt_loop_end(raw_.get()); }

    /// How long before its release the loop stops sleeping and spins.
    int spin_margin(std::chrono::nanoseconds margin) noexcept { return takt_loop_spin_margin(raw_.get(), detail::ns(margin)); }

    /// When the job under way was released, and when it began; the epoch where there is none.
    clock::time_point released() const noexcept { return detail::at(takt_loop_release_ns(raw_.get())); }
    clock::time_point begun() const noexcept { return detail::at(takt_loop_begin_ns(raw_.get())); }

    /// Releases passed over so far.
    std::uint64_t skipped() const noexcept { return takt_loop_skipped(raw_.get()); }

    /// Whether a session of Takt takes the records.
    bool attached() const noexcept { return takt_loop_attached(raw_.get()) == 1; }

    /// The handle of takt.h.
    takt_loop *get() const noexcept { return raw_.get(); }

private:
    struct close {
        void operator()(takt_loop *raw) const noexcept { takt_loop_close(raw); }
    };

    explicit loop(takt_loop *raw) noexcept : raw_(raw) {}

#ifndef TAKT_NO_EXCEPTIONS
    void check(const char *name, int failed) const {
        if (!raw_) {
            throw error(failed, std::string("takt loop ") + (name != nullptr ? name : "(null)"));
        }
    }
#endif

    std::unique_ptr<takt_loop, close> raw_;
};

/// A job of a driven loop from here to the end of the scope.
class job {
public:
    explicit job(loop &of) noexcept : of_(of) { of_.release(); }
    job(loop &of, clock::time_point released) noexcept : of_(of) { of_.release(released); }
    ~job() { of_.end(); }
    job(const job &) = delete;
    job &operator=(const job &) = delete;

private:
    loop &of_;
};

/// What is asked for the calling thread; what is left alone stays as it is. Begin with `takt::thread_settings()`.
class thread_settings {
public:
    thread_settings &other(int nice = 0) noexcept { return set(TAKT_POLICY_OTHER, nice); }
    thread_settings &fifo(int priority) noexcept { return set(TAKT_POLICY_FIFO, priority); }
    thread_settings &round_robin(int priority) noexcept { return set(TAKT_POLICY_RR, priority); }
    thread_settings &deadline(std::chrono::nanoseconds runtime, std::chrono::nanoseconds deadline,
                              std::chrono::nanoseconds period) noexcept {
        raw_.runtime_ns = detail::ns(runtime);
        raw_.deadline_ns = detail::ns(deadline);
        raw_.period_ns = detail::ns(period);
        return set(TAKT_POLICY_DEADLINE, 0);
    }
    /// "1", "2-3,5".
    thread_settings &cpus(std::string list) {
        cpus_ = std::move(list);
        return *this;
    }
    thread_settings &lock_memory(takt_memory what = TAKT_MEMORY_ALL) noexcept {
        raw_.lock_memory = what;
        return *this;
    }
    thread_settings &prefault_stack(std::uint64_t bytes) noexcept {
        raw_.prefault_stack_bytes = bytes;
        return *this;
    }
    thread_settings &prefault_heap(std::uint64_t bytes) noexcept {
        raw_.prefault_heap_bytes = bytes;
        return *this;
    }

    /// Gives them to the calling thread, and reads back what it has. Returns the number of differences, or an error.
    int apply(takt_thread_granted &granted) const noexcept {
        takt_thread_settings asked = raw_;
        asked.cpus = cpus_.empty() ? nullptr : cpus_.c_str();
        granted.size = sizeof granted;
        return takt_thread_apply(&asked, &granted);
    }

#ifndef TAKT_NO_EXCEPTIONS
    /// The same; throws for what cannot be meant.
    takt_thread_granted apply() const {
        takt_thread_granted granted = TAKT_THREAD_GRANTED;
        const int differences = apply(granted);
        if (differences < 0) {
            throw error(differences, "takt thread settings");
        }
        return granted;
    }
#endif

private:
    thread_settings &set(takt_policy policy, int priority) noexcept {
        raw_.policy = policy;
        raw_.priority = priority;
        return *this;
    }

    takt_thread_settings raw_ = TAKT_THREAD_SETTINGS;
    std::string cpus_;
};

/// The newest value, from one writing thread to one reading thread, wait-free.
template <class T>
class exchange {
    static_assert(std::is_trivially_copyable<T>::value, "values are copied byte by byte");
    static_assert(alignof(T) <= 16, "buffers are aligned to 16 bytes");

public:
    exchange() noexcept = default;

    static exchange create(std::error_code &failed) noexcept {
        exchange made;
        int number = 0;
        made.raw_.reset(takt_exchange_create(sizeof(T), &number));
        detail::set(failed, number);
        return made;
    }

#ifndef TAKT_NO_EXCEPTIONS
    static exchange create() {
        std::error_code failed;
        exchange made = create(failed);
        if (failed) {
            throw error(failed.value(), "takt exchange");
        }
        return made;
    }
#endif

    explicit operator bool() const noexcept { return raw_ != nullptr; }

    /// Of the writing thread.
    void write(const T &value) noexcept { takt_exchange_write(raw_.get(), &value); }

    /// Of the reading thread: sets `value` to the newest one, and returns its number, 0 before the first.
    std::uint64_t read(T &value) noexcept {
        std::uint64_t sequence = 0;
        const void *newest = takt_exchange_read(raw_.get(), &sequence);
        if (newest != nullptr) {
            std::memcpy(&value, newest, sizeof value);
        }
        return sequence;
    }

private:
    struct destroy {
        void operator()(takt_exchange *raw) const noexcept { takt_exchange_destroy(raw); }
    };
    std::unique_ptr<takt_exchange, destroy> raw_;
};

/// A lock with priority inheritance, for std::lock_guard and std::unique_lock.
class mutex {
public:
#ifndef TAKT_NO_EXCEPTIONS
    mutex() {
        int failed = 0;
        raw_.reset(takt_mutex_create(&failed));
        if (!raw_) {
            throw error(failed, "takt mutex");
        }
    }

    /// Throws where this thread holds it already.
    void lock() {
        const int failed = takt_mutex_lock(raw_.get());
        if (failed < 0) {
            throw error(failed, "takt mutex");
        }
    }
#else
    mutex() noexcept : raw_(takt_mutex_create(nullptr)) {}

    void lock() noexcept { takt_mutex_lock(raw_.get()); }
#endif
    explicit operator bool() const noexcept { return raw_ != nullptr; }
    bool try_lock() noexcept { return takt_mutex_try_lock(raw_.get()) == 0; }
    void unlock() noexcept { takt_mutex_unlock(raw_.get()); }

private:
    struct destroy {
        void operator()(takt_mutex *raw) const noexcept { takt_mutex_destroy(raw); }
    };
    std::unique_ptr<takt_mutex, destroy> raw_;
};

} // namespace takt

#endif // TAKT_HPP
