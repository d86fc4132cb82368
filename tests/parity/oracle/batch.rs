//! Several buckets as one.

use tollgate::batch::MemberMode;

use super::bucket::{Figures, Rule};
use super::{Kind, Oracle, Refused, Said};
use crate::ops::{BatchCall, Call};

/// A member to which a limit applies.
#[derive(Clone, Copy)]
struct Asked {
    position: usize,
    call: Call,
    rule: Rule,
    mode: MemberMode,
    is_shadow: bool,
    figures: Figures,
    /// Whether its answer can be a denial: a refund's is none.
    asks: bool,
    blocked: bool,
}

impl Asked {
    fn can_deny(&self) -> bool {
        self.mode != MemberMode::SpendOnly && !self.is_shadow
    }

    fn said(&self) -> Said {
        let denied_by = (self.asks && !self.figures.allowed).then_some(self.position);
        let blocked = self.blocked && denied_by.is_some();
        Said { figures: Some(self.figures), denied_by, blocked }
    }
}

/// The strictest answer: denied before allowed, then the longer wait, then the fewer that remain, then the
/// later one.
fn strictest(answers: impl Iterator<Item = Said>) -> Said {
    let rank = |said: &Said| {
        said.figures.map(|figures| (!figures.allowed, figures.retry, -figures.remaining))
    };
    answers.fold(
        Said::UNLIMITED,
        |first, later| if rank(&first) > rank(&later) { first } else { later },
    )
}

impl Oracle {
    /// The batch's answer, and those of its members if each is asked for.
    pub(crate) fn batch(
        &mut self,
        what: BatchCall,
        members: &[(Call, MemberMode)],
    ) -> Result<(Said, Vec<Said>), Refused> {
        let mut each = vec![Said::UNLIMITED; members.len()];
        if !self.enabled {
            return Ok((Said::UNLIMITED, each));
        }
        let mut asked = self.members(what, members)?;
        let said = match what {
            BatchCall::SpendAll | BatchCall::SpendEach => self.spend_all(&mut asked),
            BatchCall::CheckAll => {
                strictest(asked.iter().filter(|member| member.can_deny()).map(Asked::said))
            }
            BatchCall::RefundAll | BatchCall::ResetAll => self.give_all(what, &mut asked),
        };
        for member in &asked {
            each[member.position] = self.told(member, &said);
        }
        Ok((said, each))
    }

    fn members(
        &self,
        what: BatchCall,
        members: &[(Call, MemberMode)],
    ) -> Result<Vec<Asked>, Refused> {
        let mut asked: Vec<Asked> = Vec::new();
        for (position, &(call, mode)) in members.iter().enumerate() {
            let Some(rule) = self.rule(call) else { continue };
            let is_shadow = self.terms.is_shadow(call.limit);
            let is_above = i128::from(call.cost) > rule.most();
            if is_above && !is_shadow && what != BatchCall::ResetAll {
                return Err(Refused::Cost);
            }
            let call = if is_above { Call { cost: 0, ..call } } else { call };
            let figures = self.ask(Kind::Check, rule, call).1;
            let denied = self.under_block(rule, call, figures);
            let (figures, blocked) = (denied.unwrap_or(figures), denied.is_some());
            asked.push(Asked {
                position,
                call,
                rule,
                mode,
                is_shadow,
                figures,
                asks: true,
                blocked,
            });
        }
        let is_same = |a: &Asked, b: &Asked| (a.call.limit, a.call.id) == (b.call.limit, b.call.id);
        let named_twice = |at: usize| asked[..at].iter().any(|before| is_same(before, &asked[at]));
        if (0..asked.len()).any(named_twice) { Err(Refused::Batch) } else { Ok(asked) }
    }

    fn spend_all(&mut self, asked: &mut [Asked]) -> Said {
        let said = strictest(asked.iter().filter(|member| member.can_deny()).map(Asked::said));
        if said.figures.is_none_or(|figures| figures.allowed) {
            let is_charged =
                |member: &&Asked| member.mode != MemberMode::CheckOnly && !member.blocked;
            for member in asked.iter().filter(is_charged) {
                let (state, _) = self.ask(Kind::Spend, member.rule, member.call);
                self.store(member.call, state);
            }
        }
        said
    }

    fn give_all(&mut self, what: BatchCall, asked: &mut [Asked]) -> Said {
        for member in asked.iter_mut() {
            let is_left_alone = member.mode == MemberMode::CheckOnly;
            let (kind, call) = match what {
                BatchCall::RefundAll if is_left_alone => {
                    (Kind::Refund, Call { cost: 0, ..member.call })
                }
                BatchCall::RefundAll => (Kind::Refund, member.call),
                _ if is_left_alone => (Kind::Check, Call { cost: 0, ..member.call }),
                _ => (Kind::Reset, member.call),
            };
            let (state, figures) = self.ask(kind, member.rule, call);
            self.store(member.call, state);
            (member.figures, member.asks, member.blocked) = (figures, kind == Kind::Check, false);
        }
        strictest(asked.iter().map(Asked::said))
    }

    /// What a member is told of a spend. In a denied batch one that would have been allowed says what is
    /// there.
    fn told(&self, member: &Asked, said: &Said) -> Said {
        let mut member = *member;
        let is_denied = said.figures.is_some_and(|figures| !figures.allowed);
        if is_denied && (member.figures.allowed || member.is_shadow) {
            let call = Call { cost: 0, ..member.call };
            (member.figures, member.blocked) = (self.ask(Kind::Check, member.rule, call).1, false);
        }
        member.figures.allowed |= member.is_shadow;
        member.said()
    }
}
