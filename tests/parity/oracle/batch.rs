//! Computes a batch's answer from those of its members.

use tollgate::batch::MemberMode;

use super::bucket::{Figures, Rule};
use super::{Answer, CallError, CallKind, Oracle};
use crate::ops::{BatchCall, Call};

/// A member to which a limit applies.
#[derive(Clone, Copy)]
struct LimitedMember {
    position: usize,
    call: Call,
    rule: Rule,
    mode: MemberMode,
    is_shadow: bool,
    figures: Figures,
    /// Whether the answer can be a denial; a refund's cannot.
    can_be_denial: bool,
    blocked: bool,
}

impl LimitedMember {
    fn can_deny(&self) -> bool {
        self.mode != MemberMode::SpendOnly && !self.is_shadow
    }

    fn answer(&self) -> Answer {
        let denied_by = (self.can_be_denial && !self.figures.allowed).then_some(self.position);
        let blocked = self.blocked && denied_by.is_some();
        Answer { figures: Some(self.figures), denied_by, blocked }
    }
}

impl Answer {
    /// Returns the stricter answer: denied before allowed, then the longer wait, then fewer units left, then the later one.
    pub(crate) fn stricter(self, later: Answer) -> Answer {
        let rank = |answer: &Answer| {
            answer.figures.map(|figures| (!figures.allowed, figures.retry, -figures.remaining))
        };
        if rank(&self) > rank(&later) { self } else { later }
    }
}

fn strictest(answers: impl Iterator<Item = Answer>) -> Answer {
    answers.fold(Answer::UNLIMITED, Answer::stricter)
}

impl Oracle {
    /// Spends an estimate and settles it at once. Returns the decision and the bucket's state after the
    /// settlement.
    #[allow(dead_code, reason = "calls of one node are settled later")]
    pub(crate) fn settled(
        &mut self,
        call: Call,
        actual: u64,
    ) -> Result<(Answer, Option<Answer>), CallError> {
        let answer = self.call(CallKind::Spend, call)?;
        if answer.figures.is_some_and(|figures| !figures.allowed) {
            return Ok((answer, None));
        }
        if actual < call.cost {
            // A swept bucket is full now, and no later call may have an earlier time.
            self.floor = self.now;
            self.call(CallKind::Refund, Call { cost: call.cost - actual, ..call })?;
        } else if let Some(rule) = self.rule(call).filter(|_| self.enabled && actual > call.cost) {
            let more = i128::from(actual - call.cost);
            let state = rule.owe(self.state(self.key_of(call)), self.time_of(call.limit), more);
            self.store(self.key_of(call), state);
        }
        let after = self.call(CallKind::Check, call.of_nothing())?;
        Ok((answer, Some(after)))
    }

    /// Returns the batch's answer and its members' answers.
    pub(crate) fn batch(
        &mut self,
        what: BatchCall,
        members: &[(Call, MemberMode)],
    ) -> Result<(Answer, Vec<Answer>), CallError> {
        let mut each = vec![Answer::UNLIMITED; members.len()];
        if !self.enabled {
            return Ok((Answer::UNLIMITED, each));
        }
        let mut limited = self.members(what, members)?;
        let keeps_permits = matches!(what, BatchCall::CheckAll | BatchCall::ChargeAll);
        let is_of_permits = |member: &LimitedMember| matches!(member.rule, Rule::Permits { .. });
        if !keeps_permits && limited.iter().any(is_of_permits) {
            return Err(CallError::Batch);
        }
        let answer = match what {
            BatchCall::SpendAll | BatchCall::SpendEach | BatchCall::ChargeAll => {
                self.spend_all(&mut limited)
            }
            BatchCall::CheckAll => strictest(
                limited.iter().filter(|member| member.can_deny()).map(LimitedMember::answer),
            ),
            BatchCall::RefundAll | BatchCall::ResetAll => self.give_all(what, &mut limited),
        };
        for member in &limited {
            each[member.position] = self.member_answer(member, &answer);
        }
        Ok((answer, each))
    }

    fn members(
        &self,
        what: BatchCall,
        members: &[(Call, MemberMode)],
    ) -> Result<Vec<LimitedMember>, CallError> {
        let mut limited: Vec<LimitedMember> = Vec::new();
        for (position, &(call, mode)) in members.iter().enumerate() {
            let Some(rule) = self.rule(call) else { continue };
            let call = self.with_floor(rule, call);
            let is_shadow = self.terms.is_shadow(call.limit);
            // A call by hand leaves no units.
            let by_hand = match what {
                BatchCall::ResetAll => Some(call.of_nothing()),
                BatchCall::RefundAll => Some(Call { leave: 0, ..call }),
                _ => None,
            };
            if !is_shadow && by_hand.unwrap_or(call).needed() > rule.most() {
                return Err(CallError::Cost);
            }
            let is_above = call.needed() > rule.most();
            let call = match by_hand {
                _ if is_shadow && is_above => call.of_nothing(),
                by_hand => by_hand.unwrap_or(call),
            };
            let figures = self.ask(CallKind::Check, rule, call).1;
            let denied = self.under_block(rule, call, figures);
            let (figures, blocked) = (denied.unwrap_or(figures), denied.is_some());
            limited.push(LimitedMember {
                position,
                call,
                rule,
                mode,
                is_shadow,
                figures,
                can_be_denial: true,
                blocked,
            });
        }
        let is_same = |a: &LimitedMember, b: &LimitedMember| {
            (a.call.limit, a.call.id) == (b.call.limit, b.call.id)
        };
        let named_twice =
            |at: usize| limited[..at].iter().any(|before| is_same(before, &limited[at]));
        if (0..limited.len()).any(named_twice) { Err(CallError::Batch) } else { Ok(limited) }
    }

    fn spend_all(&mut self, limited: &mut [LimitedMember]) -> Answer {
        let answer =
            strictest(limited.iter().filter(|member| member.can_deny()).map(LimitedMember::answer));
        if answer.figures.is_none_or(|figures| figures.allowed) {
            let is_charged =
                |member: &&LimitedMember| member.mode != MemberMode::CheckOnly && !member.blocked;
            for member in limited.iter().filter(is_charged) {
                let (state, _) = self.ask(CallKind::Spend, member.rule, member.call);
                self.store(self.key_of(member.call), state);
            }
        }
        answer
    }

    fn give_all(&mut self, what: BatchCall, limited: &mut [LimitedMember]) -> Answer {
        for member in limited.iter_mut() {
            let is_left_alone = member.mode == MemberMode::CheckOnly;
            let (kind, call) = match what {
                BatchCall::RefundAll if is_left_alone => {
                    (CallKind::Refund, member.call.of_nothing())
                }
                BatchCall::RefundAll => (CallKind::Refund, member.call),
                _ if is_left_alone => (CallKind::Check, member.call.of_nothing()),
                _ => (CallKind::Reset, member.call),
            };
            let (state, figures) = self.ask(kind, member.rule, call);
            self.store(self.key_of(member.call), state);
            (member.figures, member.can_be_denial, member.blocked) =
                (figures, kind == CallKind::Check, false);
        }
        strictest(limited.iter().map(LimitedMember::answer))
    }

    /// A member's answer to a spend. In a denied batch a member that would have been allowed answers with
    /// its present state.
    fn member_answer(&self, member: &LimitedMember, answer: &Answer) -> Answer {
        let mut member = *member;
        let is_denied = answer.figures.is_some_and(|figures| !figures.allowed);
        if is_denied && (member.figures.allowed || member.is_shadow) {
            let call = member.call.of_nothing();
            (member.figures, member.blocked) =
                (self.ask(CallKind::Check, member.rule, call).1, false);
        }
        member.figures.allowed |= member.is_shadow;
        member.answer()
    }
}
