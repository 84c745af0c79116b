//! Streams: priorities, order across streams, graphs against single launches, and what launching
//! and waiting cost.

use takt_load::gpu::Priority;
use takt_rt::random::SplitMix64;

use super::{Step, StepError, finish, open, per_ms, rounds};
use crate::check::{CHECK_KERNELS, Frame, KERNELS, RESULT_WORDS, WORDS};
use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::graph::Updated;
use crate::kernel::{Arg, Function, Grid};
use crate::memory::DeviceBuffer;
use crate::stream::Stream;
use crate::wait::Wait;

/// Kernels that are waited for when an urgent one comes.
const BEFORE: i32 = 8;

/// Length of each, milliseconds.
const EACH_MS: f64 = 2.0;

/// Times that the order is looked at.
const TRIES: u32 = 5;

/// Rounds of the comparison across streams.
const HANDOVERS: u32 = 50;

/// Checks streams and shows what they cost.
///
/// # Errors
/// The first error of opening or of any piece of work.
pub fn streams(step: &mut Step<'_>) -> Result<(), StepError> {
    let gpu = open(step)?;
    let (least, greatest) = gpu.info().priorities;
    let granted = [Priority::Background, Priority::Critical]
        .map(|priority| gpu.stream(priority).map(|stream| stream.granted_priority()));
    let [background, critical] = granted;
    let (background, critical) = (background?, critical?);
    step.judge(
        "the driver grants the requested priorities",
        format!("background {background} of {least}, critical {critical} of {greatest}"),
        (background, critical) == (least, greatest),
    );
    let mut late = gpu.stream(Priority::Background)?;
    let set = late.set_priority(Priority::Critical);
    step.judge(
        "an existing stream accepts another priority (cuStreamSetAttribute)",
        set.map_or_else(
            |error| error.to_string(),
            |()| format!("{background} to {}", late.granted_priority()),
        ),
        late.granted_priority() == greatest,
    );
    order(step, &gpu)?;
    handovers(step, &gpu)?;
    graphs(step, &gpu)?;
    costs(step, &gpu)
}

/// A kernel that works for a while and takes a number at its end.
struct Queue {
    kernel: Function,
    turns: DeviceBuffer<u32>,
    out: DeviceBuffer<f32>,
    wide: Grid,
}

impl Queue {
    fn submit(&self, stream: &Stream, who: i32, grid: Grid, rounds: i32) -> Result<(), GpuError> {
        let args = [
            Arg::buffer(&self.turns),
            Arg::value(who),
            Arg::value(BEFORE + 1),
            Arg::value(rounds),
            Arg::buffer(&self.out),
        ];
        // SAFETY: as declared in the source; `turns` has a place for each and one more, `who` is
        // one of them.
        unsafe { stream.launch(&self.kernel, grid, &args) }
    }
}

/// An urgent kernel, submitted behind others that fill the device and stand in a stream of their
/// own each: in a stream of the greatest priority, and in one of theirs. Within a stream nothing
/// could be overtaken, and only the head of one competes.
fn order(step: &mut Step<'_>, gpu: &Gpu) -> Result<(), StepError> {
    step.progress("order of urgent and other work");
    let blocks = gpu.info().multiprocessors.max(1) * 8;
    let queue = Queue {
        kernel: gpu.module(&CHECK_KERNELS)?.function("check_order")?,
        turns: gpu.buffer(BEFORE as usize + 2)?,
        out: gpu.buffer(1)?,
        wide: Grid { blocks: [blocks, 1, 1], threads: [256, 1, 1], shared_bytes: 0 },
    };
    let narrow = Grid { blocks: [1, 1, 1], threads: [256, 1, 1], shared_bytes: 0 };
    let mut others = Vec::new();
    for _ in 0..BEFORE {
        others.push(gpu.stream(Priority::Background)?);
    }
    let first = &others[0];
    let each = rounds(EACH_MS * per_ms(first, &mut |rounds| queue.submit(first, 0, queue.wide, rounds))?);
    let reported = gpu.pinned::<u32>(BEFORE as usize + 2)?;
    let overtaken = |priority: Priority| -> Result<Vec<u32>, GpuError> {
        let urgent = gpu.stream(priority)?;
        let mut seen = Vec::new();
        for _ in 0..TRIES {
            first.fill_words(&queue.turns, 0)?;
            finish(first, "clearing the numbers")?;
            for (who, other) in (0..BEFORE).zip(&others) {
                queue.submit(other, who, queue.wide, each)?;
            }
            queue.submit(&urgent, BEFORE, narrow, 1)?;
            finish(&urgent, "an urgent kernel")?;
            for other in &others {
                finish(other, "kernels of the background")?;
            }
            first.download(&queue.turns, &reported)?;
            finish(first, "the numbers")?;
            seen.push(BEFORE as u32 - reported.read()?[BEFORE as usize].min(BEFORE as u32));
        }
        Ok(seen)
    };
    let (with, without) = (overtaken(Priority::Critical)?, overtaken(Priority::Background)?);
    // Of five, one may meet a host that was kept from submitting; on the emulated device, whose
    // streams are threads of a busy machine, four.
    let enough = if step.is_emulated() { 1 } else { 4 };
    let overtook = with.iter().filter(|&&kernels| kernels >= BEFORE as u32 / 2).count();
    let figures = format!("overtook {with:?} of {BEFORE}; in a stream of the same priority {without:?}");
    step.judge(
        &format!("work of the greatest priority overtakes {} waiting kernels of other streams", BEFORE / 2),
        &*figures,
        overtook >= enough,
    );
    let what = "its priority is what lets it overtake";
    if interleaves(&with, &without) {
        let why = format!("the device lets work of the same priority overtake just as far: {figures}");
        step.not_run(what, why);
    } else {
        step.judge(what, figures, sum(&with) > sum(&without));
    }
    step.figure("overtaken", serde_json::json!({ "critical": with, "same": without }));
    Ok(())
}

fn sum(kernels: &[u32]) -> u32 {
    kernels.iter().sum()
}

/// Whether work of the same priority overtook as many kernels as urgent work did, which did: then
/// the order says nothing about priorities.
fn interleaves(with: &[u32], without: &[u32]) -> bool {
    sum(with) > 0 && sum(without) >= sum(with)
}

/// One stream writes, another reads behind its event, over and over.
fn handovers(step: &mut Step<'_>, gpu: &Gpu) -> Result<(), StepError> {
    step.progress("one stream waiting for another's event");
    let (writer, reader) = (gpu.stream(Priority::Background)?, gpu.stream(Priority::Critical)?);
    let (written, read) = (writer.event(false)?, reader.event(false)?);
    let (between, result) = (gpu.buffer::<u32>(RESULT_WORDS)?, gpu.pinned::<u32>(RESULT_WORDS)?);
    let mut wrong = 0;
    for round in 1..=HANDOVERS {
        writer.fill_words(&between, round)?;
        writer.record(&written)?;
        reader.wait_for(&written)?;
        reader.download(&between, &result)?;
        reader.record(&read)?;
        writer.wait_for(&read)?;
        // The next content, which must not be seen yet.
        writer.fill_words(&between, u32::MAX)?;
        finish(&reader, "the reader")?;
        wrong += result.read()?.iter().filter(|word| **word != round).count();
        finish(&writer, "the writer")?;
    }
    let words = HANDOVERS as usize * RESULT_WORDS;
    step.judge(
        "a stream that waits for another's event sees its writes",
        format!("{wrong} of {words} words differ"),
        wrong == 0,
    );
    Ok(())
}

/// Result of the check's frame for `word`.
fn expected(word: u32) -> u32 {
    (0..KERNELS).fold(word, |word, _| word.wrapping_mul(3).wrapping_add(1))
}

/// Whether a frame of the check gives what the CPU computes; the words that differ.
pub(super) fn differing(gpu: &Gpu, graph: bool, seed: u64) -> Result<usize, GpuError> {
    let mut frame = Frame::new(gpu, Priority::Critical, graph)?;
    differing_words(&mut frame, seed)
}

fn differing_words(frame: &mut Frame, seed: u64) -> Result<usize, GpuError> {
    let mut numbers = SplitMix64::new(seed);
    let words: Vec<u32> = (0..WORDS).map(|_| numbers.bits() as u32).collect();
    frame.work.input.write()?.copy_from_slice(&words);
    frame.run(Wait::Block)?;
    let result = frame.work.result.read()?;
    Ok(result.iter().zip(&words).filter(|(reported, word)| **reported != expected(**word)).count())
}

fn graphs(step: &mut Step<'_>, gpu: &Gpu) -> Result<(), StepError> {
    step.progress("graphs against single launches");
    let single = differing(gpu, false, 3)?;
    let mut frame = Frame::new(gpu, Priority::Critical, true)?;
    let mut graph = 0;
    for seed in 0..3 {
        graph += differing_words(&mut frame, seed)?;
    }
    let updated = match frame.graph.take() {
        Some(mut made) => {
            let (stream, work) = (&frame.stream, &frame.work);
            let updated = stream.recapture(&mut made, || work.submit(stream))?;
            frame.graph = Some(made);
            Some(updated)
        }
        None => None,
    };
    graph += differing_words(&mut frame, 9)?;
    step.judge(
        "single launches and graphs compute what the CPU computes",
        format!("{single} and {graph} words differ, of {RESULT_WORDS} and {}", 4 * RESULT_WORDS),
        single + graph == 0,
    );
    step.judge("a graph is updated in place", format!("{updated:?}"), updated == Some(Updated::InPlace));
    Ok(())
}

/// Mean, tail and worst of a frame, launched one by one and as a graph, with each way of waiting.
fn costs(step: &mut Step<'_>, gpu: &Gpu) -> Result<(), StepError> {
    let ways = [(false, Wait::Spin), (false, Wait::Yield), (false, Wait::Block)].into_iter().chain([
        (true, Wait::Spin),
        (true, Wait::Yield),
        (true, Wait::Block),
    ]);
    let mut reported = Vec::new();
    for (graph, wait) in ways {
        let name = format!("{}, {wait:?}", if graph { "graph" } else { "single launches" }).to_lowercase();
        step.progress(&name);
        let mut frame = Frame::new(gpu, Priority::Critical, graph)?;
        reported.push(frame.measure(name, wait, u32::MAX, step.work_s / 6.0)?);
    }
    let mean =
        |at: usize| reported.get(at).map_or(0.0, |way: &crate::check::MeasuredWait| way.submit_us.mean);
    step.judge_time(
        "a graph costs the host less than single launches",
        format!("{:.1} us against {:.1} us a frame, spinning", mean(3), mean(0)),
        mean(3) < mean(0),
    );
    step.figure("ways", &reported);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_is_the_same_without_priorities_says_nothing_about_them() {
        assert!(interleaves(&[8, 8, 8], &[8, 8, 8]));
        assert!(!interleaves(&[8, 7, 8], &[0, 0, 1]));
        // Neither overtakes: that is no interleaving, and urgent work that does not is missed.
        assert!(!interleaves(&[0, 0, 0], &[0, 0, 0]));
    }
}
