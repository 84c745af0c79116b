// An emulated device: the driver's functions that takt-gpu calls, with the host's memory as the device's. For tests alone; its name
// says so. Streams are threads with queues, so that asynchrony, event times and overruns are real; one engine computes and
// one copies in each direction, and between blocks the engine goes to the most urgent stream, as on a GPU. Kernels are shared
// objects that nvrtc.cpp made from the same text. Faults are planted through TAKT_EMULATOR or takt_emulator_plant:
//   driver=11040        version that the driver reports (read before cuInit)
//   devices=0           no device
//   memory=BYTES        all its memory
//   hang=KERNEL:MS[:TIMES]  the next TIMES (1) runs of KERNEL (* any) hold the device for MS (0: until reset)
//   lost=N[:CODE]       the device is lost with CODE (719) at the N-th kernel from now
//   lose=KERNEL[:CODE]  the device is lost with CODE (719) when KERNEL runs
//   wrong=KERNEL        KERNEL does nothing: what it should have written stays as it was
//   slow=FACTOR         kernels take so many times as long
//   clock=FACTOR        the device's clock shows so many times the time that has passed
//   late=MS             asking after an event that is not reached takes MS
//   launch_us=N         every launch by the host takes N microseconds of its CPU
//   mps=N               the first N openings find MPS not ready (807)
//   reset=1             nothing planted any more, the device is back
// Several are joined by commas.
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <sched.h>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <pthread.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {
typedef unsigned Result;
enum : Result {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, MPS_NOT_READY = 807, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900, CAPTURE_UNMATCHED = 903, UPDATE_FAILURE = 910,
};
const int LEAST = 0, GREATEST = -5;

int64_t now_ns() {
    timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

// The most urgent first, in order of arrival among equals.
struct Engine {
    std::mutex mutex;
    std::condition_variable changed;
    std::set<std::pair<int, uint64_t>> waiting;
    uint64_t arrivals = 0;
    bool busy = false;

    void take(int priority) {
        std::unique_lock<std::mutex> lock(mutex);
        const std::pair<int, uint64_t> me{priority, arrivals++};
        waiting.insert(me);
        changed.wait(lock, [&] { return !busy && *waiting.begin() == me; });
        waiting.erase(me);
        busy = true;
    }
    void give() {
        std::lock_guard<std::mutex> lock(mutex);
        busy = false;
        changed.notify_all();
    }
    uint64_t length() {
        std::lock_guard<std::mutex> lock(mutex);
        return waiting.size();
    }
    bool more_urgent(int priority) {
        std::lock_guard<std::mutex> lock(mutex);
        return !waiting.empty() && waiting.begin()->first < priority;
    }
};

struct Planted {
    std::mutex mutex;
    int driver = 12040, devices = 1;
    uint64_t memory = 8ULL << 30;
    std::string hang;
    int64_t hang_ms = 0, hang_times = 0;
    std::string wrong, lose;
    std::atomic<double> clock{1};
    std::atomic<int64_t> late_ms{0};
    std::atomic<int64_t> lost_in{-1};
    std::atomic<unsigned> lost_code{LAUNCH_FAILED};
    std::atomic<double> slow{1};
    std::atomic<int64_t> launch_us{0}, mps{0};
    std::atomic<bool> unreached{false}; // memory of the host, by its own address
    std::atomic<uint64_t> resets{0};
};

struct Stream;
struct Event {
    std::atomic<uint64_t> recorded{0}, reached{0};
    std::atomic<int64_t> at_ns{0};
    bool timed = true;
    std::atomic<bool> seen{false}; // reached at least once, also inside a graph
};

struct Function {
    void (*run)(void **, const unsigned *, const unsigned *, unsigned long long, unsigned long long);
    std::vector<size_t> sizes;
    std::string name;
    volatile bool *trapped; // of its module: a kernel has executed a trap
};
struct Module {
    int fd;
    void *library;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

struct Node {
    std::string kind;
    std::function<void(Stream &)> work;
};
struct Graph { std::vector<Node> nodes; };

struct Stream {
    std::atomic<int> priority;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void(Stream &)>> queue;
    uint64_t submitted = 0, ended = 0;
    bool destroyed = false;
    std::shared_ptr<Graph> capture;

    void submit(std::function<void(Stream &)> work) {
        std::lock_guard<std::mutex> lock(mutex);
        queue.push_back(std::move(work));
        ++submitted;
        changed.notify_all();
    }
};

struct Device {
    Engine compute, to_device, to_host;
    std::mutex mutex; // never held while waiting for work, which looks at the allocations
    std::vector<Stream *> all_streams; // destroyed ones too: they are small, and their work may go on
    std::map<uintptr_t, size_t> allocations, host;
    uint64_t used = 0;
    std::set<Stream *> streams;
    std::atomic<unsigned> lost{0};
    std::atomic<uint64_t> launches{0}, graph_launches{0}, kernels{0}, copies{0}, copied_bytes{0}, context{0}, holding{0};
    bool initialized = false;
};

// Never destroyed: streams may be at work when the process ends.
Planted &planted = *new Planted;
Device &device = *new Device;
std::mutex &events_mutex = *new std::mutex;
std::condition_variable &events_changed = *new std::condition_variable;
thread_local bool current = false;

void plant(const std::string &text) {
    size_t at = 0;
    while (at < text.size()) {
        const size_t comma = std::min(text.find(',', at), text.size());
        const std::string item = text.substr(at, comma - at);
        at = comma + 1;
        const size_t equals = item.find('=');
        if (equals == std::string::npos) continue;
        const std::string key = item.substr(0, equals), value = item.substr(equals + 1);
        const auto part = [&](int number) {
            size_t from = 0;
            for (int i = 0; i < number; ++i) {
                const size_t colon = value.find(':', from);
                if (colon == std::string::npos) return std::string();
                from = colon + 1;
            }
            return value.substr(from, value.find(':', from) - from);
        };
        std::lock_guard<std::mutex> lock(planted.mutex);
        if (key == "driver") planted.driver = atoi(value.c_str());
        else if (key == "devices") planted.devices = atoi(value.c_str());
        else if (key == "memory") planted.memory = strtoull(value.c_str(), nullptr, 10);
        else if (key == "hang") {
            planted.hang = part(0), planted.hang_ms = atoll(part(1).c_str());
            planted.hang_times = part(2).empty() ? 1 : atoll(part(2).c_str());
        } else if (key == "lost") {
            if (!part(1).empty()) planted.lost_code = unsigned(atoi(part(1).c_str()));
            planted.lost_in = atoll(part(0).c_str());
            if (planted.lost_in == 0) device.lost = planted.lost_code.load();
        } else if (key == "lose") {
            if (!part(1).empty()) planted.lost_code = unsigned(atoi(part(1).c_str()));
            planted.lose = part(0);
        } else if (key == "wrong") planted.wrong = value;
        else if (key == "clock") planted.clock = atof(value.c_str());
        else if (key == "late") planted.late_ms = atoll(value.c_str());
        else if (key == "slow") planted.slow = atof(value.c_str());
        else if (key == "mps") planted.mps = atoll(value.c_str());
        else if (key == "unreached") planted.unreached = atoll(value.c_str()) != 0;
        else if (key == "launch_us") planted.launch_us = atoll(value.c_str());
        else if (key == "reset") {
            ++planted.resets, planted.hang_times = 0, planted.lost_in = -1, planted.lost_code = LAUNCH_FAILED, planted.slow = 1, planted.launch_us = 0;
            planted.wrong.clear(), planted.lose.clear(), planted.unreached = false, planted.clock = 1, planted.late_ms = 0;
            planted.memory = 8ULL << 30, device.lost = 0;
        } else fprintf(stderr, "emulated device: TAKT_EMULATOR knows no `%s`\n", key.c_str());
    }
}

struct FromEnvironment {
    FromEnvironment() {
        if (const char *text = getenv("TAKT_EMULATOR")) plant(text);
    }
} from_environment;

void sleep_for(int64_t ns) { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }

void host_work() {
    if (const int64_t us = planted.launch_us.load())
        for (const int64_t until = now_ns() + us * 1000; now_ns() < until;) {}
}

void main_of(Stream *stream) {
    const sched_param parameters{};
    sched_setscheduler(0, SCHED_OTHER, &parameters);
    pthread_setname_np(pthread_self(), "emu-stream");
    for (;;) {
        std::function<void(Stream &)> work;
        {
            std::unique_lock<std::mutex> lock(stream->mutex);
            stream->changed.wait(lock, [&] { return stream->destroyed || !stream->queue.empty(); });
            if (stream->queue.empty()) break;
            work = std::move(stream->queue.front());
            stream->queue.pop_front();
        }
        // A lost device does nothing more.
        if (!device.lost) work(*stream);
        std::lock_guard<std::mutex> lock(stream->mutex);
        ++stream->ended;
        stream->changed.notify_all();
    }
}

// Into the graph that is being captured, or into the queue.
Result put(Stream *stream, std::string kind, std::function<void(Stream &)> work) {
    if (!stream) return INVALID_HANDLE;
    if (stream->capture) stream->capture->nodes.push_back({std::move(kind), std::move(work)});
    else host_work(), stream->submit(std::move(work));
    return OK;
}

bool inside(const std::map<uintptr_t, size_t> &pieces, uintptr_t at, size_t bytes) {
    auto next = pieces.upper_bound(at);
    if (next == pieces.begin()) return false;
    --next;
    return at - next->first <= next->second && bytes <= next->second - (at - next->first);
}

bool on_device(uint64_t at, size_t bytes) {
    std::lock_guard<std::mutex> lock(device.mutex);
    return inside(device.allocations, at, bytes);
}

void fault(Result code) {
    unsigned none = 0;
    device.lost.compare_exchange_strong(none, code);
}

Result copy(Stream *stream, const char *kind, Engine &engine, void *to, const void *from, size_t bytes, uint64_t on, size_t on2 = 0) {
    return put(stream, kind, [=, &engine](Stream &own) {
        if (!on_device(on, bytes) || (on2 && !on_device(on2, bytes))) return fault(ILLEGAL_ADDRESS);
        engine.take(own.priority);
        memcpy(to, from, bytes);
        engine.give();
        ++device.copies, device.copied_bytes += bytes;
    });
}

void run_kernel(Stream &own, const Function &function, const std::array<unsigned, 6> &shape, void **arguments) {
    const unsigned grid[3] = {shape[0], shape[1], shape[2]}, block[3] = {shape[3], shape[4], shape[5]};
    const uint64_t blocks = uint64_t(grid[0]) * grid[1] * grid[2];
    device.compute.take(own.priority);
    int64_t hang = -1;
    uint64_t at = 0;
    const uint64_t resets = planted.resets;
    {
        std::lock_guard<std::mutex> lock(planted.mutex);
        if (planted.hang_times > 0 && (planted.hang == "*" || planted.hang == function.name))
            --planted.hang_times, hang = planted.hang_ms;
        if (planted.lose == function.name) fault(planted.lost_code);
        if (planted.wrong == function.name) at = blocks;
    }
    device.holding += hang >= 0;
    while (hang == 0 && planted.resets == resets) sleep_for(1000000);
    if (hang > 0) sleep_for(hang * 1000000);
    device.holding -= hang >= 0;
    if (planted.lost_in > 0 && --planted.lost_in == 0) fault(planted.lost_code);
    uint64_t chunk = 1;
    while (at < blocks && !device.lost) {
        const uint64_t count = std::min(chunk, blocks - at);
        const int64_t begin = now_ns();
        function.run(arguments, grid, block, at, count);
        if (function.trapped && *function.trapped) fault(LAUNCH_FAILED);
        at += count;
        int64_t took = now_ns() - begin;
        if (planted.slow > 1) sleep_for(int64_t(took * (planted.slow - 1))), took = now_ns() - begin;
        if (took < 100000) chunk *= 2;
        else if (took > 400000) chunk = std::max<uint64_t>(1, chunk / 2);
        // A block that runs is not stopped; between blocks the more urgent come first.
        if (at < blocks && device.compute.more_urgent(own.priority)) device.compute.give(), device.compute.take(own.priority);
    }
    device.compute.give();
    ++device.kernels;
}

Result check() {
    if (const unsigned lost = device.lost) return lost;
    if (!device.initialized) return NOT_INITIALIZED;
    return current ? OK : INVALID_CONTEXT;
}
#define CHECK() do { if (const Result bad = check()) return bad; } while (0)
} // namespace

extern "C" {
char takt_emulated_device;

void takt_emulator_plant(const char *text) { plant(text); }

uint64_t takt_emulator_count(const char *name) {
    std::lock_guard<std::mutex> lock(device.mutex);
    const std::string key = name;
    return key == "launches"       ? device.launches.load()
           : key == "graph_launches" ? device.graph_launches.load()
           : key == "kernels"        ? device.kernels.load()
           : key == "copies"         ? device.copies.load()
           : key == "copied_bytes"   ? device.copied_bytes.load()
           : key == "used_bytes"     ? device.used
           : key == "allocations"    ? device.allocations.size()
           : key == "host_memory"    ? device.host.size()
           : key == "streams"        ? device.streams.size()
           : key == "waiting"        ? device.compute.length()
           : key == "holding"        ? device.holding.load()
           : key == "contexts"       ? device.context.load()
                                     : ~0ULL;
}

Result cuDriverGetVersion(int *version) { return *version = planted.driver, OK; }
// What MPS does for a program: a share of the device, and of its memory. Whoever watches is shown what the driver saw.
void join_mps() {
    const auto variable = [](const char *name) { const char *value = getenv(name); return std::string(value ? value : ""); };
    const std::string pipe = variable("CUDA_MPS_PIPE_DIRECTORY"), share = variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    const std::string limit = variable("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), clients = variable("TAKT_EMULATOR_CLIENTS");
    struct stat found;
    const bool member = !pipe.empty() && stat((pipe + "/control").c_str(), &found) == 0 && S_ISFIFO(found.st_mode);
    if (member) {
        std::lock_guard<std::mutex> lock(planted.mutex);
        const double per_cent = atof(share.c_str());
        if (per_cent > 0 && per_cent < 100) planted.slow = planted.slow * 100 / per_cent;
        const size_t equals = limit.find('=');
        if (equals != std::string::npos) planted.memory = std::min<uint64_t>(planted.memory, strtoull(limit.c_str() + equals + 1, nullptr, 10) << 20);
    }
    if (clients.empty()) return;
    const int fd = open(clients.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return;
    dprintf(fd, "%d %s pipe=%s share=%s memory=%s\n", int(getpid()), member ? "mps" : "alone", pipe.c_str(), share.c_str(), limit.c_str());
    close(fd);
}
Result cuInit(unsigned) {
    if (planted.devices <= 0) return NO_DEVICE;
    if (planted.mps > 0) return --planted.mps, MPS_NOT_READY;
    if (!device.initialized) join_mps();
    device.initialized = true;
    return OK;
}
Result cuDeviceGetCount(int *count) { return *count = planted.devices, OK; }
Result cuDeviceGet(int *number, int ordinal) { return *number = ordinal, ordinal < planted.devices ? OK : INVALID_DEVICE; }
Result cuDeviceGetName(char *name, int size, int) { return snprintf(name, size, "emulated device, no GPU"), OK; }
Result cuDeviceGetUuid_v2(unsigned char *uuid, int) { return memcpy(uuid, "takt emulated \0\0", 16), OK; }
Result cuDeviceGetAttribute(int *value, int which, int) {
    // One multiprocessor, which reaches all memory of the host by its own address.
    return *value = which == 16 || (which == 91 && !planted.unreached) ? 1 : 0, OK;
}
Result cuDevicePrimaryCtxRetain(void **context, int) {
    if (planted.mps > 0) return --planted.mps, MPS_NOT_READY;
    ++device.context;
    return *context = &device, device.lost ? device.lost.load() : OK;
}
Result cuDevicePrimaryCtxRelease_v2(int) { return --device.context, OK; }
Result cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return OK; }
Result cuCtxSetCurrent(void *context) { return current = context == &device, device.lost ? device.lost.load() : OK; }
Result cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    CHECK();
    return *least = LEAST, *greatest = GREATEST, OK;
}

Result cuMemGetInfo_v2(size_t *free, size_t *total) {
    CHECK();
    std::lock_guard<std::mutex> lock(device.mutex);
    *total = planted.memory;
    *free = planted.memory > device.used ? planted.memory - device.used : 0;
    return OK;
}
Result cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    CHECK();
    std::lock_guard<std::mutex> lock(device.mutex);
    if (bytes == 0) return INVALID_VALUE;
    if (device.used + bytes > planted.memory) return OUT_OF_MEMORY;
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!memory) return OUT_OF_MEMORY;
    // What a fresh piece holds is not zero.
    memset(memory, 0xA5, bytes);
    device.used += bytes;
    device.allocations[uintptr_t(memory)] = bytes;
    return *address = uintptr_t(memory), OK;
}
Result cuMemFree_v2(uint64_t address) {
    CHECK();
    // As a real device: it waits for what was submitted before.
    std::vector<Stream *> streams;
    {
        std::lock_guard<std::mutex> lock(device.mutex);
        streams = device.all_streams;
    }
    for (Stream *stream : streams) {
        std::unique_lock<std::mutex> queue(stream->mutex);
        const uint64_t until = stream->submitted;
        stream->changed.wait(queue, [&] { return stream->ended >= until; });
    }
    {
        std::lock_guard<std::mutex> lock(device.mutex);
        auto piece = device.allocations.find(address);
        if (piece == device.allocations.end()) return INVALID_VALUE;
        device.used -= piece->second;
        device.allocations.erase(piece);
    }
    free(reinterpret_cast<void *>(address));
    return OK;
}
Result cuMemHostAlloc(void **address, size_t bytes, unsigned) {
    CHECK();
    if (!(*address = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096))) return OUT_OF_MEMORY;
    std::lock_guard<std::mutex> lock(device.mutex);
    device.host[uintptr_t(*address)] = bytes;
    return OK;
}
Result cuMemFreeHost(void *address) {
    CHECK();
    std::lock_guard<std::mutex> lock(device.mutex);
    if (!device.host.erase(uintptr_t(address))) return INVALID_VALUE;
    free(address);
    return OK;
}
Result cuMemHostRegister_v2(void *address, size_t bytes, unsigned) {
    CHECK();
    std::lock_guard<std::mutex> lock(device.mutex);
    if (device.host.count(uintptr_t(address))) return 712;
    device.host[uintptr_t(address)] = bytes;
    return OK;
}
Result cuMemHostUnregister(void *address) {
    CHECK();
    std::lock_guard<std::mutex> lock(device.mutex);
    return device.host.erase(uintptr_t(address)) ? Result(OK) : 713;
}

Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, Stream *stream) {
    CHECK();
    return copy(stream, "to-device", device.to_device, reinterpret_cast<void *>(to), from, bytes, to);
}
Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *stream) {
    CHECK();
    return copy(stream, "to-host", device.to_host, to, reinterpret_cast<void *>(from), bytes, from);
}
Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream *stream) {
    CHECK();
    return copy(stream, "on-device", device.compute, reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes, to, from);
}
Result cuMemsetD8Async(uint64_t to, unsigned char byte, size_t bytes, Stream *stream) {
    CHECK();
    return put(stream, "fill", [=](Stream &own) {
        if (!on_device(to, bytes)) return fault(ILLEGAL_ADDRESS);
        device.compute.take(own.priority);
        memset(reinterpret_cast<void *>(to), byte, bytes);
        device.compute.give();
    });
}
Result cuMemsetD32Async(uint64_t to, unsigned word, size_t words, Stream *stream) {
    CHECK();
    return put(stream, "fill", [=](Stream &own) {
        if (!on_device(to, words * 4)) return fault(ILLEGAL_ADDRESS);
        device.compute.take(own.priority);
        for (size_t i = 0; i < words; ++i) reinterpret_cast<unsigned *>(to)[i] = word;
        device.compute.give();
    });
}

Result cuStreamCreateWithPriority(Stream **stream, unsigned, int priority) {
    CHECK();
    *stream = new Stream;
    (*stream)->priority = std::max(GREATEST, std::min(LEAST, priority));
    std::lock_guard<std::mutex> lock(device.mutex);
    device.streams.insert(*stream);
    device.all_streams.push_back(*stream);
    std::thread(main_of, *stream).detach();
    return OK;
}
Result cuStreamDestroy_v2(Stream *stream) {
    {
        std::lock_guard<std::mutex> lock(device.mutex);
        if (!device.streams.erase(stream)) return INVALID_HANDLE;
    }
    std::lock_guard<std::mutex> lock(stream->mutex);
    stream->destroyed = true;
    stream->changed.notify_all();
    return OK;
}
Result cuStreamQuery(Stream *stream) {
    CHECK();
    if (stream->capture) return CAPTURE_UNSUPPORTED;
    std::lock_guard<std::mutex> lock(stream->mutex);
    return stream->ended == stream->submitted ? OK : NOT_READY;
}
Result cuStreamSetAttribute(Stream *stream, unsigned which, const int *value) {
    CHECK();
    if (which != 8 || !value) return INVALID_VALUE;
    // As a real driver: a number out of range is the nearest that there is.
    stream->priority = std::max(GREATEST, std::min(LEAST, *value));
    return OK;
}
Result cuStreamGetPriority(Stream *stream, int *priority) {
    CHECK();
    return *priority = stream->priority, OK;
}
Result cuStreamWaitEvent(Stream *stream, Event *event, unsigned) {
    CHECK();
    if (stream->capture) return CAPTURE_UNSUPPORTED;
    const uint64_t number = event->recorded;
    return put(stream, "wait", [=](Stream &) {
        std::unique_lock<std::mutex> lock(events_mutex);
        while (event->reached < number && !device.lost) events_changed.wait_for(lock, std::chrono::milliseconds(50));
    });
}

Result cuEventCreate(Event **event, unsigned flags) {
    CHECK();
    *event = new Event;
    (*event)->timed = !(flags & 2);
    return OK;
}
// Kept: queued work may still record it.
Result cuEventDestroy_v2(Event *) { return OK; }
Result cuEventRecordWithFlags(Event *event, Stream *stream, unsigned flags) {
    CHECK();
    const bool external = stream->capture && flags == 1;
    if (stream->capture && !external) return CAPTURE_UNSUPPORTED;
    const uint64_t number = external ? 0 : ++event->recorded;
    return put(stream, "event", [=](Stream &) {
        event->at_ns = now_ns();
        event->seen = true;
        std::lock_guard<std::mutex> lock(events_mutex);
        if (event->reached < number) event->reached = number;
        events_changed.notify_all();
    });
}
Result cuEventQuery(Event *event) {
    CHECK();
    if (event->reached >= event->recorded) return OK;
    if (const int64_t ms = planted.late_ms) sleep_for(ms * 1000000);
    return NOT_READY;
}
Result cuEventElapsedTime(float *ms, Event *from, Event *to) {
    CHECK();
    if (!from->timed || !to->timed || !from->seen || !to->seen) return INVALID_HANDLE;
    if (from->reached < from->recorded || to->reached < to->recorded) return NOT_READY;
    return *ms = float((to->at_ns - from->at_ns) / 1e6 * planted.clock), OK;
}

Result cuModuleLoadData(Module **module, const void *image) {
    CHECK();
    const Elf64_Ehdr *head = static_cast<const Elf64_Ehdr *>(image);
    if (memcmp(head->e_ident, ELFMAG, SELFMAG) || head->e_machine != EM_X86_64) return INVALID_IMAGE;
    const size_t size = head->e_shoff + size_t(head->e_shnum) * head->e_shentsize;
    const int fd = memfd_create("takt-emulated-module", MFD_CLOEXEC);
    if (fd < 0 || write(fd, image, size) != ssize_t(size)) return close(fd), OUT_OF_MEMORY;
    // The descriptor stays open as long as the module: its number is the name that the loader knows it by.
    void *library = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return fprintf(stderr, "emulated device: %s\n", dlerror()), close(fd), INVALID_IMAGE;
    *module = new Module{fd, library, {}};
    return OK;
}
Result cuModuleUnload(Module *module) {
    CHECK();
    // A real driver waits for what runs. Here what runs keeps its code: a test that plants a hang goes on.
    std::vector<Stream *> streams;
    {
        std::lock_guard<std::mutex> lock(device.mutex);
        streams = device.all_streams;
    }
    for (Stream *stream : streams) {
        std::lock_guard<std::mutex> queue(stream->mutex);
        if (stream->ended != stream->submitted) return OK;
    }
    dlclose(module->library);
    close(module->fd);
    delete module;
    return OK;
}
Result cuModuleGetFunction(Function **function, Module *module, const char *name) {
    CHECK();
    std::unique_ptr<Function> &known = module->functions[name];
    if (!known) {
        const std::string text = name;
        auto run = reinterpret_cast<decltype(Function::run)>(dlsym(module->library, ("takt_run_" + text).c_str()));
        auto sizes = reinterpret_cast<int (*)(size_t *, int)>(dlsym(module->library, ("takt_sizes_" + text).c_str()));
        if (!run || !sizes) return module->functions.erase(name), NOT_FOUND;
        std::vector<size_t> all(64);
        all.resize(size_t(sizes(all.data(), 64)));
        known.reset(new Function{run, all, text, static_cast<volatile bool *>(dlsym(module->library, "takt_trapped"))});
    }
    return *function = known.get(), OK;
}
Result cuLaunchKernel(Function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                      Stream *stream, void **arguments, void **) {
    CHECK();
    const uint64_t threads = uint64_t(bx) * by * bz;
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || threads == 0 || threads > 1024 || bz > 64 || shared > 48 << 10) return INVALID_VALUE;
    // The arguments are copied now, as a driver does.
    auto values = std::make_shared<std::vector<std::vector<uint64_t>>>();
    for (size_t i = 0; i < function->sizes.size(); ++i) {
        if (!arguments[i]) return INVALID_VALUE;
        values->emplace_back((function->sizes[i] + 7) / 8);
        memcpy(values->back().data(), arguments[i], function->sizes[i]);
    }
    ++device.launches;
    const std::array<unsigned, 6> shape{gx, gy, gz, bx, by, bz};
    return put(stream, "kernel " + function->name, [=](Stream &own) {
        std::vector<void *> pointers;
        for (auto &value : *values) pointers.push_back(value.data());
        run_kernel(own, *function, shape, pointers.data());
    });
}

Result cuStreamBeginCapture_v2(Stream *stream, unsigned) {
    CHECK();
    if (stream->capture) return CAPTURE_UNMATCHED;
    stream->capture = std::make_shared<Graph>();
    return OK;
}
Result cuStreamEndCapture(Stream *stream, Graph **graph) {
    if (!stream->capture) return CAPTURE_UNMATCHED;
    *graph = new Graph(*stream->capture);
    stream->capture.reset();
    return device.lost ? device.lost.load() : OK;
}
Result cuGraphInstantiateWithFlags(Graph **exec, Graph *graph, unsigned long long) {
    CHECK();
    return *exec = new Graph(*graph), OK;
}
Result cuGraphExecUpdate_v2(Graph *exec, Graph *graph, void *) {
    CHECK();
    if (exec->nodes.size() != graph->nodes.size()) return UPDATE_FAILURE;
    for (size_t i = 0; i < exec->nodes.size(); ++i)
        if (exec->nodes[i].kind != graph->nodes[i].kind) return UPDATE_FAILURE;
    return *exec = *graph, OK;
}
Result cuGraphUpload(Graph *, Stream *) { return check(); }
Result cuGraphLaunch(Graph *exec, Stream *stream) {
    CHECK();
    ++device.graph_launches;
    // What the graph is at this moment: it may be updated or destroyed while it waits.
    auto nodes = std::make_shared<std::vector<Node>>(exec->nodes);
    return put(stream, "graph", [=](Stream &own) {
        for (Node &node : *nodes)
            if (!device.lost) node.work(own);
    });
}
Result cuGraphExecDestroy(Graph *exec) { return delete exec, OK; }
Result cuGraphDestroy(Graph *graph) { return delete graph, OK; }

Result cuGetErrorString(Result code, const char **text) {
    switch (code) {
    case INVALID_VALUE: *text = "invalid argument"; return OK;
    case OUT_OF_MEMORY: *text = "out of memory"; return OK;
    case NOT_INITIALIZED: *text = "initialization error"; return OK;
    case NO_DEVICE: *text = "no CUDA-capable device is detected"; return OK;
    case INVALID_IMAGE: *text = "device kernel image is invalid"; return OK;
    case INVALID_CONTEXT: *text = "invalid device context"; return OK;
    case INVALID_HANDLE: *text = "invalid resource handle"; return OK;
    case NOT_FOUND: *text = "named symbol not found"; return OK;
    case CAPTURE_UNSUPPORTED: *text = "operation not permitted when stream is capturing"; return OK;
    default: *text = nullptr; return INVALID_VALUE;
    }
}
}
