//! Counts the allocations of calls and of requests through the tower layer.

mod calls;
mod http_layer;
