//! The log of a serving process: standard error, a file, or the system log.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};

use log::{Level, LevelFilter, Log, Metadata, Record};
use rustix::fs::{Mode, OFlags};

use crate::failure::{complain, visible};

/// The socket of the system log.
const SYSTEM_LOG: &str = "/dev/log";
/// The facility `daemon` of the system log.
const FACILITY_DAEMON: u8 = 3 << 3;

/// Whether a caller reads standard error and needs to see warnings.
static HAS_CALLER: AtomicBool = AtomicBool::new(true);

/// The destination of messages.
pub(crate) enum Destination {
    StandardError,
    /// A file; each message has a timestamp.
    File(File),
    SystemLog,
}

struct Logger {
    destination: Destination,
    level: LevelFilter,
}

/// Note that no caller reads standard error.
pub(crate) fn leave_caller() {
    HAS_CALLER.store(false, Ordering::Relaxed);
}

/// Start logging. A panic of any thread is logged and ends the program, because other threads would wait for its locks and its work.
pub(crate) fn install(destination: Destination, level: LevelFilter) {
    std::panic::set_hook(Box::new(|panic| {
        log::error!("{panic}");
        std::process::abort();
    }));
    if log::set_boxed_logger(Box::new(Logger { destination, level })).is_ok() {
        log::set_max_level(level);
    }
}

/// Without a system log, as in a container, root's messages go to the kernel log, which `dmesg` shows. A failure of this cannot be reported.
fn log_to_kernel(line: &str) {
    let opened = rustix::fs::open("/dev/kmsg", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    // Without the newline the kernel joins it with the next message.
    let _ = opened.and_then(|log| rustix::io::write(&log, format!("{line}\n").as_bytes()));
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Other libraries log only warnings and errors.
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
                // A failed write to the log cannot be reported.
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
                let sent =
                    UnixDatagram::unbound().and_then(|socket| socket.send_to(line.as_bytes(), SYSTEM_LOG));
                // Messages for each request would flush all others out of the kernel log.
                if sent.is_err() && record.level() <= Level::Info {
                    log_to_kernel(&line);
                }
            }
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    /// This test runs itself once more, to be ended.
    #[test]
    fn a_panic_of_any_thread_ends_a_program_that_serves() {
        const IS_CHILD: &str = "DIORITE_TEST_PANIC";
        if std::env::var_os(IS_CHILD).is_some() {
            install(Destination::StandardError, LevelFilter::Info);
            let _ = std::thread::spawn(|| panic!("of a thread")).join();
            return;
        }
        let mut child = Command::new(std::env::current_exe().expect("this test"));
        child.args([
            "--exact",
            "logging::tests::a_panic_of_any_thread_ends_a_program_that_serves",
            "--nocapture",
        ]);
        let output = child.env(IS_CHILD, "1").output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.signal() == Some(6) && said.contains("of a thread"),
            "{}: {said}",
            output.status
        );
    }
}
