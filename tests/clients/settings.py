"""Every setting of this machine that a search for settings might change, one a line, to be compared with what was before: read
without any of Takt's code.

    settings.py >before; ...; settings.py >after; settings.py --differ before after

`--differ` prints what is not as it was, and ends with status 1 where anything is. What was not there both times is left out.
"""

import glob
import os
import sys

# Numbers that change by themselves.
VOLATILE = ("ns_last_pid", "/random/", "tainted", "pty/nr", "nr_", "stat_refresh", "drop_caches", "compact_memory")

FILES = [
    "/proc/sys/kernel/*", "/proc/sys/vm/*", "/proc/sys/net/core/*",
    "/proc/irq/*/smp_affinity_list", "/proc/irq/default_smp_affinity",
    "/sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_*", "/sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
    "/sys/devices/virtual/workqueue/cpumask", "/sys/devices/virtual/workqueue/*/cpumask", "/sys/module/workqueue/parameters/*",
    "/sys/kernel/mm/transparent_hugepage/*", "/sys/kernel/mm/ksm/run", "/sys/kernel/rcu_expedited", "/sys/kernel/rcu_normal",
    "/sys/kernel/debug/sched/preempt", "/sys/kernel/debug/sched/features", "/sys/kernel/debug/sched/fair_server/cpu*/*",
    "/sys/class/net/*/queues/*/?ps_cpus", "/sys/class/net/*/napi_defer_hard_irqs", "/sys/class/net/*/gro_flush_timeout",
    "/sys/class/net/*/threaded",
]


def text(path):
    try:
        with open(path, "rb") as file:
            return file.read(4096).decode("utf-8", "replace").strip().replace("\n", " | ")
    except OSError:
        return None


def threads():
    for path in glob.glob("/proc/[0-9]*/task/[0-9]*"):
        tid = int(path.rsplit("/", 1)[1])
        try:
            with open(path + "/stat", "rb") as file:
                fields = file.read().rsplit(b")", 1)[1].split()
            started, nice, priority, policy = (int(fields[number - 3]) for number in (22, 19, 40, 41))
            cpus = ",".join(str(cpu) for cpu in sorted(os.sched_getaffinity(tid)))
            slack = text(f"/proc/{tid}/timerslack_ns")
            # Of the kernel, or the loop of the test.
            is_own = os.getpgid(tid) == 0 or text(path + "/comm") == "tuned-loop"
        except (OSError, IndexError, ValueError):
            continue
        # What other programs give their own threads meanwhile is theirs; a search moves those, and sets no policy.
        given = f"policy {policy} priority {priority} nice {nice} slack {slack} " if is_own else ""
        yield f"thread {tid} of tick {started}", f"{given}cpus {cpus}"


def all_settings():
    for pattern in FILES:
        for path in glob.glob(pattern):
            if os.path.isfile(path) and not any(word in path for word in VOLATILE):
                yield path, text(path)
    yield from threads()


def differ(before, after):
    lines = [dict(line.rstrip("\n").split("\t", 1) for line in open(path, encoding="utf-8")) for path in (before, after)]
    count = 0
    for key, was in lines[0].items():
        # A thread that ended, an interface that was taken away.
        now = lines[1].get(key, was)
        if now != was:
            count += 1
            print(f"{key}: was {was}, is {now}")
    print(f"{len(lines[0])} settings compared, {count} differ")
    return 1 if count else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--differ"]:
        sys.exit(differ(*sys.argv[2:4]))
    for key, value in sorted(all_settings()):
        print(f"{key}\t{value}")
