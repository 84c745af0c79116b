//! Edges that reached the samples after the state of a checkpoint was taken.
//!
//! Saving task and state are in two threads, so that a checkpoint's rows may be ahead of its state;
//! what they are ahead is added to it.

use std::io::{BufRead, BufReader};
use std::path::Path;

use takt_lab::LabError;
use takt_rundir::RunDir;

use super::State;
use super::keep::{EDGES, EdgeRow, LOST};

/// Adds the edges that are in the samples and not in the state.
pub(super) fn replay(dir: &RunDir, state: &mut State) -> Result<u64, LabError> {
    let mut rows = Vec::new();
    for (name, arrived) in [(EDGES, true), (LOST, false)] {
        newer(&dir.sample_path(name), state.next_index, &mut |row| rows.push(row.record(arrived)))?;
    }
    rows.sort_by_key(|edge| edge.index);
    let count = rows.len() as u64;
    for edge in rows {
        if state.last_sent_ns == 0 {
            state.last_sent_ns = edge.sent_ns;
        }
        let elapsed_ns = state.elapsed_ns + edge.sent_ns.saturating_sub(state.last_sent_ns);
        state.push(edge.index, elapsed_ns, &edge);
        state.late.push(edge.index, &edge);
    }
    Ok(count)
}

/// The rows of a sample file from number `from` on. A last line that the kill cut in half is none.
fn newer(path: &Path, from: u64, take: &mut dyn FnMut(EdgeRow)) -> Result<(), LabError> {
    let file = match takt_files::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(LabError::io(path)(source)),
    };
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let mut line = String::new();
    let mut number = 0;
    loop {
        line.clear();
        if reader.read_line(&mut line).map_err(LabError::io(path))? == 0 || !line.ends_with('\n') {
            return Ok(());
        }
        number += 1;
        // The first line names the columns.
        if number == 1 {
            continue;
        }
        let Some(row) = parse(line.trim_end()) else {
            return Err(LabError::damaged(
                path,
                format!("line {number}: {}", line.trim_end()),
                "a line of an edge",
            ));
        };
        if row.index >= from {
            take(row);
        }
    }
}

/// A line of the sample file, in the order of [`EdgeRow`]'s fields.
fn parse(line: &str) -> Option<EdgeRow> {
    let mut fields = line.split(',');
    let mut number = || fields.next()?.parse::<u64>().ok();
    let (index, sent_ns, received_ns, latency_ns, controller_ns) =
        (number()?, number()?, number()?, number()?, number()?);
    let resends = fields.next()?.parse().ok()?;
    let level_v = fields.next()?.parse().ok()?;
    if fields.next().is_some() {
        return None;
    }
    Some(EdgeRow { index, sent_ns, received_ns, latency_ns, controller_ns, resends, level_v })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DaqConfig;
    use proptest::prelude::*;

    fn row(index: u64) -> EdgeRow {
        EdgeRow {
            index,
            sent_ns: 1_000_000 + index * 10_000,
            received_ns: 1_000_000 + index * 10_000 + 500,
            latency_ns: 500 + index,
            controller_ns: 0,
            resends: 0,
            level_v: 5.0,
        }
    }

    fn killed(edges: u64, checkpoint_at: u64) -> (tempfile::TempDir, RunDir, DaqConfig) {
        let root = tempfile::tempdir().unwrap();
        let dir = RunDir::create(root.path(), "daq").unwrap();
        let file = DaqConfig::default();
        let mut samples = dir.samples(EDGES).unwrap();
        let mut state = State::new(&file).unwrap();
        for index in 0..edges {
            samples.push(&row(index)).unwrap();
            if index < checkpoint_at {
                state.push(index, index * 10_000, &row(index).record(true));
            }
        }
        samples.flush().unwrap();
        if checkpoint_at > 0 {
            dir.write_json(super::super::STATE_FILE, &state).unwrap();
        }
        (root, dir, file)
    }

    #[test]
    fn edges_after_the_checkpoint_are_found_in_the_samples() {
        for checkpoint_at in [0, 70, 100] {
            let (_root, dir, file) = killed(100, checkpoint_at);
            // The kill came in the middle of a line.
            let path = dir.sample_path(EDGES);
            let mut text = std::fs::read_to_string(&path).unwrap();
            text.push_str("100,2000");
            std::fs::write(&path, text).unwrap();
            let mut state = State::read(&dir).unwrap().unwrap_or_else(|| State::new(&file).unwrap());
            assert_eq!(replay(&dir, &mut state).unwrap(), 100 - checkpoint_at);
            assert_eq!((state.recorder.count(), state.next_index), (100, 100));
            assert_eq!((state.recorder.max_ns(), state.elapsed_ns), (599, 990_000));
        }
    }

    #[test]
    fn a_damaged_line_is_an_error_with_its_number() {
        let (_root, dir, file) = killed(3, 0);
        let path = dir.sample_path(EDGES);
        let text = std::fs::read_to_string(&path).unwrap().replace("1020000", "soon");
        std::fs::write(&path, text).unwrap();
        let error = replay(&dir, &mut State::new(&file).unwrap()).unwrap_err().to_string();
        assert!(error.contains("line 4") && error.contains("soon"), "{error}");
    }

    proptest! {
        #[test]
        fn rows_read_back_as_they_were_written(
            numbers in proptest::array::uniform5(any::<u64>()), resends: u32, level_v in -10f32..10.0,
        ) {
            let [index, sent_ns, received_ns, latency_ns, controller_ns] = numbers;
            let row = EdgeRow { index, sent_ns, received_ns, latency_ns, controller_ns, resends, level_v };
            let root = tempfile::tempdir().unwrap();
            let dir = RunDir::create(root.path(), "rows").unwrap();
            let mut file = dir.samples(EDGES).unwrap();
            file.push(&row).unwrap();
            file.flush().unwrap();
            let mut read = Vec::new();
            newer(&dir.sample_path(EDGES), 0, &mut |row| read.push(row)).unwrap();
            prop_assert_eq!(read, vec![row]);
        }

        #[test]
        fn no_line_makes_the_parser_panic(line in "[0-9,.a-]{0,60}") {
            let _ = parse(&line);
        }
    }
}
