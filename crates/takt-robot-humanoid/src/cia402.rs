//! The state machine of a drive (CiA 402, IEC 61800-7-201), seen from the controller.

use serde::Serialize;

/// State of a drive, from its statusword.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// Starting; or a statusword that the standard does not know.
    #[default]
    NotReady,
    /// Power off.
    SwitchOnDisabled,
    /// Power may come.
    ReadyToSwitchOn,
    /// Power on, no torque.
    SwitchedOn,
    /// Follows its target.
    OperationEnabled,
    /// Decelerates on its own.
    QuickStopActive,
    /// Reacts to a fault.
    FaultReaction,
    /// Torque off until a reset.
    Fault,
}

impl DriveState {
    /// Decodes a statusword.
    pub fn of(statusword: u16) -> Self {
        match (statusword & 0x6F, statusword & 0x4F) {
            (0x21, _) => Self::ReadyToSwitchOn,
            (0x23, _) => Self::SwitchedOn,
            (0x27, _) => Self::OperationEnabled,
            (0x07, _) => Self::QuickStopActive,
            (_, 0x40) => Self::SwitchOnDisabled,
            (_, 0x0F) => Self::FaultReaction,
            (_, 0x08) => Self::Fault,
            _ => Self::NotReady,
        }
    }

    /// Whether the drive holds no torque, or is on its way there by itself.
    pub fn is_safe(self) -> bool {
        !matches!(self, Self::OperationEnabled | Self::QuickStopActive)
    }

    /// Whether the drive says that it holds no torque. Not so [`NotReady`](Self::NotReady): inputs
    /// that never came look like it.
    pub fn is_off(self) -> bool {
        matches!(self, Self::SwitchOnDisabled | Self::ReadyToSwitchOn | Self::SwitchedOn | Self::Fault)
    }
}

/// Desired state of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Following its target.
    Enabled,
    /// Decelerating on its own quick-stop ramp, then without torque.
    QuickStop,
    /// Without torque.
    Off,
}

/// Controlwords.
const SHUTDOWN: u16 = 0x06;
const SWITCH_ON: u16 = 0x07;
const ENABLE: u16 = 0x0F;
pub(crate) const QUICK_STOP: u16 = 0x02;
pub(crate) const DISABLE_VOLTAGE: u16 = 0x00;
const FAULT_RESET: u16 = 0x80;

/// Cycles that each half of a fault reset is held. A command is applied after 1.5 cycles and its
/// effect is seen after 1.5 to 2.5 more; twice that leaves room for a lost frame.
const RESET_HALF: u32 = 8;

/// Leads one drive to a goal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Drive {
    state: DriveState,
    in_fault: u32,
    resets: u32,
}

impl Drive {
    /// The state of the last step.
    pub fn state(&self) -> DriveState {
        self.state
    }

    /// Fault resets tried since the drive was last in operation.
    pub(crate) fn resets(&self) -> u32 {
        self.resets
    }

    /// The controlword for this cycle.
    pub fn step(&mut self, statusword: u16, goal: Goal) -> u16 {
        self.state = DriveState::of(statusword);
        if self.state == DriveState::Fault {
            // A reset is a rising edge.
            let rising = !(self.in_fault / RESET_HALF).is_multiple_of(2);
            self.in_fault += 1;
            if goal == Goal::Enabled && rising {
                self.resets += u32::from((self.in_fault - 1).is_multiple_of(RESET_HALF));
                return FAULT_RESET;
            }
            return DISABLE_VOLTAGE;
        }
        self.in_fault = 0;
        if self.state == DriveState::OperationEnabled {
            self.resets = 0;
        }
        match (goal, self.state) {
            (Goal::Off, _) => DISABLE_VOLTAGE,
            (Goal::QuickStop, DriveState::OperationEnabled | DriveState::QuickStopActive) => QUICK_STOP,
            (Goal::QuickStop, _) => DISABLE_VOLTAGE,
            (Goal::Enabled, DriveState::SwitchOnDisabled) => SHUTDOWN,
            (Goal::Enabled, DriveState::ReadyToSwitchOn) => SWITCH_ON,
            (Goal::Enabled, DriveState::SwitchedOn | DriveState::OperationEnabled) => ENABLE,
            // Out of a quick stop the way leads over "switch on disabled".
            (Goal::Enabled, _) => DISABLE_VOLTAGE,
        }
    }
}

/// `word` with one step less where it would bring torque on.
pub(crate) fn before_enable(word: u16) -> u16 {
    if word == ENABLE { SWITCH_ON } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn statuswords_of_the_standard() {
        // Warning, remote, target reached and other bits do not matter.
        for noise in [0x0000, 0x1600, 0xFF90] {
            for (word, state) in [
                (0x00, DriveState::NotReady),
                (0x40, DriveState::SwitchOnDisabled),
                (0x60, DriveState::SwitchOnDisabled),
                (0x21, DriveState::ReadyToSwitchOn),
                (0x23, DriveState::SwitchedOn),
                (0x27, DriveState::OperationEnabled),
                (0x07, DriveState::QuickStopActive),
                (0x0F, DriveState::FaultReaction),
                (0x08, DriveState::Fault),
                (0x28, DriveState::Fault),
            ] {
                assert_eq!(DriveState::of(word | noise), state, "{word:#x} | {noise:#x}");
            }
        }
    }

    #[test]
    fn the_way_to_operation_and_the_stop() {
        let mut drive = Drive::default();
        let words = [0x40, 0x21, 0x23, 0x27].map(|status| drive.step(status, Goal::Enabled));
        assert_eq!(words, [0x06, 0x07, 0x0F, 0x0F]);
        assert_eq!(drive.step(0x27, Goal::QuickStop), 0x02);
        assert_eq!(drive.step(0x07, Goal::QuickStop), 0x02);
        assert_eq!(drive.step(0x40, Goal::QuickStop), 0x00);
        assert_eq!(drive.step(0x07, Goal::Enabled), 0x00);
    }

    #[test]
    fn a_fault_is_reset_by_an_edge_and_only_on_the_way_to_operation() {
        let mut drive = Drive::default();
        let words: Vec<u16> = (0..32).map(|_| drive.step(0x08, Goal::Enabled)).collect();
        let edges = words.windows(2).filter(|pair| pair[0] & 0x80 == 0 && pair[1] & 0x80 != 0).count();
        assert_eq!((edges, drive.resets()), (2, 2));
        drive.step(0x27, Goal::Enabled);
        assert_eq!(drive.resets(), 0);
        assert!((0..64).all(|_| drive.step(0x08, Goal::QuickStop) == 0));
    }

    proptest! {
        #[test]
        fn torque_is_commanded_to_enabled_drives_alone(status in any::<u16>(), goal in 0..3) {
            let goal = [Goal::Enabled, Goal::QuickStop, Goal::Off][goal as usize];
            let word = Drive::default().step(status, goal);
            let state = DriveState::of(status);
            if word == ENABLE {
                prop_assert_eq!(goal, Goal::Enabled);
                prop_assert!(matches!(state, DriveState::SwitchedOn | DriveState::OperationEnabled));
            }
        }
    }
}
