//! Rights, times and exit statuses of commands: the last lines of their `--help`.

#![allow(dead_code, reason = "commands of robots that are not built in have no needs")]

/// `takt trace`
pub const TRACE: &str = "\
Needs root, or the capabilities cap_perfmon and cap_dac_read_search. Without them the robot runs untraced, and the exit status is 2.";

/// `takt watch`
pub const WATCH: &str = "\
Needs root, or the capabilities cap_perfmon and cap_dac_read_search. Without them, Takt reports rates and waits but no causes, lists what is \
missing, and exits with 2 (--dry-run checks this beforehand). When the time is over, a command gets SIGINT, like Ctrl-C. Its output is \
shown: with --json on standard error, with --screen at the end.

Exit status: 0 watched; 1 with --check, no PASS, or the command failed; 2 not watched.";

/// `takt tune`
pub const TUNE: &str = "\
Needs root: it traces the kernel and changes settings. Takes about 10 minutes (--seconds). Some of the settings it tries make the loop \
worse, so tune a robot in a safe state. All settings are restored at the end, after Ctrl-C and after a kill. When the search is over, a command \
gets SIGINT, like Ctrl-C; its output is dropped.";

/// `takt run --flight-recorder`
pub const RUN: &str = "\
Real-time policies, locked memory and --flight-recorder need root, or the capabilities cap_sys_nice, cap_ipc_lock, cap_perfmon and \
cap_dac_read_search. Without them, the run lists what was not granted (--strict refuses to run).";

/// `takt doctor`
pub const DOCTOR: &str = "Needs no root to examine the machine, but lists what it cannot see without it. --apply and --revert need root.";

/// `takt manage`
pub const MANAGE: &str = "\
Reservations (without --observe or --learn) need root, or cap_sys_nice. --pid, and --learn of running processes, need root.

Exit status: 0 managed to the end; 1 with --check, no PASS; 2 not managed, or the command failed.";

/// `takt segment`
pub const SEGMENT: &str = "\
Needs root, or cap_net_raw; without --interface also cap_net_admin, for the veth pair.";

/// `takt ethercat capture`
pub const CAPTURE: &str = "\
Needs root, or cap_net_raw.";

/// `takt campaign run`
pub const CAMPAIGN: &str = "\
Takes from minutes to hours, and months for the shipped daq-long; --dry-run prints the time. `takt campaign resume` continues a campaign that \
was stopped. --virtual needs QEMU. Factors that change policies, CPUs or tunings need root. --on slurm needs Slurm's commands and a --runs \
folder that all nodes see; a factor kernel or label.NAME then asks for nodes with the feature of its value's name, and boot.NAME for NAME=VALUE.";

/// `takt events`
pub const EVENTS: &str = "\
`run`, `manage` and `watch --flight-recorder` write them to journald (TAKT_EVENT=) and to a file of at most 20 MiB in the folder `events` of \
/var/lib/takt for root, else of $XDG_STATE_HOME/takt; TAKT_EVENTS names another folder. Times are local.

Exit status: 0 shown; 1 something in the files is not legible.";

/// `takt gate`
pub const GATE: &str = "\
The gate compares runs, not samples: many short runs show more than a few long ones. Begin with 20 baseline runs and 10 new ones of a few \
seconds on a quiet machine; a busy one takes hundreds. The output says which rise this number of runs would reveal in 19 of 20 cases, and how \
many runs would reveal the rise of --find. Runs that alternate with the baseline on the same machine show more than runs of another day.

Exit status: 0 better or same; 1 worse; 2 not judged; 3 judged, but the output could not be printed; 4 cannot tell.";

/// `takt kernels run`
pub const KERNELS: &str = "\
Needs QEMU (qemu-system) and no root. An emulated guest takes many times as long as its own clock shows.";

/// `takt kernels fetch`, `list`
pub const FETCH: &str = "\
Needs apt (Debian or Ubuntu) and no root; nothing is installed.";

/// `takt bench cell`
pub const BENCH_CELL: &str = "\
Takes half an hour or more with the defaults: 4 policies x 5 numbers of noise threads x 3 runs of 32 s. --resume continues a bench that was \
stopped. All policies but CFS+CFS need root, or cap_sys_nice and cap_ipc_lock.";

/// `takt bench uav`
pub const BENCH_UAV: &str = "\
Takes about 11 minutes with the defaults: 16 settings with 10000 releases of 4 ms each. Needs root, or cap_sys_nice and cap_ipc_lock.";

/// `takt bench daq`
pub const BENCH_DAQ: &str = "\
Takes about 10 minutes with the defaults: 11 conditions of 1200000 edges, each at most 8 minutes. Needs root, or cap_sys_nice and cap_ipc_lock. \
The campaign daq-long has the days and weeks of the paper.";

/// `takt bench humanoid`
pub const BENCH_HUMANOID: &str = "\
Needs root, for the veth pair, SCHED_FIFO 99 and the trace. Without it, devices are simulated in process, and the output lists what was not \
granted.";

/// `takt bench gpu`
pub const BENCH_GPU: &str = "\
Takes a quarter of an hour with the defaults. Needs an NVIDIA GPU with its driver; without one the exit status is 2.";

/// `takt bench faults`
pub const BENCH_FAULTS: &str = "\
Takes several minutes for all cases. Needs no root.";

/// `takt bench manager`
pub const BENCH_MANAGER: &str = "\
Takes about 5 minutes with the defaults: 4 policies of 66 s. All policies but cfs need root, or cap_sys_nice.";

/// `takt demo`
pub const DEMO: &str = "\
Takes about a minute and a half. Needs no root; without it the output lists what was not granted.";

/// `takt gpu check`
pub const GPU_CHECK: &str = "\
Needs the NVIDIA driver (R525 or newer), and NVRTC or kernels compiled beforehand (`takt gpu kernels`, TAKT_GPU_KERNELS). Takes at most nine \
minutes. The step `networks` needs ONNX Runtime's CUDA provider, and says so without. SCHED_RR for the camera threads needs root, or \
cap_sys_nice; without it the figures say so.

Exit status: 0 nothing failed; 1 something failed; 2 there is no usable GPU, or the check could not be made.";

/// `takt gpu kernels`
pub const GPU_KERNELS: &str = "\
Needs NVRTC (`pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-nvrtc`) and no GPU. Kernels are compiled by every version of NVRTC that is found, \
so that drivers of CUDA 12 and 13 both find theirs.";
