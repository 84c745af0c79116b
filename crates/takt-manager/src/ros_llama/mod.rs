//! The manager of *ROS-Llama* (Blass, Hamann, Lange, Ziegenbein and Brandenburg, RTAS 2021) as the
//! paper prints it: what Takt's own manager is compared with. It has nothing that the paper does
//! not print.
//!
//! - [`reading`]: what its analysis knows of a snapshot (sections II and V).
//! - The analysis is that of its reference \[6\], Casini and others (ECRTS 2019), alone
//!   ([`crate::analysis::Analysis::as_published`]), with `rbf(d) = ET+(eta(d))` (section V.b) and
//!   the supply of the periodic resource (section II.c).
//! - [`search`]: Algorithms 1 and 2 (section IV.C), worst-fit and first-fit decreasing.
//!
//! Decisions where the paper leaves a detail open, each with the section that it follows from:
//!
//! - *Unbounded* (Algorithm 1, line 4) is a busy window that does not end within the horizon, as
//!   that exceeds all "goals and typical busy-window lengths" (IV.C.a). Then demand exceeds supply
//!   at the horizon, and line 6 always has something to add.
//! - Line 2 assumes 100 % for all *other* executors, and nothing is given to the one itself yet:
//!   that counts with 100 % too.
//! - Line 6 writes `rbf(c, horizon)` of one callback, and the text "the longterm demand", which
//!   line 2 sums over all that the executor serves. The sum is meant: one callback's demand can be
//!   below the supply while another one of the executor keeps it waiting for ever. A callback that
//!   is activated by one without a bound counts with its arrivals of line 2.
//! - If the demand at the horizon is met but there is still no bound (executors that influence each
//!   other), Algorithm 1 ends (IV.C.a: "until either the longterm demand at the horizon is met"),
//!   and Algorithm 2 continues with a latency above every goal.
//! - `RT^100%` (Algorithm 2, line 4) is the bound "obtained by assuming 100% bandwidth" of all
//!   executors: the increase that is attributable "to executors having less" (IV.C.b).
//! - A degraded chain gives back what it was given ("never partially provisions a chain", IV.B),
//!   and the search goes on with the next chain of the order: chains are provisioned "in reverse
//!   degradation order" (IV.C), and nothing says that it ends with the first that fails.
//! - A budget may be 100 % of its core in the algorithms; a core offers what the stock kernel
//!   admits (95 %, III.c), which the partitioning checks.
//! - A budget that would be less than the kernel accepts (1,024 ns) is that.
//! - Timers are bounded by the lemmas for all other callbacks (\[6\], 4 and 5). The paper's
//!   executor (Dashing) started a due timer after one other callback at most, which \[6\] has a
//!   lemma of its own for; executors since then take timers from the ready set.
//! - Executors other than the default one (events, static, multi-threaded) are not covered by \[6\]
//!   (II.b). A chain that needs one is reported as not analysable.
//! - "Cached budget assignments" are reused "in a low-load scenario" (VI.B): where the last plan
//!   degraded nothing and its budgets keep all goals under the new model, they stay.

pub mod reading;
pub mod search;
