//! The arguments about recorded traffic.

use std::path::{Path, PathBuf};

use super::conflict;
use crate::Failure;
use crate::escape::{Escaped, quoted};
use crate::json_log::{Keys, Part};
use crate::log_line::{Clients, Format};
use crate::rules::Rule;

/// A trace, or an access log with the rules that say which buckets each line charges.
#[derive(Debug, clap::Args)]
pub(crate) struct Traffic {
    /// A trace: one JSON object a line, in the order of time, plain or gzip; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// An access log, plain or gzip, in the common or combined format, or of JSON objects such as Caddy's; needs
    /// --rule; `-` is standard input
    #[arg(long, value_name = "FILE", requires = "rules")]
    pub(crate) log: Option<PathBuf>,
    /// Charge each line of the log to the limit's bucket of this field: client, user, method, path, host,
    /// user_agent, status, bytes, forwarded_for, or .KEY of a JSON log. FIELD+FIELD is an id of both,
    /// and FIELD? leaves out the lines that lack the field
    ///
    /// Words after the fields, with commas between them, say more. path=/PREFIX, route=/ROUTE/{ID} and FIELD=VALUE, such
    /// as method=POST, choose the lines that the rule applies to; given twice, a word means either. With != in place of
    /// =, such as path!=/health, a word leaves its lines out. cost=FIELD or cost=UNITS sets the cost of a line. Example:
    /// --rule SlidesPerClient=client,method=GET,path=/presentations
    #[arg(
        long = "rule",
        id = "rules",
        value_name = "LIMIT=FIELD[,WORD=VALUE]",
        value_parser = Rule::parse,
        requires = "log",
        conflicts_with = "trace"
    )]
    pub(crate) rules: Vec<Rule>,
    /// The format of the log's lines [default: that of its first line]
    #[arg(long, value_name = "FORMAT", value_enum, requires = "log", conflicts_with = "trace")]
    pub(crate) log_format: Option<Format>,
    /// The key of a field in a JSON log, such as client=.request.client_ip; also of `time` and `request` [default: those of
    /// Caddy's log and of nginx's variables]
    #[arg(
        long = "field",
        id = "fields",
        value_name = "FIELD=.KEY",
        value_parser = key,
        requires = "log",
        conflicts_with = "trace"
    )]
    fields: Vec<(Part, String)>,
    /// The number of proxies in front of the server that wrote the log: the client is the address that the first of them has
    /// appended to X-Forwarded-For [default: 0]
    #[arg(long, value_name = "PROXIES", requires = "log", conflicts_with = "trace")]
    trusted_hops: Option<u8>,
    /// Sort the lines of the log within this time window, such as 90s or 1m30s [default: 60s]
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration_ns,
        requires = "log",
        conflicts_with = "trace"
    )]
    reorder: Option<u64>,
    /// Count IPv6 clients of the log by their network of this prefix length. The tower layer uses 64
    /// [default: 128]
    #[arg(
        long,
        value_name = "BITS",
        value_parser = clap::value_parser!(u8).range(1..=128),
        requires = "log",
        conflicts_with = "trace"
    )]
    ipv6_prefix: Option<u8>,
}

impl Traffic {
    /// Returns the length of the time window in which lines of a log are sorted.
    pub(crate) fn window_ns(&self) -> u64 {
        const DEFAULT_NS: u64 = 60 * 1_000_000_000;
        self.reorder.unwrap_or(DEFAULT_NS)
    }

    /// Returns the file of the trace or of the log.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.trace.as_deref().or(self.log.as_deref())
    }

    /// Returns the rules by which the client of a line is found.
    pub(crate) fn clients(&self) -> Clients {
        Clients { trusted_hops: self.trusted_hops, ipv6_prefix: self.ipv6_prefix }
    }

    /// Returns the keys of the fields in a JSON log.
    pub(crate) fn keys(&self) -> Keys {
        Keys { named: self.fields.clone() }
    }

    /// Returns whether the arguments name keys of fields.
    pub(crate) fn has_fields(&self) -> bool {
        !self.fields.is_empty()
    }

    /// Checks that no limit has two rules.
    pub(super) fn check(&self, subcommand: &str) -> Result<(), Failure> {
        for (i, rule) in self.rules.iter().enumerate() {
            if self.rules[..i].iter().any(|before| before.limit == rule.limit) {
                let limit = Escaped(&rule.limit);
                let text = format!(
                    "two rules charge {limit}: a limit may have one rule, because one line must not charge a bucket twice"
                );
                return Err(conflict(subcommand, text));
            }
        }
        Ok(())
    }
}

/// Parses a field and its key in a JSON log.
fn key(text: &str) -> Result<(Part, String), String> {
    /// The most characters of a wrong argument that a message quotes.
    const MAX_CHARS: usize = 64;
    let wrong = |what: &str| format!("{what}: FIELD=.KEY is allowed, such as client=.remote_addr");
    let (name, key) = text.split_once('=').ok_or_else(|| wrong("no key"))?;
    let unknown = || wrong(&format!("unknown field {}", quoted(name, MAX_CHARS)));
    let part = Part::named(name).ok_or_else(unknown)?;
    let key = key.strip_prefix('.').filter(|key| !key.is_empty());
    Ok((part, key.ok_or_else(|| wrong("a key begins with a dot"))?.to_owned()))
}

/// Parses a duration with units up to hours, such as `1m30s`.
fn duration_ns(text: &str) -> Result<u64, String> {
    let duration = text.parse().ok().map(|duration: jiff::SignedDuration| duration.as_nanos());
    let ns = duration.and_then(|ns| u64::try_from(ns).ok());
    ns.ok_or_else(|| "a duration with units is allowed, such as 90s, 1m30s or 250ms".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::Field;

    #[test]
    fn durations_need_units_and_no_sign() {
        assert_eq!(duration_ns("60s"), Ok(60_000_000_000));
        assert_eq!(duration_ns("1h1m1s1ms1us1ns"), Ok(3_661_001_001_001));
        assert_eq!(duration_ns("0s"), Ok(0));
        for bad in ["", "60", "s", "-1s", "1d", "1s1", "99999999999h", "\u{661}s"] {
            assert!(duration_ns(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_begin_with_a_dot() {
        let client = (Part::Field(Field::Client), "request.client_ip".to_owned());
        assert_eq!(key("client=.request.client_ip"), Ok(client));
        assert_eq!(key("time=.@timestamp"), Ok((Part::Time, "@timestamp".into())));
        for bad in ["", "client", "client=", "client=a", "client=.", "ip=.a", "=.a"] {
            assert!(key(bad).is_err(), "{bad}");
        }
    }
}
