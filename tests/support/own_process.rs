//! Runs a test in its own process.

use std::process::Command;

/// Runs `test` in a process in which no other test runs. Tests need that if they measure memory or hold
/// retired memory back: all limiters of a process share the collector that says when pins are over.
///
/// `test` must be a closure in the test's function: its path names the test that the child process runs.
#[allow(unreachable_pub, reason = "the library's unit tests include this file too")]
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
    let stdout = String::from_utf8_lossy(&child.stdout);
    let has_passed = child.status.success() && stdout.contains(" 1 passed;");
    assert!(has_passed, "{name}: {stdout}{}", String::from_utf8_lossy(&child.stderr));
}
