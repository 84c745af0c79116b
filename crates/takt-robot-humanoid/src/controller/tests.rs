use super::*;

/// Devices that answer at once: drives by the standard's rules, the probe with a fixed count.
struct Plant {
    kinds: Vec<DeviceClass>,
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
    stuck: bool,
}

impl ProcessData for Plant {
    fn inputs(&self, device: usize) -> &[u8] {
        &self.inputs[device]
    }

    fn outputs_mut(&mut self, device: usize) -> &mut [u8] {
        &mut self.outputs[device]
    }
}

impl Plant {
    fn new(config: &HumanoidConfig) -> Self {
        let kinds: Vec<DeviceClass> = config.devices().iter().map(|device| device.kind).collect();
        let mut plant = Self {
            inputs: kinds.iter().map(|_| vec![0; 6]).collect(),
            outputs: kinds.iter().map(|_| vec![0; 6]).collect(),
            kinds,
            stuck: false,
        };
        plant.react();
        plant
    }

    fn react(&mut self) {
        for (device, kind) in self.kinds.iter().enumerate() {
            if *kind == DeviceClass::Drive && !self.stuck {
                let word = u16::from_le_bytes([self.outputs[device][0], self.outputs[device][1]]);
                let status: u16 = match word {
                    0x06 => 0x21,
                    0x07 => 0x23,
                    0x0F => 0x27,
                    0x02 => 0x07,
                    _ => 0x40,
                };
                self.inputs[device][..2].copy_from_slice(&status.to_le_bytes());
                if status == 0x27 {
                    let target = self.outputs[device][2..6].to_vec();
                    self.inputs[device][2..6].copy_from_slice(&target);
                }
            } else if *kind == DeviceClass::Probe {
                self.inputs[device][..2].copy_from_slice(&9_u16.to_le_bytes());
            }
        }
    }
}

fn well(cycle: u64) -> Exchanged {
    Exchanged { cycle, fresh: true, all_op: true, published: true, ..Exchanged::default() }
}

#[test]
fn drives_are_enabled_walk_within_limits_and_stop() {
    let config = HumanoidConfig { devices: 12, ..HumanoidConfig::default() };
    let (mut controller, mut plant) = (Controller::new(&config), Plant::new(&config));
    let mut farthest = 0;
    for cycle in 1..5000 {
        controller.step(&well(cycle), Punctuality::default(), false, &mut plant);
        plant.react();
        let elbow = i32::from_le_bytes(plant.outputs[10][2..6].try_into().unwrap());
        farthest = farthest.max(elbow.abs());
    }
    assert_eq!(controller.mode(), Mode::Walking);
    assert_eq!(controller.enabled().0, controller.enabled().1);
    // The elbow swings around half a radian.
    let rad = f64::from(farthest) / config.devices()[10].scale().counts_per_rad();
    assert_eq!(config.devices()[10].name, "left-elbow");
    assert!((0.6..0.75).contains(&rad), "{rad}");
    assert_eq!(controller.probe().unwrap().command, 9);
    assert_eq!(plant.outputs[0][..2], [9, 0]);
    for cycle in 5000..5010 {
        controller.step(&well(cycle), Punctuality::default(), true, &mut plant);
        plant.react();
    }
    // The plant's drives never end their quick stop: torque goes off after the configured time.
    assert_eq!(controller.mode(), Mode::Stopping(StopReason::Asked));
    for cycle in 5010..5600 {
        controller.step(&well(cycle), Punctuality::default(), false, &mut plant);
        plant.react();
    }
    assert_eq!(controller.mode(), Mode::Stopped(StopReason::Asked));
    assert!(controller.is_safe());
}

#[test]
fn drives_that_do_not_come_stop_the_robot() {
    let config = HumanoidConfig { devices: 12, ..HumanoidConfig::default() };
    let (mut controller, mut plant) = (Controller::new(&config), Plant::new(&config));
    plant.stuck = true;
    let stopped = (1..4000).find(|&cycle| {
        matches!(
            controller.step(&well(cycle), Punctuality::default(), false, &mut plant),
            Mode::Stopped(StopReason::NotEnabled)
        )
    });
    assert!(stopped.is_some_and(|cycle| cycle >= 2000), "{stopped:?}");
}

#[test]
fn shorter_process_data_than_expected_harm_nobody() {
    let config = HumanoidConfig { devices: 12, ..HumanoidConfig::default() };
    let (mut controller, mut plant) = (Controller::new(&config), Plant::new(&config));
    plant.inputs.iter_mut().for_each(|inputs| inputs.truncate(1));
    plant.outputs.iter_mut().for_each(Vec::clear);
    for cycle in 1..50 {
        controller.step(&well(cycle), Punctuality::default(), false, &mut plant);
    }
}

/// One drive in `mode` with all objects; its inputs are set by hand.
fn one(mode: DriveMode, layout: DriveLayout) -> (Controller, Plant) {
    let device = Device { mode, layout: Some(layout), ..Device::default() };
    let config = HumanoidConfig { list: vec![device], ramp_s: 60.0, ..HumanoidConfig::default() };
    config.validate().unwrap();
    let plant = Plant {
        kinds: vec![DeviceClass::Drive],
        inputs: vec![vec![0; layout.input_bytes]],
        outputs: vec![vec![0; layout.output_bytes]],
        stuck: true,
    };
    (Controller::new(&config), plant)
}

impl Plant {
    fn show(&mut self, status: u16, counts: i32) {
        self.inputs[0][..2].copy_from_slice(&status.to_le_bytes());
        self.inputs[0][2..6].copy_from_slice(&counts.to_le_bytes());
    }

    fn word(&self) -> u16 {
        u16_at(&self.outputs[0], 0).unwrap()
    }

    fn target(&self) -> i32 {
        i32_at(&self.outputs[0], 2).unwrap()
    }
}

/// The way to operation up to "switched on"; cycles 1 to 3.
const TO_SWITCHED_ON: [u16; 3] = [0x40, 0x21, 0x23];

#[test]
fn a_drive_that_comes_with_torque_on_is_switched_off_where_it_is() {
    let (mut controller, mut plant) = one(DriveMode::Csp, DriveLayout::default());
    for cycle in 1..20 {
        plant.show(0x27, 30_000 + cycle);
        let mode = controller.step(&well(cycle as u64), Punctuality::default(), false, &mut plant);
        assert_eq!((mode, plant.word(), plant.target()), (Mode::Enabling, 0x00, 30_000 + cycle));
    }
    // Once it was off, it comes into operation as any other.
    for (cycle, (status, word)) in [(0x40, 0x06), (0x21, 0x07), (0x23, 0x0F), (0x27, 0x0F)].iter().enumerate()
    {
        plant.show(*status, 30_000);
        controller.step(&well(20 + cycle as u64), Punctuality::default(), false, &mut plant);
        assert_eq!((plant.word(), plant.target()), (*word, 30_000));
    }
    plant.show(0x27, 30_000);
    let mode = controller.step(&well(24), Punctuality::default(), false, &mut plant);
    assert_eq!(mode, Mode::Walking);
    assert!((plant.target() - 30_000).abs() < 10, "{}", plant.target());
}

#[test]
fn torque_waits_for_the_mode_and_a_drive_in_another_one_has_its_place_as_target() {
    for mode in [DriveMode::Csp, DriveMode::Csv, DriveMode::Cst] {
        let (mut controller, mut plant) = one(mode, DriveLayout::all_modes());
        let other = if mode == DriveMode::Csp { 9 } else { 8 };
        plant.inputs[0][12] = other;
        for (cycle, status) in (1..).zip(TO_SWITCHED_ON.into_iter().chain([0x23; 10])) {
            plant.show(status, 30_000);
            controller.step(&well(cycle), Punctuality::default(), false, &mut plant);
            assert_eq!(plant.target(), 30_000, "{mode:?}");
        }
        assert_eq!(plant.word(), 0x07, "{mode:?} is held back");
        plant.inputs[0][12] = mode.code();
        controller.step(&well(20), Punctuality::default(), false, &mut plant);
        assert_eq!(plant.word(), 0x0F, "{mode:?}");
        for cycle in 21..100 {
            plant.show(0x27, 30_000 + cycle as i32);
            controller.step(&well(cycle), Punctuality::default(), false, &mut plant);
            if mode != DriveMode::Csp {
                assert_eq!(plant.target(), 30_000 + cycle as i32, "{mode:?}");
            }
        }
        assert_eq!(controller.mode(), Mode::Walking);
    }
}

#[test]
fn torque_waits_for_inputs_of_all_devices() {
    let wrong =
        Exchanged { working_counter: 2, expected_counter: 3, counter_wrong: true, answered: true, ..well(4) };
    for bad in
        [wrong, Exchanged { all_op: false, ..well(4) }, Exchanged { fresh: false, stale: 1, ..well(4) }]
    {
        let (mut controller, mut plant) = one(DriveMode::Csp, DriveLayout::default());
        for (cycle, status) in (1..).zip(TO_SWITCHED_ON) {
            plant.show(status, 0);
            let exchanged = if status == 0x23 { Exchanged { cycle, ..bad } } else { well(cycle) };
            controller.step(&exchanged, Punctuality::default(), false, &mut plant);
        }
        assert_eq!(plant.word(), 0x07, "{bad:?}");
        controller.step(&well(4), Punctuality::default(), false, &mut plant);
        assert_eq!(plant.word(), 0x0F);
    }
}

/// Comes into operation at 0 counts and into the walk; the next cycle's number.
fn walk_on(controller: &mut Controller, plant: &mut Plant) -> u64 {
    for (cycle, status) in (1..).zip(TO_SWITCHED_ON.into_iter().chain([0x27; 2])) {
        plant.show(status, 0);
        if let Some(mode) = plant.inputs[0].get_mut(12) {
            *mode = controller.joints[0].mode.code();
        }
        controller.step(&well(cycle), Punctuality::default(), false, plant);
    }
    assert_eq!(controller.mode(), Mode::Walking);
    6
}

#[test]
fn speed_from_positions_does_not_depend_on_the_age_of_inputs() {
    let layout = DriveLayout { velocity: None, ..DriveLayout::all_modes() };
    let (mut controller, mut plant) = one(DriveMode::Cst, layout);
    let begun = walk_on(&mut controller, &mut plant);
    let per_s = controller.joints[0].scale.counts_per_rad().recip() * 100.0 / controller.dt_s;
    for cycle in begun..begun + 40 {
        // 100 counts a cycle; in some the frame is missing, in some it is late for a while, once
        // its counter is wrong.
        let (stale, answered, wrong) = match cycle - begun {
            10 => (1, false, false),
            15 => (1, false, false),
            16 => (2, false, false),
            20..=25 => (1, true, false),
            30 => (0, true, true),
            _ => (0, true, false),
        };
        let counter = if answered { 3 } else { 0 };
        let exchanged = Exchanged {
            fresh: stale == 0,
            answered,
            stale,
            working_counter: if wrong { 2 } else { counter },
            expected_counter: 3,
            ..well(cycle)
        };
        if !wrong {
            plant.show(0x27, 100 * (cycle - begun) as i32 - 100 * stale as i32);
        }
        controller.step(&exchanged, Punctuality::default(), false, &mut plant);
        let rad_s = controller.joints[0].sampled_rad_s;
        if cycle > begun {
            assert!((rad_s - per_s).abs() < 1e-9, "cycle {}: {rad_s}, not {per_s}", cycle - begun);
        }
    }
    assert_eq!(controller.mode(), Mode::Walking);
}

#[test]
fn a_joint_that_leaves_its_range_stops_the_walk_in_every_mode() {
    for mode in [DriveMode::Csp, DriveMode::Csv, DriveMode::Cst] {
        let (mut controller, mut plant) = one(mode, DriveLayout::all_modes());
        let begun = walk_on(&mut controller, &mut plant);
        let scale = controller.joints[0].scale;
        for (cycle, rad, stopped) in [(0, 2.79, false), (1, 2.79, false), (2, 2.81, false), (3, 2.81, true)] {
            plant.show(0x27, scale.counts(rad));
            let mode = controller.step(&well(begun + cycle), Punctuality::default(), false, &mut plant);
            let expected = if stopped { Mode::Stopping(StopReason::OutOfRange) } else { Mode::Walking };
            assert_eq!(mode, expected, "cycle {cycle}");
        }
        assert_eq!(plant.word(), 0x02);
    }
}

#[test]
fn a_drive_that_changes_its_mode_in_operation_stops_the_robot() {
    for mode in [DriveMode::Csp, DriveMode::Csv, DriveMode::Cst] {
        let (mut controller, mut plant) = one(mode, DriveLayout::all_modes());
        let begun = walk_on(&mut controller, &mut plant);
        plant.show(0x27, 0);
        let walking = controller.step(&well(begun), Punctuality::default(), false, &mut plant);
        assert_eq!(walking, Mode::Walking);
        // Homing, for one.
        plant.inputs[0][12] = 6;
        for cycle in 1..=2 {
            controller.step(&well(begun + cycle), Punctuality::default(), false, &mut plant);
        }
        assert_eq!(controller.mode(), Mode::Stopping(StopReason::WrongMode), "{mode:?}");
        assert_eq!(plant.word(), 0x02);
    }
}

#[test]
fn a_drive_that_drops_out_as_the_walk_begins_gets_no_torque() {
    let (mut controller, mut plant) = one(DriveMode::Csp, DriveLayout::default());
    for (cycle, status) in (1..).zip(TO_SWITCHED_ON.into_iter().chain([0x27])) {
        plant.show(status, 0);
        controller.step(&well(cycle), Punctuality::default(), false, &mut plant);
    }
    plant.show(0x23, 0);
    let mode = controller.step(&well(5), Punctuality::default(), false, &mut plant);
    assert_eq!((mode, plant.word()), (Mode::Walking, 0x07));
    let mode = controller.step(&well(6), Punctuality::default(), false, &mut plant);
    assert_eq!((mode, plant.word()), (Mode::Stopping(StopReason::NotEnabled), 0x00));
}
