//! What `once` shows on a terminal while it works: a line for each table under way, below the finished reports.

use std::sync::Arc;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::print;
use super::screen::Screen;
use crate::actions::words::bytes;
use crate::policy::human_duration;
use crate::rewrite::Progress;
use crate::telemetry::visible;

/// Between two looks at a table's progress.
const TICK: Duration = Duration::from_millis(250);
/// Parts of a bar.
const BAR_LENGTH: u64 = 1000;

/// The lines of all tables under way. Shows nothing unless standard error is a terminal that can draw.
#[derive(Clone)]
pub(super) struct ProgressLines {
    lines: MultiProgress,
    shown: bool,
}

/// A table's line, gone when dropped.
pub(super) struct Line {
    bar: ProgressBar,
    _updates: Option<AbortOnDropHandle<()>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl ProgressLines {
    /// `wanted`: whether somebody would like to watch.
    pub(super) fn new(wanted: bool) -> Self {
        let shown = wanted && Screen::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        Self { lines: MultiProgress::with_draw_target(target), shown }
    }

    /// Prints finished output above the lines; `false` as for [`print::out`].
    pub(super) fn print(&self, text: &str) -> bool {
        self.lines.suspend(|| print::out(text))
    }

    /// Shows how far a table's compaction is.
    pub(super) fn rewriting(&self, table: &str, progress: Arc<Progress>) -> Line {
        let started = Instant::now();
        self.line(table, move |bar| {
            bar.set_position(permille(progress.bytes_read().into(), progress.planned_bytes().into()));
            bar.set_message(state(&progress, started.elapsed()));
            true
        })
    }

    /// Counts a delay down.
    pub(super) fn waiting(&self, table: &str, wait: Duration) -> Line {
        let until = Instant::now() + wait;
        self.line(table, move |bar| {
            let left = until.saturating_duration_since(Instant::now());
            bar.set_position(permille(wait.saturating_sub(left).as_millis(), wait.as_millis()));
            bar.set_message(format!("{} until the clean-ups", human_duration(Duration::from_secs(left.as_secs() + 1))));
            !left.is_zero()
        })
    }

    fn line(&self, table: &str, mut update: impl FnMut(&ProgressBar) -> bool + Send + 'static) -> Line {
        let bar = self.lines.add(ProgressBar::new(BAR_LENGTH).with_style(style()).with_prefix(visible(table)));
        let updates = self.shown.then(|| {
            let bar = bar.clone();
            AbortOnDropHandle::new(tokio::spawn(async move {
                while update(&bar) {
                    tokio::time::sleep(TICK).await;
                }
            }))
        });
        Line { bar, _updates: updates }
    }
}

fn style() -> ProgressStyle {
    // The template is fixed, so that it holds no mistake; the other style is the same without a bar.
    let style = ProgressStyle::with_template("{prefix} [{bar:20}] {wide_msg}");
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

fn permille(part: u128, whole: u128) -> u64 {
    let share = part.min(whole) * u128::from(BAR_LENGTH) / whole.max(1);
    u64::try_from(share).unwrap_or(BAR_LENGTH)
}

fn state(progress: &Progress, elapsed: Duration) -> String {
    let (read, written) = (progress.bytes_read(), progress.bytes_written());
    let rate = read as f64 / elapsed.as_secs_f64().max(0.1);
    format!(
        "{}, {}/{} groups, {} rows, read {} ({}/s), written {}",
        progress.phase().as_str(),
        progress.finished_groups(),
        progress.planned_groups(),
        progress.rows(),
        bytes(read),
        bytes(rate as u64),
        bytes(written)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_valid() {
        assert!(ProgressStyle::with_template("{prefix} [{bar:20}] {wide_msg}").is_ok());
    }

    #[test]
    fn a_share_never_leaves_the_bar() {
        assert_eq!([permille(0, 0), permille(1, 2), permille(3, 2), permille(2, 0)], [0, 500, 1000, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_drawn_for_nobody() {
        let board = ProgressLines::new(false);
        let line = board.waiting("lake.db.t", Duration::from_secs(60));
        assert!(line._updates.is_none() && line.bar.is_hidden());
    }
}
