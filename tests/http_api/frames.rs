//! A body whose frames come from a function.
#![cfg(feature = "tower")]

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

/// What a body's function returns. It does not say before that the body has ended.
pub(crate) type Polled<E> = Poll<Option<Result<Frame<Bytes>, E>>>;

/// The body of these frames.
pub(crate) struct Frames<S, E> {
    state: S,
    poll: fn(&mut S, &mut Context<'_>) -> Polled<E>,
}

impl<S, E> Frames<S, E> {
    pub(crate) fn new(state: S, poll: fn(&mut S, &mut Context<'_>) -> Polled<E>) -> Frames<S, E> {
        Frames { state, poll }
    }
}

impl<S: Unpin, E> Body for Frames<S, E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Polled<E> {
        let poll = self.poll;
        poll(&mut self.state, context)
    }
}
