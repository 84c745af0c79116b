//! Configuration of the cell: cameras, perception, monitor, tasks, robot.

#![deny(missing_docs)]

mod bounds;

use serde::{Deserialize, Serialize};
use takt_link_camera::{CameraConfig, CameraDevice};
use takt_link_rtde::arm::Mission;
use takt_link_rtde::client::RtdeConfig;
use takt_link_rtde::sim::SimConfig;
use takt_perception::{Mount, PerceptionConfig, SensorConfig};

use crate::arm::ShapeConfig;
use crate::error::CellConfigError;
use crate::ssm::{Light, MAX_CAMERAS, SsmConfig, arithmetic};
use crate::tasks::TaskSet;
use takt_rt::config::SettingError;

/// One camera of the cell (`[[cameras]]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellCamera {
    /// Name for people.
    pub name: String,
    /// Its mounting: on the TCP, as in the paper, or fixed in the cell.
    pub mount: Mount,
    /// Source of its frames.
    pub source: CameraConfig,
    /// Its depth sensor: how near it measures, and where it never does. A D435.
    #[serde(default)]
    pub sensor: SensorConfig,
}

/// The robot (`[robot]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RobotConfig {
    /// Connection to the controller. With a simulator, host and port are the simulator's.
    pub rtde: RtdeConfig,
    /// A simulated controller in this process; absent for a real robot.
    pub simulator: Option<SimConfig>,
    /// Motion of the arm; absent if the controller's own program moves it.
    pub mission: Option<Mission>,
    /// Port of the controller's dashboard server, where a stop is tried as well when the robot does
    /// not obey. Default 29999, fixed on a real robot; with a simulator, the simulator's. 0 does
    /// without.
    pub dashboard_port: u16,
    /// The light: which standard digital output is which colour.
    pub light: LightOutputs,
    /// The robot's own shape, so that it does not see itself; absent where no camera sees the arm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<ShapeConfig>,
}

impl Default for RobotConfig {
    fn default() -> Self {
        Self {
            rtde: RtdeConfig::default(),
            simulator: None,
            mission: None,
            dashboard_port: 29999,
            light: LightOutputs::default(),
            shape: None,
        }
    }
}

/// Standard digital outputs of the signal light (SentryRT-1, section III).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LightOutputs {
    /// Output of the green light, 0..=7. 0.
    pub green: u8,
    /// Output of the orange light. 1.
    pub orange: u8,
    /// Output of the red light. 2.
    pub red: u8,
}

impl Default for LightOutputs {
    fn default() -> Self {
        Self { green: 0, orange: 1, red: 2 }
    }
}

impl LightOutputs {
    /// All of its outputs as a mask.
    pub const fn mask(&self) -> u8 {
        1 << self.green | 1 << self.orange | 1 << self.red
    }

    /// The output of a colour.
    pub const fn output(&self, light: Light) -> u8 {
        match light {
            Light::Green => self.green,
            Light::Orange => self.orange,
            Light::Red => self.red,
        }
    }
}

/// The whole cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellConfig {
    /// Name for people and run directories.
    pub name: String,
    /// The cameras, in order.
    pub cameras: Vec<CellCamera>,
    /// Perception, the same for every camera.
    pub perception: PerceptionConfig,
    /// The monitor.
    pub ssm: SsmConfig,
    /// The task set.
    pub tasks: TaskSet,
    /// The robot.
    pub robot: RobotConfig,
}

impl CellConfig {
    /// Perception as it runs: with the sensors of the cameras, and with missing depth counted
    /// wherever the monitor would stop.
    pub fn perception_in_force(&self) -> PerceptionConfig {
        let mut perception = self.perception.clone();
        perception.sensors = self.cameras.iter().map(|camera| camera.sensor.clone()).collect();
        perception.unseen.within_m.get_or_insert(self.ssm.largest_stop_distance_m(&self.tasks) as f32);
        perception
    }

    /// Refuses a volume that ends before the distance at which people stop the robot, on both
    /// sides.
    fn check_volume(&self) -> Result<(), SettingError> {
        let volume = &self.perception.occupancy.volume;
        let stop_m = self.ssm.largest_stop_distance_m(&self.tasks);
        for (axis, name) in ["x", "y"].into_iter().enumerate() {
            let side_m = f64::from(volume.max_m[axis] - volume.min_m[axis]);
            if side_m < stop_m {
                return Err(SettingError::value(
                    "perception.occupancy.volume",
                    format!("{side_m:.2} m along {name}"),
                    format!("expected at least {stop_m:.2} m, the largest separation at which [ssm] stops"),
                ));
            }
        }
        Ok(())
    }

    /// Refuses two cameras that would be one device.
    fn check_serials(&self) -> Result<(), SettingError> {
        let devices = self.cameras.iter().filter_map(|camera| Some((&camera.name, camera.source.device()?)));
        let devices: Vec<_> = devices.collect();
        for (index, (name, device)) in devices.iter().enumerate() {
            let is_same_kind = |(_, other): &&(&String, CameraDevice<'_>)| other.kind == device.kind;
            let serial = device.serial.map(str::trim);
            if serial == Some("") {
                let given = format!("camera \"{name}\": serial = \"\"");
                return Err(SettingError::conflict(given, format!("expected a serial ({})", device.advice)));
            }
            let Some(serial) = serial else {
                let count = devices.iter().filter(is_same_kind).count();
                if count > 1 {
                    let given =
                        format!("camera \"{name}\" has no serial, but there are {count} {}", device.kind);
                    let why = format!("every one needs its own serial ({})", device.advice);
                    return Err(SettingError::conflict(given, why));
                }
                continue;
            };
            let mut before = devices[..index].iter().filter(is_same_kind);
            if let Some((other, _)) = before.find(|(_, other)| other.serial.map(str::trim) == Some(serial)) {
                let given = format!("serial = \"{serial}\" for the cameras \"{other}\" and \"{name}\"");
                return Err(SettingError::conflict(given, "every camera needs its own serial"));
            }
        }
        Ok(())
    }

    /// What is not seen must count wherever the robot stops for what is seen.
    fn check_unseen(&self) -> Result<(), SettingError> {
        if !self.perception.sensors.is_empty() {
            let accepted = "expected `sensor` under each of [[cameras]]";
            return Err(SettingError::conflict("perception.sensors", accepted));
        }
        let stop_m = self.ssm.largest_stop_distance_m(&self.tasks);
        match self.perception.unseen.within_m {
            Some(within_m) if f64::from(within_m) < stop_m - 1e-6 => Err(SettingError::value(
                "perception.unseen.within_m",
                within_m,
                format!(
                    "accepted are numbers from {stop_m:.2}, the largest separation at which [ssm] stops, or omit the key"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`CellConfigError`] names the key, the value and what is accepted.
    pub fn validate(&self) -> Result<(), CellConfigError> {
        if !(1..=MAX_CAMERAS).contains(&self.cameras.len()) {
            let given = format!("{} [[cameras]]", self.cameras.len());
            return Err(SettingError::conflict(given, format!("accepted are 1 to {MAX_CAMERAS}")).into());
        }
        for (index, camera) in self.cameras.iter().enumerate() {
            if self.cameras[..index].iter().any(|other| other.name == camera.name) {
                let given = format!("cameras.name = \"{}\" twice", camera.name);
                return Err(SettingError::conflict(given, "names must differ").into());
            }
        }
        self.check_serials()?;
        let perception = |place| move |source| CellConfigError::Perception { place, source };
        self.perception.check().map_err(perception("perception."))?;
        self.ssm.validate()?;
        self.check_unseen()?;
        self.check_volume()?;
        self.perception_in_force().check().map_err(perception("cameras, "))?;
        self.tasks.validate()?;
        bounds::validate(self)?;
        let slider_rate = self.robot.simulator.as_ref().map(|simulator| simulator.slider_rate_per_s);
        arithmetic(&self.ssm, &self.tasks, slider_rate)?;
        self.robot.rtde.check().map_err(|error| error.within_section("robot.rtde: "))?;
        self.robot.shape.as_ref().map_or(Ok(()), ShapeConfig::validate)?;
        let LightOutputs { green, orange, red } = self.robot.light;
        if [green, orange, red].iter().any(|&o| o > 7) || green == orange || orange == red || green == red {
            let given = format!("robot.light: green = {green}, orange = {orange}, red = {red}");
            return Err(SettingError::conflict(given, "accepted are three different outputs 0 to 7").into());
        }
        Ok(())
    }
}
