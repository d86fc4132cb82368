//! Makes calls of one known key for callgrind; `instructions.sh` runs it.
//!
//! Count the instructions inside `measured` for two numbers of calls. The difference of the counts over the difference
//! of the calls is the cost of one call.

use clap::Parser;
use rivals::limiters::TableArgs;
use rivals::work::{Contender, Outcome, Setup, Who, Work};

/// Makes calls of one known key; `instructions.sh` counts their instructions.
#[derive(Parser)]
struct Args {
    who: Who,
    outcome: Outcome,
    work: Work,
    #[arg(long, default_value_t = 1_000)]
    calls: usize,
    #[command(flatten)]
    table: TableArgs,
}

fn main() {
    let Args { who, outcome, work, calls, table } = Args::parse();
    let setup = Setup { work, outcome, keys: 1, most_calls: calls + 1, late_clock: false, table };
    let contenders = setup.contenders()();
    let contender = contenders.iter().find(|contender| contender.who == who);
    let contender = contender.unwrap_or_else(|| panic!("{who:?} does not make these calls"));
    contender.call(&[0]);
    let allowed = measured(contender, &vec![0; calls]);
    let is_bare = work.is_layer() && who == Who::Floor;
    let wanted = if setup.is_allowed() || is_bare { calls } else { 0 };
    assert_eq!(allowed, wanted, "every call is answered as it has to be");
}

/// The function that callgrind counts, with all functions that it calls.
#[inline(never)]
fn measured(contender: &Contender, order: &[u32]) -> usize {
    contender.call(order).allowed
}
