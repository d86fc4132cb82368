//! How far a run is: shown on a terminal, and nowhere else.

use std::io::{self, IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

use crate::input::{BytesRead, Lines};

/// A bar on standard error, if that is a terminal; and the way for messages past it.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    read: BytesRead,
    lines: u32,
}

/// Lines between two looks at the bar.
const STEP_LINES: u32 = 4096;

impl Progress {
    pub(crate) fn new(lines: &Lines) -> Progress {
        let bar = io::stderr().is_terminal().then(|| match lines.size() {
            Some(size) => {
                styled(ProgressBar::new(size), "{bar:40} {bytes} of {total_bytes}, {eta} left")
            }
            None => styled(ProgressBar::new_spinner(), "{spinner} {bytes} in {elapsed}"),
        });
        Progress { bar, read: lines.bytes_read(), lines: 0 }
    }

    /// One more line is done.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.lines += 1;
        if self.lines == STEP_LINES {
            self.lines = 0;
            if let Some(bar) = &self.bar {
                bar.set_position(self.read.get());
            }
        }
    }

    /// Prints a line on standard error.
    pub(crate) fn report(&self, text: &str) {
        let text = format!("{text}\n");
        // There is nowhere to report that standard error is gone.
        let print = || {
            let _ = io::stderr().write_all(text.as_bytes());
        };
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
