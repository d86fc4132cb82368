//! Threads on one limiter with the exact engine, its sweeper running.
#![cfg(not(tollgate_loom))]

use tollgate::options::Engine;

const ENGINE: Engine = Engine::Exact;

#[path = "stress/cases.rs"]
mod cases;
