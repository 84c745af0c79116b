//! A converter computed from its data sheet: update, settling, conversion, noise, steps.

use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use takt_rt::clock::monotonic_ns;

use takt_rt::random::SplitMix64;

use crate::config::{EchoConfig, SimulatedConfig};
use crate::echo::Echo;
use crate::error::LinkError;
use crate::eventfd::latest;
use crate::far_end::{FarEndSetup, Wire};
use crate::frame::Wide;
use crate::{Link, LinkFacts};

/// Time, and a way to let it pass without giving the processor away.
pub trait Clock: Send {
    /// Nanoseconds since some start.
    fn now_ns(&self) -> u64;
    /// Returns when that time has come.
    fn busy_until(&mut self, deadline_ns: u64);
}

/// CLOCK_MONOTONIC, read until the time has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now_ns(&self) -> u64 {
        monotonic_ns()
    }

    fn busy_until(&mut self, deadline_ns: u64) {
        while monotonic_ns() < deadline_ns {
            std::hint::spin_loop();
        }
    }
}

/// An output and an input with a wire between them.
pub struct Simulated<C> {
    clock: C,
    register_ns: u64,
    update_ns: u64,
    conversion_ns: u64,
    /// Time constant of the output; 0 for an ideal one.
    tau_ns: f64,
    noise_v: f64,
    low_v: f64,
    high_v: f64,
    step_v: f64,
    random: SplitMix64,
    /// The output moves from `from_v` to `to_v`, beginning at `change_ns`.
    from_v: f64,
    to_v: f64,
    change_ns: u64,
    plant: Option<Plant>,
    facts: LinkFacts,
}

/// A plant wired to a second output and two more inputs. Its process is informed every update, and
/// says what its sensors show then; the converter reads the newest word.
struct Plant {
    echo: Echo,
    levels: OwnedFd,
    drive_v: f64,
    sensors_v: [f64; 2],
}

impl Simulated<MonotonicClock> {
    /// In real time, with a plant where one is asked for.
    pub(crate) fn open(config: &SimulatedConfig, plant: Option<&FarEndSetup>) -> Result<Self, LinkError> {
        let mut link = Self::new(config, MonotonicClock);
        let Some(plant) = plant else { return Ok(link) };
        let system = |errno: Errno| LinkError::Plant { reason: format!("making a socket pair: {errno}") };
        let flags = SocketFlags::CLOEXEC;
        let (levels, far) =
            socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None).map_err(system)?;
        let wire = Wire::Datagrams { drop_every: 0 };
        let echo = Echo::process(plant, &EchoConfig::default(), wire, &[far.as_fd()])?;
        link.facts.echo = echo.facts();
        link.plant = Some(Plant { echo, levels, drive_v: 0.0, sensors_v: [0.0; 2] });
        Ok(link)
    }
}

impl<C: Clock> Simulated<C> {
    /// A converter whose output is at 0 V, or at the level of its range that is nearest to it.
    pub fn new(config: &SimulatedConfig, clock: C) -> Self {
        let [low_v, high_v] = config.range_v;
        let steps = (1u64 << config.bits.min(32)) - 1;
        let settling_ns = config.settling.as_nanos() as f64;
        // To half a step: exp(-settling / tau) = 2^-(bits + 1).
        let tau_ns = settling_ns / (f64::from(config.bits + 1) * std::f64::consts::LN_2);
        let nanoseconds = |rate_hz: f64| (1e9 / rate_hz).round() as u64;
        let start_v = 0.0f64.clamp(low_v, high_v);
        let description = format!(
            "simulated converter on {} ({} per register access), {} bits, {low_v} V to {high_v} V, input {} S/s, output {} S/s",
            config.bus.name(),
            takt_rt::duration::format(config.register()),
            config.bits,
            config.ai_rate_hz,
            config.ao_rate_hz
        );
        Self {
            clock,
            register_ns: config.register().as_nanos() as u64,
            update_ns: nanoseconds(config.ao_rate_hz),
            conversion_ns: nanoseconds(config.ai_rate_hz),
            tau_ns,
            noise_v: config.noise_v,
            low_v,
            high_v,
            step_v: (high_v - low_v) / steps as f64,
            random: SplitMix64::new(config.seed),
            from_v: start_v,
            to_v: start_v,
            change_ns: 0,
            plant: None,
            facts: LinkFacts { description, echo: None },
        }
    }

    /// The voltage on the wire.
    fn wire_v(&self, now_ns: u64) -> f64 {
        let since_ns = now_ns.saturating_sub(self.change_ns) as f64;
        let rest = match self.tau_ns > 0.0 {
            _ if now_ns < self.change_ns => 1.0,
            true => (-since_ns / self.tau_ns).exp(),
            false => 0.0,
        };
        self.to_v + (self.from_v - self.to_v) * rest
    }

    /// Keeps the processor as long as a conversion of the input takes; when it was sampled.
    fn convert(&mut self) -> u64 {
        let sampled_ns = self.clock.now_ns() + self.register_ns;
        self.clock.busy_until(sampled_ns + self.conversion_ns + self.register_ns);
        sampled_ns
    }

    /// Result of converting `level_v`.
    fn converted(&mut self, level_v: f64) -> f64 {
        let noise_v = if self.noise_v > 0.0 { self.noise_v * normal(&mut self.random) } else { 0.0 };
        self.quantised(level_v + noise_v)
    }

    /// The nearest level that the converter has.
    fn quantised(&self, level_v: f64) -> f64 {
        let inside_v = level_v.clamp(self.low_v, self.high_v);
        self.low_v + ((inside_v - self.low_v) / self.step_v).round() * self.step_v
    }
}

impl<C: Clock> Link for Simulated<C> {
    fn write_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        let written_ns = self.clock.now_ns() + self.register_ns;
        self.clock.busy_until(written_ns);
        // A NaN would stay on the wire for ever.
        let level_v = if level_v.is_nan() { self.to_v } else { self.quantised(level_v) };
        let change_ns = written_ns + self.update_ns;
        self.from_v = self.wire_v(change_ns);
        self.to_v = level_v;
        self.change_ns = change_ns;
        Ok(())
    }

    fn read_v(&mut self) -> Result<f64, LinkError> {
        let sampled_ns = self.convert();
        Ok(self.converted(self.wire_v(sampled_ns)))
    }

    fn drive_v(&mut self, level_v: f64) -> Result<(), LinkError> {
        let level_v = if level_v.is_nan() { 0.0 } else { self.quantised(level_v) };
        let written_ns = self.clock.now_ns() + self.register_ns;
        let Some(plant) = &mut self.plant else { return Err(self.no_plant()) };
        plant.drive_v = level_v;
        let frame = Wide { sequence: 0, level_v: 0.0, values_v: [level_v as f32, 0.0] };
        match send(&plant.levels, &frame.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            // Full: the far end has not run for long, and keeps the drive that it has.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => {}
            Err(errno) => {
                let reason = plant.echo.gone().unwrap_or_else(|| errno.to_string());
                return Err(LinkError::FarEnd { link: "simulated", reason });
            }
        }
        self.clock.busy_until(written_ns);
        Ok(())
    }

    fn sense_v(&mut self) -> Result<[f64; 2], LinkError> {
        let Some(plant) = &mut self.plant else { return Err(self.no_plant()) };
        if let Some(sensors_v) = latest(&plant.levels) {
            plant.sensors_v = sensors_v;
        }
        let sensors_v = plant.sensors_v;
        let mut shown_v = [0.0; 2];
        for (shown_v, level_v) in shown_v.iter_mut().zip(sensors_v) {
            self.convert();
            *shown_v = self.converted(level_v);
        }
        Ok(shown_v)
    }

    fn end_plant(&mut self) -> Option<serde_json::Value> {
        self.plant.as_mut()?.echo.report()
    }

    fn facts(&self) -> &LinkFacts {
        &self.facts
    }
}

/// Mean 0, variance 1 (Box and Muller).
fn normal(random: &mut SplitMix64) -> f64 {
    // In (0, 1].
    let mut uniform = || ((random.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let radius = (-2.0 * uniform().ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Bus;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Time that passes only where the converter lets it.
    #[derive(Default)]
    struct Virtual(u64);

    impl Clock for Virtual {
        fn now_ns(&self) -> u64 {
            self.0
        }

        fn busy_until(&mut self, deadline_ns: u64) {
            self.0 = self.0.max(deadline_ns);
        }
    }

    fn ideal() -> SimulatedConfig {
        SimulatedConfig {
            ai_rate_hz: 250e3,
            ao_rate_hz: 1e6,
            settling: Duration::ZERO,
            register: Some(Duration::from_nanos(300)),
            noise_v: 0.0,
            ..SimulatedConfig::default()
        }
    }

    /// Time and reads until an edge shows.
    fn edge(link: &mut Simulated<Virtual>, level_v: f64) -> (u64, u64) {
        let start_ns = link.clock.now_ns();
        link.write_v(level_v).unwrap();
        let mut reads = 1;
        while (link.read_v().unwrap() >= 1.0) != (level_v >= 1.0) {
            reads += 1;
        }
        (link.clock.now_ns() - start_ns, reads)
    }

    #[test]
    fn the_latency_is_that_of_the_data_sheet() {
        let mut link = Simulated::new(&ideal(), Virtual::default());
        // Write 300. The first read samples at 600, before the update shows at 1300, and is back at
        // 4900; the second samples at 5200 and is back at 9500.
        assert_eq!(edge(&mut link, 5.0), (9500, 2));
        assert_eq!(edge(&mut link, 0.0), (9500, 2));
        let fast = SimulatedConfig { ao_rate_hz: 1e9, ..ideal() };
        assert_eq!(edge(&mut Simulated::new(&fast, Virtual::default()), 5.0), (4900, 1));
    }

    /// The paper's boards, and one on USB: what their buses and converters alone take.
    #[test]
    fn the_bus_is_part_of_the_latency() {
        for (bus, ai_rate_hz, ao_rate_hz, expected_ns) in [
            // Written after 1000, sampled at 2000, when the update shows.
            (Bus::Pci, 250e3, 1e6, 2000 + 4000 + 1000),
            (Bus::Pcie, 1e6, 3e6, 1000 + 1000 + 500),
            (Bus::Pci, 625e3, 2.86e6, 2000 + 1600 + 1000),
            (Bus::Usb, 250e3, 1e6, 250_000 + 4000 + 125_000),
        ] {
            let config = SimulatedConfig { bus, ai_rate_hz, ao_rate_hz, register: None, ..ideal() };
            let (latency_ns, _) = edge(&mut Simulated::new(&config, Virtual::default()), 5.0);
            assert_eq!(latency_ns, expected_ns, "{bus:?} {ai_rate_hz}");
        }
        let link = Simulated::new(
            &SimulatedConfig { bus: Bus::Pcie, ..SimulatedConfig::default() },
            Virtual::default(),
        );
        assert!(
            link.facts().description.contains("PCIe (500ns per register access)"),
            "{}",
            link.facts().description
        );
    }

    #[test]
    fn settling_delays_the_falling_edge_more() {
        // From 5 V the wire has to fall to a fifth, to 5 V it has to rise by a fifth.
        let config = SimulatedConfig { settling: Duration::from_micros(400), ai_rate_hz: 1e6, ..ideal() };
        let mut link = Simulated::new(&config, Virtual::default());
        let (rise_ns, _) = edge(&mut link, 5.0);
        link.clock.0 += 1_000_000;
        let (fall_ns, _) = edge(&mut link, 0.0);
        assert!(fall_ns > 2 * rise_ns, "{rise_ns} {fall_ns}");
        // tau = 400 us / (17 ln 2) = 33.9 us; ln 5 * tau = 54.6 us.
        assert!((54_000..60_000).contains(&fall_ns), "{fall_ns}");
    }

    #[test]
    fn the_same_seed_is_the_same_noise_and_its_width_is_as_asked() {
        let config = SimulatedConfig { noise_v: 0.1, ..ideal() };
        let sample = |config: &SimulatedConfig| {
            let mut link = Simulated::new(config, Virtual::default());
            (0..20_000).map(|_| link.read_v().unwrap()).collect::<Vec<f64>>()
        };
        let values = sample(&config);
        assert_eq!(values, sample(&config));
        assert_ne!(values, sample(&SimulatedConfig { seed: 2, ..config }));
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
        // Five standard errors.
        assert!(mean.abs() < 0.0036, "{mean}");
        assert!((deviation - 0.1).abs() < 0.0025, "{deviation}");
    }

    #[test]
    fn real_time_is_spent_as_asked() {
        let config = SimulatedConfig { ai_rate_hz: 10e3, ..ideal() };
        let mut link = Simulated::new(&config, MonotonicClock);
        let start_ns = monotonic_ns();
        link.read_v().unwrap();
        assert!(monotonic_ns() - start_ns >= 100_600);
    }

    proptest! {
        #[test]
        fn levels_are_within_half_a_step_and_inside_the_range(
            level_v in -20.0f64..20.0,
            bits in 1u32..=24,
        ) {
            let config = SimulatedConfig { bits, ..ideal() };
            let mut link = Simulated::new(&config, Virtual::default());
            link.write_v(level_v).unwrap();
            link.clock.0 += 10_000;
            let read_v = link.read_v().unwrap();
            let step_v = 20.0 / ((1u64 << bits) - 1) as f64;
            prop_assert!((-10.0..=10.0 + 1e-9).contains(&read_v));
            prop_assert!((read_v - level_v.clamp(-10.0, 10.0)).abs() <= step_v / 2.0 + 1e-9);
            link.write_v(f64::NAN).unwrap();
            prop_assert!(link.read_v().unwrap().is_finite());
        }
    }
}
