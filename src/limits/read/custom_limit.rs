//! Makes the limit of an entry whose algorithm is a custom one.

use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;

use super::custom::{AlgorithmFields, FieldFault, Registered};
use super::entry::Entry;
use super::faults::Path;
use super::fields::{Parameter, unknown_field};
use super::walk::Walk;

/// The longest text of a field. What was made is kept by the texts of its fields.
const TEXT_MAX_BYTES: usize = 1024;

impl Walk<'_, '_> {
    /// Returns the limit of an entry of a custom algorithm; `None` if the entry is at fault.
    pub(super) fn custom_limit(
        &mut self,
        entry: &Entry<'_>,
        place: usize,
        at: &Path<'_>,
    ) -> Option<Limit> {
        let long = |parameter: &&Parameter<'_>| {
            parameter.value.as_ref().is_ok_and(|scalar| scalar.text.len() > TEXT_MAX_BYTES)
        };
        if let Some(Parameter { line, key, .. }) = entry.parameters.iter().find(long) {
            let message = format!(
                "a text of more than {TEXT_MAX_BYTES} bytes: no algorithm has such a field"
            );
            self.fault(*line, &at.key(key), message);
            return None;
        }
        let registered = self.names.algorithms().registered[place].clone();
        let Registered { name, make, made: known } = &*registered;
        let text = text_of(&entry.parameters);
        if let Some(algorithm) = known.lock().get(&text) {
            return Limit::custom(algorithm).ok();
        }
        let mut fields = AlgorithmFields::new(&entry.parameters);
        let made = make(&mut fields).and_then(|algorithm| limit_named(name, algorithm));
        let AlgorithmFields { wanted, mut faults, .. } = fields;
        // A function that has failed has not asked for all of its fields.
        if made.is_ok() {
            let is_unknown =
                |parameter: &&Parameter<'_>| !wanted.iter().any(|name| parameter.key == **name);
            for parameter in entry.parameters.iter().filter(is_unknown) {
                let own = wanted.iter().map(String::as_str);
                let others = entry.shape.others().iter().map(|field| field.name());
                let allowed: Vec<&str> = own.chain(others).collect();
                let message = unknown_field(&parameter.key, &allowed);
                faults.push(FieldFault { field: parameter.key.to_string(), message });
            }
        }
        if let Err(error) = &made
            && faults.is_empty()
        {
            faults.push(FieldFault { field: String::new(), message: error.to_string() });
        }
        if faults.is_empty()
            && let Ok((_, algorithm)) = &made
        {
            known.lock().add(text, algorithm);
            return made.ok().map(|(limit, _)| limit);
        }
        for FieldFault { field, message } in faults {
            match entry.parameters.iter().find(|parameter| parameter.key == *field) {
                Some(parameter) => self.fault(parameter.line, &at.key(&field), message),
                None => self.fault(entry.line, at, message),
            }
        }
        None
    }
}

/// Returns the text of fields. Equal texts stand for equal fields with equal values.
fn text_of(parameters: &[Parameter<'_>]) -> String {
    let mut fields: Vec<_> = parameters.iter().collect();
    fields.sort_by_key(|parameter| &parameter.key);
    let mut text = String::new();
    for Parameter { key, value, .. } in fields {
        let (style, value) = match value {
            Ok(scalar) if scalar.is_plain() => ("plain", &*scalar.text),
            Ok(scalar) => ("quoted", &*scalar.text),
            Err(kind) => (*kind, ""),
        };
        // With its length each text ends where it ends, whatever it has in it.
        let (key_len, value_len) = (key.len(), value.len());
        text += &format!("{key_len}:{key} {style} {value_len}:{value} ");
    }
    text
}

/// Makes a limit of an algorithm that was registered under `name`: reloads and overrides know it by that name.
fn limit_named(
    name: &str,
    algorithm: Arc<dyn Algorithm>,
) -> Result<(Limit, Arc<dyn Algorithm>), Error> {
    let own = algorithm.name();
    if own != name {
        let text = format!(
            "the algorithm registered as {name} calls itself {own:?}: Algorithm::name must return {name:?}"
        );
        return Err(Error::new(ErrorKind::Limit, text));
    }
    Ok((Limit::custom(algorithm.clone())?, algorithm))
}
