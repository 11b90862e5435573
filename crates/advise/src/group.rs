//! Groups of files that a program uses in one way: by directory, suffix and pattern of access.

use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasherDefault;

use diorite_block::NumberHasher;
use serde::{Deserialize, Serialize};

use crate::trace::{Action, PAGE_BYTES, Span, Trace};

/// More groups are merged.
const GROUPS_MAX: usize = 10;
/// Files up to this size that are read as a whole are small.
const SMALL_BYTES: u64 = 64 << 10;
/// Share of the calls that begin where the one before ended.
const IN_ORDER_SHARE: f64 = 0.8;

/// How a file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Read from the begin to the end.
    ReadInOrder,
    /// Small, and read as a whole.
    ReadSmall,
    /// Read here and there.
    ReadAtRandom,
    /// Written from the begin to the end.
    WrittenInOrder,
    /// Small, and written as a whole.
    WrittenSmall,
    /// Written in order, with a sync after every few writes.
    Log,
    /// Written here and there.
    WrittenAtRandom,
    /// Written, then read.
    Temporary,
    /// Read and written here and there.
    ReadAndWritten,
    /// Mapped, and hardly read or written by calls.
    Mapped,
}

/// Files that are used in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// A pattern of their paths, as `/data/*.sst`.
    pub name: String,
    /// How they are used.
    pub pattern: Pattern,
    /// Their numbers in the trace.
    #[serde(skip)]
    pub files: Vec<u32>,
    /// Number of files.
    pub file_count: u64,
    /// Sums over the files.
    pub totals: Totals,
}

/// What calls did with files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Calls that read.
    pub reads: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Calls that write.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Calls that begin where the one before ended.
    pub in_order: u64,
    /// Bytes of different pages that were read.
    pub read_once_bytes: u64,
    /// Bytes of different pages that were written.
    pub written_once_bytes: u64,
    /// Mapped bytes.
    pub mapped_bytes: u64,
}

impl Totals {
    /// Calls.
    pub fn calls(&self) -> u64 {
        self.reads + self.writes
    }

    /// Bytes of calls.
    pub fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }

    fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.syncs += other.syncs;
        self.in_order += other.in_order;
        self.read_once_bytes += other.read_once_bytes;
        self.written_once_bytes += other.written_once_bytes;
        self.mapped_bytes += other.mapped_bytes;
    }
}

type PageSet = HashSet<u64, BuildHasherDefault<NumberHasher>>;

/// One file while its calls are counted.
#[derive(Default)]
struct Counted {
    totals: Totals,
    read: PageSet,
    written: PageSet,
    next_read: u64,
    next_write: u64,
    size: u64,
    has_written_before_reading: bool,
}

impl Counted {
    fn read(&mut self, span: Span) {
        self.totals.reads += 1;
        self.totals.read_bytes += span.len;
        self.totals.in_order += u64::from(span.offset == self.next_read || span.offset == 0);
        self.next_read = span.end();
        self.size = self.size.max(span.end());
        self.has_written_before_reading |= self.written.contains(&(span.offset / PAGE_BYTES));
        self.read.extend(span.pages());
    }

    fn write(&mut self, span: Span) {
        self.totals.writes += 1;
        self.totals.written_bytes += span.len;
        self.totals.in_order += u64::from(span.offset == self.next_write || span.offset == 0);
        self.next_write = span.end();
        self.size = self.size.max(span.end());
        self.written.extend(span.pages());
    }

    fn finish(mut self) -> (Totals, Option<Pattern>) {
        self.totals.read_once_bytes = (self.read.len() as u64 * PAGE_BYTES).min(self.totals.read_bytes);
        self.totals.written_once_bytes =
            (self.written.len() as u64 * PAGE_BYTES).min(self.totals.written_bytes);
        (self.totals, self.pattern())
    }

    fn pattern(&self) -> Option<Pattern> {
        let totals = &self.totals;
        if totals.mapped_bytes > 4 * totals.bytes() {
            return Some(Pattern::Mapped);
        }
        if totals.calls() == 0 {
            return None;
        }
        let is_in_order = totals.in_order as f64 >= IN_ORDER_SHARE * totals.calls() as f64;
        let is_small = self.size <= SMALL_BYTES;
        Some(if totals.written_bytes == 0 {
            match (is_small, is_in_order) {
                (true, _) => Pattern::ReadSmall,
                (false, true) => Pattern::ReadInOrder,
                (false, false) => Pattern::ReadAtRandom,
            }
        } else if totals.read_bytes * 20 < totals.written_bytes {
            let is_synced = totals.syncs * 16 >= totals.writes && totals.syncs > 2;
            match (is_in_order, is_synced, is_small) {
                (true, true, _) => Pattern::Log,
                (_, false, true) => Pattern::WrittenSmall,
                (true, false, false) => Pattern::WrittenInOrder,
                (false, ..) => Pattern::WrittenAtRandom,
            }
        } else if is_in_order && self.has_written_before_reading {
            Pattern::Temporary
        } else {
            Pattern::ReadAndWritten
        })
    }
}

/// The groups, those with the most bytes first. Files without calls are in none.
pub fn groups(trace: &Trace) -> Vec<Group> {
    let mut counted: Vec<Counted> = trace.files.iter().map(|_| Counted::default()).collect();
    for event in &trace.events {
        let file = &mut counted[event.file as usize];
        match event.action {
            Action::Read(span) => file.read(span),
            Action::Write(span) => file.write(span),
            Action::Sync => file.totals.syncs += 1,
            Action::Open(_) | Action::Truncate(_) => {}
        }
    }
    let mut files = Vec::new();
    for (number, (mut file, known)) in counted.into_iter().zip(&trace.files).enumerate() {
        file.totals.mapped_bytes = known.mapped;
        if let (totals, Some(pattern)) = file.finish() {
            files.push(Member { number: number as u32, path: &known.path, totals, pattern });
        }
    }
    let namings: [fn(&Member<'_>) -> String; 3] = [
        |file| format!("{}/*{}", directory(file.path), suffix(file.path)),
        |file| format!("*{}", suffix(file.path)),
        |_| "*".to_owned(),
    ];
    let mut found = Vec::new();
    for naming in namings {
        found = grouped(&files, naming);
        if found.len() <= GROUPS_MAX {
            break;
        }
    }
    found.sort_by_key(|group| std::cmp::Reverse(group.totals.bytes().max(group.totals.mapped_bytes)));
    found
}

struct Member<'a> {
    number: u32,
    path: &'a str,
    totals: Totals,
    pattern: Pattern,
}

fn grouped(files: &[Member<'_>], naming: impl Fn(&Member<'_>) -> String) -> Vec<Group> {
    let mut sets: BTreeMap<(Pattern, String), Vec<&Member<'_>>> = BTreeMap::new();
    for file in files {
        sets.entry((file.pattern, naming(file))).or_default().push(file);
    }
    sets.into_iter()
        .map(|((pattern, name), members)| {
            let mut totals = Totals::default();
            for file in &members {
                totals.add(&file.totals);
            }
            Group {
                name: name_of(&name, &members),
                pattern,
                files: members.iter().map(|file| file.number).collect(),
                file_count: members.len() as u64,
                totals,
            }
        })
        .collect()
}

/// One file has its path. Files of several directories have that above all of them.
fn name_of(name: &str, members: &[&Member<'_>]) -> String {
    if let [only] = members {
        return only.path.to_owned();
    }
    if name.starts_with('/') {
        return name.to_owned();
    }
    let mut common = directory(members[0].path);
    for file in members {
        while !(file.path.starts_with(common) && file.path[common.len()..].starts_with('/')) {
            common = directory(common);
        }
    }
    format!("{common}/**/{name}")
}

fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

/// The last part of a name, with its dot. A number is no suffix.
fn suffix(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rfind('.') {
        Some(dot)
            if dot > 0
                && name.len() - dot <= 9
                && !name[dot + 1..].bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            &name[dot..]
        }
        _ => "",
    }
}

impl Group {
    /// The pattern in words, as `read once, in order`.
    pub fn pattern_text(&self) -> String {
        let totals = &self.totals;
        let times = |bytes: u64, once: u64| {
            let times = bytes as f64 / once.max(1) as f64;
            if times < 1.05 { "once".to_owned() } else { format!("{times:.1} times") }
        };
        let reads = times(totals.read_bytes, totals.read_once_bytes);
        let writes = times(totals.written_bytes, totals.written_once_bytes);
        match self.pattern {
            Pattern::ReadInOrder => format!("read {reads}, in order"),
            Pattern::ReadSmall => format!("small files, read {reads} as a whole"),
            Pattern::ReadAtRandom => format!("read at random, each page {reads}"),
            Pattern::WrittenInOrder => format!("written {writes}, in order"),
            Pattern::WrittenSmall => format!("small files, written {writes}"),
            Pattern::Log => {
                let per_sync = totals.writes as f64 / totals.syncs.max(1) as f64;
                if per_sync < 1.5 {
                    "written in order, with a sync after each write".to_owned()
                } else {
                    format!("written in order, with a sync after {per_sync:.0} writes")
                }
            }
            Pattern::WrittenAtRandom => format!("written at random, each page {writes}"),
            Pattern::Temporary => format!("written, then read {reads}, in order"),
            Pattern::ReadAndWritten => format!("read and written at random, each page read {reads}"),
            Pattern::Mapped => "mapped".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Event, TracedFile};

    fn trace(files: &[(&str, &[Action])]) -> Trace {
        let mut trace = Trace::default();
        for (number, (path, actions)) in files.iter().enumerate() {
            trace.files.push(TracedFile { path: (*path).to_owned(), size: 1 << 30, mapped: 0 });
            trace.events.extend(actions.iter().map(|action| Event {
                start_ns: 0,
                duration_ns: 0,
                file: number as u32,
                thread: 0,
                action: *action,
                is_direct: false,
                is_timed: true,
            }));
        }
        trace
    }

    fn in_order(count: u64, len: u64, make: fn(Span) -> Action) -> Vec<Action> {
        (0..count).map(|index| make(Span { offset: index * len, len })).collect()
    }

    fn at_random(count: u64, make: fn(Span) -> Action) -> Vec<Action> {
        (0..count).map(|index| make(Span { offset: index * 7919 % 1000 * 4096, len: 4096 })).collect()
    }

    fn only(actions: &[Action]) -> (Pattern, String) {
        let found = groups(&trace(&[("/d/x", actions)]));
        (found[0].pattern, found[0].pattern_text())
    }

    #[test]
    fn patterns_have_names() {
        let mut scan = in_order(100, 128 << 10, Action::Read);
        assert_eq!(only(&scan), (Pattern::ReadInOrder, "read once, in order".into()));
        scan.extend(in_order(100, 128 << 10, Action::Read));
        assert_eq!(only(&scan).1, "read 2.0 times, in order");
        assert_eq!(only(&at_random(500, Action::Read)).0, Pattern::ReadAtRandom);
        assert_eq!(only(&in_order(3, 4096, Action::Read)).0, Pattern::ReadSmall);
        assert_eq!(only(&in_order(100, 65536, Action::Write)).0, Pattern::WrittenInOrder);
        assert_eq!(only(&at_random(500, Action::Write)).0, Pattern::WrittenAtRandom);
        let both = [at_random(500, Action::Read), at_random(300, Action::Write)].concat();
        assert_eq!(only(&both).0, Pattern::ReadAndWritten);
        let temporary = [in_order(100, 65536, Action::Write), in_order(100, 65536, Action::Read)].concat();
        assert_eq!(only(&temporary), (Pattern::Temporary, "written, then read once, in order".into()));
        let log: Vec<Action> =
            in_order(50, 4096, Action::Write).into_iter().flat_map(|write| [write, Action::Sync]).collect();
        assert_eq!(only(&log), (Pattern::Log, "written in order, with a sync after each write".into()));
        assert!(groups(&trace(&[("/d/x", &[Action::Open(5)])])).is_empty());
    }

    #[test]
    fn files_of_one_directory_suffix_and_pattern_are_a_group() {
        let (scan, random) = (in_order(40, 128 << 10, Action::Read), at_random(500, Action::Read));
        let found = groups(&trace(&[
            ("/data/1.sst", &scan),
            ("/data/2.sst", &scan),
            ("/data/3.sst", &random),
            ("/data/base.12", &scan),
            ("/other/1.sst", &scan),
        ]));
        let names: Vec<(&str, u64)> = found.iter().map(|group| (&*group.name, group.file_count)).collect();
        assert_eq!(names[0], ("/data/*.sst", 2));
        assert!(names.contains(&("/data/3.sst", 1)) && names.contains(&("/data/base.12", 1)));
        assert!(names.contains(&("/other/1.sst", 1)));
    }

    #[test]
    fn many_directories_become_one_group() {
        let small = in_order(1, 4096, Action::Read);
        let paths: Vec<String> = (0..300).map(|n| format!("/src/d{}/sub{}/f{n}.c", n / 10, n % 3)).collect();
        let files: Vec<(&str, &[Action])> = paths.iter().map(|path| (&**path, &*small)).collect();
        let found = groups(&trace(&files));
        assert_eq!((found.len(), &*found[0].name, found[0].file_count), (1, "/src/**/*.c", 300));
        let paths: Vec<String> = (0..40).map(|n| format!("/src/d/f.{}", (b'a' + n % 26) as char)).collect();
        let files: Vec<(&str, &[Action])> = paths.iter().map(|path| (&**path, &*small)).collect();
        assert_eq!(groups(&trace(&files))[0].name, "/src/d/**/*");
        assert_eq!(
            (suffix("/a/.bashrc"), suffix("/a/x.tar"), suffix("/a/x.1"), suffix("a.")),
            ("", ".tar", "", "")
        );
    }
}
