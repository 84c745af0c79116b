//! `takt bench gpu`: what perception on a GPU must reach, measured here, or why it was not.

use std::collections::BTreeMap;
use std::process::ExitCode;

use takt_gpu::check::MeasuredWait;
use takt_gpu::{CheckOptions, CudaVersion, Gpu};
use takt_lab::Event;
use takt_lab::campaign::{Campaign, Plan, Table, shipped};
use takt_perception::Device;
use takt_robot_cell::lab::gpu_bench::{
    MAX_DISTANCE_M, MIN_OVERLAP, MIN_RATIO, PERCEPTION_P999_MS, Requirement, five_cameras, growth,
    same_answers,
};

use super::{CommandResult, campaign, stop_flag};
use crate::args::CampaignCommon;
use crate::args::bench::BenchGpu;
use crate::registry::ROBOTS;

pub fn run(args: &BenchGpu) -> CommandResult {
    let same = format!(
        "the CPU's answers on the shipped recording: masks IoU >= {MIN_OVERLAP}, distances within {:.0} cm",
        100.0 * MAX_DISTANCE_M
    );
    let fast = format!(
        "five cameras at 30 FPS: perception of a frame, arrival to result, p99.9 <= {PERCEPTION_P999_MS} ms"
    );
    let ratio =
        format!("heavy GPU interference: worst reaction at least {MIN_RATIO} x lower with the mitigations");
    let grows = format!("no growth of GPU memory over {:.0} s of frames", args.growth_seconds);
    let gpu = Gpu::open(args.ordinal);
    let info = gpu.as_ref().ok().map(|gpu| gpu.info().clone());
    let list = match gpu {
        Err(error) => {
            let why = error.to_string();
            [same, fast, ratio, grows].map(|what| Requirement::not_run(&what, &why)).to_vec()
        }
        Ok(gpu) => {
            // The measurements open the device themselves, some in other processes.
            drop(gpu);
            let emulated = info.as_ref().is_some_and(|info| info.emulated);
            let mut list = Vec::new();
            // Each is reported as soon as it is known: all of it takes a quarter of an hour.
            let mut keep = |requirement: Requirement| {
                let why = "the GPU is emulated, so its times say nothing about a real GPU";
                let requirement = if emulated { requirement.does_not_count(why) } else { requirement };
                eprintln!("{}", requirement.line());
                list.push(requirement);
            };
            eprintln!("1 of 4: {} frames of each camera, on the CPU and on the GPU", args.frames);
            keep(answers(args, &same));
            eprintln!("2 of 4: five cameras for {:.0} s", args.seconds);
            keep(perception(args, &fast)?);
            eprintln!("3 of 4: interference, runs of {:.0} s", args.seconds);
            keep(interference(args, &ratio)?);
            eprintln!("4 of 4: memory, for {:.0} s", args.growth_seconds);
            keep(memory(args, &grows)?);
            list
        }
    };
    let device =
        info.map(|info| format!("{} ({}), CUDA {}", info.name, info.uuid, CudaVersion(info.driver_version)));
    if args.json {
        let value = serde_json::json!({ "device": device, "requirements": list });
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        println!("GPU {}: {}", args.ordinal, device.as_deref().unwrap_or("none"));
        list.iter().for_each(|requirement| println!("{}", requirement.line()));
    }
    if args.check && list.iter().any(|requirement| requirement.reached != Some(true)) {
        return Ok(ExitCode::from(1));
    }
    let measured = list.iter().any(|requirement| requirement.measured.is_some());
    Ok(if measured { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn answers(args: &BenchGpu, what: &str) -> Requirement {
    match same_answers(args.ordinal, args.frames) {
        Err(why) => Requirement::not_run(what, why.to_string()),
        Ok(same) => Requirement::measured(what, same.to_string(), same.is_enough()),
    }
}

fn perception(args: &BenchGpu, what: &str) -> Result<Requirement, std::io::Error> {
    let device = if args.tensorrt { Device::Tensorrt } else { Device::Cuda };
    let mut progress = |event: Event<'_>| {
        if let Event::Preparing { what } = event {
            eprintln!("{what}");
        }
    };
    Ok(match five_cameras(device, args.ordinal, args.seconds, &args.runs, stop_flag()?, &mut progress) {
        Err(why) => Requirement::not_run(what, why.to_string()),
        Ok(seen) => {
            let measured = format!(
                "{} cameras, {} frames, {} dropped, {} over budget: mean {:.2} ms, p99.9 {:.2} ms, worst {:.2} ms ({})",
                seen.cameras,
                seen.frames,
                seen.dropped,
                seen.overruns,
                seen.ms.mean,
                seen.ms.p999,
                seen.ms.worst,
                seen.run_dir
            );
            let reached = seen.ms.count > 0 && seen.ms.p999 <= PERCEPTION_P999_MS && seen.dropped == 0;
            Requirement::measured(what, measured, reached)
        }
    })
}

/// Mitigations that are compared with none, the most first: what runs here counts. Between programs
/// the driver gives the device by turns, and only MPS with limits leaves multiprocessors free.
const WITH: [&str; 2] = ["all+mps-limits", "all"];

/// The shipped campaign, the heaviest interference of other programs, without and with all
/// mitigations. `takt gpu check` measures that of the same process.
fn interference(args: &BenchGpu, what: &str) -> Result<Requirement, Box<dyn std::error::Error>> {
    let mut file = shipped(&ROBOTS, "sentryrt1-gpu")?;
    file.repetitions = 1;
    file.seconds = Some(args.seconds);
    let mitigations = format!("mitigation=none,{}", WITH.join(","));
    for only in ["interference=gpu.compute,gpu.memory", "policy=DL+RR", &mitigations, "wait=block"] {
        file.keep_only(only)?;
    }
    file.set_text(&format!("perception.gpu.ordinal={}", args.ordinal))?;
    let campaign = Campaign::create(ROBOTS, &args.runs, Plan::resolve(&ROBOTS, &file)?)?;
    let common = CampaignCommon { json: true, ..CampaignCommon::default() };
    Ok(judge(&campaign::measure(&campaign, &common)?.table, what))
}

/// The worst reaction without and with, over the kinds of interference. With counts where every
/// kind that was measured without was measured with, too.
fn judge(table: &Table, what: &str) -> Requirement {
    let measured = |mitigation: &str| -> BTreeMap<&str, f64> {
        let rows = table.rows.iter().filter(|row| row.factor("mitigation") == Some(mitigation));
        let rows = rows.filter(|row| row.us.count > 0);
        let mut worst = BTreeMap::new();
        for row in rows {
            let known = worst.entry(row.factor("interference").unwrap_or_default()).or_insert(0.0);
            *known = row.us.worst.max(*known);
        }
        worst
    };
    let worst = |of: &BTreeMap<&str, f64>| of.values().copied().fold(f64::NAN, f64::max);
    let none = measured("none");
    let without = worst(&none);
    let mut with = WITH.into_iter().map(|mitigation| (mitigation, measured(mitigation)));
    let with = with.find(|(_, with)| none.keys().all(|kind| with.contains_key(kind)));
    let (mitigation, with) = with.map_or(("", f64::NAN), |(mitigation, with)| (mitigation, worst(&with)));
    if !(without > 0.0 && with > 0.0) {
        let problems: Vec<&str> =
            table.rows.iter().flat_map(|row| &row.problems).map(String::as_str).take(2).collect();
        return Requirement::not_run(what, format!("no run to compare with: {}", problems.join("; ")));
    }
    let measured = format!(
        "worst reaction {:.2} ms without, {:.2} ms with {mitigation}: {:.1} x lower ({})",
        without / 1e3,
        with / 1e3,
        without / with,
        table.dir
    );
    Requirement::measured(what, measured, without / with >= MIN_RATIO)
}

/// The pipeline's memory, and what the device alone can keep, for comparison.
fn memory(args: &BenchGpu, what: &str) -> Result<Requirement, std::io::Error> {
    let device = if args.tensorrt { Device::Tensorrt } else { Device::Cuda };
    let stop = stop_flag()?;
    let growth = match growth(device, args.ordinal, args.growth_seconds, &stop) {
        Ok(growth) => growth,
        Err(why) => return Ok(Requirement::not_run(what, why.to_string())),
    };
    let mut measured = format!(
        "{} frames in {:.0} s: {} bytes more in use at the end",
        growth.frames,
        growth.seconds,
        growth.bytes()
    );
    let options = CheckOptions { ordinal: args.ordinal, growth_s: 0.0, ..CheckOptions::default() };
    match takt_gpu::check(&options, &mut |what| eprintln!("{what}")) {
        Ok(check) => {
            let launches = check.quiet.iter().map(|way| {
                let MeasuredWait { name, whole_us: t, .. } = way;
                format!("{name}: mean {:.0} us, p99.9 {:.0} us, worst {:.0} us", t.mean, t.p999, t.worst)
            });
            let disturbed = check
                .disturbed
                .iter()
                .map(|way| format!("under interference, {}: worst {:.0} us", way.name, way.whole_us.worst));
            measured += "; kernels alone, ";
            measured += &launches.chain(disturbed).collect::<Vec<_>>().join("; ");
        }
        Err(error) => measured += &format!("; the device alone could not be measured: {error}"),
    }
    Ok(Requirement::measured(
        what,
        measured,
        growth.bytes() == 0 && growth.seconds >= 0.99 * args.growth_seconds,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use takt_lab::campaign::Row;

    fn row(mitigation: &str, worst_us: f64) -> Row {
        of_kind("gpu.compute", mitigation, worst_us)
    }

    fn of_kind(kind: &str, mitigation: &str, worst_us: f64) -> Row {
        let mut row = Row::default();
        for (name, value) in [("mitigation", mitigation), ("interference", kind)] {
            row.factors.push(takt_rundir::Factor { name: name.to_owned(), value: value.to_owned() });
        }
        if worst_us > 0.0 {
            row.us = takt_stats::Summary::of(&mut [worst_us]);
        } else {
            row.problems.push("no CUDA driver".to_owned());
        }
        row
    }

    #[test]
    fn the_worst_of_all_kinds_of_interference_counts() {
        let table = |rows| Table { rows, ..Table::default() };
        let measured = judge(
            &table(vec![
                row("none", 80_000.0),
                row("none", 60_000.0),
                row("all", 10_000.0),
                row("all", 15_000.0),
            ]),
            "x",
        );
        assert_eq!(measured.reached, Some(true), "{measured:?}");
        assert!(measured.measured.unwrap().contains("5.3 x"));
        assert_eq!(
            judge(&table(vec![row("none", 80_000.0), row("all", 20_000.0)]), "x").reached,
            Some(false)
        );
        // With MPS, where it can be had; what failed for want of it does not count.
        let mps =
            |worst_us| vec![row("none", 80_000.0), row("all", 70_000.0), row("all+mps-limits", worst_us)];
        assert!(judge(&table(mps(8_000.0)), "x").measured.unwrap().contains("with all+mps-limits: 10.0 x"));
        assert!(judge(&table(mps(0.0)), "x").measured.unwrap().contains("with all: 1.1 x"));
        // Measurements with only one kind say nothing about the other.
        let half = vec![
            row("none", 26_000.0),
            of_kind("gpu.memory", "none", 8_000.0),
            row("all+mps-limits", 0.0),
            of_kind("gpu.memory", "all+mps-limits", 2_000.0),
            row("all", 20_000.0),
            of_kind("gpu.memory", "all", 8_000.0),
        ];
        assert!(judge(&table(half), "x").measured.unwrap().contains("with all: 1.3 x"));
        let absent = judge(&table(vec![row("none", 80_000.0), row("all", 0.0)]), "x");
        assert!(absent.reached.is_none() && absent.why_not.unwrap().contains("no CUDA driver"));
    }
}
