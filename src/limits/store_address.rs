//! The kinds of addresses that a store can have: a server, a cluster, or sentinels that know a server.

/// The schemes of a single server: those of the crate `redis`.
const SCHEMES: [&str; 7] =
    ["redis", "rediss", "valkey", "valkeys", "unix", "redis+unix", "valkey+unix"];
/// How many of them, the first ones, can also have the end `-cluster` or `-sentinel`.
const BY_NETWORK: usize = 4;
const SENTINEL_PORT: &str = "26379";

/// The address of a store, as URLs of single servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreAddress {
    Server(String),
    /// Some nodes of a cluster. They know the others.
    Cluster(Vec<String>),
    Sentinels {
        sentinels: Vec<String>,
        /// The name that the sentinels have for the server.
        service: String,
        /// The server's URL, with another host.
        server: String,
    },
}

impl StoreAddress {
    /// Reads a URL. The error says what is wrong, and does not show the URL.
    pub(crate) fn read(url: &str) -> Result<StoreAddress, String> {
        let is_scheme = |text: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-');
            (1..=16).contains(&text.len()) && text.bytes().all(is_allowed)
        };
        let found = url.split_once("://").filter(|(scheme, _)| is_scheme(scheme));
        let Some((scheme, rest)) = found else {
            return Err(format!("invalid url without a scheme: {}", allowed_schemes()));
        };
        let with_end = |end| {
            let server = scheme.strip_suffix(end)?;
            SCHEMES[..BY_NETWORK].contains(&server).then_some(server)
        };
        let (of_cluster, of_sentinels) = (with_end("-cluster"), with_end("-sentinel"));
        if !SCHEMES.contains(&scheme) && of_cluster.is_none() && of_sentinels.is_none() {
            let shown = super::shown(scheme);
            return Err(format!("invalid url with the scheme {shown}: {}", allowed_schemes()));
        }
        if rest.is_empty() {
            return Err(format!("invalid url: {scheme}:// alone, and a host or a path is wanted"));
        }
        match (of_cluster, of_sentinels) {
            (Some(server), _) => Parts::read(scheme, rest)?.cluster(server),
            (_, Some(server)) => Parts::read(scheme, rest)?.sentinels(server),
            _ => {
                if SCHEMES[..BY_NETWORK].contains(&scheme) {
                    check_server(scheme, rest)?;
                }
                Ok(StoreAddress::Server(url.into()))
            }
        }
    }
}

/// Checks the part of a single server's URL after the scheme.
fn check_server(scheme: &str, rest: &str) -> Result<(), String> {
    let is_server = |parts: Parts<'_>| {
        let database = parts.path.trim_matches('/');
        parts.hosts.len() == 1 && (database.is_empty() || database.parse::<u32>().is_ok())
    };
    match Parts::read(scheme, rest).map(is_server) {
        Ok(true) => Ok(()),
        _ => Err(format!(
            "invalid url: after {scheme}:// a host is wanted, and then at most a port up to 65535 and the number of a database, as {scheme}://user:password@host:6379/0; characters such as / and ? in a password are written as %2F and %3F"
        )),
    }
}

fn allowed_schemes() -> String {
    let schemes = SCHEMES.map(|scheme| format!("{scheme}://"));
    let (last, others) = schemes.split_last().expect("there are seven");
    format!(
        "{} or {last} at its start is allowed; the first four also with -cluster or -sentinel, as redis-cluster://",
        others.join(", ")
    )
}

/// The parts of a URL with several hosts, after its scheme.
struct Parts<'u> {
    /// With the `@`; empty if there is none.
    user: &'u str,
    hosts: Vec<&'u str>,
    /// After the slash; empty if there is none.
    path: &'u str,
    /// After the question mark.
    query: Vec<&'u str>,
    /// With the number sign.
    fragment: &'u str,
}

impl<'u> Parts<'u> {
    fn read(scheme: &str, rest: &'u str) -> Result<Parts<'u>, String> {
        let (rest, fragment) = rest.split_at(rest.find('#').unwrap_or(rest.len()));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let hosts: Vec<_> = hosts.split(',').collect();
        let is_host = |host: &&str| {
            let (name, port) = split_port(host);
            !name.is_empty() && port.is_none_or(|port| port.parse::<u16>().is_ok())
        };
        // A password with a slash that is not escaped ends here as well.
        if !hosts.iter().all(is_host) || path.contains('@') {
            return Err(format!(
                "invalid url: after {scheme}:// hosts with commas between them are wanted, as {scheme}://user:password@one:{port},two:{port}; characters such as / and ? in a password are written as %2F and %3F",
                port = 7000
            ));
        }
        let query = query.split('&').filter(|parameter| !parameter.is_empty()).collect();
        Ok(Parts { user, hosts, path, query, fragment })
    }

    fn cluster(self, scheme: &str) -> Result<StoreAddress, String> {
        if !self.path.is_empty() {
            return Err("invalid url with a path: a cluster has no databases".into());
        }
        let Parts { user, query, fragment, .. } = &self;
        let query = query_of(query);
        let url = |host: &&str| format!("{scheme}://{user}{host}{query}{fragment}");
        Ok(StoreAddress::Cluster(self.hosts.iter().map(url).collect()))
    }

    fn sentinels(self, scheme: &str) -> Result<StoreAddress, String> {
        let Parts { user, hosts, path, query, fragment } = &self;
        let (service, database) = path.split_once('/').unwrap_or((path, ""));
        if service.is_empty() || !database.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("invalid url: after the hosts of sentinels the name of their service is wanted, and then at most the number of a database, as /mymaster or /mymaster/0".into());
        }
        let (mut sentinel_user, mut sentinel_pass, mut others) = ("", "", Vec::new());
        for &parameter in query {
            match parameter.split_once('=') {
                Some(("sentinel_user", value)) => sentinel_user = value,
                Some(("sentinel_pass", value)) => sentinel_pass = value,
                _ => others.push(parameter),
            }
        }
        let as_sentinel = match (sentinel_user, sentinel_pass) {
            ("", "") => String::new(),
            (user, pass) => format!("{user}:{pass}@"),
        };
        let url = |host: &&str| {
            let (name, port) = split_port(host);
            let port = port.unwrap_or(SENTINEL_PORT);
            format!("{scheme}://{as_sentinel}{name}:{port}{fragment}")
        };
        let query = query_of(&others);
        Ok(StoreAddress::Sentinels {
            sentinels: hosts.iter().map(url).collect(),
            service: service.into(),
            server: format!("{scheme}://{user}localhost/{database}{query}{fragment}"),
        })
    }
}

fn query_of(parameters: &[&str]) -> String {
    let mark = if parameters.is_empty() { "" } else { "?" };
    format!("{mark}{}", parameters.join("&"))
}

/// Splits a host, which may be an address of IPv6 in brackets, and its port.
fn split_port(host: &str) -> (&str, Option<&str>) {
    let from = host.rfind(']').unwrap_or(0);
    match host[from..].find(':') {
        Some(colon) => (&host[..from + colon], Some(&host[from + colon + 1..])),
        None => (host, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(list: &[&str]) -> Vec<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn clusters_are_lists_of_servers() {
        for (url, nodes) in [
            ("redis-cluster://a", &["redis://a"][..]),
            (
                "redis-cluster://a:1,[::1]:2,10.0.0.1",
                &["redis://a:1", "redis://[::1]:2", "redis://10.0.0.1"],
            ),
            (
                "valkeys-cluster://u:p%2F@a:1,b:2/?protocol=resp3#insecure",
                &[
                    "valkeys://u:p%2F@a:1?protocol=resp3#insecure",
                    "valkeys://u:p%2F@b:2?protocol=resp3#insecure",
                ],
            ),
        ] {
            assert_eq!(StoreAddress::read(url), Ok(StoreAddress::Cluster(urls(nodes))), "{url}");
        }
        for one in
            ["redis://a", "rediss://u:p@[::1]:1/15/", "valkey://a:65535?protocol=resp3#insecure"]
        {
            assert_eq!(StoreAddress::read(one), Ok(StoreAddress::Server(one.into())));
        }
    }

    #[test]
    fn sentinels_have_a_service() {
        for (url, sentinels, server) in [
            (
                "redis-sentinel://a,b:1/main",
                &["redis://a:26379", "redis://b:1"][..],
                "redis://localhost/",
            ),
            (
                "rediss-sentinel://u:p@[::1]/main/3?sentinel_pass=x%2F&protocol=resp3#insecure",
                &["rediss://:x%2F@[::1]:26379#insecure"],
                "rediss://u:p@localhost/3?protocol=resp3#insecure",
            ),
            (
                "valkey-sentinel://a/main?sentinel_user=s&sentinel_pass=t",
                &["valkey://s:t@a:26379"],
                "valkey://localhost/",
            ),
        ] {
            let (sentinels, server) = (urls(sentinels), server.into());
            let address = StoreAddress::Sentinels { sentinels, service: "main".into(), server };
            assert_eq!(StoreAddress::read(url), Ok(address), "{url}");
        }
    }

    #[test]
    fn faults_are_named_without_the_password() {
        for (url, wanted) in [
            ("redis-cluster://a,,b", "hosts with commas"),
            ("redis-cluster://:secret@", "hosts with commas"),
            ("redis-cluster://user:secret/x@a", "%2F"),
            ("redis-cluster://user:secret", "hosts with commas"),
            ("redis-cluster://a:70000", "hosts with commas"),
            ("redis-cluster://a/1", "no databases"),
            ("redis-sentinel://a", "name of their service"),
            ("redis-sentinel://:secret@a/", "name of their service"),
            ("redis-sentinel://a/main/x", "name of their service"),
            ("redis-sentinel://", "alone"),
            ("unix-cluster://a", "with the scheme"),
            ("redis://a:99999", "a port up to 65535"),
            ("redis://:secret@a:x", "a port up to 65535"),
            ("rediss://a/x", "the number of a database"),
            ("redis://a,b", "a host is wanted"),
            ("redis://:secret@", "a host is wanted"),
            ("redis://user:secret/x@a", "%2F"),
            ("redis-clusters://a", "with the scheme"),
        ] {
            let error = StoreAddress::read(url).unwrap_err();
            assert!(error.contains(wanted) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
