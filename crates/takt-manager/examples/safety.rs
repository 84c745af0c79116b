//! Thousands of random systems held against their bounds:
//! `cargo run -p takt-manager --example safety -- 5000`.

#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Checked, check};

fn main() {
    let number = |i: usize| std::env::args().nth(i).and_then(|a| a.parse().ok());
    let (count, first) = (number(1).unwrap_or(5000), number(2).unwrap_or(0));
    let (mut sum, mut wrong) = (Checked::default(), 0);
    for seed in first..first + count {
        match check(seed, 2_000_000_000) {
            Ok(one) => {
                sum.bounded += one.bounded;
                sum.unbounded += one.unbounded;
                sum.completions += one.completions;
                sum.closest_percent = sum.closest_percent.max(one.closest_percent);
            }
            Err(error) => {
                wrong += 1;
                println!("{error}");
            }
        }
    }
    println!("{count} systems, {wrong} with a latency beyond its bound; {sum:?}");
    std::process::exit(i32::from(wrong > 0));
}
