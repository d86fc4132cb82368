//! Defines what a request holds until its response has ended: estimates that its handler settles, and permits.

use std::fmt;
use std::sync::Arc;

use http::request::Parts;
use http::{Extensions, Method, StatusCode};

use crate::decision::Decision;
use crate::http::tower::learner::LearningRequest;
use crate::http::tower::rules::ActiveRule;
use crate::limiter::handle::KeyedLimit;
use crate::limiter::reserve::Receipt;
use crate::util::lock::Mutex;

/// The charges that a request holds, in its extensions: the estimates of [`Rule::estimate`](crate::http::Rule::estimate), to be
/// settled by the handler, and the permits of [`Rule::in_flight`](crate::http::Rule::in_flight). A clone is the same charge.
///
/// What the handler does not settle stays charged. Permits go back when the response has ended: when its body has come to its end
/// (its last frame, an error or its trailers), or is dropped, as it is when the client goes away; and when the handler fails or
/// panics. A response that hands the connection over (status 101, or a 2xx to `CONNECT`) ends with its head, so there the permits
/// stay out until the last clone is dropped: keep one in the task that has the connection.
///
/// # Example: the tokens of an answer are known when it is written
///
/// ```
/// # use http::{Request, Response};
/// # use std::{convert::Infallible, time::Duration};
/// # use tollgate::{IdFormat, Limit, Limiter, Limits};
/// # use tower::{Layer, ServiceExt, service_fn};
/// use tollgate::http::{Charge, RateLimitLayer, Rule, extract};
///
/// # let limit = Limit::new(1000, 1000, Duration::from_secs(60))?;
/// # let limiter = Limiter::new(Limits::builder().limit("Tokens", IdFormat::String, limit)?.build());
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// let tokens = limiter.limit("Tokens")?; // 1000 a minute
/// let rule = Rule::new(tokens.clone(), extract::header(http::HeaderName::from_static("x-user"))).estimate(|_| 600);
/// let layer = RateLimitLayer::builder(&limiter).rule(rule).build()?;
///
/// let handler = service_fn(|request: Request<()>| async move {
///     let charge = Charge::of(request.extensions());
///     let answer = "an answer of four tokens";
///     charge.settle("Tokens", 4);
///     Ok::<_, Infallible>(Response::new(answer.to_owned()))
/// });
/// # let request = Request::builder().header("x-user", "alice").body(())?;
/// # runtime.block_on(layer.layer(handler).oneshot(request))?;
/// assert_eq!(tokens.check("alice", 0)?.remaining(), Some(996));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Charge(Arc<Inner>);

#[derive(Default)]
struct Inner {
    held: Mutex<Vec<HeldCharge>>,
    /// The charge of a layer outside.
    outer: Option<Charge>,
}

/// The charge of one rule.
pub(crate) struct HeldCharge {
    /// The rule's position in its layer.
    pub(crate) position: usize,
    /// The name of its limit.
    pub(crate) limit: Arc<str>,
    pub(crate) is_of_permits: bool,
    pub(crate) receipt: Box<Receipt>,
}

impl HeldCharge {
    pub(crate) fn new(limit: &KeyedLimit, position: usize, receipt: Box<Receipt>) -> HeldCharge {
        let is_of_permits = receipt.has_permits();
        HeldCharge { position, limit: limit.name.clone(), is_of_permits, receipt }
    }
}

/// Returns what a request to which these rules apply holds; `None` if none of them holds a charge or marks the request.
pub(crate) fn holder_for<'r>(
    mut rules: impl Iterator<Item = &'r ActiveRule>,
) -> Option<Box<HeldByRequest>> {
    rules.any(|rule| rule.holds() || rule.is_soft()).then(|| Box::new(HeldByRequest::new()))
}

impl Charge {
    pub(crate) fn new(held: Vec<HeldCharge>, outer: Option<Charge>) -> Charge {
        Charge(Arc::new(Inner { held: Mutex::new(held), outer }))
    }

    /// Returns the charge of a request, one of nothing if no layer has put one into its extensions.
    pub fn of(extensions: &Extensions) -> Charge {
        extensions.get::<Charge>().cloned().unwrap_or_default()
    }

    /// Replaces the estimate that the request was charged by a limit, given by its name, by the actual cost, once: see
    /// [`Receipt::settle`](crate::reserve::Receipt::settle). Returns the decision after it; `None` if there is nothing to settle:
    /// no rule with an estimate and this limit has applied, or it is settled already.
    ///
    /// If several rules with estimates count by this limit, each for an id of its own, all of them are settled.
    pub fn settle(&self, limit: &str, actual: u64) -> Option<Decision> {
        let own = self.take(|held| !held.is_of_permits && *held.limit == *limit);
        let own = own.into_iter().map(|held| held.receipt.settle(actual));
        let outer = self.0.outer.as_ref().and_then(|outer| outer.settle(limit, actual));
        own.chain(outer).reduce(Decision::stricter)
    }

    /// Settles the estimate of a rule of this layer.
    pub(crate) fn settle_rule(&self, position: usize, actual: u64) {
        let own = self.take(|held| !held.is_of_permits && held.position == position);
        for held in own {
            let _ = held.receipt.settle(actual);
        }
    }

    /// Takes charges out of the list, so that they are settled or dropped without the lock.
    fn take(&self, is_taken: impl Fn(&HeldCharge) -> bool) -> Vec<HeldCharge> {
        let mut held = self.0.held.lock();
        let (taken, left) = std::mem::take(&mut *held).into_iter().partition(is_taken);
        *held = left;
        taken
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.0.held.lock();
        let limits: Vec<&str> = held.iter().map(|held| &*held.limit).collect();
        f.debug_struct("Charge").field("limits", &limits).finish_non_exhaustive()
    }
}

/// The charges that the response may refund, by the positions of their rules.
pub(crate) struct RefundableCharges {
    here: Receipt,
    elsewhere: Vec<(usize, Box<dyn GiveBack>)>,
}

/// A charge that is not of this node.
pub(crate) trait GiveBack: Send + Sync {
    /// Begins to give all units back.
    fn give_back(&self);
}

impl RefundableCharges {
    pub(crate) fn new() -> RefundableCharges {
        RefundableCharges { here: Receipt::of_nothing(), elsewhere: Vec::new() }
    }

    /// Adds the charge of the rule at `position`.
    pub(crate) fn add(&mut self, position: usize, receipt: Receipt) {
        let here = std::mem::replace(&mut self.here, Receipt::of_nothing());
        self.here = here.joined(receipt.of_position(position));
    }

    #[allow(dead_code, reason = "a build without shared limits has one place")]
    pub(crate) fn add_elsewhere(&mut self, position: usize, charge: Box<dyn GiveBack>) {
        self.elsewhere.push((position, charge));
    }

    /// Gives the units of a rule back. Returns whether the request was charged by it.
    pub(crate) fn give_back(&self, position: usize) -> bool {
        let elsewhere = self.elsewhere.iter().filter(|(of, _)| *of == position);
        let given = elsewhere.map(|(_, charge)| charge.give_back()).count();
        self.here.give_back_member(position) || given > 0
    }

    /// Decides a check of a rule's bucket at a cost of 0; `None`: that takes I/O.
    pub(crate) fn look(&self, position: usize) -> Option<Decision> {
        self.here.look_at_member(position)
    }
}

/// A request's charge until its response has ended. Then its permits go back.
#[derive(Default)]
pub(crate) struct UntilEnd(Option<Charge>);

impl UntilEnd {
    pub(crate) fn charge(&self) -> Option<&Charge> {
        self.0.as_ref()
    }

    /// The response has ended.
    #[inline]
    pub(crate) fn end(&mut self) {
        if self.0.is_some() {
            self.give_back();
        }
    }

    #[cold]
    fn give_back(&mut self) {
        if let Some(charge) = self.0.take() {
            drop(charge.take(|held| held.is_of_permits));
        }
    }

    /// Leaves the end to the last clone of the charge if the response hands the connection over.
    fn unless_upgraded(mut self, status: StatusCode, is_connect: bool) -> UntilEnd {
        let is_upgrade =
            status == StatusCode::SWITCHING_PROTOCOLS || (is_connect && status.is_success());
        if is_upgrade {
            self.0 = None;
        }
        self
    }
}

impl fmt::Debug for UntilEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Drop for UntilEnd {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a request holds until its response comes.
pub(crate) struct HeldByRequest {
    pub(crate) charges: Vec<HeldCharge>,
    /// Once the request goes on.
    pub(crate) until_end: UntilEnd,
    /// What learns from the response.
    pub(crate) learning: Option<LearningRequest>,
    is_connect: bool,
}

impl HeldByRequest {
    pub(crate) fn new() -> HeldByRequest {
        let (charges, until_end) = (Vec::new(), UntilEnd::default());
        HeldByRequest { charges, until_end, learning: None, is_connect: false }
    }

    /// Puts the charges into the extensions of a request that goes on.
    pub(crate) fn give_to(&mut self, parts: &mut Parts) {
        let outer = parts.extensions.remove::<Charge>();
        let charge = Charge::new(std::mem::take(&mut self.charges), outer);
        self.is_connect = parts.method == Method::CONNECT;
        self.until_end = UntilEnd(Some(charge.clone()));
        parts.extensions.insert(charge);
    }

    /// Returns what the response's body holds.
    #[cold]
    pub(crate) fn into_body(self, status: StatusCode) -> UntilEnd {
        self.until_end.unless_upgraded(status, self.is_connect)
    }
}
