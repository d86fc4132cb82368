//! Threads on one limiter with the lock-free engine, its sweeper running.
#![cfg(not(tollgate_loom))]

use tollgate::options::Engine;

const ENGINE: Engine = Engine::LockFree;

#[path = "stress/cases.rs"]
mod cases;
