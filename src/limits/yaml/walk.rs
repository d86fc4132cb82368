//! The walk over one file: its root, its entries' keys, and what every node is held to.

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::error::ConfigFault;
use crate::limits::{LimitsBuilder, Scratch};

use super::events::{Broken, Events, Kind, Node, Scalar};
use super::faults::{Faults, Given, Path};
use super::names::Names;

/// What a file is for; as a number, what the registry knows it by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Limits = 0,
    Overrides = 1,
}

/// What an entry's map is: only the map form has defaults.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Map,
    List,
}

/// The walk over one file.
pub(super) struct Walk<'w, 't> {
    pub(super) role: Role,
    pub(super) files: &'w [String; 2],
    pub(super) names: &'w mut Names,
    pub(super) builder: &'w mut LimitsBuilder,
    pub(super) scratch: Scratch,
    /// One more than the place in the list form's list.
    pub(super) element: Option<NonZeroU32>,
    events: Events<'t>,
    faults: Faults<'w>,
}

/// The walk is over before the file's end; the fault that says why is recorded.
pub(super) struct Stopped;

pub(super) type Walked<T = ()> = Result<T, Stopped>;

/// A node as the grammar sees it.
pub(super) enum Value<'t> {
    Scalar(Scalar<'t>),
    List,
    Map,
    /// The end of the list or map that is being read.
    End,
    /// An alias or a scalar with a tag, whose fault is recorded.
    Refused,
}

/// A key of a map: its line, and its text unless that is at fault.
pub(super) type Key<'t> = (u64, Option<Scalar<'t>>);

/// Walks over one file: its limits go to `builder`, its faults are returned.
pub(super) fn walk(
    text: &str,
    role: Role,
    files: &[String; 2],
    names: &mut Names,
    builder: &mut LimitsBuilder,
) -> Vec<ConfigFault> {
    let mut spare = String::new();
    let mut walk = Walk {
        role,
        files,
        names,
        builder,
        scratch: Scratch::new(),
        element: None,
        events: Events::new(text, &mut spare),
        faults: Faults::new(&files[role as usize]),
    };
    if walk.file().is_err() {
        walk.names.set_incomplete();
    }
    walk.faults.into_sorted()
}

impl<'t> Walk<'_, 't> {
    fn file(&mut self) -> Walked {
        let root = Path::Root;
        if !matches!(self.node()?.kind, Kind::DocumentStart) {
            self.fault(None, &root, "the file is empty: at least one limit is wanted");
            return Ok(());
        }
        self.root()?;
        // The document's end, then the file's.
        self.node()?;
        let after = self.node()?;
        if matches!(after.kind, Kind::DocumentStart) {
            self.fault(Some(after.line), &root, "a second document: exactly one is allowed");
        }
        Ok(())
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
                self.fault(Some(line), &root, "the file is null: at least one limit is wanted");
                return Ok(());
            }
            other => {
                return self.unexpected(
                    line,
                    &root,
                    other,
                    "a map of limits, or a list of such maps,",
                );
            }
        }
        if self.role == Role::Limits && self.builder.is_empty() && self.faults.is_empty() {
            self.fault(
                Some(line),
                &root,
                "the file declares nothing: at least one limit is wanted",
            );
        }
        Ok(())
    }

    /// The elements of the list form, whose start was read.
    fn elements(&mut self, root: &Path<'_>) -> Walked {
        for i in 0.. {
            let at = root.index(i);
            self.element = u32::try_from(i + 1).ok().and_then(NonZeroU32::new);
            let (line, value) = self.value(&at)?;
            match value {
                Value::End => break,
                Value::Map => {
                    if self.entries(Form::List, &at)? == 0 {
                        self.fault(Some(line), &at, "an empty map: at least one limit is wanted");
                    }
                }
                other => {
                    self.unexpected(line, &at, other, "a map from a limit's name to its numbers")?
                }
            }
        }
        Ok(())
    }

    /// The entries of a map whose start was read; how many there are.
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

    /// The next key of a map; `None` at its end.
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

    /// The next node. Tags and aliases are refused here, for all.
    pub(super) fn value(&mut self, at: &Path<'_>) -> Walked<(u64, Value<'t>)> {
        let Node { line, is_tagged, kind } = self.node()?;
        if is_tagged {
            self.fault(Some(line), at, "a tag is not allowed: write the value alone");
        }
        let value = match kind {
            Kind::Scalar(_) if is_tagged => Value::Refused,
            Kind::Scalar(scalar) => Value::Scalar(scalar),
            Kind::List => Value::List,
            Kind::Map => Value::Map,
            Kind::End => Value::End,
            Kind::Alias => {
                self.fault(Some(line), at, "an alias is not allowed: write the value itself");
                Value::Refused
            }
            // The parser gives whole documents: these cannot stand within one.
            Kind::DocumentStart | Kind::DocumentEnd | Kind::StreamEnd => {
                self.fault(Some(line), at, "the document ends too soon");
                return Err(Stopped);
            }
        };
        Ok((line, value))
    }

    /// Records that a node is not what is wanted, and reads past it.
    pub(super) fn unexpected(
        &mut self,
        line: u64,
        at: &Path<'_>,
        value: Value<'t>,
        wanted: &str,
    ) -> Walked {
        let given = match &value {
            Value::Refused | Value::End => return Ok(()),
            Value::Scalar(scalar) => given(scalar),
            Value::List => "a list".into(),
            Value::Map => "a map".into(),
        };
        self.fault(Some(line), at, format!("{given}: {wanted} is allowed"));
        self.skip(&value)
    }

    /// Reads past the value of a key, whatever it is.
    pub(super) fn skip_value(&mut self, at: &Path<'_>) -> Walked {
        let (_, value) = self.value(at)?;
        self.skip(&value)
    }

    /// Reads past what is left of a node.
    pub(super) fn skip(&mut self, value: &Value<'_>) -> Walked {
        match value {
            Value::List | Value::Map => {
                self.events.skip_to_end().map_err(|broken| self.stop(broken))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn fault(&mut self, line: Option<u64>, at: &Path<'_>, message: impl Into<String>) {
        self.faults.add(line, at, message);
    }

    fn node(&mut self) -> Walked<Node<'t>> {
        if self.faults.is_full() {
            let message =
                format!("at least {} faults: the rest of the file was not read", Faults::MAX);
            let line = self.faults.last_line();
            self.fault(line, &Path::Root, message);
            return Err(Stopped);
        }
        self.events.next().map_err(|broken| self.stop(broken))
    }

    #[cold]
    fn stop(&mut self, broken: Broken) -> Stopped {
        self.fault(Some(broken.line), &Path::Root, broken.message);
        Stopped
    }
}

/// A scalar as it was given, for a message.
pub(super) fn given(scalar: &Scalar<'_>) -> String {
    if scalar.is_null() { "null".into() } else { Given(&scalar.text).to_string() }
}
