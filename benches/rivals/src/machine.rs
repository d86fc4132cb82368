//! The machine, as Linux describes it: figures mean little without their processor.

use std::fs;

/// Returns the kernel's clock source, or `unknown`.
pub fn clock_source() -> String {
    read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// Describes the processor, its caches, the number of threads and the clock source in one line.
pub fn description() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    let threads = std::thread::available_parallelism().map_or(0, usize::from);
    let caches: Vec<String> = (0..4).filter_map(cache).collect();
    let (caches, clock) = (caches.join(", "), clock_source());
    format!("{model}, {threads} threads; caches: {caches}; clock source {clock}")
}

/// Describes a cache of the first processor that holds data.
fn cache(index: u32) -> Option<String> {
    let value = |name| read(&format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}"));
    let holds_data = ["Data", "Unified"].contains(&value("type").as_str());
    holds_data.then(|| format!("L{} {}", value("level"), value("size")))
}

/// Returns a file's text without the blanks at its ends, or `unknown`.
fn read(path: &str) -> String {
    fs::read_to_string(path).map_or("unknown".to_string(), |text| text.trim().to_string())
}
