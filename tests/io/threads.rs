//! A stream leaves its place while another thread's stream begins to wait.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};
use std::thread;

use tokio::io::{AsyncRead, ReadBuf};

use super::*;
use crate::support::full_size;

#[derive(Default)]
pub(crate) struct Woken(pub(crate) AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Returns the bytes that were read.
fn poll(reader: &mut (impl AsyncRead + Unpin), flag: &Arc<Woken>) -> usize {
    let waker = flag.clone().into();
    let mut buffer = [0; 512];
    let mut buffer = ReadBuf::new(&mut buffer);
    let _ = Pin::new(reader).poll_read(&mut Context::from_waker(&waker), &mut buffer);
    buffer.filled().len()
}

#[test]
fn no_place_is_left_between_threads() {
    for round in 0..full_size(1_000, 100_000) {
        let limit = Limit::new(512, 1024, Duration::from_secs(1)).unwrap();
        let (limiter, hand): (Limiter, ManualClock) =
            support::limiter(support::limits(&[("Bytes", limit)]), Engine::LockFree);
        let bytes = limiter.limit("Bytes").unwrap();
        assert!(bytes.spend("id", 512).unwrap().allowed());
        let reader = || {
            let never = |_: Duration| Box::pin(std::future::pending::<()>());
            Throttle::new(bytes.clone(), "id", never).unwrap().reader(tokio::io::repeat(7))
        };
        let flags: [Arc<Woken>; 3] = Default::default();
        let (mut first, mut second, mut third) = (reader(), reader(), reader());
        // They wait for 0.5 s and for 1 s.
        assert_eq!(poll(&mut first, &flags[0]) + poll(&mut second, &flags[1]), 0);
        thread::scope(|scope| {
            let leaves = scope.spawn(|| drop(first));
            assert_eq!(poll(&mut third, &flags[2]), 0);
            leaves.join().unwrap();
        });
        // The third one has the place of the first one, or is woken for it.
        let is_woken = flags[2].0.load(Ordering::Relaxed);
        if is_woken {
            assert_eq!(poll(&mut third, &flags[2]), 0);
        }
        hand.set(Duration::from_millis(500));
        assert_eq!(poll(&mut third, &flags[2]), 512, "round {round}, woken: {is_woken}");
    }
}
