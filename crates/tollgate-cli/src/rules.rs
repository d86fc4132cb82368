//! Parses a rule of the arguments, and finds the id and the cost of a line of a log.
//!
//!     LIMIT=FIELD[?][+FIELD[?]]...[,WORD=VALUE]...[,WORD!=VALUE]...

use std::borrow::Cow;
use std::fmt;

use crate::access_log::{Field, path_of};
use crate::escape::{Escaped, quoted};
use crate::log_line::Entry;

/// Which bucket of a limit a line charges, if the rule applies to the line, and by how many units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) limit: String,
    /// The rule without its limit, as the arguments have it.
    pub(crate) text: String,
    /// The fields of the id.
    id: Vec<Source>,
    /// The rule applies if the line has each of these, with a text that is not empty.
    present: Vec<Source>,
    cost: Cost,
    /// The rule applies if the path is one of these, where there are any, and if each field has one of its values.
    chosen: Words,
    /// The rule does not apply if the path is one of these, or a field has one of its values.
    left_out: Words,
}

/// What the words of a rule say of a line: paths, and fields with values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Words {
    paths: Vec<Path>,
    values: Vec<(Source, Vec<String>)>,
}

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Field(Field),
    /// A member of a JSON object. The key is without its first dot.
    Key(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cost {
    Units(u64),
    Of(Source),
}

/// The segments of a path. `None` stands for any segment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Path {
    segments: Vec<Option<String>>,
    rest: Rest,
}

/// What follows the segments of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    Anything,
    /// At least one segment.
    Something,
}

/// The most characters of a wrong word that a message quotes.
const MAX_CHARS: usize = 64;

impl Rule {
    pub(crate) fn parse(text: &str) -> Result<Rule, String> {
        let (limit, text) = text.split_once('=').ok_or("LIMIT=FIELD is allowed")?;
        if limit.is_empty() {
            return Err("no limit: LIMIT=FIELD is allowed".into());
        }
        let mut words = text.split(',');
        let fields = words.next().unwrap_or_default().split('+');
        let (mut id, mut present) = (Vec::new(), Vec::new());
        for field in fields {
            let source = Source::parse(field.strip_suffix('?').unwrap_or(field))?;
            if field.ends_with('?') {
                present.push(source.clone());
            }
            id.push(source);
        }
        let mut rule = Rule {
            limit: limit.to_owned(),
            text: text.to_owned(),
            id,
            present,
            cost: Cost::Units(1),
            chosen: Words::default(),
            left_out: Words::default(),
        };
        let mut has_cost = false;
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| unknown_word(word))?;
            let left_out = name.strip_suffix('!');
            if name == "cost" {
                if has_cost {
                    let word = Escaped(word);
                    return Err(format!("{word}: the rule has a cost already, and one is allowed"));
                }
                has_cost = true;
                rule.cost = Cost::parse(value)?;
                continue;
            }
            let words = if left_out.is_some() { &mut rule.left_out } else { &mut rule.chosen };
            words.add(left_out.unwrap_or(name), value, word)?;
        }
        Ok(rule)
    }

    /// Returns whether the rule applies to a line.
    pub(crate) fn applies(&self, entry: &Entry<'_>) -> bool {
        let is_present = |source: &Source| source.find(entry).is_some_and(|it| !it.is_empty());
        let has = |(source, values): &(Source, Vec<String>)| has_one_of(entry, source, values);
        let (chosen, left_out) = (&self.chosen, &self.left_out);
        self.present.iter().all(is_present)
            && chosen.values.iter().all(has)
            && (chosen.paths.is_empty() || chosen.has_path(entry))
            && !left_out.values.iter().any(has)
            && !left_out.has_path(entry)
    }

    /// Returns the id and the cost that a line charges. The error names the missing field.
    pub(crate) fn charge<'e>(&self, entry: &'e Entry<'_>) -> Result<(Cow<'e, str>, u64), String> {
        let cost = match &self.cost {
            Cost::Units(units) => *units,
            Cost::Of(source) => {
                let text = source.text(entry)?;
                text.parse().map_err(|_| {
                    format!("{}: {} is no whole number", source.name(), quoted(&text, MAX_CHARS))
                })?
            }
        };
        if let [source] = &*self.id {
            return Ok((source.text(entry)?, cost));
        }
        // A colon in a field is not taken for the one between fields: docs/ids.md.
        let mut id = String::new();
        for (i, source) in self.id.iter().enumerate() {
            let text = source.text(entry)?;
            match i + 1 == self.id.len() {
                true => id += &text,
                false => id += &(text.replace('\\', "\\\\").replace(':', "\\:") + ":"),
            }
        }
        Ok((id.into(), cost))
    }

    /// Returns whether the rule names a member of a JSON object.
    pub(crate) fn has_key(&self) -> bool {
        let cost = match &self.cost {
            Cost::Units(_) => None,
            Cost::Of(source) => Some(source),
        };
        let values = self.chosen.values.iter().chain(&self.left_out.values);
        let values = values.map(|(source, _)| source);
        self.id.iter().chain(values).chain(cost).any(|source| matches!(source, Source::Key(_)))
    }

    /// Returns the names of the id's fields, for messages.
    pub(crate) fn id_name(&self) -> String {
        self.id.iter().map(Source::name).collect::<Vec<_>>().join("+")
    }
}

/// Displays the rule as the arguments have it.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", Escaped(&self.limit), Escaped(&self.text))
    }
}

impl Words {
    /// Adds a path, a route, or a value of a field, as `word` has it.
    fn add(&mut self, name: &str, value: &str, word: &str) -> Result<(), String> {
        match name {
            "path" => self.paths.push(Path::parse(value, Rest::Anything)?),
            "route" => self.paths.push(Path::parse(value, Rest::Nothing)?),
            _ => {
                let source = Source::parse(name).map_err(|_| unknown_word(word))?;
                match self.values.iter_mut().find(|(known, _)| *known == source) {
                    Some((_, values)) => values.push(value.to_owned()),
                    None => self.values.push((source, vec![value.to_owned()])),
                }
            }
        }
        Ok(())
    }

    fn has_path(&self, entry: &Entry<'_>) -> bool {
        let target = entry.field(Field::Path);
        target.is_some_and(|target| self.paths.iter().any(|path| path.is_of(path_of(&target))))
    }
}

fn has_one_of(entry: &Entry<'_>, source: &Source, values: &[String]) -> bool {
    let found = source.find(entry);
    found.is_some_and(|found| values.iter().any(|value| value.as_bytes() == &*found))
}

fn unknown_word(word: &str) -> String {
    format!(
        "unknown word {}: path=/PREFIX, route=/ROUTE, FIELD=VALUE, these with != in place of =, cost=FIELD and cost=UNITS are allowed",
        quoted(word, MAX_CHARS)
    )
}

impl Source {
    fn parse(text: &str) -> Result<Source, String> {
        if let Some(key) = text.strip_prefix('.').filter(|key| !key.is_empty()) {
            return Ok(Source::Key(key.to_owned()));
        }
        Field::named(text).map(Source::Field).ok_or_else(|| {
            format!("unknown field {}: {} is allowed", quoted(text, MAX_CHARS), Source::allowed())
        })
    }

    /// Returns what a field may be, for messages.
    fn allowed() -> String {
        let names = Field::ALL.map(|(name, _)| name).join(", ");
        format!("one of {names}, or .KEY of a JSON log,")
    }

    fn name(&self) -> String {
        match self {
            Source::Field(field) => field.name().to_owned(),
            Source::Key(key) => format!(".{key}"),
        }
    }

    fn find<'e>(&self, entry: &'e Entry<'_>) -> Option<Cow<'e, [u8]>> {
        match self {
            Source::Field(field) => entry.field(*field),
            Source::Key(key) => entry.member(key),
        }
    }

    fn text<'e>(&self, entry: &'e Entry<'_>) -> Result<Cow<'e, str>, String> {
        let found = self.find(entry).ok_or_else(|| format!("no {}", self.name()))?;
        let not_text = || format!("{} is not UTF-8", self.name());
        match found {
            Cow::Borrowed(bytes) => {
                std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| not_text())
            }
            Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| not_text()),
        }
    }
}

impl Cost {
    fn parse(text: &str) -> Result<Cost, String> {
        match text.parse() {
            Ok(units) => Ok(Cost::Units(units)),
            Err(_) => Source::parse(text).map(Cost::Of).map_err(|_| {
                let (text, max, fields) = (quoted(text, MAX_CHARS), u64::MAX, Source::allowed());
                format!("unknown cost {text}: a whole number from 0 to {max}, {fields} is allowed")
            }),
        }
    }
}

impl Path {
    /// Parses a path such as `/users/{id}`. `{*rest}` at its end stands for at least one segment, as in axum's routes.
    fn parse(text: &str, mut rest: Rest) -> Result<Path, String> {
        let fault = |why| Err(format!("{}: {why}", quoted(text, MAX_CHARS)));
        if !text.starts_with('/') {
            return fault("a path begins with a slash");
        }
        if text.contains(['?', '#']) {
            return fault("the query is no part of a path");
        }
        let mut parsed: Vec<Option<String>> = Vec::new();
        for segment in segments(text.as_bytes()).map(String::from_utf8_lossy) {
            if rest == Rest::Something {
                return fault("{*...} is allowed at the end only");
            }
            let name = segment.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
            if name.unwrap_or(&segment).contains(['{', '}']) {
                return fault("braces are allowed around a whole segment only");
            }
            match name {
                Some(name) if name.starts_with('*') => rest = Rest::Something,
                Some(_) => parsed.push(None),
                None => parsed.push(Some(segment.into_owned())),
            }
        }
        Ok(Path { segments: parsed, rest })
    }

    fn is_of(&self, path: &[u8]) -> bool {
        let mut found = segments(path);
        let is_wanted = |wanted: &Option<String>, segment: &[u8]| match wanted {
            Some(wanted) => wanted.as_bytes() == segment,
            None => !segment.is_empty(),
        };
        path.starts_with(b"/")
            && self
                .segments
                .iter()
                .all(|wanted| found.next().is_some_and(|it| is_wanted(wanted, it)))
            && match self.rest {
                Rest::Anything => true,
                Rest::Nothing => found.next().is_none(),
                Rest::Something => found.next().is_some(),
            }
    }
}

/// Returns the segments of a path that begins with a slash. Slashes at its end do not count.
fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    path[..end].split(|byte| *byte == b'/').skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_log::Keys;
    use crate::log_line::Format;

    const LINE: &str =
        r#"2001:db8::1 - - [17/May/2015:10:05:03 +0000] "POST /users/7/?a=b HTTP/1.1" 200 512"#;
    const OBJECT: &str = r#"{"ts":1,"remote_addr":"1.1.1.1","request":"GET / HTTP/1.1","tenant":"a:b\\c","empty":"","cost":1.5,"size":7}"#;

    fn charge(rule: &str) -> Option<Result<(String, u64), String>> {
        let rule = Rule::parse(&format!("A={rule}")).unwrap_or_else(|error| panic!("{error}"));
        let keys = Keys::default();
        let line = if rule.text.contains('.') { OBJECT } else { LINE };
        let entry = Format::of(line.as_bytes()).unwrap().parse(line.as_bytes(), &keys).unwrap();
        let charge = || rule.charge(&entry).map(|(id, cost)| (id.into_owned(), cost));
        rule.applies(&entry).then(charge)
    }

    #[test]
    fn ids_and_costs_are_taken_from_fields() {
        for (rule, id, cost) in [
            ("client", "2001:db8::1", 1),
            ("client,cost=bytes", "2001:db8::1", 512),
            ("client,cost=0", "2001:db8::1", 0),
            ("method+status", "POST:200", 1),
            ("client+method", "2001\\:db8\\:\\:1:POST", 1),
            (".tenant,cost=.size", "a:b\\c", 7),
            (".tenant+.tenant", "a\\:b\\\\c:a:b\\c", 1),
        ] {
            assert_eq!(charge(rule), Some(Ok((id.to_owned(), cost))), "{rule}");
        }
        for (rule, error) in [
            ("user", "no user"),
            ("client+user", "no user"),
            (".x", "no .x"),
            ("client,cost=user_agent", "no user_agent"),
            ("client,cost=.cost", ".cost: \"1.5\" is no whole number"),
        ] {
            assert_eq!(charge(rule), Some(Err(error.to_owned())), "{rule}");
        }
    }

    #[test]
    fn a_parameter_is_not_empty() {
        let is_of = |path: &str| {
            Path::parse("/users/{id}/x", Rest::Nothing).unwrap().is_of(path.as_bytes())
        };
        assert!(is_of("/users/7/x") && !is_of("/users//x"));
    }

    #[test]
    fn rules_apply_to_paths_and_values() {
        for rule in [
            "method=POST",
            "method=GET,method=POST",
            "path=/",
            "path=/users",
            "path=/users/7",
            "path=/users/",
            "path=/users/{id}",
            "path=/x,path=/users",
            "route=/users/{id}",
            "route=/users/7/",
            "route=/users/{*rest}",
            "route=/x,route=/{a}/{b}",
            "route=/x,path=/users,method=POST,status=200",
            "path!=/user",
            "path=/users,route!=/users",
            "method!=GET,user!=x",
            "method=POST,status!=404",
        ] {
            assert!(charge(&format!("client,{rule}")).is_some(), "{rule}");
        }
        for rule in [
            "method=post",
            "method=GET",
            "path=/user",
            "path=/users/7/8",
            "path=/users/{a}/{b}",
            "route=/users",
            "route=/",
            "route=/users/7/{*rest}",
            "user=",
            "user=x",
            "method=POST,status=404",
            "path=/users,method=GET",
            "path!=/users",
            "path=/users,route!=/users/{id}",
            "method!=GET,method!=POST",
            "method=POST,status!=200",
        ] {
            assert!(charge(&format!("client,{rule}")).is_none(), "{rule}");
        }
        assert!(charge("client,.tenant=a:b\\c").is_some());
        assert!(charge("client,.tenant!=a:b\\c").is_none());
        assert_eq!(charge(".tenant?"), Some(Ok(("a:b\\c".into(), 1))));
        for rule in ["user?", "client+user?", ".x?", ".empty?"] {
            assert!(charge(rule).is_none(), "{rule}");
        }
        let path = Path::parse("/a//{b}", Rest::Nothing).unwrap();
        for (target, is_of) in [("/a//x", true), ("/a/x", false), ("/a//", false), ("a//x", false)]
        {
            assert_eq!(path.is_of(target.as_bytes()), is_of, "{target}");
        }
    }

    #[test]
    fn faults_name_what_is_allowed() {
        for (rule, part) in [
            ("A", "LIMIT=FIELD is allowed"),
            ("=client", "no limit"),
            ("A=", "unknown field \"\": one of client, user, method"),
            ("A=Client", "unknown field \"Client\""),
            ("A=a=client", "unknown field \"a=client\""),
            ("A=client+", "unknown field \"\""),
            ("A=.", "unknown field \".\""),
            ("A=client,", "unknown word \"\": path=/PREFIX"),
            ("A=client,methd=GET", "unknown word \"methd=GET\""),
            ("A=client,path=api", "\"api\": a path begins with a slash"),
            ("A=client,path=/a?b", "\"/a?b\": the query is no part of a path"),
            ("A=client,route=/{*a}/b", "{*...} is allowed at the end only"),
            ("A=client,path=/{a", "\"/{a\": braces are allowed around a whole segment only"),
            ("A=client,path=/a}", "around a whole segment only"),
            ("A=client,route=/files/{name}.txt", "around a whole segment only"),
            ("A=client,route=/{{a}}", "around a whole segment only"),
            ("A=client,cost=1,cost=2", "cost=2: the rule has a cost already, and one is allowed"),
            ("A=client,cost=bytes,path=/,cost=bytes", "cost=bytes: the rule has a cost already"),
            ("A=client,cost=many", "unknown cost \"many\""),
            ("A=client,cost=-1", "unknown cost \"-1\": a whole number from 0 to 1"),
            ("A=client,cost!=1", "unknown word \"cost!=1\""),
            ("A=client,path!=api", "\"api\": a path begins with a slash"),
        ] {
            let error = Rule::parse(rule).unwrap_err();
            assert!(error.contains(part), "{rule}: {error}");
        }
    }
}
