//! Waits for the tasks of calls at the store.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind};

/// The answer of a task at the store.
pub(crate) async fn answer<T>(asked: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
    asked.await.unwrap_or_else(|_| {
        let text = "the call to the store ended without an answer";
        Err(Error::new(ErrorKind::Store, text))
    })
}

/// Polls all futures until each is ready, and returns their outputs in order.
pub(super) async fn all<F: Future>(futures: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut slots: Vec<_> = futures.into_iter().map(|future| (future, None)).collect();
    poll_fn(|context| {
        for (future, output) in slots.iter_mut().filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = future.as_mut().poll(context) {
                *output = Some(ready);
            }
        }
        match slots.iter().all(|(_, output)| output.is_some()) {
            true => Poll::Ready(slots.drain(..).filter_map(|(_, output)| output).collect()),
            false => Poll::Pending,
        }
    })
    .await
}
