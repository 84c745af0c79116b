//! ethercrab brings the segment to OP in the same process, and sees every fault.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use std::time::Duration;
use support::{block_on, master, patient_humanoid};
use takt_link_ethercat::segment::Segment;
use takt_link_ethercat::segment::inprocess::InProcess;

#[test]
fn fifty_nine_devices_reach_op() {
    let config = patient_humanoid();
    let segment = Segment::new(&config).unwrap();
    let (main_device, tx, rx) = master(Duration::from_secs(2));
    let wire = InProcess::start("wire", &Default::default(), segment, tx, rx).unwrap();
    block_on(async {
        let group = main_device.init_single_group::<64, 1024>(ethercrab::std::ethercat_now).await.unwrap();
        assert_eq!(group.len(), 59);
        let group = group.into_op(&main_device).await.unwrap();
        let response = group.tx_rx(&main_device).await.unwrap();
        assert!(response.all_op());
        assert_eq!(response.working_counter, config.working_counter());
    });
    assert_eq!(wire.refused(), 0);
}
