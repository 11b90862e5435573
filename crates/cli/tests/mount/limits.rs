//! Limits and signals that a daemon inherits from its caller, and which must not apply to the volume.

use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use super::{Alone, Served, bench_with};
use crate::common::{Bench, pattern, text, tool};

/// Programs that run another one with an inherited setting.
const CALLERS: [&[&str]; 15] = [
    &["prlimit", "--fsize=1048576:"],
    &["prlimit", "--nofile=20:"],
    &["prlimit", "--as=400000000:"],
    &["prlimit", "--data=100000000:"],
    &["prlimit", "--stack=131072:"],
    &["prlimit", "--stack=131072:131072"],
    &["prlimit", "--cpu=1:1"],
    &["prlimit", "--memlock=0:"],
    &["prlimit", "--nproc=4:"],
    &["prlimit", "--core=0:0"],
    &["sh", "-c", "exec \"$@\" <&-", "sh"],
    &["sh", "-c", "exec \"$@\" <&- >&-", "sh"],
    &["sh", "-c", "exec \"$@\" <&- >&- 2>&-", "sh"],
    &["sh", "-c", "trap '' INT TERM CHLD XFSZ PIPE USR1 ALRM; exec \"$@\"", "sh"],
    &["env", "--block-signal"],
];

fn diorite_of(bench: &Bench, caller: &[&str], line: &str) -> Command {
    let own = bench.diorite(line.split(' '));
    let mut command = Command::new(caller[0]);
    command.args(&caller[1..]).arg(own.get_program()).args(own.get_args());
    command.current_dir(bench.directory.path()).stdin(Stdio::null());
    command
}

fn bench() -> Option<(Bench, Alone)> {
    tool("prlimit", ["--version"])?;
    bench_with(&["one"])
}

/// Write more than the limits of [`CALLERS`] allow, make it durable, and read it.
fn write_much(bench: &Bench, caller: &[&str]) {
    let data = pattern(12 << 20, 1);
    let mut file = fs::File::create(bench.path("one/file")).expect("create");
    let written = file.write_all(&data).and_then(|()| file.sync_all());
    written.unwrap_or_else(|error| panic!("{caller:?}: {error}"));
    drop(file);
    assert!(fs::read(bench.path("one/file")).expect("read") == data, "{caller:?}");
    fs::remove_file(bench.path("one/file")).expect("remove");
}

/// A write beyond the caller's file size limit killed the daemon, and buffered data was lost.
#[test]
fn limits_and_signals_of_the_caller_do_not_hold_for_a_daemon() {
    let Some((bench, _alone)) = bench() else { return };
    for caller in CALLERS {
        let output = diorite_of(&bench, caller, "mount a.img one").output().expect("it starts");
        assert!(output.status.success(), "{caller:?}: {}", text(&output.stderr));
        write_much(&bench, caller);
        bench.run("umount one");
        bench.must_be_clean("a.img");
    }
}

/// Wait until a program in the foreground serves requests.
fn wait_until_served(bench: &Bench, child: &mut Child, of: &str, caller: &[&str]) {
    Served::wait_until(|| {
        assert_eq!(child.try_wait().expect("wait"), None, "{caller:?}");
        bench.diorite(["status", of]).output().expect("it starts").status.success()
    });
}

/// SIGTERM had no effect if the caller ignored or blocked it.
#[test]
fn programs_in_the_foreground_end_by_signals_that_their_caller_ignores() {
    let Some((bench, _alone)) = bench() else { return };
    let lines = [
        ("mount -f a.img one", "one"),
        ("serve nfs --listen 127.0.0.1:0 a.img", "a.img"),
        ("serve virtiofs --socket socket a.img", "a.img"),
    ];
    // The test above covers all limits but one.
    for caller in CALLERS.into_iter().filter(|caller| caller[0] != "prlimit" || caller[1].contains("fsize")) {
        for (line, of) in lines {
            let mut child =
                diorite_of(&bench, caller, line).stderr(Stdio::null()).spawn().expect("it starts");
            wait_until_served(&bench, &mut child, of, caller);
            if of == "one" {
                write_much(&bench, caller);
            }
            kill_process(Pid::from_child(&child), Signal::TERM).expect("kill");
            assert!(child.wait().expect("wait").success(), "{caller:?} {line}");
        }
        bench.must_be_clean("a.img");
    }
}

/// A limit that the daemon cannot raise is an error of the device. The daemon continues, and the writer gets the error.
#[test]
fn a_hard_limit_on_the_size_of_files_is_an_error_of_the_device() {
    let Some((bench, _alone)) = bench() else { return };
    let caller = ["prlimit", "--fsize=25165824:25165824"];
    let output = diorite_of(&bench, &caller, "mount a.img one").output().expect("it starts");
    let said = text(&output.stderr);
    assert!(
        output.status.success() && said.contains("writes after its first 25165824 bytes will fail"),
        "{said}"
    );
    let status: serde_json::Value = serde_json::from_str(&bench.run("status one")).expect("JSON");
    let daemon = Pid::from_raw(status["daemon"].as_i64().expect("a number") as i32).expect("a process");
    let block = pattern(1 << 20, 1);
    let mut file = fs::File::create(bench.path("one/file")).expect("create");
    let error = (0..32).find_map(|_| file.write_all(&block).and_then(|()| file.sync_data()).err());
    let error = error.expect("the image has bytes after the limit");
    let known = [Errno::FBIG, Errno::IO, Errno::ROFS].map(|errno| Some(errno.raw_os_error()));
    assert!(known.contains(&error.raw_os_error()), "{error}");
    test_kill_process(daemon).expect("the daemon is there");
    drop(file);
    // The daemon reports the failed write and ends.
    let _ = bench.diorite(["umount", "one"]).output().expect("it starts");
    Served::wait_until(|| test_kill_process(daemon).is_err());
    let checked = tool("e2fsck", ["-fy".as_ref(), bench.path("a.img").as_os_str()]);
    assert!(checked.is_none_or(|output| output.status.code() <= Some(1)), "it is repaired");
}
