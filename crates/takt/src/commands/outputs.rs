//! Files of `takt manage` besides its report: the model for the next start, and the plan as
//! settings for other programs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use takt_files::Folder;
use takt_manager::kept::Kept;
use takt_manager::plan::Plan;
use takt_model::Model;

use crate::args;

/// Stored model of an earlier run, for a run that begins; `None`: no model is stored. An unusable
/// model is reported, and the run starts without one.
pub fn kept(args: &args::Manage) -> Result<Option<Kept>, String> {
    let Some(path) = model_path(args) else { return Ok(None) };
    let usable = || -> std::io::Result<(Kept, Option<String>)> {
        if args.model.is_none() {
            for folder in [takt_files::state_folder(), takt_files::state_folder().join("models")] {
                takt_files::private_folder(&folder)?;
            }
        }
        Kept::read(&path)
    };
    match usable() {
        Ok((kept, words)) => {
            words.into_iter().for_each(|words| eprintln!("takt: {}: {words}", path.display()));
            Ok(Some(kept))
        }
        // A file that was named is meant; the usual place only helps.
        Err(error) if args.model.is_some() => Err(format!("--model {}: {error}", path.display())),
        Err(error) => {
            eprintln!("takt: {}: {error}: the model is not stored", path.display());
            Ok(None)
        }
    }
}

/// Writes what is kept for the next start.
pub fn keep(args: &args::Manage, kept: Option<&Kept>) {
    if let (Some(path), Some(kept)) = (model_path(args), kept.filter(|kept| !kept.is_empty()))
        && let Err(error) = kept.write(&path)
    {
        eprintln!("takt: {}: {error}: the model is not kept", path.display());
    }
}

/// The file that was named; else, for a command that is managed, one by the goals file and the
/// command in the state folder.
fn model_path(args: &args::Manage) -> Option<PathBuf> {
    if args.fresh {
        return None;
    }
    if let Some(path) = &args.model {
        return Some(path.clone());
    }
    if args.observe || args.command.is_empty() {
        return None;
    }
    let goals = args.goals.as_ref()?;
    // Shipped goals are in no file: their name stands for them.
    let whole = goals.canonicalize().unwrap_or_else(|_| goals.clone());
    let mut hasher = DefaultHasher::new();
    (&whole, &args.command).hash(&mut hasher);
    let stem: String =
        goals.file_stem()?.to_string_lossy().chars().filter(|c| c.is_ascii_alphanumeric()).take(40).collect();
    Some(takt_files::state_folder().join("models").join(format!("{stem}-{:016x}.json", hasher.finish())))
}

/// Opens the folder for `--emit` before the run, where others can have planted nothing and can
/// plant nothing later; under sudo it may be the user's own who typed the command. Refuses one that
/// has something in it already.
pub fn check_emit(args: &args::Manage) -> Result<Option<Folder>, String> {
    let Some(path) = &args.emit else { return Ok(None) };
    let failed = |error: std::io::Error| format!("--emit {}: {error}", path.display());
    let folder = Folder::trusted(path, invoking()).map_err(failed)?;
    if !folder.names().map_err(failed)?.is_empty() && !args.overwrite {
        return Err(format!(
            "--emit {}: the folder is not empty: name an empty or a new one, or add --overwrite",
            path.display()
        ));
    }
    Ok(Some(folder))
}

fn invoking() -> Option<u32> {
    takt_manager::live::account::Account::invoking().map(|account| account.uid)
}

/// Writes the plan as settings into the folder that [`check_emit`] opened.
pub fn emit(
    args: &args::Manage,
    into: Option<&Folder>,
    plan: Option<&Plan>,
    model: &Model,
) -> Result<(), String> {
    let (Some(folder), Some(into)) = (&args.emit, into) else { return Ok(()) };
    let Some(plan) = plan else {
        return Err(format!("--emit {}: there was no plan yet; let it run for longer", folder.display()));
    };
    if plan.reservations.is_empty() && plan.best_effort.is_empty() {
        return Err(format!(
            "--emit {}: the last plan has no reservations to write. If the processes had already ended by then, stop earlier with --seconds",
            folder.display()
        ));
    }
    let failed = |path: &Path, error: std::io::Error| format!("--emit {}: {error}", path.display());
    let owner = invoking();
    for (path, text) in takt_manager::emit::files(plan, model) {
        let write = || {
            let mut below: Option<Folder> = None;
            for part in path.parent().iter().flat_map(|parent| parent.components()) {
                below = Some(below.as_ref().unwrap_or(into).trusted_subfolder(part.as_os_str(), owner)?);
            }
            below.as_ref().unwrap_or(into).write(path.file_name().unwrap_or_default(), &text)
        };
        write().map_err(|error| failed(&folder.join(&path), error))?;
    }
    eprintln!("takt: the plan's settings are in {}", folder.display());
    Ok(())
}
