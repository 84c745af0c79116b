//! Report of this machine's clock synchronisation on itself: chrony, or ptp4l.

use std::process::{Command, Stdio};

/// Largest error of this machine's clock against its reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// So far.
    pub error_ns: u64,
    /// Source of the value.
    pub by: &'static str,
}

/// Asks whoever runs here.
#[must_use]
pub fn own() -> Option<Own> {
    let chrony = output_of("chronyc", &["-c", "tracking"]).and_then(|text| chrony(&text));
    chrony
        .or_else(|| output_of("pmc", &["-u", "-b", "0", "GET CURRENT_DATA_SET"]).and_then(|text| ptp(&text)))
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}

fn from_s(s: f64) -> Option<u64> {
    (s.is_finite() && (0.0..1e6).contains(&s)).then_some((s * 1e9).ceil() as u64)
}

/// `chronyc -c tracking`: the clock's error is at most the offset that is being corrected, plus the
/// root dispersion, plus half of the root delay (chrony's manual, `tracking`).
#[must_use]
pub(crate) fn chrony(text: &str) -> Option<Own> {
    let fields: Vec<&str> = text.trim().split(',').collect();
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok());
    if fields.len() < 14 || fields[13].contains("Not") {
        return None;
    }
    let error_ns = from_s(number(4)?.abs() + number(11)? + number(10)? / 2.0)?;
    Some(Own { error_ns, by: "chrony" })
}

/// `pmc 'GET CURRENT_DATA_SET'` of linuxptp: the offset from the master, plus the mean path delay,
/// which is how wrong that is at most where the way there and back differ. It does not include the
/// error that `phc2sys` adds between the card's clock and the system's.
#[must_use]
pub(crate) fn ptp(text: &str) -> Option<Own> {
    let value = |key: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(key));
        line.and_then(|rest| rest.trim().parse::<f64>().ok())
    };
    let (steps, offset_ns, delay_ns) =
        (value("stepsRemoved")?, value("offsetFromMaster")?, value("meanPathDelay")?);
    // Nobody's slave: what it follows is itself.
    if steps < 1.0 {
        return None;
    }
    let error_ns = from_s((offset_ns.abs() + delay_ns.abs()) / 1e9)?;
    Some(Own { error_ns, by: "ptp4l, without the error of phc2sys" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chrony_is_read() {
        let text = "A29FC87B,162.159.200.123,4,1700000000.123456789,-0.000012000,0.000001,0.000034,-12.345,0.001,0.020,0.010000000,\
                    0.000500000,64.5,Normal\n";
        assert_eq!(chrony(text), Some(Own { error_ns: 5_512_000, by: "chrony" }));
        assert_eq!(chrony(&text.replace("Normal", "Not synchronised")), None);
        for bad in ["", "a,b", &text.replace("0.000500000", "nan"), "506 Cannot talk to daemon"] {
            assert_eq!(chrony(bad), None, "{bad}");
        }
    }

    #[test]
    fn ptp_is_read() {
        let text = "sending: GET CURRENT_DATA_SET\n\t507c6f.fffe.0b1a2c-0 seq 0 RESPONSE MANAGEMENT CURRENT_DATA_SET \n\
                    \t\tstepsRemoved     1\n\t\toffsetFromMaster -120.0\n\t\tmeanPathDelay    1500.0\n";
        assert_eq!(ptp(text).unwrap().error_ns, 1620);
        assert_eq!(ptp(&text.replace("stepsRemoved     1", "stepsRemoved     0")), None);
        assert_eq!(ptp("sending: GET CURRENT_DATA_SET\n"), None);
    }
}
