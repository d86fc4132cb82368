//! What a limiter promises, one behaviour a test, on the lock-free engine.
#![cfg(feature = "boulder")]

use tollgate::options::Engine;

const ENGINE: Engine = Engine::LockFree;

#[path = "limiter/cases.rs"]
mod cases;
mod own_process;
