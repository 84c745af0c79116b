//! The further tunings that the paper recommends and did not measure (section 4): how many tasks
//! the scheduler moves at a time, and which process the kernel kills when memory runs out. Both are
//! made for the run and undone after it; the first also after a kill.

use takt_rt::kernel_file::{Changed, NR_MIGRATE};
use takt_rt::oom::Protected;

use super::file::{HumanoidFile, OomVictim};

const NAME: &str = "sched_nr_migrate";

/// The further tunings of a run. Dropping it undoes them.
#[derive(Debug, Default)]
pub(super) struct Further {
    nr_migrate: Option<Changed>,
    protected: Option<Protected>,
}

impl Further {
    /// Makes what `file` asks for. The second value says of each that was refused why.
    pub(super) fn begin(file: &HumanoidFile) -> (Self, Vec<String>) {
        Self::begin_at(file, &NR_MIGRATE)
    }

    fn begin_at(file: &HumanoidFile, nr_migrate: &[&str]) -> (Self, Vec<String>) {
        let (mut further, mut refused) = (Self::default(), Vec::new());
        if let Some(tasks) = file.nr_migrate {
            match Changed::first_of(NAME, nr_migrate, &tasks.to_string()) {
                Ok(changed) => further.nr_migrate = Some(changed),
                Err(error) => refused.push(format!("nr_migrate = {tasks}: {error}")),
            }
        }
        if file.oom_victim == OomVictim::Others {
            match Protected::begin() {
                Ok(protected) => further.protected = Some(protected),
                Err(error) => refused
                    .push(format!("oom_victim = \"others\": {error}. Fix: run as root (CAP_SYS_RESOURCE)")),
            }
        }
        (further, refused)
    }

    /// Settings in effect, one sentence each: for the run's record.
    pub(super) fn words(&self) -> Vec<String> {
        let migrate = self.nr_migrate.as_ref().map(|changed| {
            let (path, before) = changed.before();
            format!("{} changed, was {before}", path.display())
        });
        let victim = self.protected.as_ref().map(|_| {
            "when memory runs out, the kernel never kills this process; it kills the tools of the interference first"
                .to_owned()
        });
        migrate.into_iter().chain(victim).collect()
    }

    /// Undoes them; a sentence for what is not as before.
    pub(super) fn end(self) -> Option<String> {
        self.nr_migrate.and_then(Changed::restore)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> HumanoidFile {
        takt_lab::parse(text).unwrap()
    }

    #[test]
    fn what_is_asked_for_holds_for_the_run_and_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nr_migrate");
        std::fs::write(&path, "32").unwrap();
        let paths = [path.to_str().unwrap()];
        let read = || std::fs::read_to_string(&path).unwrap();
        let (further, refused) = Further::begin_at(&file("nr_migrate = 8"), &paths);
        assert_eq!((refused, read().as_str()), (Vec::new(), "8"));
        assert!(further.words()[0].contains("was 32"), "{:?}", further.words());
        assert_eq!(further.end(), None);
        assert_eq!(read(), "32");
        let (further, _) = Further::begin_at(&file(""), &paths);
        assert!(further.words().is_empty() && read() == "32");
    }

    #[test]
    fn a_kernel_without_the_file_is_named_and_the_rest_holds() {
        let (further, refused) =
            Further::begin_at(&file("nr_migrate = 8\noom_victim = 'others'"), &["/nonexistent/nr_migrate"]);
        assert!(refused[0].contains("sched_nr_migrate") && refused[0].contains("debugfs"), "{refused:?}");
        // The right to it is root's.
        assert_eq!(further.words().len() + refused.len(), 2);
        let score = takt_rt::oom::score_adj();
        assert_eq!(score == Some(takt_rt::oom::NEVER), refused.len() == 1, "{score:?} {refused:?}");
        drop(further);
        assert_ne!(takt_rt::oom::score_adj(), Some(takt_rt::oom::NEVER));
    }
}
