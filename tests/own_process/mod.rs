//! A process of its own for one test.

use std::process::Command;

/// Runs `test` in a process in which no other test runs; for tests that measure memory, or hold what is
/// retired: all limiters of a process share the collector that says when pins are over.
///
/// `test` is a closure in the test's function: by its path the child is told which test to run.
#[allow(unreachable_pub, reason = "the crate has it, and its tests")]
pub fn in_own_process<F: FnOnce()>(test: F) {
    const INSIDE: &str = "TOLLGATE_TEST_IN_OWN_PROCESS";
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let path = std::any::type_name::<F>().trim_end_matches("::{{closure}}");
    let (_, name) = path.split_once("::").expect("a closure in a test");
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    let child = child.output().unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let is_run = child.status.success() && said.contains(" 1 passed;");
    assert!(is_run, "{name}: {said}{}", String::from_utf8_lossy(&child.stderr));
}
