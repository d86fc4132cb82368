//! The bound that several nodes must keep together: that of one local bucket.

use crate::limit::Limit;
use crate::shared::protocol::text::ORIGIN_NS;

/// Replays charges and returns, of one time in any order, on one local bucket; returns how many charges do not fit.
pub(super) fn beyond_one_bucket(
    limit: &Limit,
    charges: &[(u64, u64)],
    returns: &[(u64, u64)],
) -> usize {
    let (mut charges, mut returns) = (charges.to_vec(), returns.to_vec());
    charges.sort_unstable();
    returns.sort_unstable();
    let mut returns = returns.into_iter().peekable();
    let since_origin = |at_ns: u64| at_ns - ORIGIN_NS + 1;
    let (mut word, mut beyond) = (0, 0);
    for (at_ns, units) in charges {
        let mut return_until = |word: &mut u64, until_ns| {
            while let Some((at_ns, units)) = returns.next_if(|it| it.0 <= until_ns) {
                let returned = limit.rule().refund(*word, since_origin(at_ns), units);
                *word = returned.word.unwrap_or(*word);
            }
        };
        return_until(&mut word, at_ns - 1);
        let mut outcome = limit.rule().spend(word, since_origin(at_ns), units);
        if !outcome.decision.allowed() {
            return_until(&mut word, at_ns);
            outcome = limit.rule().spend(word, since_origin(at_ns), units);
        }
        word = outcome.word.unwrap_or(word);
        beyond += usize::from(!outcome.decision.allowed());
    }
    beyond
}
