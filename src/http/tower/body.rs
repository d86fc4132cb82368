//! Defines the body of a layer's responses.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::http::tower::charge::UntilEnd;

pin_project! {
    /// The body of a layer's response: the inner service's body, or the text with which the layer answers itself.
    ///
    /// # Example
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::{convert::Infallible, time::Duration};
    /// # use tollgate::http::{RateLimitLayer, Rule, extract};
    /// # use tollgate::{Clock, IdFormat, Limit, Limiter, Limits};
    /// # use tower::{Layer, ServiceExt, service_fn};
    /// # let limit = Limit::new(1, 1, Duration::from_secs(60))?;
    /// # let limits = Limits::builder().limit("All", IdFormat::String, limit)?.build();
    /// # let limiter = Limiter::with_options(limits, Clock::manual().0)?;
    /// # let rule = Rule::new(limiter.limit("All")?, extract::everyone("all"));
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # let inner = service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(String::new())) });
    /// # let send = |to: &RateLimitLayer, request| runtime.block_on(to.layer(inner).oneshot(request));
    /// # let get = || Request::new(());
    /// use http_body_util::BodyExt;
    ///
    /// let layer = RateLimitLayer::builder(&limiter).rule(rule).plain_text().build()?;
    /// send(&layer, get())?;
    /// let text = runtime.block_on(send(&layer, get())?.into_body().collect())?.to_bytes();
    /// assert_eq!(text, "too many requests: try again in 60 s\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        body: Either<B>,
    }
}

pin_project! {
    #[project = EitherProj]
    #[derive(Debug)]
    enum Either<B> {
        Inner { #[pin] body: B, until_end: UntilEnd },
        Own { bytes: Bytes },
    }
}

impl<B> ResponseBody<B> {
    /// The body of the inner service's response, which has ended when this body has.
    #[inline]
    pub(crate) fn inner(body: B, until_end: UntilEnd) -> ResponseBody<B> {
        ResponseBody { body: Either::Inner { body, until_end } }
    }

    pub(crate) fn own(bytes: Bytes) -> ResponseBody<B> {
        ResponseBody { body: Either::Own { bytes } }
    }
}

/// An empty body. Outer layers that answer requests themselves need it, such as tower-http's CORS and timeout.
impl<B> Default for ResponseBody<B> {
    fn default() -> ResponseBody<B> {
        ResponseBody::own(Bytes::new())
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match self.project().body.project() {
            EitherProj::Inner { mut body, until_end } => {
                let frame = ready!(body.as_mut().poll_frame(context));
                // Only a body that holds something is asked for its end.
                let is_last = until_end.charge().is_some()
                    && match &frame {
                        Some(Ok(frame)) => frame.is_trailers() || body.is_end_stream(),
                        Some(Err(_)) | None => true,
                    };
                if is_last {
                    until_end.end();
                }
                Poll::Ready(frame)
            }
            EitherProj::Own { bytes } => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Either::Inner { body, .. } => body.is_end_stream(),
            Either::Own { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Either::Inner { body, .. } => body.size_hint(),
            Either::Own { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}
