//! Ctrl-C: a command that changes something is asked to stop and puts everything in order; any other ends at once.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use diorite_bench::Cancel;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::{Failure, Result, print_error};
use crate::inherited::is_ignored;

static CANCEL: LazyLock<Cancel> = LazyLock::new(Cancel::default);
static IS_CHANGING: AtomicBool = AtomicBool::new(false);
static SIGNALS: AtomicU32 = AtomicU32::new(0);
static ACTION: OnceLock<Action> = OnceLock::new();

/// What a command does when it is asked to end, for the how many-th time.
pub(crate) type Action = Arc<dyn Fn(u32) + Send + Sync>;

/// Take care of SIGINT, SIGTERM and SIGHUP from now on; not of a SIGHUP that `nohup` has it ignore.
pub(crate) fn install() {
    let mut handled = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP) {
        handled.push(SIGHUP);
    }
    let started = Signals::new(handled).and_then(|mut signals| {
        let name = "signals".to_owned();
        std::thread::Builder::new().name(name).spawn(move || signals.forever().for_each(|_| handle()))
    });
    if let Err(error) = started {
        crate::failure::complain(&format!(
            "signals: cannot be handled: {error}; Ctrl-C will end the program at once"
        ));
    }
}

/// A signal has come.
fn handle() {
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

/// From now on an interruption does this and nothing else.
pub(crate) fn act(action: Action) {
    let _ = ACTION.set(action);
}

/// From now on an interruption waits for the command to put things in order.
pub(crate) fn is_changing() {
    IS_CHANGING.store(true, Ordering::Relaxed);
}

/// The wish to stop, for long work.
pub(crate) fn cancel() -> Cancel {
    CANCEL.clone()
}

/// An error if the user wants no more.
pub(crate) fn check() -> Result<()> {
    if CANCEL.is_cancelled() {
        Err(Failure::Failed("interrupted; what was done so far stays".to_owned()))
    } else {
        Ok(())
    }
}
