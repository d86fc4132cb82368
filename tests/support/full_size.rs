//! How much a test does.

/// Returns `full` if the environment variable `TOLLGATE_FULL_SIZE` is set, as `ci/full.sh` does, else `quick`.
#[allow(unreachable_pub, reason = "the library's unit tests include this file too")]
pub fn full_size<T>(quick: T, full: T) -> T {
    if std::env::var_os("TOLLGATE_FULL_SIZE").is_some() { full } else { quick }
}
