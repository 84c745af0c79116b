//! `takt campaign`

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use takt_lab::LabError;
use takt_lab::campaign::{
    Campaign, CampaignFile, Local, Plan, Progress, RunFailure, RunOrder, Table, all, present, shipped,
    shipped_text,
};
use takt_lab::kernels::Maker;
use takt_slurm::{Asked, Slurm, run_block};

use super::tidy::Tidy;
use super::{CommandResult, child, stop_flag};
use crate::args::{self, CampaignCommon, CampaignResume, CampaignRun, On};
use crate::print;
use crate::registry::ROBOTS;

/// The condition and factor that is the running kernel.
const KERNEL: &str = "kernel";

pub fn run(what: &args::Campaign) -> CommandResult {
    match what {
        args::Campaign::Run(run) => new(run),
        args::Campaign::Resume(resume) => go_on(resume),
        args::Campaign::Block { dir, submission } => block(dir, submission),
        args::Campaign::List { json } => list(*json),
        args::Campaign::Show { name } => {
            print!("{}", shipped_text(&ROBOTS, name)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn list(json: bool) -> CommandResult {
    let names = all(&ROBOTS).map(|(name, _)| *name);
    let files =
        names.map(|name| Ok((name, shipped(&ROBOTS, name)?))).collect::<Result<Vec<_>, LabError>>()?;
    if json {
        let rows: Vec<_> = files
            .iter()
            .map(|(name, file)| {
                serde_json::json!({ "name": name, "robot": file.robot, "paper": file.paper, "about": file.about })
            })
            .collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        for (name, file) in files {
            println!("{name:<24}{}", file.about);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn new(args: &CampaignRun) -> CommandResult {
    #[cfg(feature = "store")]
    super::store::check(args.common.store.as_ref())?;
    let path = Path::new(&args.campaign);
    let mut file = if path.is_file() { CampaignFile::load(path)? } else { shipped(&ROBOTS, &args.campaign)? };
    if args.quick {
        file.make_quick()?;
    }
    file.seconds = args.seconds.or(file.seconds);
    file.repetitions = args.repetitions.unwrap_or(file.repetitions);
    if args.guests {
        file.guests.get_or_insert_default();
    }
    if let Some(accel) = args.accel {
        let Some(guests) = &mut file.guests else {
            return Err(
                "--accel applies only to runs in virtual machines: use a campaign with [virtual], or --virtual".into()
            );
        };
        guests.accelerator = accel.into();
    }
    for setting in &args.set {
        file.set_text(setting)?;
    }
    for only in &args.only {
        file.keep_only(only)?;
    }
    if let Some(kernel) = &args.common.kernel {
        file.choose_kernel(kernel);
    }
    if args.dry_run {
        // Nothing is measured for a look: runs are shown as configured.
        let plan = Plan::resolve_with(&ROBOTS, &file, &mut |robot| {
            eprintln!(
                "{}: the load is scaled to this machine when the campaign begins ([scale])",
                robot.name()
            );
            Ok(())
        })?;
        print!("{}", print::plan(&plan));
        return Ok(ExitCode::SUCCESS);
    }
    if args.on == On::Slurm {
        return new_on_slurm(args, &file);
    }
    refuse_slurm_options(args)?;
    let plan = Plan::resolve(&ROBOTS, &file)?;
    if let Some(text) = plan.scaled.as_ref().and_then(|scaled| ROBOTS.scaled_text(&plan.robot, scaled)) {
        eprintln!("{text}");
    }
    plan.check_labels(&labels(&args.common, &plan))?;
    let _tidy = Tidy::before(&args.runs);
    finish(&Campaign::create(ROBOTS, &args.runs, plan)?, &args.common)
}

/// Has the runs made, shows what came of them, and brings them into the store that was asked for.
fn finish(campaign: &Campaign, common: &CampaignCommon) -> CommandResult {
    let shown = show(&measure(campaign, common)?, common.json)?;
    #[cfg(feature = "store")]
    if let Some(place) = &common.store {
        super::store::put(place, std::iter::once(campaign.path()))?;
    }
    Ok(shown)
}

/// Options that mean nothing to this machine are a mistake of whoever gave them.
fn refuse_slurm_options(args: &CampaignRun) -> Result<(), LabError> {
    let given = [
        ("--partition", args.partition.is_some()),
        ("--constraint", args.constraint.is_some()),
        ("--sbatch", !args.sbatch.is_empty()),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            Err(LabError::Config(format!("{option} applies to --on slurm, but this is --on local")))
        }
        None => Ok(()),
    }
}

fn new_on_slurm(args: &CampaignRun, file: &CampaignFile) -> CommandResult {
    let here = given_labels(&args.common);
    if let Some(label) = here.keys().next() {
        return Err(format!(
            "--kernel and --label describe this machine (\"{label}\"); with --on slurm, the nodes' features do"
        )
        .into());
    }
    let mut file = file.clone();
    file.every_kernel();
    let plan = Plan::resolve_with(&ROBOTS, &file, &mut |robot| {
        Err(LabError::Config(format!(
            "campaign {}: [scale] of {} measures this machine, but the nodes differ: use a configuration without [scale], such as robot = \
             \"cell\"",
            file.name,
            robot.name()
        )))
    })?;
    let asked = Asked {
        partition: args.partition.clone(),
        constraint: args.constraint.clone(),
        options: args.sbatch.clone(),
    };
    Slurm::check_folder(&args.runs)?;
    Slurm::check_plan(&plan, &asked)?;
    let _tidy = Tidy::before(&args.runs);
    let program = std::env::current_exe()?;
    let begin = |campaign: &Campaign| Slurm::begin(campaign, asked, &program);
    finish(&Campaign::create_with(ROBOTS, &args.runs, plan, begin)?, &args.common)
}

/// On a node: what is open of a block. Its words go into the job's log.
fn block(dir: &Path, submission: &str) -> CommandResult {
    let campaign = Campaign::open(ROBOTS, dir)?;
    let stop = stop_flag()?;
    let maker = maker(&campaign)?;
    let make = |order: &RunOrder<'_>| make(maker.as_ref(), order, &stop);
    run_block(&campaign, submission, &make, &|| !stop.load(Ordering::Acquire))?;
    Ok(ExitCode::SUCCESS)
}

fn go_on(args: &CampaignResume) -> CommandResult {
    #[cfg(feature = "store")]
    super::store::check(args.common.store.as_ref())?;
    finish(&Campaign::open(ROBOTS, &args.dir)?, &args.common)
}

/// Conditions that hold now, as they were given.
fn given_labels(common: &CampaignCommon) -> BTreeMap<String, String> {
    let kernel = common.kernel.iter().map(|kernel| (KERNEL.to_owned(), kernel.clone()));
    common.label.iter().cloned().chain(kernel).collect()
}

/// The same, with the kernel that a campaign leaves to the machine.
fn labels(common: &CampaignCommon, plan: &Plan) -> BTreeMap<String, String> {
    let mut labels = given_labels(common);
    let detected = plan.file.factors.iter().any(|factor| factor.detected);
    if detected && plan.file.guests.is_none() && !labels.contains_key(KERNEL) {
        let present = present::kernel();
        eprintln!("kernel: {}, because it is {} (--kernel names another)", present.name, present.why);
        labels.insert(KERNEL.to_owned(), present.name.to_owned());
    }
    labels
}

/// Maker of guests, if the campaign is virtual.
fn maker(campaign: &Campaign) -> Result<Option<Maker>, Box<dyn std::error::Error>> {
    let Some(guests) = &campaign.plan().file.guests else { return Ok(None) };
    let maker = Maker::new(ROBOTS, guests, &std::env::current_exe()?)?;
    let kernels = campaign.plan().runs.iter().filter_map(|run| run.setup.kernel.as_deref());
    let kernels: BTreeSet<&str> = kernels.collect();
    maker.fetch(kernels.into_iter(), &mut |line| eprintln!("{line}"));
    Ok(Some(maker))
}

/// Makes one run, in a process or a guest of its own.
fn make(maker: Option<&Maker>, order: &RunOrder<'_>, stop: &AtomicBool) -> Result<(), RunFailure> {
    if let Some(maker) = maker {
        return maker.make(order, stop);
    }
    let mut options = vec![OsString::from("--setup"), order.setup.into()];
    if let Some(seconds) = order.run.setup.seconds {
        options.extend(["--seconds".into(), seconds.to_string().into()]);
    }
    child::run(order.config, order.dir, order.resume, &options, stop)
}

/// Has the runs of a campaign made that are not made yet: here, or where it was begun.
pub fn measure(campaign: &Campaign, common: &CampaignCommon) -> Result<Measured, Box<dyn std::error::Error>> {
    let stop = stop_flag()?;
    let go_on = || !stop.load(Ordering::Acquire);
    let labels = labels(common, campaign.plan());
    let mut progress = print::CampaignProgress::new();
    let mut see = |event: Progress<'_>, done: usize, all: usize| progress.see(&event, done, all);
    let table = if Slurm::has(campaign)? {
        campaign.measure(&Slurm { go_on: &go_on }, &mut see)
    } else {
        let maker = maker(campaign)?;
        let make = |order: &RunOrder<'_>| make(maker.as_ref(), order, &stop);
        let local = Local {
            labels: &labels,
            any_machine: common.any_machine,
            make: &make,
            go_on: &go_on,
            folder: None,
        };
        campaign.measure(&local, &mut see)
    };
    progress.clear();
    Ok(Measured { table: table?, failed: progress.failed() })
}

fn show(measured: &Measured, json: bool) -> CommandResult {
    if json {
        println!("{}", serde_json::to_string_pretty(&measured.table)?);
    } else {
        print!("{}", print::table(&measured.table));
    }
    Ok(measured.status())
}

/// Result of a campaign's runs.
pub struct Measured {
    pub table: Table,
    /// Runs that failed now; the table names them.
    pub failed: usize,
}

impl Measured {
    /// 1 where runs failed, 2 where nothing else is there. Runs that wait for another kernel have
    /// not failed.
    pub fn status(&self) -> ExitCode {
        let any = self.table.rows.iter().any(|row| row.measured > 0);
        match (self.failed, any) {
            (0, _) => ExitCode::SUCCESS,
            (_, true) => ExitCode::from(1),
            (_, false) => ExitCode::from(2),
        }
    }
}
