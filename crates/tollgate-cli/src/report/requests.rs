//! Counts the clients of an access log, and its denied requests by their fields.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

use memchr::memchr;

use crate::access_log::Field;
use crate::log_line::Entry;

/// The client and the values of [`FIELDS`] of a request, in one allocation: many requests wait in the time
/// window.
pub(crate) struct Request {
    bytes: Box<[u8]>,
    ends: [usize; 1 + FIELDS.len()],
}

type Text = Box<[u8]>;

/// The fields by which denied requests are counted.
pub(super) const FIELDS: [Field; 4] = [Field::Path, Field::Method, Field::UserAgent, Field::Status];

/// Values of a field that are counted separately.
const MAX_VALUES: usize = 100_000;

/// The counts of the requests that were decided.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The indices of clients in `touched`, by each text in which the log writes them.
    clients: HashMap<Text, usize, ahash::RandomState>,
    touched: Vec<Touched>,
    /// By [`FIELDS`].
    denied: [DeniedBy; FIELDS.len()],
}

/// Whether at least one request of a client was denied, or affected by the candidate.
#[derive(Clone, Copy, Debug, Default)]
struct Touched {
    is_denied: bool,
    is_affected: bool,
}

/// The candidate skips the line of the request: it has no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// Denied requests by the values of a field.
#[derive(Clone, Debug, Default)]
pub(super) struct DeniedBy {
    values: HashMap<Text, Counts, ahash::RandomState>,
    /// The requests with further values.
    pub(super) others: Counts,
}

/// Requests denied by the limits in force, and by the candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) now: u64,
    pub(super) then: u64,
}

/// The number of clients or ids that were denied or affected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Affected {
    pub(super) count: u64,
    /// The number of all clients or ids.
    pub(super) total: u64,
}

impl Request {
    pub(crate) fn new(entry: &Entry<'_>) -> Request {
        // A field that the line does not have becomes empty.
        let [path, method, agent, status] =
            FIELDS.map(|field| entry.field(field).unwrap_or_default());
        let client = entry.field(Field::Client).unwrap_or_default();
        let without_query = &path[..memchr(b'?', &path).unwrap_or(path.len())];
        let parts = [&*client, without_query, &*method, &*agent, &*status];
        let mut end = 0;
        let ends = parts.map(|part| {
            end += part.len();
            end
        });
        Request { bytes: parts.concat().into(), ends }
    }

    /// Returns the client, then the values of [`FIELDS`].
    fn parts(&self) -> [&[u8]; 1 + FIELDS.len()] {
        let mut start = 0;
        self.ends.map(|end| &self.bytes[std::mem::replace(&mut start, end)..end])
    }
}

/// Returns an address in canonical form, so that each client counts once.
fn canonical(client: &[u8]) -> Text {
    let address = std::str::from_utf8(client).ok().and_then(|text| text.parse::<IpAddr>().ok());
    match address {
        Some(address) => address.to_canonical().to_string().into_bytes().into(),
        None => client.into(),
    }
}

impl Requests {
    /// Counts a request. `is_denied_then` is the decision of the candidate, if there is a candidate.
    pub(super) fn count(
        &mut self,
        request: &Request,
        is_denied: bool,
        is_denied_then: Option<Result<bool, Refused>>,
    ) {
        let [client, values @ ..] = request.parts();
        let client = self.client(client);
        let touched = &mut self.touched[client];
        touched.is_denied |= is_denied;
        touched.is_affected |= is_denied_then.is_some_and(|then| then != Ok(is_denied));
        let then = is_denied_then == Some(Ok(true));
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

    /// Returns the index of a client.
    fn client(&mut self, text: &[u8]) -> usize {
        if let Some(known) = self.clients.get(text) {
            return *known;
        }
        let next = self.touched.len();
        let index = *self.clients.entry(canonical(text)).or_insert(next);
        if index == next {
            self.touched.push(Touched::default());
        }
        self.clients.insert(text.into(), index);
        index
    }

    /// Counts the clients that the limits in force denied.
    pub(super) fn clients_denied(&self) -> Affected {
        self.affected(|touched| touched.is_denied)
    }

    /// Counts the clients with a request that the candidate decides differently.
    pub(super) fn clients_affected(&self) -> Affected {
        self.affected(|touched| touched.is_affected)
    }

    fn affected(&self, is_affected: impl Fn(&Touched) -> bool) -> Affected {
        let count = self.touched.iter().filter(|touched| is_affected(touched)).count() as u64;
        Affected { count, total: self.touched.len() as u64 }
    }

    /// Returns the denied requests by each of the [`FIELDS`].
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

    /// Returns how many values are counted separately.
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Returns the values with the most denials, in descending order; ties by their bytes.
    pub(super) fn most(&self, max: usize) -> Vec<(String, Counts)> {
        let mut all: Vec<(&Text, &Counts)> = self.values.iter().collect();
        all.sort_unstable_by_key(|(value, counts)| (Reverse(counts.now + counts.then), *value));
        let text = |value: &Text| String::from_utf8_lossy(value).into_owned();
        all.into_iter().take(max).map(|(value, counts)| (text(value), *counts)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_log::Keys;
    use crate::log_line::Format;

    fn request(line: &str) -> Request {
        let keys = Keys::default();
        Request::new(&Format::Text.parse(line.as_bytes(), &keys).unwrap())
    }

    #[test]
    fn spellings_of_an_address_are_one_client() {
        let mut requests = Requests::default();
        for client in ["1.1.1.1", "::ffff:1.1.1.1", "2001:DB8::1", "2001:db8:0::1", "name"] {
            let line =
                format!("{client} - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1");
            requests.count(&request(&line), client == "name", Some(Ok(false)));
        }
        assert_eq!(requests.clients_denied(), Affected { count: 1, total: 3 });
        assert_eq!(requests.clients_affected(), Affected { count: 1, total: 3 });
    }

    #[test]
    fn further_values_are_counted_together() {
        let mut requests = Requests::default();
        for i in 0..MAX_VALUES + 5 {
            let line =
                format!("1.1.1.1 - - [17/May/2015:10:05:03 +0000] \"GET /{i} HTTP/1.1\" 200 1");
            requests.count(&request(&line), true, None);
        }
        let line = "1.1.1.1 - - [17/May/2015:10:05:03 +0000] \"GET /7?a HTTP/1.1\" 200 1";
        requests.count(&request(line), true, None);
        let (field, paths) = requests.denied().next().unwrap();
        assert_eq!(
            (field, paths.len(), paths.others),
            (Field::Path, MAX_VALUES, Counts { now: 5, then: 0 })
        );
        assert_eq!(paths.most(1), [("/7".to_owned(), Counts { now: 2, then: 0 })]);
    }
}
