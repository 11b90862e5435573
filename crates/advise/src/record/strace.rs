//! Recording by `strace -f -y -ttt -T`, for running and for static programs.
//!
//! A line is `PID TIME CALL(FD<PATH>, ...) = RESULT <DURATION>`. A call that another thread interrupts has two lines. Positions of descriptors
//! are followed from line to line. Lines that are not understood are counted.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use super::builder::{Builder, Run, is_stored};
use crate::trace::{Action, Event, Source, Span, Trace};

/// The calls that are recorded.
const CALLS: &str = "trace=openat,open,creat,close,dup,dup2,dup3,lseek,read,write,pread64,pwrite64,readv,writev,preadv,pwritev,preadv2,\
                     pwritev2,copy_file_range,sendfile,fsync,fdatasync,sync_file_range,ftruncate,mmap,io_uring_setup,io_setup";

/// What `strace` records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// A running process with its threads and its later children.
    Process(u32),
    /// A program and its arguments.
    Program(&'a [OsString]),
}

/// The arguments of `strace`, which writes to `output`.
pub fn arguments(output: &Path, subject: Subject<'_>) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["-f", "-y", "-ttt", "-T", "-qq", "-s", "0", "-e", CALLS, "-e", "signal=none", "-o"]
            .map(Into::into)
            .to_vec();
    words.push(output.into());
    match subject {
        Subject::Process(process) => words.extend(["-p".into(), process.to_string().into()]),
        Subject::Program(program) => {
            words.push("--".into());
            words.extend(program.iter().cloned());
        }
    }
    words
}

/// The trace of the lines of `strace`. `position_of` knows where a descriptor was at the begin, `size_of` the size of a file now;
/// `cost_s_per_call` is the time that `strace` takes for a line.
pub fn parse(
    text: &str,
    run: Run,
    cost_s_per_call: f64,
    position_of: &dyn Fn(u32) -> Option<u64>,
    size_of: &dyn Fn(&str) -> Option<u64>,
) -> Trace {
    let mut parser = Parser::new(position_of, size_of);
    let mut lines = 0_u64;
    for line in text.lines() {
        lines += 1;
        if parser.line(line).is_none() {
            parser.builder.unseen.lost += 1;
        }
    }
    parser.builder.build(run, Source::Strace, lines as f64 * cost_s_per_call)
}

/// A call and its result.
#[derive(Debug, PartialEq)]
struct Call<'a> {
    name: &'a str,
    arguments: &'a str,
    result: i64,
    /// The rest of a result: the path of a new descriptor.
    result_path: Option<String>,
    duration_ns: u64,
}

struct Parser<'a> {
    builder: Builder,
    position_of: &'a dyn Fn(u32) -> Option<u64>,
    size_of: &'a dyn Fn(&str) -> Option<u64>,
    /// Begins of calls that wait for their second line, by thread.
    unfinished: HashMap<u32, (u64, String)>,
    files: HashMap<String, u32>,
    /// By descriptor and file. Processes are not told apart: threads share descriptors, and `strace` does not say which do.
    positions: HashMap<(u32, u32), u64>,
    appending: HashMap<(u32, u32), bool>,
    direct: HashMap<(u32, u32), bool>,
}

impl<'a> Parser<'a> {
    fn new(position_of: &'a dyn Fn(u32) -> Option<u64>, size_of: &'a dyn Fn(&str) -> Option<u64>) -> Self {
        Self {
            builder: Builder::default(),
            position_of,
            size_of,
            unfinished: HashMap::new(),
            files: HashMap::new(),
            positions: HashMap::new(),
            appending: HashMap::new(),
            direct: HashMap::new(),
        }
    }

    /// `None` if the line is not understood.
    fn line(&mut self, line: &str) -> Option<()> {
        let (thread, rest) = line.trim_start().split_once(' ')?;
        let thread: u32 = thread.parse().ok()?;
        let (time, rest) = rest.trim_start().split_once(' ')?;
        let start_ns = nanoseconds(time)?;
        if rest.starts_with("+++") || rest.starts_with("---") {
            return Some(());
        }
        if let Some(begin) = rest.strip_suffix("<unfinished ...>") {
            self.unfinished.insert(thread, (start_ns, begin.trim_end().to_owned()));
            return Some(());
        }
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let (_, end) = resumed.split_once("resumed>")?;
            let (start_ns, begin) = self.unfinished.remove(&thread)?;
            return self.call(thread, start_ns, &call_of(&format!("{begin}{end}"))?);
        }
        self.call(thread, start_ns, &call_of(rest)?)
    }

    fn call(&mut self, thread: u32, start_ns: u64, call: &Call<'_>) -> Option<()> {
        if call.result < 0 {
            return Some(());
        }
        match call.name {
            "openat" | "open" | "creat" => {
                let fd = u32::try_from(call.result).ok()?;
                if let Some(file) = call.result_path.as_deref().and_then(|path| self.file(path)) {
                    self.positions.insert((fd, file), 0);
                    self.appending.insert((fd, file), call.arguments.contains("O_APPEND"));
                    self.direct.insert((fd, file), call.arguments.contains("O_DIRECT"));
                    let is_new = call.arguments.contains("O_TRUNC") || call.name == "creat";
                    let size = if is_new { 0 } else { self.builder.file(file).size };
                    self.event(thread, start_ns, call, fd, file, Action::Open(size));
                }
                return Some(());
            }
            "io_uring_setup" | "io_setup" => {
                self.builder.unseen.rings += 1;
                return Some(());
            }
            "mmap" => {
                let parts: Vec<&str> = call.arguments.split(", ").collect();
                if let [_, len, _, _, descriptor, ..] = parts[..]
                    && let Some((_, path)) = descriptor_of(descriptor)
                    && let Some(file) = self.file(&path)
                {
                    let len = len.parse().ok()?;
                    self.builder.map(file, len);
                    self.builder.unseen.mapped = self.builder.unseen.mapped.saturating_add(len);
                }
                return Some(());
            }
            _ => {}
        }
        let Some((fd, path)) = descriptor_of(call.arguments) else {
            // A descriptor without a name.
            let first = call.arguments.split(", ").next()?;
            return first.parse::<u32>().ok().map(drop);
        };
        let Some(file) = self.file(&path) else { return Some(()) };
        self.act(thread, start_ns, call, fd, file)
    }

    /// A call on a descriptor of a file.
    fn act(&mut self, thread: u32, start_ns: u64, call: &Call<'_>, fd: u32, file: u32) -> Option<()> {
        let len = u64::try_from(call.result).ok()?;
        let key = (fd, file);
        let span = |offset| Span { offset, len };
        match call.name {
            "close" => {
                self.positions.remove(&key);
            }
            "lseek" => {
                self.positions.insert(key, len);
            }
            "read" | "readv" if len > 0 => {
                let offset = self.advance(fd, file, len);
                self.event(thread, start_ns, call, fd, file, Action::Read(span(offset)));
            }
            "write" | "writev" if len > 0 => {
                let offset = self.advance(fd, file, len);
                self.event(thread, start_ns, call, fd, file, Action::Write(span(offset)));
            }
            "pread64" | "preadv" | "preadv2" if len > 0 => {
                let offset = offset_of(call)?;
                self.event(thread, start_ns, call, fd, file, Action::Read(span(offset)));
            }
            "pwrite64" | "pwritev" | "pwritev2" if len > 0 => {
                let offset = offset_of(call)?;
                self.event(thread, start_ns, call, fd, file, Action::Write(span(offset)));
            }
            "copy_file_range" | "sendfile" if len > 0 => {
                self.copy(thread, start_ns, call, fd, file, len);
            }
            "fsync" | "fdatasync" => self.event(thread, start_ns, call, fd, file, Action::Sync),
            "ftruncate" => {
                let size = call.arguments.rsplit_once(", ")?.1.parse().ok()?;
                self.event(thread, start_ns, call, fd, file, Action::Truncate(size));
            }
            _ => {}
        }
        Some(())
    }

    /// `copy_file_range(SOURCE, ..., TARGET, ...)`, `sendfile(TARGET, SOURCE, ...)`; both by position.
    fn copy(&mut self, thread: u32, start_ns: u64, call: &Call<'_>, fd: u32, file: u32, len: u64) {
        let other = call.arguments.split(", ").skip(1).find_map(descriptor_of);
        let other = other.and_then(|(fd, path)| Some((fd, self.file(&path)?)));
        let first = Some((fd, file));
        let (source, target) = if call.name == "sendfile" { (other, first) } else { (first, other) };
        if let Some((fd, file)) = source {
            let offset = self.advance(fd, file, len);
            self.event(thread, start_ns, call, fd, file, Action::Read(Span { offset, len }));
        }
        if let Some((fd, file)) = target {
            let offset = self.advance(fd, file, len);
            self.event(thread, start_ns, call, fd, file, Action::Write(Span { offset, len }));
        }
    }

    /// Move the position, and return where it was.
    fn advance(&mut self, fd: u32, file: u32, len: u64) -> u64 {
        let size = self.builder.file(file).size;
        let is_appending = self.appending.get(&(fd, file)) == Some(&true);
        let position =
            self.positions.entry((fd, file)).or_insert_with(|| (self.position_of)(fd).unwrap_or(0));
        let start = if is_appending && *position == 0 { size } else { *position };
        *position = start.saturating_add(len);
        start
    }

    fn event(&mut self, thread: u32, start_ns: u64, call: &Call<'_>, fd: u32, file: u32, action: Action) {
        let thread = self.builder.thread(0, thread);
        let is_direct = self.direct.get(&(fd, file)) == Some(&true);
        let duration_ns = call.duration_ns;
        self.builder.add(Event { start_ns, duration_ns, file, thread, action, is_direct, is_timed: true });
    }

    fn file(&mut self, path: &str) -> Option<u32> {
        if !is_stored(path) {
            return None;
        }
        if let Some(known) = self.files.get(path) {
            return Some(*known);
        }
        let number = self.builder.add_file(path.to_owned(), (self.size_of)(path).unwrap_or(0));
        self.files.insert(path.to_owned(), number);
        Some(number)
    }
}

/// Seconds with a fraction.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let digits = fraction.get(..fraction.len().min(9))?;
    let fraction = digits.parse::<u64>().ok()? * 10_u64.pow(9 - digits.len() as u32);
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// `NAME(ARGUMENTS) = RESULT <DURATION>`.
fn call_of(text: &str) -> Option<Call<'_>> {
    let (name, rest) = text.split_once('(')?;
    // A path can contain the separator; the result is after the last one.
    let (arguments, result) = rest.rsplit_once(") = ").or_else(|| {
        let (arguments, result) = rest.rsplit_once(" = ")?;
        Some((arguments.trim_end().strip_suffix(')')?, result))
    })?;
    let (result, duration_ns) = match result.rsplit_once(" <") {
        Some((result, duration)) => (result, nanoseconds(duration.strip_suffix('>')?)?),
        None => (result, 0),
    };
    let end = result.find(|c: char| !(c.is_ascii_digit() || c == '-')).unwrap_or(result.len());
    let result_path =
        result.get(end..)?.strip_prefix('<').and_then(|path| path.strip_suffix('>')).map(unescaped);
    // Addresses and `?` have no meaning here.
    let number = if result.starts_with("0x") { 0 } else { result.get(..end)?.parse().unwrap_or(-1) };
    Some(Call { name, arguments, result: number, result_path, duration_ns })
}

/// `FD<PATH>` at the begin.
fn descriptor_of(text: &str) -> Option<(u32, String)> {
    let (fd, rest) = text.split_once('<')?;
    let fd = fd.parse().ok()?;
    let end = [">, ", ">(deleted)"].iter().filter_map(|end| rest.find(end)).min();
    let path = match end {
        Some(end) => rest.get(..end)?,
        None => rest.strip_suffix('>')?,
    };
    Some((fd, unescaped(path)))
}

/// The offset of a positional call: its last argument, or the one before flags.
fn offset_of(call: &Call<'_>) -> Option<u64> {
    let mut words = call.arguments.rsplit(", ");
    let last = words.next()?;
    if call.name.ends_with('2') { words.next()?.parse().ok() } else { last.parse().ok() }
}

/// Octal and letter escapes of a path.
fn unescaped(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
        if *first == b'\\' && digits > 0 {
            let value = tail[..digits].iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
            bytes.push(value as u8);
            rest = &tail[digits..];
            continue;
        }
        if *first == b'\\'
            && let Some((letter, after)) = tail.split_first()
        {
            bytes.push(match letter {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                other => *other,
            });
            rest = after;
            continue;
        }
        bytes.push(*first);
        rest = tail;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
