//! Parses a line of an access log that is a JSON object, as nginx and Caddy write them.
//!
//! A key such as `.request.uri` names a member of a nested object, as in jq. A name with dots of its own, such as
//! `"source.ip"`, is found as well.

use std::borrow::Cow;
use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::access_log::{self, Field, MAX_AT_NS, is_present};
use crate::escape::quoted;
use crate::trace::without_line;

/// A parsed line: it has a client, a time and a request.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    /// The time since the Unix epoch, at most [`MAX_AT_NS`].
    pub(crate) at_ns: u64,
    line: &'a str,
    object: Value,
    keys: &'a Keys,
}

/// The keys of the parts of a line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    /// The keys that the arguments name, without the first dot. They take the place of the default ones.
    pub(crate) named: Vec<(Part, String)>,
}

/// A part of a line that has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Time,
    /// Method, target and version in one text, which nginx has in place of separate members.
    Request,
    Field(Field),
}

const NO_CLIENT: &str = "no client: --field client=.KEY names it";
const NO_TIME: &str = "no time: --field time=.KEY names it";
const NO_REQUEST: &str = "no request: --field path=.KEY names its target";
const BAD_TIME: &str = "the time is neither RFC 3339, nor like 17/May/2015:10:05:03 +0000, nor a number since 1970 in seconds, ms, us or ns, up to 2115: ";
/// The most characters of a wrong time that a message quotes.
const MAX_TIME_CHARS: usize = 40;

/// Returns whether a line was skipped because it lacks a part, which may have another key.
pub(crate) fn is_missing_part(reason: &str) -> bool {
    [NO_CLIENT, NO_TIME, NO_REQUEST].contains(&reason)
}

/// Parses a line without its line feed. The error names the missing part.
pub(crate) fn parse<'a>(line: &'a [u8], keys: &'a Keys) -> Result<Entry<'a>, String> {
    let line = std::str::from_utf8(line)
        .map_err(|error| format!("invalid UTF-8 at column {}", error.valid_up_to() + 1))?;
    let object: Value = serde_json::from_str(line)
        .map_err(|error| format!("no JSON object: {}", without_line(&error)))?;
    if !object.is_object() {
        return Err("no JSON object".into());
    }
    let entry = Entry { at_ns: 0, line, object, keys };
    if entry.written(Part::Field(Field::Client)).is_none_or(|client| client.is_empty()) {
        return Err(NO_CLIENT.into());
    }
    let at_ns = {
        let time = entry.written(Part::Time).ok_or(NO_TIME)?;
        unix_ns(&time).ok_or_else(|| format!("{BAD_TIME}{}", quoted(&time, MAX_TIME_CHARS)))?
    };
    let [request, method, path] =
        [Part::Request, Part::Field(Field::Method), Part::Field(Field::Path)];
    if [request, method, path].into_iter().all(|part| entry.written(part).is_none()) {
        return Err(NO_REQUEST.into());
    }
    Ok(Entry { at_ns, ..entry })
}

impl Entry<'_> {
    pub(crate) fn client(&self) -> Cow<'_, str> {
        self.written(Part::Field(Field::Client)).unwrap_or_default()
    }

    /// Returns a field; `None` if the line does not have it or has `-` in its place.
    pub(crate) fn field(&self, field: Field) -> Option<Cow<'_, str>> {
        let written = self.written(Part::Field(field)).filter(|text| is_present(text.as_bytes()));
        let value = match field {
            Field::Method | Field::Path => written.or_else(|| self.part_of_request(field)),
            Field::Host => self.host(written),
            Field::Status => written.filter(|status| access_log::is_status(status.as_bytes())),
            _ => written,
        };
        value.filter(|text| is_present(text.as_bytes()))
    }

    /// Returns the text of a member; `None` if the line does not have it or has `-` in its place.
    pub(crate) fn member(&self, key: &str) -> Option<Cow<'_, str>> {
        self.text(key).filter(|text| is_present(text.as_bytes()))
    }

    /// Returns the text of a member, of a number as the line has it.
    fn text(&self, key: &str) -> Option<Cow<'_, str>> {
        match find(&self.object, key)? {
            // The float may have lost digits, and would join ids.
            Value::Number(number) if number.is_f64() => {
                find_raw(self.line, key).map(|number| number.get().into())
            }
            value => text(value),
        }
    }

    /// Returns a part as written, which may be `-`. Of several keys that the line has, the first with a value counts.
    fn written(&self, part: Part) -> Option<Cow<'_, str>> {
        let named = self.keys.named.iter().filter(|(of, _)| *of == part);
        let named: Vec<&str> = named.map(|(_, key)| &**key).collect();
        let keys = if named.is_empty() { default_keys(part) } else { &named };
        let mut found = keys.iter().filter_map(|key| match part {
            // A float is precise enough, and is found sooner.
            Part::Time => find(&self.object, key).and_then(text),
            _ => self.text(key),
        });
        let first = found.next()?;
        match is_present(first.as_bytes()) {
            true => Some(first),
            false => Some(found.find(|text| is_present(text.as_bytes())).unwrap_or(first)),
        }
    }

    /// Returns the method or the target of the request in one text.
    fn part_of_request(&self, field: Field) -> Option<Cow<'_, str>> {
        let request = self.written(Part::Request)?;
        let (method, target) = access_log::request_line(request.as_bytes())?;
        let part = if field == Field::Method { method } else { target };
        Some(String::from_utf8_lossy(part).into_owned().into())
    }

    fn host(&self, written: Option<Cow<'_, str>>) -> Option<Cow<'_, str>> {
        let target = self.field(Field::Path);
        let bytes =
            |text: &Option<Cow<'_, str>>| text.as_ref().map(|text| text.as_bytes().to_vec());
        let (target, written) = (bytes(&target), bytes(&written));
        let host = access_log::host(target.as_deref(), written.as_deref())?;
        Some(String::from_utf8_lossy(host).into_owned().into())
    }
}

impl Part {
    /// Finds a part by its name in the arguments.
    pub(crate) fn named(name: &str) -> Option<Part> {
        match name {
            "time" => Some(Part::Time),
            "request" => Some(Part::Request),
            name => Field::named(name).map(Part::Field),
        }
    }
}

/// Returns the keys of Caddy's structured log, and those of nginx's variables.
fn default_keys(part: Part) -> &'static [&'static str] {
    match part {
        // The most precise first.
        Part::Time => {
            &["ts", "msec", "time_iso8601", "time_local", "time", "timestamp", "@timestamp"]
        }
        Part::Request => &["request"],
        Part::Field(field) => match field {
            Field::Client => &["request.client_ip", "request.remote_ip", "remote_addr"],
            Field::User => &["user_id", "remote_user"],
            Field::Method => &["request.method", "request_method"],
            Field::Path => &["request.uri", "request_uri"],
            Field::Host => &["request.host", "host", "http_host", "server_name"],
            Field::UserAgent => &["request.headers.User-Agent", "http_user_agent"],
            Field::Status => &["status"],
            Field::Bytes => &["size", "body_bytes_sent", "bytes_sent"],
            Field::ForwardedFor => &["request.headers.X-Forwarded-For", "http_x_forwarded_for"],
        },
    }
}

/// Finds a member by its key.
fn find<'v>(value: &'v Value, key: &str) -> Option<&'v Value> {
    let object = value.as_object()?;
    let nested = || {
        let mut dots = key.match_indices('.');
        dots.find_map(|(dot, _)| find(object.get(&key[..dot])?, &key[dot + 1..]))
    };
    object.get(key).or_else(nested)
}

/// Finds the JSON text of a member as [`find`] finds its value.
fn find_raw<'a>(json: &'a str, key: &str) -> Option<&'a RawValue> {
    let object: HashMap<String, &RawValue> = serde_json::from_str(json).ok()?;
    let nested = || {
        let mut dots = key.match_indices('.');
        dots.find_map(|(dot, _)| find_raw(object.get(&key[..dot])?.get(), &key[dot + 1..]))
    };
    object.get(key).copied().or_else(nested)
}

/// Returns the text of a value. Several lines of a header field are joined, as HTTP does.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(text.into()),
        Value::Number(number) => Some(number.to_string().into()),
        Value::Bool(is_true) => Some(is_true.to_string().into()),
        Value::Array(values) => {
            let texts: Vec<&str> = values.iter().map(Value::as_str).collect::<Option<_>>()?;
            Some(texts.join(", ").into())
        }
        Value::Null | Value::Object(_) => None,
    }
}

/// Parses a time: RFC 3339, that of the combined format, or a number since the Unix epoch.
fn unix_ns(time: &str) -> Option<u64> {
    let at_ns = if time.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        number_ns(time)?
    } else if let Ok(time) = time.as_bytes().try_into() {
        access_log::unix_ns(time).or_else(|| rfc3339_ns(time))?
    } else {
        rfc3339_ns(time.as_bytes())?
    };
    (at_ns <= MAX_AT_NS).then_some(at_ns)
}

fn rfc3339_ns(time: &[u8]) -> Option<u64> {
    let at: Timestamp = std::str::from_utf8(time).ok()?.parse().ok()?;
    u64::try_from(at.as_nanosecond()).ok()
}

/// Parses seconds with any number of decimals. Milliseconds, microseconds and nanoseconds, which Caddy can write as well,
/// are told apart by their size: from 1974 on, a time in one of the four units is a time of none of the others.
fn number_ns(number: &str) -> Option<u64> {
    const LATEST_S: u128 = (MAX_AT_NS / 1_000_000_000) as u128;
    const FIRST_MS: u128 = 100_000_000_000;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let decimals = &decimals[..decimals.len().min(9)];
    let whole: u128 = whole.parse::<u64>().ok()?.into();
    let unit_ns: u128 = match whole {
        0..=LATEST_S => 1_000_000_000,
        FIRST_MS.. if whole < 1_000 * FIRST_MS => 1_000_000,
        FIRST_MS.. if whole < 1_000_000 * FIRST_MS => 1_000,
        FIRST_MS.. => 1,
        _ => return None,
    };
    let decimals_ns = decimals.parse::<u128>().ok()? * unit_ns / 10_u128.pow(decimals.len() as u32);
    u64::try_from(whole * unit_ns + decimals_ns).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const CADDY: &str = r#"{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"10.0.0.1","remote_port":"41342","client_ip":"192.0.2.7","proto":"HTTP/2.0","method":"GET","host":"example.org:8443","uri":"/a?b=c","headers":{"User-Agent":["curl/7.82.0"],"X-Forwarded-For":["6.6.6.6","192.0.2.7"]},"tls":{"resumed":false}},"bytes_read":0,"user_id":"frank","duration":0.000929675,"size":10900,"status":200}"#;
    const NGINX: &str = r#"{"time_local":"17/May/2015:10:05:03 +0000","remote_addr":"192.0.2.7","remote_user":"frank","request":"GET /a?b=c HTTP/1.1","status":"200","body_bytes_sent":"10900","http_user_agent":"curl/7.82.0","http_x_forwarded_for":"6.6.6.6, 192.0.2.7","host":"example.org"}"#;

    fn fields(line: &str, keys: &Keys) -> [Option<String>; 9] {
        let entry = parse(line.as_bytes(), keys).unwrap_or_else(|error| panic!("{error}: {line}"));
        Field::ALL.map(|(_, field)| entry.field(field).map(Cow::into_owned))
    }

    #[test]
    fn caddy_and_nginx_are_read_by_default() {
        let expected = [
            "192.0.2.7",
            "frank",
            "GET",
            "/a?b=c",
            "example.org",
            "curl/7.82.0",
            "200",
            "10900",
            "6.6.6.6, 192.0.2.7",
        ];
        let keys = Keys::default();
        for line in [CADDY, NGINX] {
            assert_eq!(fields(line, &keys), expected.map(|text| Some(text.to_owned())), "{line}");
        }
        let at_ns = |line: &str| parse(line.as_bytes(), &keys).unwrap().at_ns;
        assert_eq!(at_ns(CADDY), 1_646_861_401_524_102_400);
        assert_eq!(at_ns(NGINX), 1_431_857_103_000_000_000);
    }

    #[test]
    fn keys_can_be_named() {
        let named = [("client", "request.remote_ip"), ("user", "request.tls.resumed")];
        let named = named.map(|(name, key)| (Part::named(name).unwrap(), key.to_owned()));
        let keys = Keys { named: named.to_vec() };
        let [client, user, ..] = fields(CADDY, &keys);
        assert_eq!((client.as_deref(), user.as_deref()), (Some("10.0.0.1"), Some("false")));
        let object = json!({"a.b": {"c": 1, "c.d": 2}, "a": {"b": {"e": null}, "b.e": 3}});
        for (key, found) in [
            ("a.b.c", Some(1)),
            ("a.b.c.d", Some(2)),
            ("a.b.e", Some(3)),
            ("a.b", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(find(&object, key).and_then(Value::as_i64), found, "{key}");
            let json = object.to_string();
            let raw = find_raw(&json, key).and_then(|raw| raw.get().parse().ok());
            assert_eq!(raw, found, "{key}");
        }
    }

    #[test]
    fn keys_with_a_value_precede_others() {
        let line = r#"{"ts":1,"request":"POST /b HTTP/1.1","remote_addr":"192.0.2.7","request_method":"GET","host":"-","http_host":"a.example","x":"-"}"#;
        let keys = Keys::default();
        let entry = parse(line.as_bytes(), &keys).unwrap();
        let field = |field| entry.field(field).unwrap().into_owned();
        assert_eq!(field(Field::Method), "GET");
        assert_eq!(field(Field::Path), "/b");
        assert_eq!(field(Field::Host), "a.example");
        assert_eq!((entry.member("x"), entry.member("ts").as_deref()), (None, Some("1")));
    }

    #[test]
    fn times_have_many_forms() {
        const NS: u64 = 1_431_857_103_250_000_000;
        for time in [
            json!(1_431_857_103.25),
            json!("1431857103.250"),
            json!("2015-05-17T10:05:03.25Z"),
            json!("2015-05-17T12:05:03.250+02:00"),
            json!("2015-05-17T10:05:03.250+0000"),
            json!(1_431_857_103_250_u64),
            json!(1_431_857_103_250_000.0),
            json!(NS),
        ] {
            let line = json!({"ts": time, "remote_addr": "a", "request": "-"}).to_string();
            let keys = Keys::default();
            let entry = parse(line.as_bytes(), &keys).map(|entry| entry.at_ns);
            assert_eq!(entry, Ok(NS), "{line}");
        }
        for time in
            ["", "-", ".", "1.", "-1", "1e9", "10000000000", "2015-05-17", "1.1.1", "\u{661}"]
        {
            assert_eq!(unix_ns(time), None, "{time}");
        }
        assert_eq!(unix_ns("0"), Some(0));
        assert_eq!(unix_ns(&u64::MAX.to_string()), None);
    }

    #[test]
    fn errors_name_the_missing_part() {
        let keys = Keys::default();
        for (line, error) in [
            ("", "no JSON object: the line is cut off: EOF while parsing a value"),
            ("[1]", "no JSON object"),
            ("garbage", "no JSON object: expected value at column 1"),
            (
                r#"{"a":"#,
                "no JSON object: the line is cut off: EOF while parsing a value at column 5",
            ),
            ("{}", NO_CLIENT),
            (r#"{"remote_addr":""}"#, NO_CLIENT),
            (r#"{"remote_addr":"a"}"#, NO_TIME),
            (r#"{"remote_addr":"a","ts":"x"}"#, &(BAD_TIME.to_owned() + "\"x\"")),
            (r#"{"remote_addr":"a","ts":1,"request":{}}"#, NO_REQUEST),
        ] {
            assert_eq!(parse(line.as_bytes(), &keys).unwrap_err(), error, "{line}");
        }
        assert_eq!(parse(b"{\xff", &keys).unwrap_err(), "invalid UTF-8 at column 2");
        let deep = "{\"a\":".repeat(100_000);
        assert!(parse(deep.as_bytes(), &keys).unwrap_err().contains("recursion limit"));
    }

    fn all(line: &[u8], keys: &Keys) {
        if let Ok(entry) = parse(line, keys) {
            for (_, field) in Field::ALL {
                entry.field(field);
            }
            assert!(entry.at_ns <= MAX_AT_NS);
        }
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_or_refused(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            all(&line, &Keys::default());
        }

        #[test]
        fn mutated_lines_are_parsed_or_refused(
            is_caddy in any::<bool>(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
            end in any::<prop::sample::Index>(),
        ) {
            let mut line = if is_caddy { CADDY } else { NGINX }.as_bytes().to_vec();
            let at = at.index(line.len());
            line[at] = byte;
            all(&line, &Keys::default());
            line.truncate(end.index(line.len()));
            all(&line, &Keys::default());
        }

        /// A line of the combined format and the JSON object that nginx would have written have the same fields.
        #[test]
        fn a_line_equals_its_conversion(
            client in "[0-9a-f.]{1,10}|[0-9a-f]{1,4}::[0-9a-f]{1,4}|-", user in "[a-z \\[\\]]{0,8}|-",
            request in "([A-Z]{3,7} (http://[a-z]{1,5}(:[0-9]{2})?)?/[ -!#-\\[\\]-~\u{e9}]{0,20}( HTTP/1\\.1)?)|-|",
            status in "[0-9]{1,4}|-", bytes in "[0-9]{1,6}|-", agent in "[ -!#-\\[\\]-~]{0,12}|-",
            forwarded in "[0-9., ]{0,20}|-", at_s in 0_i64..4_000_000_000, vhost in "[a-z]{0,4}",
        ) {
            let time = Timestamp::from_second(at_s).unwrap().strftime("%d/%b/%Y:%H:%M:%S +0000").to_string();
            let front = if vhost.is_empty() { String::new() } else { format!("{vhost}:80 ") };
            let line = format!(
                "{front}{client} - {user} [{time}] \"{request}\" {status} {bytes} \"-\" \"{agent}\" \"{forwarded}\""
            );
            let object = json!({
                "time_local": time, "remote_addr": client, "remote_user": user, "request": request,
                "status": status, "body_bytes_sent": if bytes == "-" { "0" } else { &bytes },
                "http_user_agent": agent, "http_x_forwarded_for": forwarded, "host": vhost,
            });
            let keys = Keys::default();
            let (line, object) = (line, object.to_string());
            let text = access_log::parse(line.as_bytes()).unwrap();
            let json = parse(object.as_bytes(), &keys).unwrap();
            prop_assert_eq!(text.at_ns, json.at_ns);
            for (name, field) in Field::ALL {
                let json = json.field(field);
                prop_assert_eq!(text.field(field), json.as_ref().map(|text| text.as_bytes()), "{}", name);
            }
        }
    }
}
