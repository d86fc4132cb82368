//! Boulder's names for buckets.

use super::KeyedLimit;
use crate::error::Error;
use crate::limits::{Id, boulder_number};

impl KeyedLimit {
    /// Returns the key under which Boulder keeps the id's bucket: the number of the limit, a colon, and the id in normal
    /// form. `None` for a limit that has no number at Boulder.
    ///
    /// # Errors
    ///
    /// [`Error::is_invalid_id`].
    ///
    /// # Example
    ///
    /// ```
    /// use tollgate::{Limiter, Limits};
    ///
    /// let limiter = Limiter::new(Limits::builder().build());
    /// let orders = limiter.limit("NewOrdersPerAccount")?;
    /// assert_eq!(orders.boulder_key(12345678)?.as_deref(), Some("3:12345678"));
    /// let certificates = limiter.limit("CertificatesPerDomainPerAccount")?;
    /// assert_eq!(certificates.boulder_key((7, "www.example.com"))?.as_deref(), Some("6:7:example.com"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn boulder_key<'a>(&self, id: impl Into<Id<'a>>) -> Result<Option<String>, Error> {
        let id = self.normalize(id)?;
        Ok(boulder_number(&self.name).map(|number| format!("{number}:{id}")))
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use crate::limit::Limit;
    use crate::{IdFormat, Limiter, Limits};

    #[test]
    fn keys_have_the_number_of_boulders_limit() {
        let limit = Limit::new(1, 1, std::time::Duration::from_secs(1)).unwrap();
        let own = Limits::builder().limit("Own", IdFormat::RegId, limit).unwrap().build();
        let limiter = Limiter::new(own);
        for (name, id, key) in [
            ("NewRegistrationsPerIPAddress", "1.2.3.4", Some("1:1.2.3.4")),
            ("NewRegistrationsPerIPv6Range", "2001:db8:abcd:12::1", Some("2:2001:db8:abcd::/48")),
            (
                "FailedAuthorizationsPerDomainPerAccount",
                "7:A.example.com",
                Some("4:7:a.example.com"),
            ),
            ("CertificatesPerDomain", "www.example.com", Some("5:example.com")),
            ("CertificatesPerDomainPerAccount", "7", Some("6:7")),
            ("LimitOverrideRequestsPerIPAddress", "::ffff:1.2.3.4", Some("9:1.2.3.4")),
            ("CertificatesPerFQDNSetPerAccount", "7", None),
            ("Own", "7", None),
        ] {
            let handle = limiter.limit(name).unwrap();
            assert_eq!(handle.boulder_key(id).unwrap().as_deref(), key, "{name}");
        }
        let orders = limiter.limit("NewOrdersPerAccount").unwrap();
        assert!(orders.boulder_key(Ipv4Addr::LOCALHOST).unwrap_err().is_invalid_id());
    }
}
