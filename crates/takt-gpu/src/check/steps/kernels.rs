//! Every kernel compiled by every compiler that is here and taken from what was compiled
//! beforehand, loaded by the driver, and those of this crate compared with what the CPU computes.

use takt_load::gpu::Priority;
use takt_rt::random::SplitMix64;

use super::{Step, StepError, finish, open};
use crate::check::CHECK_KERNELS;
use crate::error::GpuError;
use crate::gpu::Gpu;
use crate::interference::INTERFERENCE_KERNELS;
use crate::kernel::{Arg, Grid, Module};
use crate::nvrtc::Compiler;
use crate::prebuilt;
use crate::source::Source;

/// Words of a comparison: no multiple of a block.
const WORDS: usize = 100_003;

/// Compiles, loads and compares the kernels of this crate and of `others`.
///
/// # Errors
/// The first error of opening or of any piece of work.
pub fn kernels(step: &mut Step<'_>, others: &[&Source]) -> Result<(), StepError> {
    let gpu = open(step)?;
    let (driver, emulated) = (gpu.driver_version(), gpu.info().emulated);
    let mut ways = 0;
    for source in [&CHECK_KERNELS, &INTERFERENCE_KERNELS].iter().chain(others) {
        for compiler in Compiler::all().iter().filter(|compiler| compiler.is_emulated() == emulated) {
            let (major, minor) = compiler.version();
            let what = format!("`{}` compiled by NVRTC {major}.{minor} loads", source.name);
            if major > driver.major() {
                step.not_run(&what, format!("the driver supports CUDA {driver}"));
                continue;
            }
            step.progress(&what);
            let compiled = compiler.compile(source, gpu.info().compute_capability);
            let loaded = compiled.and_then(|compiled| {
                let module = gpu.load(source.name, &compiled)?;
                every_kernel(source, &module)
                    .map(|count| format!("{count} kernels, {} bytes", compiled.bytes().len()))
            });
            judge(step, &what, loaded);
            ways += 1;
        }
        if takt_files::environment::var_os(prebuilt::VARIABLE).is_some() {
            let what = format!("`{}` compiled beforehand loads", source.name);
            step.progress(&what);
            let loaded = gpu.module_prebuilt(source).and_then(|(module, which)| {
                every_kernel(source, &module).map(|count| format!("{which}: {count} kernels"))
            });
            judge(step, &what, loaded);
            ways += 1;
        }
        if ways == 0 {
            // Says what was looked for.
            gpu.module(source)?;
        }
    }
    step.progress("results against the CPU's");
    compare(step, &gpu)
}

fn judge(step: &mut Step<'_>, what: &str, loaded: Result<String, GpuError>) {
    match loaded {
        Ok(measured) => step.judge(what, measured, true),
        Err(error) => step.judge(what, error.to_string(), false),
    }
}

/// Finds every kernel of the text in the module; how many there are.
fn every_kernel(source: &Source, module: &Module) -> Result<usize, GpuError> {
    let names = source.kernels();
    names.iter().try_for_each(|name| module.function(name).map(drop))?;
    Ok(names.len())
}

/// Runs `check_step` and `interfere_memory` over words of all kinds, in part and with odd grids.
fn compare(step: &mut Step<'_>, gpu: &Gpu) -> Result<(), StepError> {
    let stream = gpu.stream(Priority::Critical)?;
    let (mut up, down) = (gpu.pinned::<u32>(WORDS)?, gpu.pinned::<u32>(WORDS)?);
    let (from, to) = (gpu.buffer::<u32>(WORDS)?, gpu.buffer::<u32>(WORDS)?);
    let mut numbers = SplitMix64::new(7);
    let words: Vec<u32> = (0..WORDS).map(|_| numbers.bits() as u32).collect();
    up.write()?.copy_from_slice(&words);
    type Expected = fn(u32) -> u32;
    let cases: [(&Source, &str, Expected); 2] = [
        (&CHECK_KERNELS, "check_step", |word| word.wrapping_mul(3).wrapping_add(1)),
        (&INTERFERENCE_KERNELS, "interfere_memory", |word| word.wrapping_add(1)),
    ];
    for (source, name, expected) in cases {
        let function = gpu.module(source)?.function(name)?;
        let mut differing = 0;
        for count in [1, 31, 1024, WORDS] {
            stream.fill_words(&to, 0xDEAD_BEEF)?;
            stream.upload(&up, &from)?;
            let args = [Arg::buffer(&from), Arg::buffer(&to), Arg::value(count as u32)];
            // SAFETY: as declared in the source; both have `WORDS` elements, at least `count`.
            unsafe { stream.launch(&function, Grid::over(count, 96), &args)? };
            stream.download(&to, &down)?;
            finish(&stream, "a comparison")?;
            let reported = down.read()?;
            let right = |(at, word): (usize, &u32)| {
                *word == if at < count { expected(words[at]) } else { 0xDEAD_BEEF }
            };
            differing += reported.iter().enumerate().filter(|pair| !right(*pair)).count();
        }
        let what = format!("`{name}` computes what the CPU computes, and writes nothing else");
        step.judge(&what, format!("{differing} of {} words differ", 4 * WORDS), differing == 0);
    }
    Ok(())
}
