//! Ctrl-C: a command that changes an image or file stops and cleans up; any other command ends at once.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use diorite_bench::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Result, print_error};
use crate::inherited::is_ignored;

static CANCEL: LazyLock<Cancel> = LazyLock::new(Cancel::default);
static IS_CHANGING: AtomicBool = AtomicBool::new(false);
static SIGNALS: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicI32 = AtomicI32::new(0);
static ACTION: OnceLock<Action> = OnceLock::new();

/// The action of a command after an interrupt; the argument is the number of interrupts so far.
pub(crate) type Action = Arc<dyn Fn(u32) + Send + Sync>;

/// Handle SIGINT, SIGTERM and SIGHUP. A SIGHUP ignored by `nohup` stays ignored.
pub(crate) fn install() {
    let mut handled = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP) {
        handled.push(SIGHUP);
    }
    let started = Signals::new(handled).and_then(|mut signals| {
        let name = "signals".to_owned();
        std::thread::Builder::new().name(name).spawn(move || signals.forever().for_each(handle))
    });
    if let Err(error) = started {
        crate::failure::complain(&format!(
            "signals: cannot be handled: {error}; Ctrl-C will end the program at once"
        ));
    }
}

/// Handle one signal.
fn handle(signal: i32) {
    LAST.store(signal, Ordering::Relaxed);
    let signals = SIGNALS.fetch_add(1, Ordering::Relaxed) + 1;
    let is_first = signals == 1;
    CANCEL.cancel();
    if let Some(action) = ACTION.get() {
        action(signals);
    } else if IS_CHANGING.load(Ordering::Relaxed) && is_first {
        print_error("\ndiorite: interrupted: cleaning up; interrupt again to end at once");
    } else {
        print_error("\ndiorite: interrupted");
        std::process::exit(1);
    }
}

/// Set the action of later interrupts.
pub(crate) fn act(action: Action) {
    let _ = ACTION.set(action);
}

/// The last signal, or 0.
pub(crate) fn last_signal() -> i32 {
    LAST.load(Ordering::Relaxed)
}

/// Forget earlier interrupts: another command begins.
pub(crate) fn begin_again() {
    CANCEL.reset();
    SIGNALS.store(0, Ordering::Relaxed);
}

/// Let the command clean up after a later interrupt.
pub(crate) fn is_changing() {
    IS_CHANGING.store(true, Ordering::Relaxed);
}

/// The flag that long work checks.
pub(crate) fn cancel() -> Cancel {
    CANCEL.clone()
}

/// Fail after an interrupt.
pub(crate) fn check() -> Result<()> {
    if CANCEL.is_cancelled() {
        Err(Failure::Failed("interrupted; completed changes remain".to_owned()))
    } else {
        Ok(())
    }
}
