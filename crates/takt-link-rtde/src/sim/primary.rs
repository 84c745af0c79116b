//! The primary client interface of the simulated controller: reports the arm's kinematics, and
//! takes in nothing.

use std::net::TcpListener;

use super::CYCLE_HZ;
use super::connection::Connection;
use super::server::{MAX_CLIENTS, accept};
use crate::kinematics::Arm;
use crate::primary::KinematicsInfo;

/// Cycles between two states: ten a second, as a robot sends them. New clients are looked for as
/// often.
const EVERY: u32 = CYCLE_HZ / 10;

/// Bytes that wait for a client that does not read, before it is closed.
const MAX_WAITING_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Primary {
    listener: TcpListener,
    clients: Vec<Connection>,
    message: Vec<u8>,
    cycles: u32,
}

impl Primary {
    pub(super) fn new(listener: TcpListener, arm: &Arm) -> Self {
        let message = KinematicsInfo::of(arm).message();
        Self { listener, clients: Vec::new(), message, cycles: 0 }
    }

    pub(super) const fn listener(&self) -> &TcpListener {
        &self.listener
    }

    pub(super) fn cycle(&mut self) {
        self.cycles += 1;
        if self.cycles < EVERY {
            return;
        }
        self.cycles = 0;
        while let Some((stream, peer)) = accept(&self.listener) {
            if self.clients.len() >= MAX_CLIENTS {
                continue;
            }
            match Connection::new(stream) {
                Ok(client) => self.clients.push(client),
                Err(error) => eprintln!("ursim: primary client {peer} not accepted: {error}"),
            }
        }
        for client in &mut self.clients {
            // A robot would execute what comes here as a program; this one has none but its own.
            match client.read(&mut [0; 256]) {
                Ok(0) => client.open = false,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => client.open = false,
            }
            client.keep(&self.message);
            client.flush();
            client.open &= client.waiting_bytes() <= MAX_WAITING_BYTES;
        }
        self.clients.retain(|client| client.open);
    }
}
