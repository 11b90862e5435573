//! Lines of `strace`, real and hostile.

use super::*;
use Action::{Open, Read, Sync};

fn parsed(text: &str) -> Trace {
    parse(text, Run::default(), 0.0, &|fd| (fd == 9).then_some(500), &|path| {
        (path == "/d/old").then_some(100)
    })
}

fn actions(trace: &Trace) -> Vec<Action> {
    trace.events.iter().map(|event| event.action).collect()
}

fn span(offset: u64, len: u64) -> Span {
    Span { offset, len }
}

#[test]
fn positions_are_followed() {
    let trace = parsed(
        "12 1.000001 openat(AT_FDCWD</d>, \"\"..., O_RDONLY) = 3</d/a> <0.000010>\n\
         12 1.000100 read(3</d/a>, \"\"..., 4096) = 4096 <0.000020>\n\
         12 1.000200 read(3</d/a>, \"\"..., 4096) = 100 <0.000005>\n\
         12 1.000300 lseek(3</d/a>, 10, SEEK_SET) = 10 <0.000001>\n\
         13 1.000400 read(3</d/a>, \"\"..., 6) = 6 <0.000001>\n\
         12 1.000500 pread64(3</d/a>, \"\"..., 5, 77) = 5 <0.000001>\n\
         12 1.000600 close(3</d/a>) = 0 <0.000001>\n\
         12 1.000700 read(9</d/old>, \"\", 4096) = 1 <0.000001>\n\
         12 1.000800 fsync(9</d/old>)          = 0 <0.004000>\n",
    );
    assert_eq!(
        actions(&trace),
        [
            Open(0),
            Read(span(0, 4096)),
            Read(span(4096, 100)),
            Read(span(10, 6)),
            Read(span(77, 5)),
            Read(span(500, 1)),
            Sync
        ]
    );
    assert_eq!((trace.events[1].start_ns, trace.events[1].duration_ns), (1_000_100_000, 20_000));
    assert_ne!(trace.events[3].thread, trace.events[2].thread);
    assert_eq!(trace.unseen.lost, 0);
}

#[test]
fn interrupted_calls_and_appends_are_joined() {
    let trace = parsed(
        "5 1.0 openat(AT_FDCWD</d>, \"\"..., O_WRONLY|O_CREAT|O_APPEND|O_DIRECT, 0644) = 4</d/old> <0.1>\n\
         5 2.0 write(4</d/old>, \"\"..., 8 <unfinished ...>\n\
         6 2.1 read(0</dev/pts/0<char 136:0>>, \"\"..., 1) = 1 <0.1>\n\
         5 2.5 <... write resumed>)              = 8 <0.500000>\n\
         5 3.0 write(4</d/old>, \"\"..., 2) = -1 ENOSPC (No space left on device) <0.000001>\n\
         5 4.0 sendfile(4</d/old>, 3</d/a b>, NULL, 65536) = 20 <0.000009>\n\
         5 5.0 +++ exited with 0 +++\n",
    );
    assert_eq!(
        actions(&trace),
        [
            Action::Open(100),
            Action::Write(span(100, 8)),
            Action::Read(span(0, 20)),
            Action::Write(span(108, 20))
        ]
    );
    assert!(trace.events[1].is_direct && trace.events[1].start_ns == 2_000_000_000);
    assert_eq!(trace.unseen.lost, 0);
}

#[test]
fn names_with_separators_and_escapes_are_read() {
    let trace = parsed(
        "1 1.0 pread64(3</d/a) = 7 \\76>, \"\"..., 5, 8) = 5 <0.1>\n1 2.0 read(4</d/gone>(deleted), \"\"..., 9) = 9 <0.1>\n\
         1 3.0 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 4</d/m>, 0) = 0x7f0000000000 <0.1>\n",
    );
    let paths: Vec<&str> = trace.files.iter().map(|file| &*file.path).collect();
    assert_eq!(paths, ["/d/a) = 7 >", "/d/gone", "/d/m"]);
    assert_eq!(trace.files[2].mapped, 8192);
}

/// No line ends the program, and each bad one is counted.
#[test]
fn hostile_lines_are_counted() {
    let lines = [
        "",
        "x",
        "1",
        "1 ",
        "1 1",
        "1 1. read(",
        "1 1.5 read",
        "1 1.5 read()",
        "1 1.5 read(3<",
        "1 1.5 read(3<) = 5",
        "99999999999 1.0 read(3</a>) = 1 <0.1>",
        "1 99999999999999999999.0 read(3</a>) = 1 <0.1>",
        "1 1.5 pread64(3</d/a>, \"\", 5, -7) = 5 <0.1>",
        "1 1.5 <... read resumed>) = 5 <0.1>",
        "1 1.5 read(3</d/a>, ) = 5 <x>",
        "1 1.5 ftruncate(3</d/a>, x) = 0 <0.1>",
    ];
    for line in lines {
        assert_eq!(parsed(&format!("{line}\n")).unseen.lost, 1, "{line}");
    }
    let good = "1 1.5 write(3</d/\\303\\244>, \"\"..., 4096) = 4096 <0.000020>";
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..5000 {
        let mut bytes = good.as_bytes().to_vec();
        for _ in 0..random.usize(1..5) {
            let at = random.usize(..bytes.len());
            bytes[at] = *random.choice(b"<>(), =\\x0\"-9 \n\xff".as_slice()).expect("not empty");
        }
        bytes.truncate(random.usize(..=bytes.len()));
        parsed(&String::from_utf8_lossy(&bytes));
    }
}
