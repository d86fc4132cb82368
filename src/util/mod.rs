//! Small parts that know nothing of rate limits: atomics, text, addresses, decimals, threads, and the hooks of the loom models.

pub(crate) mod background;
#[cfg(any(feature = "http", feature = "yaml", feature = "serde"))]
pub(crate) mod client_network;
pub(crate) mod coverage;
pub(crate) mod decimal;
pub(crate) mod escape;
pub(crate) mod fault;
pub(crate) mod lock;
#[cfg(any(feature = "snapshot", feature = "watch"))]
pub(crate) mod open;
pub(crate) mod sync;
pub(crate) mod time;
pub(crate) mod user_count;
pub(crate) mod work;
