//! Engines compared: processor time of one inference and agreement of the results.
//!
//! `cargo run -p takt-perception --example engines -- [ONNX FILE ...]`: the built-in models and the
//! files given.

use std::error::Error;

use takt_perception::{BUILTIN_MODELS, Backend, Engine, EngineConfig, ModelSource};
use takt_rt::clock::{monotonic_ns, process_cpu_ns};

const RUNS: usize = 30;

fn main() -> Result<(), Box<dyn Error>> {
    let mut engines = Vec::new();
    for backend in [Backend::Embedded, Backend::Onnxruntime] {
        match Engine::open(&EngineConfig { backend, ..EngineConfig::default() }) {
            Ok(engine) => engines.push(engine),
            Err(error) => println!("left out: {error}"),
        }
    }
    let builtin = BUILTIN_MODELS.iter().map(|model| ModelSource::Builtin(model.name.into()));
    let files = std::env::args().skip(1).map(|path| ModelSource::File(path.into()));
    for source in builtin.chain(files) {
        println!("{source}");
        let mut first: Option<Vec<Vec<f32>>> = None;
        for engine in &engines {
            let mut network = engine.load(&source, None)?;
            let length: usize = network.network.input_shape().iter().product();
            let input: Vec<f32> = (0..length as u32)
                .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32)
                .collect();
            let (mut cpu, mut wall) = (Vec::new(), Vec::new());
            for _ in 0..RUNS {
                let (cpu_ns, wall_ns) = (process_cpu_ns(), monotonic_ns());
                network.network.run(&input)?;
                cpu.push(process_cpu_ns() - cpu_ns);
                wall.push(monotonic_ns() - wall_ns);
            }
            cpu.sort_unstable();
            wall.sort_unstable();
            let outputs: Vec<Vec<f32>> =
                network.network.run(&input)?.iter().map(|t| t.data.clone()).collect();
            let ms = |ns: u64| ns as f64 / 1e6;
            print!(
                "  processor {:7.2} ms median, {:7.2} ms least; wall-clock {:7.2} ms median: {}",
                ms(cpu[RUNS / 2]),
                ms(cpu[0]),
                ms(wall[RUNS / 2]),
                engine.description()
            );
            match &first {
                None => println!(),
                Some(first) => {
                    let pairs = first.iter().flatten().zip(outputs.iter().flatten());
                    let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    println!("; largest difference {worst:.1e}");
                }
            }
            first.get_or_insert(outputs);
        }
    }
    Ok(())
}
