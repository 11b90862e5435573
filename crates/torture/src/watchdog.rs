//! A stall watchdog: a case that does not end in time is named, the stack of every thread is printed, and the process ends.
//!
//! It uses nothing but the standard library, so that other tests can take the file as it is.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// The running case.
struct Watched {
    number: u64,
    name: String,
    limit: Duration,
    took: Duration,
}

static WATCHED: Mutex<Vec<Watched>> = Mutex::new(Vec::new());
static START: Once = Once::new();
/// How often the monitor looks.
const TICK: Duration = Duration::from_millis(200);

fn watched() -> MutexGuard<'static, Vec<Watched>> {
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A case under way; it ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    number: u64,
}

impl Watch {
    /// The case `name` must end within `limit`. Time in which a thread of the process was ready and got no processor does not
    /// count: on a busy machine a case may take a hundred times as long as alone.
    pub fn start(name: impl Into<String>, limit: Duration) -> Self {
        START.call_once(|| {
            // The monitor must not be stopped by what it watches: a thread of its own, and no lock but the list's.
            let monitor = std::thread::Builder::new().name("watchdog".to_owned()).spawn(monitor);
            monitor.expect("a thread for the watchdog");
        });
        let mut list = watched();
        let number = list.last().map_or(0, |last| last.number + 1);
        list.push(Watched { number, name: name.into(), limit, took: Duration::ZERO });
        Self { number }
    }

    /// Time that has counted so far, to the monitor's tick.
    pub fn took(&self) -> Duration {
        let list = watched();
        list.iter()
            .find(|watched| watched.number == self.number)
            .map_or(Duration::ZERO, |watched| watched.took)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        watched().retain(|watched| watched.number != self.number);
    }
}

fn monitor() {
    let mut waits = HashMap::new();
    loop {
        std::thread::sleep(TICK);
        if is_starved(&mut waits) {
            continue;
        }
        let mut list = watched();
        list.iter_mut().for_each(|watched| watched.took += TICK);
        let late = list.iter().find(|watched| watched.took > watched.limit).map(|late| late.name.clone());
        drop(list);
        if let Some(name) = late {
            eprintln!("STALLED: {name}: no end in time; every thread's stack:");
            print_stacks();
            std::process::abort();
        }
    }
}

/// Whether some thread was ready for half of the last tick and did not run; `waits` is how long each had waited before.
fn is_starved(waits: &mut HashMap<std::ffi::OsString, u64>) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let waited: HashMap<_, u64> = threads
        .filter_map(|thread| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            Some((thread.file_name(), text.split_whitespace().nth(1)?.parse().ok()?))
        })
        .collect();
    let half = TICK.as_nanos() as u64 / 2;
    let starved = waited.iter().any(|(thread, now)| *now > waits.get(thread).unwrap_or(now) + half);
    *waits = waited;
    starved
}

/// Print the stack of every thread of this process: by gdb, or by the kernel without it.
fn print_stacks() {
    let own = std::process::id().to_string();
    let commands = ["-ex", "set pagination off", "-ex", "thread apply all backtrace 40"];
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx"])
        .args(commands)
        .args(["-p", &own])
        .stdin(Stdio::null())
        .stdout(std::io::stderr());
    if !gdb.status().is_ok_and(|status| status.success()) {
        eprintln!("{}", waits());
    }
}

/// Where each thread waits in the kernel.
fn waits() -> String {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let line = |thread: std::fs::DirEntry| {
        let text = |name: &str| {
            let text = std::fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            text.trim().to_owned()
        };
        format!("{}: {}\n", text("comm"), [text("wchan"), text("syscall"), text("stack")].join(" "))
    };
    threads.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_is_named() {
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::Builder::new().name("stalled-one".to_owned());
        let waiting = waiting.spawn(move || receiver.recv()).expect("a thread");
        // A thread sets its name when it begins to run.
        let start = std::time::Instant::now();
        while !waits().contains("stalled-one") {
            assert!(start.elapsed() < Duration::from_secs(60), "{}", waits());
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(sender);
        let _ = waiting.join().expect("it ends");
    }

    #[test]
    fn cases_that_end_are_forgotten() {
        let watch = Watch::start("a short case", Duration::from_secs(1000));
        assert!(watched().iter().any(|watched| watched.name == "a short case"));
        drop(watch);
        assert!(!watched().iter().any(|watched| watched.name == "a short case"));
    }
}
