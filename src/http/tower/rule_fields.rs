//! Groups the header fields of a layer's rules by style: a rule may have fields of its own in place of the layer's.

use http::HeaderName;

use crate::http::fields::Shown;
use crate::http::tower::rules::ActiveRule;
use crate::http::{Fields, SetupError, Style};

/// The fields of a layer's responses.
pub(crate) struct LayerFields {
    /// The styles of all rules.
    pub(crate) all: Fields,
    /// Each style with the rules that have it; empty if every rule has every style.
    pub(crate) groups: Box<[FieldGroup]>,
    /// Whether responses to allowed requests may have fields.
    pub(crate) are_on_allowed: bool,
}

/// One style, and the rules that have it. A response has one set of fields in this style, for all of these rules.
pub(crate) struct FieldGroup {
    pub(crate) fields: Fields,
    /// For each rule, by its position: whether it has this style.
    has: Box<[bool]>,
}

impl FieldGroup {
    pub(crate) fn has_rule(&self, position: usize) -> bool {
        self.has.get(position).copied().unwrap_or(false)
    }
}

impl LayerFields {
    /// Groups the styles of all rules. A rule without fields of its own has those of the layer.
    ///
    /// # Errors
    ///
    /// Two rules write one field in two styles, or in one style but in different responses.
    pub(crate) fn new(rules: &[ActiveRule], of_layer: &Fields) -> Result<LayerFields, SetupError> {
        let mut groups: Vec<(Style, Shown, Box<[bool]>)> = Vec::new();
        for (position, rule) in rules.iter().enumerate() {
            let fields = rule.fields().unwrap_or(of_layer);
            let shown = fields.shown;
            for style in fields.styles() {
                match groups.iter_mut().find(|group| (&group.0, group.1) == (style, shown)) {
                    Some((.., has)) => has[position] = true,
                    None => {
                        check_apart(rules, &groups, style, rule)?;
                        let mut has = vec![false; rules.len()].into_boxed_slice();
                        has[position] = true;
                        groups.push((style.clone(), shown, has));
                    }
                }
            }
        }
        let are_on_allowed = groups.iter().any(|(_, shown, _)| *shown != Shown::OnDenials);
        let all = groups.iter().map(|(style, ..)| style.clone()).collect();
        // `shown` is used only if every rule has every style. Then it is the same for all groups.
        let shown = groups.first().map_or(Shown::Always, |(_, shown, _)| *shown);
        let all = Fields::from_checked(all, shown);
        if groups.iter().all(|(.., has)| has.iter().all(|has| *has)) {
            return Ok(LayerFields { all, groups: Box::default(), are_on_allowed });
        }
        let groups = groups.into_iter().map(|(style, shown, has)| FieldGroup {
            fields: Fields::from_checked(vec![style], shown),
            has,
        });
        Ok(LayerFields { all, groups: groups.collect(), are_on_allowed })
    }
}

/// Checks that no style of an earlier rule writes a field of `style`.
fn check_apart(
    rules: &[ActiveRule],
    groups: &[(Style, Shown, Box<[bool]>)],
    style: &Style,
    rule: &ActiveRule,
) -> Result<(), SetupError> {
    let names = style.names();
    let shared = |other: &Style| -> Option<HeaderName> {
        other.names().into_iter().find(|name| names.contains(name))
    };
    for (other, _, has) in groups {
        let Some(name) = shared(other) else { continue };
        let earlier = rules.iter().zip(has).find_map(|(earlier, has)| has.then_some(earlier));
        let (earlier, later) = (earlier.map_or("", ActiveRule::name), rule.name());
        let fault = match other == style {
            true => "in different responses: show this style in the same responses for both",
            false => "in two styles: give both the same style, or styles without a common field",
        };
        let text = format!("the rules {earlier} and {later} write the field {name} {fault}");
        return Err(SetupError::new(text));
    }
    Ok(())
}
