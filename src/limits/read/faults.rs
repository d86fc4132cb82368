//! Collects the faults of a file or section, each with its line, where that is known, and the path to it.

use std::fmt;

use crate::error::ConfigFault;
use crate::limits::shown;

/// The path from a file's root to a node, on the stack of the walk. It becomes text for a fault only.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }
}

impl fmt::Display for Path<'_> {
    // The grammar bounds the recursion: a list, a name, a field, a list, a field at most.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
            Path::Key(parent, key) => {
                parent.fmt(f)?;
                if !matches!(parent, Path::Root) {
                    f.write_str(".")?;
                }
                if is_plain(key) { f.write_str(key) } else { f.write_str(&shown(key)) }
            }
        }
    }
}

/// Whether a key is shown in a path without quotes.
fn is_plain(key: &str) -> bool {
    const LEN_MAX: usize = 160;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/,*".contains(&byte);
    !key.is_empty() && key.len() <= LEN_MAX && key.bytes().all(plain)
}

/// Joins words: `a, b and c`.
pub(super) fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => (*word).into(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Says where something was given before: `, on line 3`, or nothing without a line.
pub(super) fn on_line(line: u64) -> String {
    if line == 0 { String::new() } else { format!(", on line {line}") }
}

/// The faults of one file or section.
pub(crate) struct Faults<'f> {
    file: &'f str,
    faults: Vec<ConfigFault>,
}

impl<'f> Faults<'f> {
    /// More than a person can mend, and few enough that a hostile file does not fill the memory.
    pub(super) const MAX: usize = 100_000;

    /// The longest message. An id may be as long as its file.
    const MESSAGE_BYTES_MAX: usize = 1024;

    pub(crate) fn new(file: &'f str) -> Faults<'f> {
        Faults { file, faults: Vec::new() }
    }

    #[cold]
    pub(crate) fn add(&mut self, line: Option<u64>, path: &Path<'_>, mut message: String) {
        if message.len() > Self::MESSAGE_BYTES_MAX {
            let is_boundary = |at: &usize| message.is_char_boundary(*at);
            message.truncate((0..=Self::MESSAGE_BYTES_MAX).rev().find(is_boundary).unwrap_or(0));
            message.push_str("...");
            message.shrink_to_fit();
        }
        self.faults.push(ConfigFault {
            file: self.file.into(),
            line: line.filter(|line| *line > 0),
            path: path.to_string(),
            message,
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.faults.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.faults.len() >= Self::MAX
    }

    pub(super) fn last_line(&self) -> Option<u64> {
        self.faults.last().and_then(|fault| fault.line)
    }

    /// Returns the faults in the order of the file.
    pub(crate) fn into_sorted(mut self) -> Vec<ConfigFault> {
        self.faults.sort_by_key(|fault| fault.line);
        self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_keys_and_places() {
        let root = Path::Root;
        let list = root.index(2);
        let entry = list.key("NewOrdersPerAccount");
        let ids = entry.key("ids");
        let id = ids.index(1);
        assert_eq!(id.key("id").to_string(), "[2].NewOrdersPerAccount.ids[1].id");
        assert_eq!(root.key("a b\n").to_string(), "\"a b\\n\"");
    }
}
