//! Makes the limit of an entry whose algorithm is a custom one.

use std::sync::Arc;

use crate::algorithm::Algorithm;
use crate::error::{Error, ErrorKind};
use crate::limit::Limit;

use super::custom::{AlgorithmFields, CustomAlgorithms, FieldFault};
use super::entry::Entry;
use super::faults::Path;
use super::fields::{Parameter, unknown_field};
use super::walk::Walk;

impl Walk<'_, '_> {
    /// Returns the limit of an entry of a custom algorithm; `None` if the entry is at fault.
    pub(super) fn custom_limit(
        &mut self,
        entry: &Entry<'_>,
        place: usize,
        at: &Path<'_>,
    ) -> Option<Limit> {
        let CustomAlgorithms { registered, made: known } = self.names.algorithms();
        let (name, make) = &registered[place];
        let text = text_of(name, &entry.parameters);
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

/// Returns the text of a name and of fields. Equal texts stand for equal fields with equal values.
fn text_of(name: &str, parameters: &[Parameter<'_>]) -> String {
    let mut fields: Vec<_> = parameters.iter().collect();
    fields.sort_by_key(|parameter| &parameter.key);
    let mut text = name.to_string();
    for Parameter { key, value, .. } in fields {
        match value {
            Ok(scalar) => {
                let style = if scalar.is_plain() { "plain" } else { "quoted" };
                text += &format!(" {key:?}: {style} {:?}", scalar.text);
            }
            Err(kind) => text += &format!(" {key:?}: {kind}"),
        }
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
