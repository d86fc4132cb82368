//! The requests of an access log: their clients, and the fields by which denied requests are counted.

use std::collections::HashMap;
use std::net::IpAddr;

use memchr::memchr;

use crate::access_log::{Entry, Field};

/// A request that waits for its decision: the client and the values of [`FIELDS`], one behind the other.
pub(crate) struct Request {
    bytes: Box<[u8]>,
    ends: [usize; 1 + FIELDS.len()],
}

type Text = Box<[u8]>;

/// The fields by which denied requests are counted.
pub(super) const FIELDS: [Field; 4] = [Field::Path, Field::Method, Field::UserAgent, Field::Status];

/// Different values of a field that are counted; further ones are counted as one.
const MAX_VALUES: usize = 100_000;

/// The requests that were decided.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The places of clients in the next field, by every text in which they were written.
    clients: HashMap<Text, usize, ahash::RandomState>,
    touched: Vec<Touched>,
    /// By [`FIELDS`].
    denied: [DeniedBy; FIELDS.len()],
}

/// Whether a client was denied or affected at least once.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    is_denied: bool,
    is_affected: bool,
}

/// Denied requests by the values of a field.
#[derive(Clone, Debug, Default)]
pub(super) struct DeniedBy {
    values: HashMap<Text, Counts, ahash::RandomState>,
    /// Of values beyond [`MAX_VALUES`].
    pub(super) others: Counts,
}

/// Requests denied by the limits in force, and by the candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) now: u64,
    pub(super) then: u64,
}

/// How many of the clients, or of the ids, were hit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) count: u64,
    pub(super) of: u64,
}

impl Request {
    pub(crate) fn new(entry: &Entry<'_>) -> Request {
        // A field that the line does not have is empty.
        let value = |field| {
            let value = entry.field(field).unwrap_or_default();
            let end = if field == Field::Path { memchr(b'?', value) } else { None };
            &value[..end.unwrap_or(value.len())]
        };
        let [path, method, agent, status] = FIELDS.map(value);
        let parts = [value(Field::Client), path, method, agent, status];
        let mut end = 0;
        let ends = parts.map(|part| {
            end += part.len();
            end
        });
        Request { bytes: parts.concat().into(), ends }
    }

    /// The client, then the values of [`FIELDS`].
    fn parts(&self) -> [&[u8]; 1 + FIELDS.len()] {
        let mut start = 0;
        self.ends.map(|end| &self.bytes[std::mem::replace(&mut start, end)..end])
    }
}

/// An address in canonical form, so that a client is one, however it was written.
fn canonical(client: &[u8]) -> Text {
    let address = std::str::from_utf8(client).ok().and_then(|text| text.parse::<IpAddr>().ok());
    match address {
        Some(address) => address.to_canonical().to_string().into_bytes().into(),
        None => client.into(),
    }
}

impl Requests {
    /// Counts a request. `is_denied_then` is by the candidate, if there is one and it has an answer.
    pub(super) fn see(&mut self, request: &Request, is_denied: bool, is_denied_then: Option<bool>) {
        let [client, values @ ..] = request.parts();
        let client = self.client(client);
        let touched = &mut self.touched[client];
        touched.is_denied |= is_denied;
        touched.is_affected |= is_denied_then.is_some_and(|then| then != is_denied);
        let then = is_denied_then == Some(true);
        if !is_denied && !then {
            return;
        }
        for (denied, value) in self.denied.iter_mut().zip(values) {
            if value.is_empty() {
                continue;
            }
            let counts = denied.counts(value);
            counts.now += u64::from(is_denied);
            counts.then += u64::from(then);
        }
    }

    /// The place of a client.
    fn client(&mut self, text: &[u8]) -> usize {
        if let Some(known) = self.clients.get(text) {
            return *known;
        }
        let next = self.touched.len();
        let place = *self.clients.entry(canonical(text)).or_insert(next);
        if place == next {
            self.touched.push(Touched::default());
        }
        self.clients.insert(text.into(), place);
        place
    }

    /// The clients that were denied by the limits in force.
    pub(super) fn clients_denied(&self) -> Hit {
        self.hit(|touched| touched.is_denied)
    }

    /// The clients of which the candidate denies a request that was allowed, or allows one that was denied.
    pub(super) fn clients_affected(&self) -> Hit {
        self.hit(|touched| touched.is_affected)
    }

    fn hit(&self, is_hit: impl Fn(&Touched) -> bool) -> Hit {
        let count = self.touched.iter().filter(|touched| is_hit(touched)).count() as u64;
        Hit { count, of: self.touched.len() as u64 }
    }

    /// The denied requests by each of the [`FIELDS`].
    pub(super) fn denied(&self) -> impl Iterator<Item = (Field, &DeniedBy)> {
        FIELDS.into_iter().zip(&self.denied)
    }
}

impl DeniedBy {
    fn counts(&mut self, value: &[u8]) -> &mut Counts {
        if !self.values.contains_key(value) {
            if self.values.len() >= MAX_VALUES {
                return &mut self.others;
            }
            self.values.insert(value.into(), Counts::default());
        }
        self.values.get_mut(value).unwrap_or(&mut self.others)
    }

    /// How many different values there are, as far as they are counted apart.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// The values denied most, the most first; ties in the order of their bytes.
    pub(super) fn most(&self, max: usize) -> Vec<(String, Counts)> {
        let mut all: Vec<(&Text, &Counts)> = self.values.iter().collect();
        all.sort_unstable_by(|(a, a_counts), (b, b_counts)| {
            b_counts.sum().cmp(&a_counts.sum()).then_with(|| a.cmp(b))
        });
        all.truncate(max);
        let shown = |value: &Text| String::from_utf8_lossy(value).into_owned();
        all.into_iter().map(|(value, counts)| (shown(value), *counts)).collect()
    }
}

impl Counts {
    fn sum(self) -> u64 {
        self.now + self.then
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        Request::new(&crate::access_log::parse(line.as_bytes()).unwrap())
    }

    #[test]
    fn each_client_is_one_despite_address_spelling() {
        let mut requests = Requests::default();
        for client in ["1.1.1.1", "::ffff:1.1.1.1", "2001:DB8::1", "2001:db8:0::1", "name"] {
            let line =
                format!("{client} - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1");
            requests.see(&request(&line), client == "name", Some(false));
        }
        assert_eq!(requests.clients_denied(), Hit { count: 1, of: 3 });
        assert_eq!(requests.clients_affected(), Hit { count: 1, of: 3 });
    }

    #[test]
    fn values_beyond_the_most_are_counted_as_one() {
        let mut requests = Requests::default();
        for i in 0..MAX_VALUES + 5 {
            let line =
                format!("1.1.1.1 - - [17/May/2015:10:05:03 +0000] \"GET /{i} HTTP/1.1\" 200 1");
            requests.see(&request(&line), true, None);
        }
        let line = "1.1.1.1 - - [17/May/2015:10:05:03 +0000] \"GET /7?a HTTP/1.1\" 200 1";
        requests.see(&request(line), true, None);
        let (field, paths) = requests.denied().next().unwrap();
        assert_eq!(
            (field, paths.len(), paths.others),
            (Field::Path, MAX_VALUES, Counts { now: 5, then: 0 })
        );
        assert_eq!(paths.most(1), [("/7".to_owned(), Counts { now: 2, then: 0 })]);
    }
}
