//! Signals during long requests: copies, allocation, trimming.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Served, on_large_slow_device};
use crate::common::{pattern, text};

/// Each request would take many seconds, and must end within this time.
const SOON: Duration = Duration::from_secs(4);
/// Numbers of `copy_file_range` and `fallocate`.
const CALLS: [u32; 2] = if cfg!(target_arch = "x86_64") { [326, 285] } else { [285, 47] };

/// Copies a file to another one until all is copied, or a signal was handled.
fn copy(served: &Served, before: &str) -> Command {
    let [call, _] = CALLS;
    let script = format!(
        "open(F, '<', $ARGV[0]) or die; open(T, '+>', $ARGV[1]) or die; {before}; \
         $all += $_ while !$handled && ($_ = syscall({call}, fileno(F), 0, fileno(T), 0, 1 << 30, 0)) > 0; \
         print $all"
    );
    perl(&script, [served.path("source"), served.path("copy")])
}

fn perl<const N: usize>(script: &str, arguments: [std::path::PathBuf; N]) -> Command {
    let mut perl = Command::new("perl");
    perl.args(["-MTime::HiRes=ualarm,time", "-e", script]).args(arguments).stdout(Stdio::piped());
    perl
}

/// A file of 4 MiB of data, and a hole up to 1 GiB.
fn make_source(served: &Served) {
    fs::write(served.path("source"), pattern(4 << 20, 1)).expect("write");
    let source = fs::File::options().write(true).open(served.path("source")).expect("open");
    source.set_len(1 << 30).and_then(|()| source.sync_all()).expect("a hole");
}

/// End a program by a signal during its request. Returns the time that this takes.
fn time_to_end(served: &Served, program: &mut Child, operation: &str, signal: Signal) -> Duration {
    Served::wait_until(|| {
        let status: serde_json::Value =
            serde_json::from_str(&served.bench().run("status at")).expect("one JSON object");
        status["in_flight"].to_string().contains(operation)
    });
    std::thread::sleep(Duration::from_millis(300));
    assert!(program.try_wait().expect("wait").is_none(), "{operation} ended by itself");
    let start = Instant::now();
    kill_process(Pid::from_child(program), signal).expect("kill");
    assert!(!program.wait().expect("wait").success());
    start.elapsed()
}

/// A killed program stayed until its request was complete: a copy of 1 GiB, 14 GiB of blocks, all free space of a volume.
pub(crate) fn a_program_that_is_killed_in_a_long_request_ends() {
    let Some(served) = on_large_slow_device() else { return };
    make_source(&served);
    let mut fallocate = Command::new("fallocate");
    fallocate.args(["-l", "14G"]).arg(served.path("large"));
    let mut fstrim = Command::new("fstrim");
    fstrim.arg(served.at());
    let programs = [
        (copy(&served, ""), "CopyFileRange", Signal::KILL),
        (fallocate, "FAllocate", Signal::TERM),
        (fstrim, "Ioctl", Signal::KILL),
    ];
    for (mut program, operation, signal) in programs {
        let mut child = program.spawn().expect("it starts");
        let took = time_to_end(&served, &mut child, operation, signal);
        assert!(took < SOON, "{operation}: {took:?}");
    }
    served.must_end_clean();
}

/// As in the kernel's ext4, a handled signal ends a copy, which returns the copied part. It does not end `fallocate`.
pub(crate) fn a_handled_signal_ends_a_copy_and_no_allocation() {
    let Some(served) = on_large_slow_device() else { return };
    make_source(&served);
    let handle = "$SIG{ALRM} = sub { $handled = 1 }; ualarm(300_000)";
    let start = Instant::now();
    let output = copy(&served, handle).output().expect("perl");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    let copied: usize = text(&output.stdout).parse().expect("a number");
    assert!(copied > 0 && copied < 1 << 30, "{copied}");
    let mut expected = pattern(4 << 20, 1);
    expected.resize(copied, 0);
    assert!(fs::read(served.path("copy")).expect("read") == expected, "of {copied} bytes");

    let [_, call] = CALLS;
    let script = format!(
        "open(F, '>', $ARGV[0]) or die; {handle}; $began = time; \
         print syscall({call}, fileno(F), 0, 0, 4 << 30) + 0, ' ', time - $began > 0.4 ? 'late' : 'soon'"
    );
    let output = perl(&script, [served.path("large")]).output().expect("perl");
    assert_eq!(text(&output.stdout), "0 late");
    assert_eq!(fs::metadata(served.path("large")).expect("stat").len(), 4 << 30);
    served.must_end_clean();
}
