//! Every interleaving of a small ring, under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p takt-rt --release --test loom_ring`.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use takt_rt::ring::ring;

#[test]
fn items_arrive_once_and_in_order_or_are_counted() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(2);
        let pusher =
            loom::thread::spawn(move || (1..=4u64).filter(|&item| producer.push(item)).collect::<Vec<_>>());
        let mut taken = Vec::new();
        let mut batch = [0; 2];
        for _ in 0..2 {
            let count = consumer.take(&mut batch);
            taken.extend_from_slice(&batch[..count]);
        }
        let pushed = pusher.join().unwrap();
        loop {
            let count = consumer.take(&mut batch);
            if count == 0 {
                break;
            }
            taken.extend_from_slice(&batch[..count]);
        }
        assert_eq!(taken, pushed);
        assert_eq!(consumer.lost(), 4 - pushed.len() as u64);
    });
}
