//! The largest debt of a bucket: the room that its word has beyond the burst.

use crate::limit::{Limit, LimitFault, Parameters};

impl Limit {
    /// The most units beyond the burst that a bucket's word can hold; 0 for a custom algorithm, which has no debt.
    pub(crate) fn debt_room(&self) -> u64 {
        self.rule().debt_room()
    }

    /// Checks that a bucket can owe `units`.
    pub(crate) fn check_max_debt(&self, units: u64) -> Result<(), LimitFault> {
        let room = self.debt_room();
        if units <= room {
            return Ok(());
        }
        let message = match self.parameters() {
            Parameters::Concurrency { .. } => {
                format!("invalid max_debt {units}: what is in flight has no debt")
            }
            Parameters::Custom(_) => {
                format!("invalid max_debt {units}: a custom algorithm has no debt")
            }
            _ => format!("invalid max_debt {units}: at most {room} is allowed beside {self}"),
        };
        Err(LimitFault { field: "max_debt", message })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::timed_count::MAX_COUNT;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_debt_has_the_room_beyond_the_burst() {
        let gcra = Limit::new(20, 10, SECOND).unwrap();
        assert_eq!(gcra.debt_room(), (1 << 62) / 100_000_000 - 20);
        // A burst of the same size is allowed, and one unit more is not.
        assert!(Limit::new(20 + gcra.debt_room(), 10, SECOND).is_ok());
        assert!(Limit::new(21 + gcra.debt_room(), 10, SECOND).is_err());
        for limit in [
            Limit::fixed_window(15, SECOND),
            Limit::token_bucket(3, 15, SECOND),
            Limit::leaky_bucket(15, 1, SECOND),
        ] {
            assert_eq!(limit.unwrap().debt_room(), MAX_COUNT - 15);
        }
    }

    #[test]
    fn a_larger_debt_is_refused() {
        let window = Limit::fixed_window(MAX_COUNT - 1, SECOND).unwrap();
        assert_eq!(window.check_max_debt(1), Ok(()));
        let fault = window.check_max_debt(2).unwrap_err();
        assert_eq!(
            fault.message,
            "invalid max_debt 2: at most 1 is allowed beside fixed_window: limit 16777214, window 1s"
        );
    }
}
