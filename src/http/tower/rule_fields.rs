//! The fields of a layer's rules, when rules have fields of their own.

use http::HeaderName;

use crate::http::tower::rules::ActiveRule;
use crate::http::{Fields, SetupError, Style};

/// The fields of a layer's responses.
pub(crate) struct LayerFields {
    /// The styles of all rules.
    pub(crate) all: Fields,
    /// The styles with their rules, if the rules differ in their styles; else empty.
    pub(crate) groups: Box<[FieldGroup]>,
}

/// Styles that the same rules have. Together these rules have one set of fields.
pub(crate) struct FieldGroup {
    pub(crate) fields: Fields,
    /// Whether the rule at this position has these styles.
    has: Box<[bool]>,
}

impl FieldGroup {
    pub(crate) fn has_rule(&self, position: usize) -> bool {
        self.has.get(position).copied().unwrap_or(false)
    }
}

impl LayerFields {
    /// Combines the rules' own fields with those of the layer, which the other rules have.
    ///
    /// # Errors
    ///
    /// Two rules write one field in two styles.
    pub(crate) fn new(rules: &[ActiveRule], of_layer: &Fields) -> Result<LayerFields, SetupError> {
        let mut groups: Vec<(Style, Box<[bool]>)> = Vec::new();
        for (position, rule) in rules.iter().enumerate() {
            for style in rule.fields().unwrap_or(of_layer).styles() {
                match groups.iter_mut().find(|(known, _)| known == style) {
                    Some((_, has)) => has[position] = true,
                    None => {
                        check_apart(rules, &groups, style, rule)?;
                        let mut has = vec![false; rules.len()].into_boxed_slice();
                        has[position] = true;
                        groups.push((style.clone(), has));
                    }
                }
            }
        }
        let all = groups.iter().map(|(style, _)| style.clone()).collect();
        let all = Fields::from_checked(all);
        if groups.iter().all(|(_, has)| has.iter().all(|has| *has)) {
            return Ok(LayerFields { all, groups: Box::default() });
        }
        let groups = groups
            .into_iter()
            .map(|(style, has)| FieldGroup { fields: Fields::from_checked(vec![style]), has });
        Ok(LayerFields { all, groups: groups.collect() })
    }
}

/// Checks that no style of an earlier rule writes a field of `style`.
fn check_apart(
    rules: &[ActiveRule],
    groups: &[(Style, Box<[bool]>)],
    style: &Style,
    rule: &ActiveRule,
) -> Result<(), SetupError> {
    let names = style.names();
    let shared = |other: &Style| -> Option<HeaderName> {
        other.names().into_iter().find(|name| names.contains(name))
    };
    for (other, has) in groups {
        let Some(name) = shared(other) else { continue };
        let earlier = rules.iter().zip(has).find_map(|(earlier, has)| has.then_some(earlier));
        return Err(SetupError::new(format!(
            "the rules {} and {} write the field {name} in two styles: two rules have the same style, or styles without a \
             common field",
            earlier.map_or("", ActiveRule::name),
            rule.name()
        )));
    }
    Ok(())
}
