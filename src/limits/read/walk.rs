//! Walks over one file or section: its root, the keys of its entries, and the rules for every node.

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::error::ConfigFault;
use crate::limits::{LimitsBuilder, Scratch};

use super::faults::{Faults, Path};
use super::names::Names;
use super::node::{Node, Nodes, Scalar, StreamFault, Value, shown_scalar};

/// The role of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Limits,
    Overrides,
}

impl<'w> File<'w> {
    /// A section of a configuration, which adds to what `builder` has.
    #[cfg(feature = "serde")]
    pub(crate) fn section(role: Role, builder: &LimitsBuilder) -> File<'w> {
        File { role, name: "", source: builder.files_count() }
    }
}

/// A file or section that is read. A section has no name.
#[derive(Clone, Copy)]
pub(crate) struct File<'w> {
    pub(crate) role: Role,
    pub(crate) name: &'w str,
    /// Its place in the registry. A section has one that no file has.
    pub(crate) source: u32,
}

/// The form of a file. Only the map form has defaults.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Map,
    List,
}

/// The walk over one file.
pub(super) struct Walk<'w, 't> {
    pub(super) role: Role,
    /// The file's place in the registry.
    pub(super) source: u32,
    pub(super) names: &'w mut Names,
    pub(super) builder: &'w mut LimitsBuilder,
    pub(super) scratch: Scratch,
    /// In the list form, the place in the list plus one.
    pub(super) element: Option<NonZeroU32>,
    nodes: &'w mut dyn Nodes<'t>,
    pub(super) faults: Faults<'w>,
}

/// The walk ends before the file's end. The fault that is the reason is recorded.
pub(super) struct Stopped;

pub(super) type Walked<T = ()> = Result<T, Stopped>;

/// A key of a map: its line, and its text unless that is at fault.
pub(super) type Key<'t> = (u64, Option<Scalar<'t>>);

/// Walks over one file: adds its limits to `builder`, and returns its faults.
pub(crate) fn walk<'w, 't>(
    nodes: &'w mut dyn Nodes<'t>,
    file: File<'w>,
    names: &'w mut Names,
    builder: &'w mut LimitsBuilder,
) -> Vec<ConfigFault> {
    let mut walk = Walk::new(nodes, file, names, builder);
    if walk.file().is_err() {
        walk.names.set_incomplete();
    }
    walk.faults.into_sorted()
}

impl<'w, 't> Walk<'w, 't> {
    pub(super) fn new(
        nodes: &'w mut dyn Nodes<'t>,
        file: File<'w>,
        names: &'w mut Names,
        builder: &'w mut LimitsBuilder,
    ) -> Walk<'w, 't> {
        Walk {
            role: file.role,
            source: file.source,
            names,
            builder,
            scratch: Scratch::new(),
            element: None,
            nodes,
            faults: Faults::new(file.name),
        }
    }

    fn file(&mut self) -> Walked {
        let root = Path::Root;
        if !matches!(self.node()?.value, Value::DocumentStart) {
            self.fault(None, &root, format!("{} is empty: {}", self.nodes.whole(), self.wanted()));
            return Ok(());
        }
        self.root()?;
        // The end of the document, then the end of the file.
        self.node()?;
        let after = self.node()?;
        if matches!(after.value, Value::DocumentStart) {
            self.fault(after.line, &root, "a second document: exactly one is allowed");
        }
        Ok(())
    }

    /// Returns the end of the fault of a file without content.
    fn wanted(&self) -> &'static str {
        match self.role {
            Role::Limits => "at least one limit is wanted",
            Role::Overrides => "overrides are wanted, or [] for none",
        }
    }

    fn root(&mut self) -> Walked {
        let root = Path::Root;
        let (line, value) = self.value(&root)?;
        match value {
            Value::Map => {
                self.entries(Form::Map, &root)?;
            }
            Value::List => self.elements(&root)?,
            Value::Scalar(scalar) if scalar.is_null() => {
                let message = format!("{} is null: {}", self.nodes.whole(), self.wanted());
                self.fault(line, &root, message);
                return Ok(());
            }
            other => {
                let wanted = "a map of limits, or a list of such maps,";
                return self.unexpected(line, &root, other, wanted);
            }
        }
        if self.role == Role::Limits && self.builder.is_empty() && self.faults.is_empty() {
            let message =
                format!("{} declares nothing: at least one limit is wanted", self.nodes.whole());
            self.fault(line, &root, message);
        }
        Ok(())
    }

    /// Walks over the elements of the list form. The start of the list was read.
    fn elements(&mut self, root: &Path<'_>) -> Walked {
        for i in 0.. {
            let at = root.index(i);
            self.element = u32::try_from(i + 1).ok().and_then(NonZeroU32::new);
            let (line, value) = self.value(&at)?;
            match value {
                Value::End => break,
                Value::Map => {
                    if self.entries(Form::List, &at)? == 0 {
                        self.fault(line, &at, "an empty map: at least one limit is wanted");
                    }
                }
                other => {
                    self.unexpected(line, &at, other, "a map from a limit's name to its numbers")?
                }
            }
        }
        Ok(())
    }

    /// Walks over the entries of a map and returns their number. The start of the map was read.
    fn entries(&mut self, form: Form, at: &Path<'_>) -> Walked<usize> {
        let mut names_given = HashMap::new();
        let mut count = 0;
        while let Some((line, key)) = self.key(at, "a limit's name")? {
            count += 1;
            match key {
                Some(key) => {
                    self.entry(form, &key, line, &at.key(&key.text), &mut names_given)?;
                }
                None => self.skip_value(at)?,
            }
        }
        Ok(count)
    }

    /// Reads the next key of a map; `None` at its end.
    pub(super) fn key(&mut self, at: &Path<'_>, wanted: &str) -> Walked<Option<Key<'t>>> {
        let (line, value) = self.value(at)?;
        match value {
            Value::End => Ok(None),
            Value::Scalar(key) if !key.is_null() && !key.text.is_empty() => {
                Ok(Some((line, Some(key))))
            }
            other => {
                self.unexpected(line, at, other, &format!("{wanted} as the key"))?;
                Ok(Some((line, None)))
            }
        }
    }

    /// Reads the next node within the document. A tag or an alias is a fault.
    pub(super) fn value(&mut self, at: &Path<'_>) -> Walked<(u64, Value<'t>)> {
        let Node { line, value, fault } = self.node()?;
        if let Some(message) = fault {
            self.fault(line, at, message);
        }
        // The parser returns whole documents, so this does not happen.
        if matches!(value, Value::DocumentStart | Value::DocumentEnd | Value::StreamEnd) {
            self.fault(line, at, "the document ends too soon");
            return Err(Stopped);
        }
        Ok((line, value))
    }

    /// Reports a node of another kind than `wanted`, and skips it.
    pub(super) fn unexpected(
        &mut self,
        line: u64,
        at: &Path<'_>,
        value: Value<'t>,
        wanted: &str,
    ) -> Walked {
        let given = match &value {
            Value::Scalar(scalar) => shown_scalar(scalar),
            Value::List => "a list".into(),
            Value::Map => "a map".into(),
            // A refused node has its fault, and an end is no node.
            _ => return Ok(()),
        };
        self.fault(line, at, format!("{given}: {wanted} is allowed"));
        self.skip(&value)
    }

    /// Skips the value of a key.
    pub(super) fn skip_value(&mut self, at: &Path<'_>) -> Walked {
        let (_, value) = self.value(at)?;
        self.skip(&value)
    }

    /// Skips the rest of a node.
    pub(super) fn skip(&mut self, value: &Value<'_>) -> Walked {
        match value {
            Value::List | Value::Map => self.nodes.skip_to_end().map_err(|fault| self.stop(fault)),
            _ => Ok(()),
        }
    }

    pub(super) fn fault(
        &mut self,
        line: impl Into<Option<u64>>,
        at: &Path<'_>,
        message: impl Into<String>,
    ) {
        self.faults.add(line.into(), at, message.into());
    }

    pub(super) fn node(&mut self) -> Walked<Node<'t>> {
        if self.faults.is_full() {
            let (max, whole) = (Faults::MAX, self.nodes.whole());
            let message = format!("at least {max} faults: the rest of {whole} was not read");
            let line = self.faults.last_line();
            self.fault(line, &Path::Root, message);
            return Err(Stopped);
        }
        self.nodes.next().map_err(|fault| self.stop(fault))
    }

    #[cold]
    fn stop(&mut self, fault: StreamFault) -> Stopped {
        self.fault(fault.line, &Path::Root, fault.message);
        Stopped
    }
}
