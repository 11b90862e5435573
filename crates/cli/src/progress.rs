//! Progress on a terminal; nothing in a pipe.

use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diorite::ErrorKind;
use diorite_bench::{Cancel, Observer};
use diorite_copy::{FileTree, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::{Failure, Result, complain, complain_of_part, print_error, visible};
use crate::output::Output;
use crate::stdout::{self, Stdout};

/// Names of small files are shown only after this time, because there may be many.
const SHOW_AFTER: Duration = Duration::from_millis(300);
const LARGE_BYTES: u64 = 1 << 20;

/// The number of files reported separately for lack of space.
const FULL_LINES_MAX: u64 = 20;

/// Narrower terminals have no space for a bar beside the numbers.
const NARROW_COLUMNS: u16 = 84;

/// The unit of a bar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Unit {
    #[default]
    Bytes,
    Steps,
}

fn bar(total: u64, unit: Unit) -> ProgressBar {
    let is_narrow = rustix::termios::tcgetwinsize(std::io::stderr())
        .is_ok_and(|size| (1..NARROW_COLUMNS).contains(&size.ws_col));
    let template = if is_narrow {
        // A line that is too long would wrap and scroll with each update.
        if total > 0 { "{wide_msg} {percent:>3}% {eta:>4}" } else { "{wide_msg} {spinner}" }
    } else if unit == Unit::Steps {
        "{msg:24!} [{wide_bar}] {pos:>10} of {len} {eta:>4}"
    } else if total > 0 {
        "{msg:24!} [{wide_bar}] {bytes:>10} of {total_bytes} {bytes_per_sec:>12} {eta:>4}"
    } else {
        "{msg:24!} {spinner} {bytes:>10} {bytes_per_sec:>12}"
    };
    let style = ProgressStyle::with_template(template).expect("constant template").progress_chars("=> ");
    ProgressBar::with_draw_target((total > 0).then_some(total), ProgressDrawTarget::stderr_with_hz(10))
        .with_style(style)
}

/// A bar for a number of steps, which the caller clears at the end.
pub(crate) fn steps(what: &str, total: u64) -> ProgressBar {
    let bar = bar(total, Unit::Steps);
    bar.set_message(what.to_owned());
    bar
}

/// A spinner for work of unknown length.
fn spinner(what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {spinner} {elapsed}").expect("constant template");
    let spinner =
        ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10)).with_style(style);
    spinner.set_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

/// One bar for a whole copy.
pub(crate) struct CopyProgress {
    bar: ProgressBar,
    cancel: Cancel,
    started: std::time::Instant,
    /// Files for which there was no space.
    without_space: AtomicU64,
    says: CopySays,
}

/// Messages and questions of a copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CopySays {
    /// Each copied file.
    pub(crate) copied: bool,
    /// Before a file is replaced.
    pub(crate) asks: bool,
    /// The name of each entry of an archive.
    pub(crate) entries: Names,
}

/// The output for names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Names {
    #[default]
    Nowhere,
    Output,
    Errors,
}

impl CopyProgress {
    /// A bar for `total` bytes; 0 means unknown.
    pub(crate) fn new(total: u64, cancel: Cancel, says: CopySays) -> Self {
        let bar = bar(total, Unit::Bytes);
        Self { bar, cancel, started: std::time::Instant::now(), without_space: AtomicU64::new(0), says }
    }

    /// Whether standard error is a terminal.
    pub(crate) fn is_visible() -> bool {
        std::io::IsTerminal::is_terminal(&std::io::stderr())
    }

    /// Clear the bar, and report the number of files not reported separately.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
        let more = self.without_space.load(Ordering::Relaxed).saturating_sub(FULL_LINES_MAX);
        if more > 0 {
            complain(&format!("{more} more files not copied: no space"));
        }
    }
}

impl CopyProgress {
    fn say(&self, line: &str) {
        // A lost reader cancels the copy. Any other error is reported when the command ends and flushes its output.
        let _ = self.bar.suspend(|| writeln!(Stdout::lock(), "{}", visible(line)));
    }
}

impl Watch for CopyProgress {
    fn begin(&self, name: &Path, size: u64) {
        if size > LARGE_BYTES || self.started.elapsed() > SHOW_AFTER {
            let name = name.file_name().unwrap_or_default().to_string_lossy();
            self.bar.set_message(visible(&name));
        }
    }

    fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    fn failed(&self, error: diorite_copy::Error) {
        if matches!(error.kind(), Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
            && self.without_space.fetch_add(1, Ordering::Relaxed) >= FULL_LINES_MAX
        {
            return;
        }
        if let Failure::Failed(text) = error.into() {
            self.bar.suspend(|| complain_of_part(&text));
        }
    }

    fn left_out(&self, error: diorite_copy::Error) {
        if let Failure::Failed(text) = error.into() {
            self.bar.suspend(|| complain(&text));
        }
    }

    fn copied(&self, source: &dyn FileTree, from: &Path, sink: &dyn FileTree, to: &Path) {
        if self.says.copied {
            self.say(&format!("{} -> {}", source.name_of(from), sink.name_of(to)));
        }
    }

    fn updated(&self, sink: &dyn FileTree, to: &Path, what: &[&str]) {
        if self.says.copied {
            self.say(&format!("{} of {}", what.join(", "), sink.name_of(to)));
        }
    }

    fn entry(&self, name: &[u8]) {
        match self.says.entries {
            Names::Nowhere => {}
            Names::Output => {
                let print = || {
                    let mut output = Output::new();
                    output.name(name).and_then(|()| output.line(""))
                };
                let _ = self.bar.suspend(print);
            }
            Names::Errors => {
                self.bar.suspend(|| print_error(&visible(&String::from_utf8_lossy(name))));
            }
        }
    }

    fn may_replace(&self, sink: &dyn FileTree, to: &Path) -> bool {
        let ask = || ask(&format!("replace {}?", sink.name_of(to))).unwrap_or(false);
        !self.says.asks || self.bar.suspend(ask)
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled() || stdout::has_lost_reader()
    }
}

/// A bar for each stage of a measurement.
#[derive(Default)]
pub(crate) struct StageProgress {
    bar: Mutex<Option<ProgressBar>>,
    unit: Unit,
}

impl StageProgress {
    /// Progress in steps instead of bytes.
    pub(crate) fn counting() -> Self {
        Self { unit: Unit::Steps, ..Self::default() }
    }

    fn with(&self, act: impl FnOnce(&mut Option<ProgressBar>)) {
        if let Ok(mut bar) = self.bar.lock() {
            act(&mut bar);
        }
    }
}

impl Observer for StageProgress {
    fn begin(&self, what: &str, total: u64) {
        self.with(|slot| {
            *slot = Some(if total == 0 { spinner(what) } else { bar(total, self.unit) });
            if let Some(bar) = slot {
                bar.set_message(what.to_owned());
            }
        });
    }

    fn advance(&self, amount: u64) {
        self.with(|slot| {
            if let Some(bar) = slot {
                bar.inc(amount);
            }
        });
    }

    fn end(&self) {
        self.with(|slot| {
            if let Some(bar) = slot.take() {
                bar.finish_and_clear();
            }
        });
    }
}

/// Ask on the terminal. Only an answer that begins with `y` is a yes.
pub(crate) fn ask(question: &str) -> Result<bool> {
    print_error(&format!("diorite: {} [y/N]", visible(question)));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(answer.trim_start().starts_with(['y', 'Y']))
}
