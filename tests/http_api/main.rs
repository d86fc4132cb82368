//! The HTTP side: clients, fields, and the tower layer alone, nested, on sockets and in other stacks.

mod algorithms;
mod calling;
mod client;
mod engines;
mod features;
mod field_options;
mod fields;
mod frames;
#[cfg(feature = "tower")]
#[path = "../support/full_size.rs"]
mod full_size;
mod gateway;
mod grpc;
mod guide;
mod held;
mod held_rules;
mod held_threads;
mod hops;
mod http_limit;
mod known_bugs;
mod layer;
mod learning;
mod meetings;
mod nested;
mod networks;
mod obey;
mod on_response;
mod permissive;
mod priority;
mod priority_fields;
mod provider_waits;
#[cfg(feature = "tower")]
#[path = "../support/random.rs"]
mod random;
mod refunds;
mod rejections;
mod room;
mod routes;
mod rule_fields;
mod shared;
mod shared_refunds;
mod socket;
mod soft;
mod stack;
mod tuples;
mod waiting;
mod waiting_rules;
