//! Waits for the task of a call at the store.

use tokio::sync::oneshot;

use crate::error::{Error, ErrorKind};

/// The answer of a task at the store.
pub(super) async fn answer<T>(asked: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
    asked.await.unwrap_or_else(|_| {
        let text = "the call to the store ended without an answer";
        Err(Error::new(ErrorKind::Store, text))
    })
}
