//! What a limiter promises, one behaviour a test, on the exact engine.
#![cfg(feature = "boulder")]

use tollgate::options::Engine;

const ENGINE: Engine = Engine::Exact;

#[path = "limiter/cases.rs"]
mod cases;
mod own_process;
