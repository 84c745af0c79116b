//! Kernels: what there is, and what each made of a task.

use std::fmt::Write;
use std::path::Path;

use takt_kernels::packages::Listed;
use takt_lab::campaign::Table;
use takt_lab::kernels::KernelRow;

use super::{counted, number, skipped};

// Writing to a String cannot fail, so the results of `write!` are dropped throughout.

pub fn kernel_list(listed: &[&Listed], hidden: usize, cache: &Path) -> String {
    let mut out = String::new();
    let wide =
        |width: fn(&Listed) -> usize| listed.iter().map(|kernel| width(kernel)).max().unwrap_or(0).max(7);
    let (name, version) = (wide(|kernel| kernel.name.len()), wide(|kernel| kernel.version.len()));
    let _ = writeln!(
        out,
        "{:<name$}  {:<10}  {:<version$}  {:>8}  {:<8}  preemption",
        "kernel", "also", "version", "MiB", ""
    );
    for kernel in listed {
        let state = match (&kernel.cached, kernel.offered) {
            (Some(_), true) => "cached",
            (Some(_), false) => "old",
            (None, _) => "",
        };
        let mib = kernel.size_bytes.map_or(String::new(), |bytes| bytes.div_ceil(1 << 20).to_string());
        let preemption =
            kernel.preemption.map_or("unknown until fetched".to_owned(), |preemption| preemption.to_string());
        let aliases = kernel.aliases.join(" ");
        let _ = writeln!(
            out,
            "{:<name$}  {aliases:<10}  {:<version$}  {mib:>8}  {state:<8}  {preemption}",
            kernel.name, kernel.version
        );
    }
    if hidden > 0 {
        let _ = writeln!(out, "{hidden} older ones are not shown; --all shows them");
    }
    let _ = writeln!(out, "Cache: {}", cache.display());
    out
}

/// The kernels' activation of the task in traced runs; two kernels side by side, as in the UAV
/// paper's Table 6.
fn activations(rows: &[KernelRow]) -> String {
    let mut out = String::new();
    let traced: Vec<&KernelRow> = rows.iter().filter(|row| !row.activations.is_empty()).collect();
    for row in &traced {
        let ways: Vec<String> =
            row.activations.iter().map(|(way, count)| format!("{count} x {way}")).collect();
        let _ = writeln!(out, "  {} {} activated by: {}", row.kernel, row.configuration, ways.join(", "));
    }
    if let [first, second] = traced[..] {
        out.push('\n');
        out += &takt_trace::analysis::table(
            [&first.kernel, &second.kernel],
            [&first.sequence, &second.sequence],
        );
    }
    out
}

pub fn kernel_rows(rows: &[KernelRow], table: &Table) -> String {
    let mut out = String::new();
    let measure = rows.iter().map(|row| row.measure.as_str()).find(|m| !m.is_empty()).unwrap_or("nothing");
    let time = rows.iter().map(|row| row.time.as_str()).find(|time| !time.is_empty()).unwrap_or("no");
    let _ = writeln!(out, "{} of {}, {measure} in us of {time} time", table.campaign, table.robot);
    let wide = |head: &str, width: fn(&KernelRow) -> usize| {
        rows.iter().map(width).max().unwrap_or(0).max(head.len())
    };
    let kernel = wide("kernel", |row| row.kernel.chars().count());
    let preemption = wide("preemption", |row| row.preemption.chars().count());
    let configuration = wide("", |row| row.configuration.chars().count());
    let _ = writeln!(
        out,
        "  {:<kernel$}  {:<preemption$}  {:<configuration$}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}",
        "kernel", "preemption", "", "n", "mean", "median", "P99", "max", "SD", "misses"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "  {:<kernel$}  {:<preemption$}  {:<configuration$}{:>9}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}",
            row.kernel,
            row.preemption,
            row.configuration,
            row.count,
            number(row.mean, 2),
            number(row.median, 2),
            number(row.p99, 2),
            number(row.max, 2),
            number(row.stddev, 2),
            counted(row.misses)
        );
        out.extend(skipped(row.skipped.unwrap_or(0), row.count));
        out.extend(row.sentence.iter().map(|sentence| format!("      {sentence}\n")));
        for label in &row.labels {
            let _ = writeln!(out, "      {}", label.replace('\n', "\n        "));
        }
    }
    out += &activations(rows);
    for compared in &table.stress_work {
        let _ = writeln!(out, "{compared}");
    }
    for d in &table.machine_differences {
        let _ = writeln!(out, "NOT THE SAME MACHINE: {} was {} and {}", d.fact, d.before, d.after);
    }
    if time == "virtual" {
        let _ = writeln!(
            out,
            "Every instruction takes one nanosecond here: this compares code paths through the kernels and does not predict\nmicroseconds \
             on a board."
        );
    }
    let _ = writeln!(out, "Run directories: {}", table.dir);
    out
}
