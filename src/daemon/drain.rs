//! The end of the work under way: in time by itself, or cut off.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

/// Work that is cut off ends at its next wait; more than this is not waited for it.
const CUT_OFF: Duration = Duration::from_secs(1);

/// Waits until the work has ended, which has `grace` for it; once `lost` comes, at most `after_loss` from then on.
/// What has not ended then is cut off.
pub(super) async fn drain(
    mut work: AbortOnDropHandle<()>,
    grace: Duration,
    lost: impl Future<Output = String>,
    after_loss: Duration,
) {
    if work.is_finished() {
        return;
    }
    let (mut deadline, mut is_lost, mut lost) = (Instant::now() + grace, false, pin!(lost));
    loop {
        tokio::select! {
            biased;
            _ = &mut work => return,
            why = &mut lost, if !is_lost => {
                tracing::warn!(%why, "this replica does not lead any more; runs have less time to end");
                is_lost = true;
                deadline = deadline.min(Instant::now() + after_loss);
            }
            () = sleep_until(deadline) => break,
        }
    }
    tracing::warn!("runs did not end within the grace time; what they wrote is in no snapshot");
    work.abort();
    let _ = timeout(CUT_OFF, work).await;
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::time::sleep;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn spawn(work: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(work))
    }

    #[tokio::test(start_paused = true)]
    async fn work_has_the_grace_time_and_less_when_the_turn_is_lost() {
        let lost_after = |time| async move {
            sleep(time).await;
            "somebody else leads".to_owned()
        };
        let took = |start: Instant| start.elapsed().as_secs();
        let (five, ten) = (Duration::from_secs(5), Duration::from_secs(10));
        let start = Instant::now();
        drain(spawn(sleep(ten)), MINUTE, pending(), five).await;
        assert_eq!(took(start), 10, "it ends by itself");
        let start = Instant::now();
        drain(spawn(pending()), MINUTE, pending(), five).await;
        assert_eq!(took(start), 60);
        let start = Instant::now();
        drain(spawn(pending()), MINUTE, lost_after(ten), five).await;
        assert_eq!(took(start), 15);
        let start = Instant::now();
        drain(spawn(pending()), MINUTE, lost_after(MINUTE - Duration::from_secs(1)), five).await;
        assert_eq!(took(start), 60, "never more");
        let start = Instant::now();
        drain(spawn(pending()), MINUTE, ready("before".to_owned()), five).await;
        assert_eq!(took(start), 5);
    }

    struct Gone(Arc<AtomicBool>);

    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_work_that_was_cut_off() {
        let gone = Arc::new(AtomicBool::new(false));
        let guard = Gone(gone.clone());
        let work = spawn(async move {
            let _guard = guard;
            pending().await
        });
        drain(work, MINUTE, pending(), MINUTE).await;
        assert!(gone.load(Ordering::SeqCst));
    }
}
