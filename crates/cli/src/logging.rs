//! Where the messages of a program that serves go: standard error, a file, or the system's log.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::failure::{complain, visible};

/// The socket of the system's log.
const SYSTEM_LOG: &str = "/dev/log";
/// Numbers of the system's log: what daemons say.
const FACILITY_DAEMON: u8 = 3 << 3;

/// Whether standard error is that of a caller who waits, and who is to know of warnings.
static HAS_CALLER: AtomicBool = AtomicBool::new(true);

/// Where messages go.
pub(crate) enum Destination {
    StandardError,
    /// With the time before each.
    File(File),
    SystemLog,
}

struct Logger {
    destination: Destination,
    level: LevelFilter,
}

/// From now on no caller reads standard error.
pub(crate) fn leave_caller() {
    HAS_CALLER.store(false, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| log::error!("{panic}")));
}

/// Log from now on.
pub(crate) fn install(destination: Destination, level: LevelFilter) {
    if log::set_boxed_logger(Box::new(Logger { destination, level })).is_ok() {
        log::set_max_level(level);
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries beneath have much to say of themselves.
        metadata.level() <= self.level
            && (metadata.target().starts_with("diorite") || metadata.level() <= Level::Warn)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = record.args().to_string();
        let is_at_error = matches!(self.destination, Destination::StandardError);
        if !is_at_error && record.level() <= Level::Warn && HAS_CALLER.load(Ordering::Relaxed) {
            complain(&text);
        }
        match &self.destination {
            Destination::StandardError => complain(&text),
            Destination::File(file) => {
                let level = record.level().as_str().to_ascii_lowercase();
                let now = jiff::Timestamp::now();
                // There is nowhere to say that this fails.
                let _ = (&mut &*file).write_all(format!("{now:.6} {level}: {}\n", visible(&text)).as_bytes());
            }
            Destination::SystemLog => {
                let severity = match record.level() {
                    Level::Error => 3,
                    Level::Warn => 4,
                    Level::Info => 6,
                    Level::Debug | Level::Trace => 7,
                };
                let id = std::process::id();
                let line = format!("<{}>diorite[{id}]: {}", FACILITY_DAEMON | severity, visible(&text));
                let _ =
                    UnixDatagram::unbound().and_then(|socket| socket.send_to(line.as_bytes(), SYSTEM_LOG));
            }
        }
    }

    fn flush(&self) {}
}
