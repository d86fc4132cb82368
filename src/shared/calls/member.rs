//! Defines [`SharedMember`], one bucket of a batch of which nodes may share some.

use crate::algorithm::factor::Factor;
use crate::limiter::batch::{Member, MemberMode};

/// One bucket of a [`SharedBatch`](crate::shared::SharedBatch): a [`Member`] of a handle of any kind, from [`SharedLimit::member`](crate::shared::SharedLimit::member) or from a
/// [`Member`] of a local limit.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SharedMember<'a>(pub(crate) Member<'a>);

impl<'a> From<Member<'a>> for SharedMember<'a> {
    fn from(member: Member<'a>) -> SharedMember<'a> {
        SharedMember(member)
    }
}

impl<'a> SharedMember<'a> {
    /// Sets the units: see [`Member::cost`].
    pub fn cost(self, cost: u64) -> SharedMember<'a> {
        SharedMember(self.0.cost(cost))
    }

    /// Sets the caller's factor: see [`Member::factor`].
    pub fn factor(self, factor: Factor) -> SharedMember<'a> {
        SharedMember(self.0.factor(factor))
    }

    /// Sets what the member does: see [`Member::mode`].
    pub fn mode(self, mode: MemberMode) -> SharedMember<'a> {
        SharedMember(self.0.mode(mode))
    }
}
