//! `diorite advise`: the record of a program has its calls, by the library and by strace alike, and the program does what it does without it.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::path::Path;
use std::process::{Command, Stdio};

use diorite_advise::trace::{Action, Source, Span, Trace, load};

use crate::common::{Bench, pattern, text, tool};

/// Record a line of a shell.
fn record(bench: &Bench, flags: &[&str], line: &str) -> Trace {
    let words = [&["advise", "--record", "record"], flags, &["--", "sh", "-c", line]].concat();
    let output = bench.diorite(words).output().expect("it runs");
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    load(&bench.path("record")).expect("a record")
}

/// What a program did with a file, in order.
fn actions(trace: &Trace, name: &str) -> Vec<Action> {
    let is_it = |file: u32| Path::new(&trace.files[file as usize].path).ends_with(name);
    trace.events.iter().filter(|event| is_it(event.file)).map(|event| event.action).collect()
}

fn spans(actions: &[Action]) -> Vec<(char, u64, u64)> {
    let span = |action: &Action| match action {
        Action::Read(Span { offset, len }) => Some(('r', *offset, *len)),
        Action::Write(Span { offset, len }) => Some(('w', *offset, *len)),
        Action::Sync => Some(('s', 0, 0)),
        Action::Truncate(size) => Some(('t', *size, 0)),
        Action::Open(_) => None,
    };
    actions.iter().filter_map(span).collect()
}

const LINE: &str = "dd if=one of=two bs=10000 status=none conv=fsync; dd if=one of=two bs=4096 skip=3 seek=7 count=2 conv=notrunc status=none; \
                    dd if=two of=/dev/null bs=16384 status=none; dd if=one oflag=append conv=notrunc of=log bs=1000 count=3 status=none";

#[test]
fn a_record_has_the_calls_of_the_program() {
    let bench = Bench::new();
    bench.write("one", &pattern(25_000, 1));
    bench.write("log", b"12345");
    let trace = record(&bench, &[], LINE);
    assert_eq!((trace.source, trace.unseen.lost), (Source::Library, 0));
    let one = [
        ('r', 0, 10_000),
        ('r', 10_000, 10_000),
        ('r', 20_000, 5000),
        ('r', 12_288, 4096),
        ('r', 16_384, 4096),
    ];
    assert_eq!(spans(&actions(&trace, "one"))[..5], one);
    let two: Vec<_> = spans(&actions(&trace, "two")).into_iter().filter(|part| part.0 != 't').collect();
    assert_eq!(
        two,
        [
            ('w', 0, 10_000),
            ('w', 10_000, 10_000),
            ('w', 20_000, 5000),
            ('s', 0, 0),
            ('w', 28_672, 4096),
            ('w', 32_768, 4096),
            ('r', 0, 16_384),
            ('r', 16_384, 16_384),
            ('r', 32_768, 4096),
        ]
    );
    assert_eq!(spans(&actions(&trace, "log")), [('w', 5, 1000), ('w', 1005, 1000), ('w', 2005, 1000)]);
    assert!(
        trace.seconds > 0.0 && trace.cpu_s.is_some_and(|cpu_s| cpu_s > 0.0) && trace.memory_bytes > 1 << 18
    );
    assert!(trace.events.is_sorted_by_key(|event| event.start_ns));
}

/// Two recorders that share no code see the same calls.
#[test]
fn strace_records_the_same_calls_as_the_library() {
    let bench = Bench::new();
    if tool("strace", ["-V"]).is_none() {
        return;
    }
    bench.write("one", &pattern(25_000, 1));
    bench.write("log", b"12345");
    let library = record(&bench, &[], LINE);
    bench.write("log", b"12345");
    let probe =
        bench.diorite(["advise", "--record", "record", "--strace", "--", "true"]).output().expect("it runs");
    if text(&probe.stderr).contains("ptrace") {
        eprintln!("SKIPPED: strace: {}", text(&probe.stderr));
        return;
    }
    let strace = record(&bench, &["--strace"], LINE);
    assert_eq!((strace.source, strace.unseen.lost), (Source::Strace, 0));
    assert!(strace.cost_s > 0.0);
    for name in ["one", "two"] {
        assert_eq!(spans(&actions(&strace, name)), spans(&actions(&library, name)), "{name}");
    }
}

#[test]
fn streams_copies_and_children_are_recorded() {
    let bench = Bench::new();
    bench.write("one", &pattern(300_000, 3));
    let trace = record(
        &bench,
        &[],
        "cp --reflink=never one two; sort -o three one; sh -c 'cat two; exec cat three' > all",
    );
    let moved = |name: &str, kind: char| -> u64 {
        spans(&actions(&trace, name)).iter().filter(|part| part.0 == kind).map(|part| part.2).sum()
    };
    assert_eq!((moved("one", 'r'), moved("two", 'w'), moved("two", 'r')), (600_000, 300_000, 300_000));
    assert!(moved("three", 'w') >= 300_000 && moved("three", 'r') >= 300_000);
    assert_eq!(moved("all", 'w'), moved("two", 'r') + moved("three", 'r'));
}

/// Recording changes no result: the program that makes every call prints the same.
#[test]
fn every_call_ends_as_without_recording() {
    let bench = Bench::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/uncached/every_call.c");
    let program = bench.path("every_call");
    let words = ["-O2", "-w", "-D_FORTIFY_SOURCE=2", "-pthread", "-o"].map(Into::into);
    let words = words.into_iter().chain([program.clone().into_os_string(), source.into_os_string()]);
    let Some(compiled) = tool("cc", words) else { return };
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let run = |name: &str, mut command: Command| {
        let directory = bench.path(name);
        std::fs::create_dir(&directory).expect("a directory");
        command.current_dir(directory).env("LC_ALL", "C").stdin(Stdio::null()).output().expect("it runs")
    };
    let plain = run("plain", Command::new(&program));
    let record = bench.path("record");
    let words =
        ["advise".as_ref(), "--record".as_ref(), record.as_os_str(), "--".as_ref(), program.as_os_str()];
    let recorded = run("recorded", bench.diorite(words));
    let (own, other) = (text(&recorded.stdout), text(&plain.stdout));
    for (own, other) in own.lines().zip(other.lines()) {
        assert_eq!(own, other);
    }
    assert_eq!(
        (own.len(), recorded.status.code()),
        (other.len(), plain.status.code()),
        "{}",
        text(&recorded.stderr)
    );
    assert_eq!(text(&recorded.stderr), text(&plain.stderr));
}

/// A statically linked program is recorded by strace, and the message says why.
#[test]
fn a_static_program_is_recorded_by_strace() {
    let bench = Bench::new();
    bench.write("one.c", b"#include <fcntl.h>\n#include <unistd.h>\nint main() { char m[100]; return read(open(\"one.c\", O_RDONLY), m, 70) != 70; }\n");
    let words = ["-static", "-o"].map(std::ffi::OsString::from).into_iter();
    let words = words.chain([bench.path("one").into(), bench.path("one.c").into()]);
    let can_trace = tool("strace", ["-V"]).is_some();
    if !can_trace || !tool("cc", words).is_some_and(|output| output.status.success()) {
        return;
    }
    let program = bench.path("one");
    let output = bench
        .diorite([
            "advise".as_ref(),
            "--record".as_ref(),
            "record".as_ref(),
            "--".as_ref(),
            program.as_os_str(),
        ])
        .output();
    let output = output.expect("it runs");
    if text(&output.stderr).contains("ptrace") {
        eprintln!("SKIPPED: strace: {}", text(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("recording with strace: it is statically linked"),
        "{}",
        text(&output.stderr)
    );
    let trace = load(&bench.path("record")).expect("a record");
    assert_eq!(spans(&actions(&trace, "one.c")), [('r', 0, 70)]);
}

/// The whole way: record, probe, answer, and once more with stored probes as a page and as JSON.
#[test]
fn an_answer_has_a_sentence_for_the_files() {
    let bench = Bench::new();
    bench.write("one", &pattern(3 << 20, 3));
    let advise = |words: &[&str]| {
        let output = bench.diorite(words.iter().copied()).env("XDG_CACHE_HOME", bench.path("cache")).output();
        output.expect("it runs")
    };
    let missing = advise(&["advise", "--no-probe", "--", "cat", "one"]);
    assert!(text(&missing.stderr).contains("run once without --no-probe"), "{}", text(&missing.stderr));
    let output = advise(&["advise", "--", "cp", "one", "two"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("/one`: read once, in order.") && shown.contains("Assumptions"), "{shown}");
    assert_eq!(bench.names(), ["cache", "one", "two"], "the scratch file is removed");
    let output =
        advise(&["advise", "--no-probe", "--json", "--html", "page", "--", "sh", "-c", "cat one; exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert!(json["advice"].as_str().is_some_and(|advice| advice.contains("/one`: read once, in order.")));
    assert_eq!(json["rows"][0]["mode"], "buffered");
    assert!(json["prediction"]["buffered"]["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0));
    assert!(text(&bench.read("page")).contains("Hit rate over the size of the cache"));
}

#[test]
fn wrong_subjects_are_named() {
    let bench = Bench::new();
    bench.write("other", b"some text");
    assert!(bench.fail("advise other", 1).contains("not a record of `diorite advise`"));
    assert!(bench.fail("advise missing", 1).contains("missing: cannot read"));
    let answer = bench.fail("advise 4194999", 1);
    assert!(
        answer.contains("4194999: no such process and no such file") || answer.contains("strace: not found"),
        "{answer}"
    );
    assert!(bench.fail("advise", 2).contains("PID|FILE"));
    assert!(bench.fail("advise -- /no/such/program", 127).contains("cannot start"));
    bench.write("record", b"diorite trace 1\n0123456789012345678901234567890123456789");
    assert!(bench.fail("advise record", 1).contains("the record is damaged"));
    assert!(bench.fail("advise -- true", 1).contains("no read or write of a file was seen"));
}
