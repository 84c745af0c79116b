//! State changes beside the cycles: the wire is never silent while devices are in SAFE-OP or OP.

use std::time::Duration;

use ethercrab::Command;

use super::error::ControlError;
use super::event::state_name;
use super::flights::LOST_AFTER;
use super::master::{Carrier, Limits};
use super::port::{Exchanged, Port};

const AL_CONTROL: u16 = 0x0120;
const AL_STATUS: u16 = 0x0130;
/// AL control: acknowledges an error.
const ACKNOWLEDGE: u16 = 0x10;

/// A port whose cycles go on while requests of the master run.
pub(super) struct Cycling<'a> {
    pub port: &'a mut Port,
    period_ns: u64,
    next_ns: u64,
    /// Result of the last cycle.
    pub last: Exchanged,
}

impl<'a> Cycling<'a> {
    /// Cycles begin now.
    pub fn new(port: &'a mut Port, period: Duration) -> Self {
        let next_ns = port.now_ns();
        let period_ns = (period.as_nanos() as u64).max(1);
        Self { port, period_ns, next_ns, last: Exchanged::default() }
    }

    /// Runs a cycle if its time has come. Masters' requests have no grid of their own: a cycle that
    /// was missed is not made up.
    fn cycle(&mut self) {
        let now_ns = self.port.now_ns();
        if now_ns >= self.next_ns {
            let next_ns = self.next_ns + self.period_ns;
            self.next_ns = if next_ns > now_ns { next_ns } else { now_ns + self.period_ns };
            self.last = self.port.exchange(self.next_ns);
            self.next_ns = self.next_ns.saturating_add_signed(self.last.shift_ns);
        }
    }

    /// Sleeps to the next cycle and runs it.
    pub fn next(&mut self) -> Exchanged {
        let next_ns = self.next_ns;
        self.port.sleep_until(next_ns);
        self.cycle();
        self.last
    }
}

impl Carrier for Cycling<'_> {
    fn now_ns(&self) -> u64 {
        self.port.now_ns()
    }

    fn begin_request(&mut self) {
        self.port.master().begin_request();
    }

    fn send_queued(&mut self) {
        self.cycle();
        let master = self.port.master();
        master.send_all();
        // Answers of cycles keep the line from being silent, so that nobody else notices a request
        // that was lost: it is by the same measure as a cycle's frame, and all that is asked for
        // beside the cycles is registers.
        master.send_again(LOST_AFTER * self.period_ns);
    }

    fn take_answers(&mut self) -> bool {
        // Late frames of the cycle are counted where they are taken.
        self.port.receive().0
    }

    fn wait(&mut self, deadline_ns: u64) {
        let until_ns = deadline_ns.min(self.next_ns);
        self.port.master().wait(until_ns);
    }
}

/// Time that a device may take to go down one state.
const STEP: Duration = Duration::from_secs(1);

impl Port {
    /// Asks all devices down to INIT, state by state and device by device in the order of the wire,
    /// while cycles go on with a period of `period` until the last has left SAFE-OP. Outputs are
    /// those set last: stop the drives first. It allocates and takes some milliseconds.
    ///
    /// # Errors
    /// [`ControlError::TooLong`] when devices do not answer or do not go; the others have been
    /// asked all the same.
    pub fn shut_down(&mut self, period: Duration) -> Result<(), ControlError> {
        let mut failed = Ok(());
        for (state, phase) in
            [(4, "going down to SAFE-OP"), (2, "going down to PRE-OP"), (1, "going down to INIT")]
        {
            if let Err(error) = self.go_down(state, phase, period) {
                failed = failed.and(Err(error));
            }
        }
        failed
    }

    fn go_down(&mut self, state: u8, phase: &'static str, period: Duration) -> Result<(), ControlError> {
        let device = self.master().device();
        let addresses = self.addresses().to_vec();
        let mut cycling = Cycling::new(self, period);
        let limits = Limits {
            deadline_ns: cycling.port.now_ns() + STEP.as_nanos() as u64,
            allowed: STEP,
            // Cycles come back all the time; a request that does not ends by the deadline.
            silence: STEP,
        };
        let ask = async {
            let states = Command::brd(AL_STATUS).ignore_wkc().receive::<u16>(device).await? & 0x0F;
            // ORed: of one bit alone, it is the state of all.
            let common = (states.count_ones() == 1).then_some(states);
            for &address in &addresses {
                let now = match common {
                    Some(common) => common,
                    None => {
                        Command::fprd(address, AL_STATUS).ignore_wkc().receive::<u16>(device).await? & 0x0F
                    }
                };
                // After a bring-up that failed some have never been up there: nobody is asked up.
                // Down to INIT everybody is asked, those too that do not answer.
                if state > 1 && now < u16::from(state) {
                    continue;
                }
                // A device that is gone or has an error is asked like the others, and not waited
                // for here.
                let word = u16::from(state) | ACKNOWLEDGE;
                let _ =
                    Command::fpwr(address, AL_CONTROL).ignore_wkc().send_receive::<u16>(device, word).await?;
            }
            Ok(())
        };
        cycling.run(phase, &limits, ask)?;
        loop {
            let read = Command::brd(AL_STATUS).ignore_wkc().receive::<u16>(device);
            let states = cycling.run(phase, &limits, read)? as u8 & 0x0F;
            // States are ORed: none of the bits above the state asked for.
            if states & !(2 * state - 1) == 0 {
                return Ok(());
            }
            if cycling.port.now_ns() >= limits.deadline_ns {
                let highest = [8, 4, 2].into_iter().find(|bit| states & bit != 0).unwrap_or(0);
                let detail = format!(": at least one device is still in {}", state_name(highest));
                return Err(ControlError::TooLong { phase, allowed: STEP, detail });
            }
            cycling.next();
        }
    }
}
