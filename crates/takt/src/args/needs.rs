//! What commands need and how long they take: the last lines of their `--help`.

#![allow(dead_code, reason = "commands of robots that are not built in have none")]

/// `takt trace`
pub const TRACE: &str = "\
Needs root, or the capabilities cap_perfmon and cap_dac_read_search; without them the run is made untraced, and the exit status is 2.";

/// `takt watch`
pub const WATCH: &str = "\
Needs root, or the capabilities cap_perfmon and cap_dac_read_search; without them rates and waits are reported and no causes, with what is \
missing, and the exit status is 2 (--dry-run says so beforehand). A command is ended as Ctrl-C would when the time is over. What it prints is \
shown: with --json on standard error, with --screen when that has ended. Exit status: 0 it was watched, 1 with --check there is no PASS or the \
command failed by itself, 2 it could not be.";

/// `takt tune`
pub const TUNE: &str = "\
Needs root: it measures by the kernel's events and changes settings. Takes about 10 minutes (--seconds). While it searches, the loop runs under \
settings that may be worse than those as found: tune a robot that stands in a safe state. Everything is taken back at the end, after Ctrl-C and \
after a kill. A command is ended as Ctrl-C would when the search is over, and its output is dropped.";

/// `takt run --flight-recorder`
pub const RUN: &str = "\
Real-time policies, locked memory and --flight-recorder need root, or cap_sys_nice, cap_ipc_lock, cap_perfmon and \
cap_dac_read_search; without them the run is made and says what was not granted (--strict refuses).";

/// `takt doctor`
pub const DOCTOR: &str = "\
Needs no root to look (it sees less then, and says what); --apply and --revert need it.";

/// `takt manage`
pub const MANAGE: &str = "\
Reservations (without --observe or --learn) need root, or cap_sys_nice; --pid and --learn of running processes need root. \
Exit status: 0 it was managed to its end, 1 with --check there is no PASS, 2 it could not be, or the command failed by itself.";

/// `takt segment`
pub const SEGMENT: &str = "\
Needs root, or cap_net_raw; without --interface cap_net_admin, too, for the veth pair.";

/// `takt ethercat capture`
pub const CAPTURE: &str = "\
Needs root, or cap_net_raw.";

/// `takt campaign run`
pub const CAMPAIGN: &str = "\
Takes from minutes to hours, and the shipped daq-long months: --dry-run says how long. What is stopped goes on with `takt campaign resume`. \
--virtual needs QEMU. Factors that change policies, CPUs or tunings need root. --on slurm needs Slurm's commands and a --runs folder \
that all nodes see; there, a factor kernel or label.NAME asks for nodes with the feature of its value's name, and boot.NAME for NAME=VALUE.";

/// `takt gate`
pub const GATE: &str = "\
The unit is the run, and many short runs report more than few long ones: 20 before and 10 new ones of some seconds each are a beginning on a \
quiet machine, a busy one takes hundreds. What is printed says which rise so many runs find in 19 of 20, and how many would find --find. Runs \
that were made in turn with the old ones, on the same machine, report more than runs of another day. Exit status: 0 better or same, 1 worse, 2 could not, 3 judged, but what was printed is lost, 4 cannot tell.";

/// `takt kernels run`
pub const KERNELS: &str = "\
Needs QEMU (qemu-system) and no root. Emulated guests take many times as long as their own clock shows.";

/// `takt kernels fetch`, `list`
pub const FETCH: &str = "\
Needs apt (a Debian or Ubuntu) and no root: nothing is installed.";

/// `takt bench cell`
pub const BENCH_CELL: &str = "\
Takes half an hour and more with the defaults: 4 policies x 5 numbers of noise threads x 3 runs of 30 s. What is stopped goes on with \
--resume. All policies but CFS+CFS need root, or cap_sys_nice and cap_ipc_lock.";

/// `takt bench uav`
pub const BENCH_UAV: &str = "\
Takes about 11 minutes with the defaults: 16 settings, 10000 releases of 4 ms each. Needs root, or cap_sys_nice and cap_ipc_lock.";

/// `takt bench daq`
pub const BENCH_DAQ: &str = "\
Takes about 10 minutes with the defaults: 11 conditions of 1200000 edges, each at most 8 minutes. Needs root, or cap_sys_nice and cap_ipc_lock. The days and weeks of the \
paper are the campaign daq-long.";

/// `takt bench humanoid`
pub const BENCH_HUMANOID: &str = "\
Needs root (the veth pair, SCHED_FIFO 99, the trace); without it devices are simulated in process, and what was not granted is reported.";

/// `takt bench gpu`
pub const BENCH_GPU: &str = "\
Takes a quarter of an hour with the defaults. Needs an NVIDIA GPU with its driver: without one the exit status is 2.";

/// `takt bench faults`
pub const BENCH_FAULTS: &str = "\
Takes several minutes for all cases. Needs no root.";

/// `takt bench manager`
pub const BENCH_MANAGER: &str = "\
Takes about 5 minutes with the defaults: 4 policies of 66 s. All policies but cfs need root, or cap_sys_nice.";

/// `takt demo`
pub const DEMO: &str = "\
Takes about a minute and a half. Needs no root: without it what was not granted is reported.";

/// `takt gpu check`
pub const GPU_CHECK: &str = "\
Needs the NVIDIA driver (R525 or newer) and NVRTC, or kernels compiled beforehand (`takt gpu kernels`, TAKT_GPU_KERNELS). Takes nine \
minutes at most. Networks need ONNX Runtime's CUDA provider; without it that step says so and the others are run. SCHED_RR for the \
cameras' threads needs root, or cap_sys_nice; without it the figures say so. Exit status: 0 nothing failed, 1 something failed, \
2 there is no usable GPU, or the check could not be made.";

/// `takt gpu kernels`
pub const GPU_KERNELS: &str = "\
Needs NVRTC, as `pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-nvrtc` brings it, and no GPU. All versions that are found are used, so \
that drivers of CUDA 12 and 13 both have their own.";
