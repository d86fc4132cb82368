//! Defines the custom algorithms that a program has registered for files, and the fields from which they are made.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::algorithm::Algorithm;
use crate::error::{Error, ErrorKind};
use crate::limits::names;
use crate::util::lock::Mutex;

use super::duration;
use super::fields::{Field, FileAlgorithm, Parameter, boolean, whole_number_or_0};
use super::node::{Scalar, shown_scalar};

pub(super) type Make =
    dyn Fn(&mut AlgorithmFields<'_>) -> Result<Arc<dyn Algorithm>, Error> + Send + Sync;

/// The custom algorithms that files may name.
#[derive(Clone, Default)]
pub(crate) struct CustomAlgorithms {
    pub(super) registered: Vec<Arc<Registered>>,
}

/// A custom algorithm, with what its function has made.
pub(super) struct Registered {
    pub(super) name: Box<str>,
    pub(super) make: Box<Make>,
    pub(super) made: Mutex<Made>,
}

/// The algorithms that a function has made and that some limits still have, by their fields. Equal fields get the same
/// algorithm, so that a reload sees that such a limit has not changed.
#[derive(Default)]
pub(super) struct Made {
    by_fields: HashMap<Box<str>, Weak<dyn Algorithm>>,
    /// The number of entries at which those that no limits have are removed.
    full_at: usize,
}

impl Made {
    const MIN_FULL_AT: usize = 64;

    pub(super) fn get(&self, fields: &str) -> Option<Arc<dyn Algorithm>> {
        self.by_fields.get(fields)?.upgrade()
    }

    pub(super) fn add(&mut self, fields: String, algorithm: &Arc<dyn Algorithm>) {
        if self.by_fields.len() >= self.full_at {
            self.by_fields.retain(|_, made| made.strong_count() > 0);
            self.full_at = (2 * self.by_fields.len()).max(Made::MIN_FULL_AT);
        }
        self.by_fields.insert(fields.into(), Arc::downgrade(algorithm));
    }
}

impl CustomAlgorithms {
    /// Registers an algorithm.
    pub(crate) fn register(&mut self, name: &str, make: Box<Make>) -> Result<(), Error> {
        let refused = |why: &str| {
            let text = format!("invalid name {name:?} of a custom algorithm: {why}");
            Err(Error::new(ErrorKind::Name, text))
        };
        if FileAlgorithm::from_name(name).is_some() {
            return refused("it is a built-in algorithm's");
        }
        if !names::is_valid_name(name) {
            return refused(
                "a letter, then letters, digits, '_', '.' or '-', at most 128 characters, is allowed",
            );
        }
        if self.place(name).is_some() {
            return refused("it was registered before");
        }
        let made = Mutex::new(Made::default());
        self.registered.push(Arc::new(Registered { name: name.into(), make, made }));
        Ok(())
    }

    /// Returns the names of all algorithms that a file may name: the built-in ones, then the registered ones.
    pub(super) fn allowed(&self) -> Vec<&str> {
        let registered = self.registered.iter().map(|one| &*one.name);
        FileAlgorithm::names().chain(registered).collect()
    }

    /// Returns the algorithm of a name.
    pub(super) fn find(&self, name: &str) -> Option<FileAlgorithm> {
        let registered = || self.place(name).map(FileAlgorithm::Custom);
        FileAlgorithm::from_name(name).or_else(registered)
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.registered.iter().position(|one| &*one.name == name)
    }
}

impl fmt::Debug for CustomAlgorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.registered.iter().map(|one| &one.name)).finish()
    }
}

/// The fields of an entry of a limits file that belong to a custom algorithm:
/// [`Loader::algorithm`](crate::limits::Loader::algorithm) gives them to the function that makes the algorithm.
///
/// A method that returns a value wants the field of that name. If it is missing or has another value, the method returns
/// an error, and the load fails with a fault that has the field's line. All fields that no method was called for are
/// unknown, which is a fault as well.
///
/// # Example: an optional field, and a check of its own
///
/// ```
/// use std::sync::Arc;
/// use tollgate::{Error, algorithm::Algorithm, limits::AlgorithmFields};
///
/// # fn spaced(size: u64, gap_ns: u64) -> Arc<dyn Algorithm> {
/// #     Arc::new(tollgate::Limit::new(size, 1, std::time::Duration::from_nanos(gap_ns)).unwrap())
/// # }
/// fn make(fields: &mut AlgorithmFields<'_>) -> Result<Arc<dyn Algorithm>, Error> {
///     let gap = fields.duration("gap")?;
///     let size = if fields.has("size") { fields.whole_number("size")? } else { 1 };
///     if size > 1000 {
///         return Err(fields.refuse("size", "at most 1000 is allowed"));
///     }
///     Ok(spaced(size, gap.as_nanos() as u64))
/// }
/// ```
#[derive(Debug)]
pub struct AlgorithmFields<'f> {
    given: &'f [Parameter<'f>],
    /// The names that were asked for, each once.
    pub(super) wanted: Vec<String>,
    pub(super) faults: Vec<FieldFault>,
}

/// A fault of a field, or with an empty name of the entry.
#[derive(Debug)]
pub(super) struct FieldFault {
    pub(super) field: String,
    pub(super) message: String,
}

impl<'f> AlgorithmFields<'f> {
    pub(super) fn new(given: &'f [Parameter<'f>]) -> AlgorithmFields<'f> {
        AlgorithmFields { given, wanted: Vec::new(), faults: Vec::new() }
    }

    /// Whether the field was given. Its name is then a known one.
    pub fn has(&mut self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Returns a whole number from 0, in plain digits.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if the field is missing or is no such number.
    pub fn whole_number(&mut self, name: &str) -> Result<u64, Error> {
        const ALLOWED: &str = "a whole number from 0";
        self.read(name, ALLOWED, |scalar| whole_number_or_0(scalar, ALLOWED))
    }

    /// Returns a duration in Go's notation, such as `250ms` or `1h30m`: at most 2^63 - 1 ns.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if the field is missing or is no duration.
    pub fn duration(&mut self, name: &str) -> Result<Duration, Error> {
        const ALLOWED: &str = "a duration such as 60s, 180m or 1h30m";
        let read = |scalar: &Scalar<'_>| duration::parse(&scalar.text).map(Duration::from_nanos);
        self.read(name, ALLOWED, read)
    }

    /// Returns `true` or `false`.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if the field is missing or has another value.
    pub fn boolean(&mut self, name: &str) -> Result<bool, Error> {
        const ALLOWED: &str = "true or false";
        self.read(name, ALLOWED, |scalar| boolean(scalar, ALLOWED))
    }

    /// Returns the text of any single value.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_limit`] if the field is missing, null, a list or a map.
    pub fn text(&mut self, name: &str) -> Result<String, Error> {
        self.read(name, "text", |scalar| Ok(scalar.text.to_string()))
    }

    /// Makes the fault of a field: `message` says what is allowed. The load fails with it, and shows the value that was
    /// given before the message.
    pub fn refuse(&mut self, name: &str, message: &str) -> Error {
        let shown = match self.find(name).and_then(|parameter| parameter.value.as_ref().ok()) {
            Some(scalar) => format!("invalid {name} {}: {message}", shown_scalar(scalar)),
            None => format!("invalid {name}: {message}"),
        };
        self.fault(name, shown)
    }

    fn read<T>(
        &mut self,
        name: &str,
        allowed: &str,
        read: impl FnOnce(&Scalar<'_>) -> Result<T, String>,
    ) -> Result<T, Error> {
        if Field::from_name(name).is_some_and(|field| !field.is_parameter()) {
            let text = format!("the field {name} has another meaning: no algorithm can have it");
            return Err(self.fault("", text));
        }
        let Some(parameter) = self.find(name) else {
            return Err(self.fault("", format!("no {name}: {allowed} is wanted")));
        };
        let read = match &parameter.value {
            Ok(scalar) if scalar.is_null() => Err(format!("null: {allowed} is allowed")),
            Ok(scalar) => read(scalar),
            // As for the parameters of built-in algorithms.
            Err(kind) => return Err(self.fault(name, format!("{kind}: {allowed} is allowed"))),
        };
        read.map_err(|reason| self.fault(name, format!("invalid {name} {reason}")))
    }

    fn find(&mut self, name: &str) -> Option<&'f Parameter<'f>> {
        if !self.wanted.iter().any(|wanted| wanted == name) {
            self.wanted.push(name.into());
        }
        self.given.iter().find(|parameter| parameter.key == name)
    }

    fn fault(&mut self, field: &str, message: String) -> Error {
        let error = Error::new(ErrorKind::Limit, &*message);
        self.faults.push(FieldFault { field: field.into(), message });
        error
    }
}
