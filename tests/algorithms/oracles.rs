//! Compares every call of a history with the naive buckets.

use super::laws::{ByHand, Step, steps};
use super::naive::{Naive, figures};
use super::*;
use tollgate::algorithm::Algorithm;

fn same_answers(limit: &Limit, start_ns: u64, history: &[(Step, u64)]) {
    let mut bucket = ByHand::new(limit, start_ns);
    let mut naive = Naive::new(limit);
    for &(step, part) in history {
        naive.at((bucket.now_ns - 1) / MS);
        let cost = bucket.cost(part);
        let wanted = match step {
            Step::Spend => naive.spend(cost),
            Step::Check => naive.check(cost),
            Step::Refund => naive.refund(cost),
            Step::Reset => naive.reset(),
            Step::Forward(_) | Step::Back(_) => {
                bucket.step(step, part);
                continue;
            }
        };
        let said = bucket.clone();
        let decision = bucket.step(step, part).expect("a call");
        assert_eq!(figures(decision), wanted, "{said:?} {step:?} {cost}");
    }
}

fn small_limit() -> impl Strategy<Value = (Limit, u64)> {
    let count = || prop_oneof![1..6u64, 1..40u64];
    let time = || 1..25u64;
    prop_oneof![
        (count(), time()).prop_map(|(limit, window)| (fixed(limit, window), window * MS)),
        (count(), time(), any::<u64>()).prop_map(|(limit, window, part)| {
            (tokens(limit, window, 1 + part % limit), window * MS)
        }),
        (count(), time(), count())
            .prop_map(|(size, rate, drip)| { (leaky(size, rate, drip), rate * MS) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(support::full_size(600, 3000)))]

    #[test]
    fn agree_on_every_call(
        (limit, start_ns, history) in small_limit().prop_flat_map(|(limit, unit_ns)| {
            (Just(limit), 1..5 * MS, steps(unit_ns.min(8 * MS)))
        }),
    ) {
        same_answers(&limit, start_ns, &history);
    }
}

#[test]
fn backward_clock_waits_from_its_own_time() {
    for limit in [fixed(2, 10), tokens(2, 10, 1), leaky(2, 10, 1)] {
        let mut bucket = ByHand::new(&limit, 1 + 100 * MS);
        assert!(bucket.spend(1).allowed());
        bucket.now_ns = 1 + 50 * MS;
        let said = bucket.rule.spend(bucket.word, bucket.now_ns, 1).decision;
        bucket.now_ns = 1 + 100 * MS;
        let at_the_word = bucket.rule.spend(bucket.word, bucket.now_ns, 1).decision;
        assert_eq!(said.allowed(), at_the_word.allowed(), "{limit:?}");
        assert_eq!(said.remaining(), at_the_word.remaining(), "{limit:?}");
        let later = |wait: Duration| {
            if wait.is_zero() { wait } else { wait + 50 * Duration::from_millis(1) }
        };
        assert_eq!(said.retry_in(), later(at_the_word.retry_in()), "{limit:?}");
        assert_eq!(said.reset_in(), later(at_the_word.reset_in()), "{limit:?}");
    }
}
