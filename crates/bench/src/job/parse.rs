//! Reads fio's INI job files.
//!
//! Interface: every option that is accepted is honoured; every option that is not known is named, with its line, and
//! nothing runs. Sizes take fio's suffixes (`k`, `m`, `g`, `t`, powers of 1024; `kb`/`kib` alike) and times take
//! `us`, `ms`, `s`, `m`, `h`, `d`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use diorite_block::IoPriority;

use super::spec::{Engine, Job, JobFile, Pattern, Verify};

/// What is wrong with a job file, all of it at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct JobFileError {
    /// The file, as named by the user.
    pub file: String,
    /// Line and complaint; line 0 is the file as a whole.
    pub complaints: Vec<(usize, String)>,
}

impl fmt::Display for JobFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (line, what)) in self.complaints.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            match line {
                0 => write!(f, "{separator}{}: {what}", self.file)?,
                line => write!(f, "{separator}{}:{line}: {what}", self.file)?,
            }
        }
        Ok(())
    }
}

/// One `option=value` line.
#[derive(Clone, Debug)]
struct Setting {
    value: String,
    line: usize,
}

type Settings = BTreeMap<String, Setting>;

/// A section before its options are understood.
struct Section {
    name: String,
    line: usize,
    settings: Settings,
    /// Options of its own, without those of `[global]`.
    own: Vec<String>,
}

/// Read the job file `text`; `file` is its name in messages.
pub fn parse(file: &str, text: &str) -> Result<JobFile, JobFileError> {
    let mut complaints = Vec::new();
    let (global, sections) = split_sections(text, &mut complaints);
    let mut jobs = Vec::new();
    for section in &sections {
        jobs.push(understand(file, section, &mut complaints));
    }
    if jobs.is_empty() && complaints.is_empty() {
        let cure = "no job in it; a job is a section such as [seqread] with rw= and size= under it";
        complaints.push((0, cure.to_owned()));
    }
    // An option of [global] is complained of once, not once per job.
    complaints.sort();
    complaints.dedup();
    if complaints.is_empty() {
        Ok(JobFile { jobs, global_options: spelled(&global, |_| true) })
    } else {
        Err(JobFileError { file: file.to_owned(), complaints })
    }
}

/// The options of all `[global]` sections together, and the jobs.
fn split_sections(text: &str, complaints: &mut Vec<(usize, String)>) -> (Settings, Vec<Section>) {
    let mut global = Settings::new();
    let mut sections: Vec<Section> = Vec::new();
    let mut in_global = false;
    for (index, raw) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = index + 1;
        // As in fio, a comment may stand after an option.
        let text = raw.split([';', '#']).next().unwrap_or_default().trim();
        if text.is_empty() {
            continue;
        }
        if let Some(heading) = text.strip_prefix('[') {
            let Some(name) = heading.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty()) else {
                complaints.push((line, format!("{text}: a section heading is [name]")));
                continue;
            };
            in_global = name == "global";
            if !in_global {
                let (settings, own) = (global.clone(), Vec::new());
                sections.push(Section { name: name.to_owned(), line, settings, own });
            }
            continue;
        }
        let (option, value) = text.split_once('=').unwrap_or((text, "1"));
        let setting = Setting { value: value.trim().to_owned(), line };
        let option = canonical(option.trim()).to_owned();
        match sections.last_mut() {
            Some(section) if !in_global => {
                section.own.push(option.clone());
                section.settings.insert(option, setting);
            }
            None if !in_global => {
                complaints
                    .push((line, format!("{option}: stands in no section; begin with [global] or [name]")));
            }
            _ => {
                global.insert(option, setting);
            }
        }
    }
    (global, sections)
}

/// Some of the options with their values, as the file spells them.
fn spelled(settings: &Settings, is_wanted: impl Fn(&String) -> bool) -> Vec<(String, String)> {
    let wanted = settings.iter().filter(|(name, _)| is_wanted(name));
    wanted.map(|(name, setting)| (name.clone(), setting.value.clone())).collect()
}

/// fio's aliases.
fn canonical(option: &str) -> &str {
    match option {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "wait_for_previous" => "stonewall",
        other => other,
    }
}

/// Takes options out of a section and remembers what was wrong with them.
struct Taker<'a> {
    settings: Settings,
    complaints: &'a mut Vec<(usize, String)>,
}

impl Taker<'_> {
    /// The option read by `read`, which returns what a right value looks like if it is wrong.
    fn take<T, E: fmt::Display>(
        &mut self,
        option: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let setting = self.settings.remove(option)?;
        match read(&setting.value) {
            Ok(value) => Some(value),
            Err(expected) => {
                self.complaints.push((setting.line, format!("{option}={}: {expected}", setting.value)));
                None
            }
        }
    }

    fn flag(&mut self, option: &str) -> Option<bool> {
        self.take(option, |value| match value {
            "0" => Ok(false),
            "1" | "" => Ok(true),
            _ => Err("is neither 0 nor 1"),
        })
    }

    fn number(&mut self, option: &str, least: u64, most: u64) -> Option<u64> {
        self.take(option, |value| {
            let number = value.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("is not a whole number from {least} to {most}"))
        })
    }

    fn line_of(&self, option: &str) -> Option<usize> {
        self.settings.get(option).map(|setting| setting.line)
    }
}

fn understand(file: &str, section: &Section, complaints: &mut Vec<(usize, String)>) -> Job {
    let mut options = Taker { settings: section.settings.clone(), complaints };
    let size_line = options.line_of("size").or_else(|| options.line_of("bs")).unwrap_or(section.line);
    let has_size = options.line_of("size").is_some();
    let offset_line = options.line_of("offset").unwrap_or(section.line);
    let file_line = options.line_of("filename").or_else(|| options.line_of("directory"));
    let pattern = options.take("rw", pattern).unwrap_or_default();
    let (read_block_bytes, write_block_bytes) = options.take("bs", block_sizes).unwrap_or((4096, 4096));
    let direct = options.flag("direct");
    let buffered = options.flag("buffered");
    let (engine_name, engine) =
        options.take("ioengine", engine).unwrap_or(("psync".to_owned(), Engine::Synchronous));
    let percent_read = options.number("rwmixread", 0, 100);
    let percent_written = options.number("rwmixwrite", 0, 100);
    let level = options.number("prio", 0, 7).map(|level| level as u8);
    let class = options.number("prioclass", 0, 3);
    let size_bytes = options.take("size", size);
    let job = Job {
        name: section.name.clone(),
        description: options.take("description", text),
        pattern,
        read_block_bytes,
        write_block_bytes,
        size_bytes: size_bytes.unwrap_or(0),
        offset_bytes: options.take("offset", size).unwrap_or(0),
        direct: direct.unwrap_or_else(|| buffered.is_some_and(|buffered| !buffered)),
        clones: options.number("numjobs", 1, 4096).unwrap_or(1) as u32,
        depth: options.number("iodepth", 1, 4096).unwrap_or(1) as u32,
        engine_name,
        engine,
        runtime: options.take("runtime", duration).filter(|time| !time.is_zero()),
        time_based: options.flag("time_based").unwrap_or(false),
        start_delay: options.take("startdelay", duration).unwrap_or_default(),
        ramp_time: options.take("ramp_time", duration).unwrap_or_default(),
        loops: options.number("loops", 1, u64::from(u32::MAX)).unwrap_or(1) as u32,
        fsync_every: every(options.number("fsync", 0, u64::from(u32::MAX))),
        fdatasync_every: every(options.number("fdatasync", 0, u64::from(u32::MAX))),
        end_fsync: options.flag("end_fsync").unwrap_or(false),
        read_percent: percent_read.or(percent_written.map(|written| 100 - written)).unwrap_or(50) as u8,
        filename: options.take("filename", text),
        directory: options.take("directory", text),
        think_time: options.take("thinktime", microseconds).unwrap_or_default(),
        rate_bytes: options.take("rate", size),
        rate_iops: options.number("rate_iops", 1, u64::from(u32::MAX)),
        priority: priority(class, level),
        group_reporting: options.flag("group_reporting").unwrap_or(false),
        verify: options.take("verify", verify).unwrap_or_default(),
        invalidate: options.flag("invalidate").unwrap_or(true),
        random_may_repeat: options.flag("norandommap").unwrap_or(false),
        seed: options.number("randseed", 0, u64::MAX).unwrap_or(0x8989),
        stonewall: options.flag("stonewall").unwrap_or(false),
        new_group: options.flag("new_group").unwrap_or(false),
        origin: format!("{file}:{}", section.line),
        file_origin: format!("{file}:{}", file_line.unwrap_or(section.line)),
        options: spelled(&section.settings, |name| section.own.contains(name)),
        line: section.line,
    };
    let unknown: Vec<_> =
        options.settings.iter().map(|(option, setting)| (setting.line, option.clone())).collect();
    for (line, option) in unknown {
        complaints.push((
            line,
            format!("{option}: not an option that diorite job knows; remove it, or run this file with fio"),
        ));
    }
    // A size that could not be read has been complained of.
    check(&job, has_size, [size_line, offset_line], complaints);
    job
}

/// Options that are right alone and wrong together.
fn check(
    job: &Job,
    has_size: bool,
    [size_line, offset_line]: [usize; 2],
    complaints: &mut Vec<(usize, String)>,
) {
    let largest = job.read_block_bytes.max(job.write_block_bytes);
    if !has_size {
        complaints.push((job.line, format!("[{}]: no size; add one such as size=1g", job.name)));
    } else if job.size_bytes < largest && !complaints.iter().any(|(line, _)| *line == size_line) {
        complaints.push((
            size_line,
            format!(
                "[{}]: size={} is smaller than one block of {largest} bytes; give a larger size or a smaller bs",
                job.name, job.size_bytes
            ),
        ));
    }
    if job.time_based && job.runtime.is_none() {
        complaints.push((
            job.line,
            format!("[{}]: time_based needs a runtime; add one such as runtime=10", job.name),
        ));
    }
    if job.direct && !(job.read_block_bytes.is_multiple_of(512) && job.write_block_bytes.is_multiple_of(512))
    {
        complaints.push((job.line, format!("[{}]: direct=1 needs a bs that is a multiple of 512", job.name)));
    }
    if job.direct && !job.offset_bytes.is_multiple_of(512) {
        let what = format!("[{}]: direct=1 needs an offset that is a multiple of 512", job.name);
        complaints.push((offset_line, what));
    }
}

#[expect(clippy::unnecessary_wraps, reason = "a reader of values, as the others are")]
fn text(value: &str) -> Result<String, &'static str> {
    Ok(value.to_owned())
}

fn every(count: Option<u64>) -> Option<u32> {
    count.filter(|count| *count > 0).map(|count| count as u32)
}

fn priority(class: Option<u64>, level: Option<u8>) -> IoPriority {
    match class {
        Some(1) => IoPriority::RealTime(level.unwrap_or(4)),
        Some(3) => IoPriority::Idle,
        _ => IoPriority::BestEffort(level.unwrap_or(4)),
    }
}

fn pattern(value: &str) -> Result<Pattern, &'static str> {
    Ok(match value {
        "read" => Pattern::Read,
        "write" => Pattern::Write,
        "randread" => Pattern::RandomRead,
        "randwrite" => Pattern::RandomWrite,
        "rw" | "readwrite" => Pattern::Mixed,
        "randrw" => Pattern::RandomMixed,
        _ => return Err("is none of read, write, randread, randwrite, rw, randrw"),
    })
}

fn engine(value: &str) -> Result<(String, Engine), &'static str> {
    let engine = match value {
        "sync" | "psync" | "vsync" | "pvsync" | "pvsync2" => Engine::Synchronous,
        "io_uring" | "libaio" | "posixaio" => Engine::Queue,
        _ => return Err("is none of sync, psync, vsync, pvsync, pvsync2, io_uring, libaio, posixaio"),
    };
    Ok((value.to_owned(), engine))
}

fn verify(value: &str) -> Result<Verify, &'static str> {
    match value {
        "crc32c" | "crc32c-intel" => Ok(Verify::Crc32c),
        "0" | "none" => Ok(Verify::None),
        _ => Err("is not crc32c, the only check that diorite job knows"),
    }
}

/// `bs=4k` or `bs=4k,64k` (reads, writes).
fn block_sizes(value: &str) -> Result<(u64, u64), &'static str> {
    let block = |text: &str| match size(text) {
        Ok(0) | Err(_) => Err("is not a block size such as 4k, 1m or 4k,64k (reads, writes)"),
        Ok(bytes) if bytes > 1 << 30 => Err("is larger than 1g"),
        Ok(bytes) => Ok(bytes),
    };
    match value.split_once(',') {
        Some((read, write)) => Ok((block(read)?, block(write)?)),
        None => block(value).map(|bytes| (bytes, bytes)),
    }
}

/// A number with one of fio's size suffixes.
fn size(value: &str) -> Result<u64, &'static str> {
    const EXPECTED: &str = "is not a size such as 4096, 64k, 1m or 2g";
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..digits].parse().map_err(|_| EXPECTED)?;
    let shift = match value[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(EXPECTED),
    };
    number.checked_mul(1 << shift).ok_or("is too large")
}

/// A time; a bare number is seconds.
fn duration(value: &str) -> Result<Duration, &'static str> {
    time(value, Duration::from_secs(1))
}

/// A time; a bare number is microseconds.
fn microseconds(value: &str) -> Result<Duration, &'static str> {
    time(value, Duration::from_micros(1))
}

fn time(value: &str, unit: Duration) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "is not a time such as 10, 500ms, 30s or 2m";
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u32 = value[..digits].parse().map_err(|_| EXPECTED)?;
    let unit = match &value[digits..] {
        "" => unit,
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        "m" => Duration::from_secs(60),
        "h" => Duration::from_secs(3600),
        "d" => Duration::from_secs(86400),
        _ => return Err(EXPECTED),
    };
    unit.checked_mul(number).ok_or("is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The job file of the 2009 report, as it was posted.
    const SEED: &str = "[global]\ndirectory=/mnt/sdc/fio/\nruntime=10\n\n[seqwrite]\nrw=write\nsize=4G\ndirect=1\n\n\
                        [seqread]\nrw=read\nsize=2G\nnumjobs=2\n";

    #[test]
    fn reads_the_job_file_of_2009() {
        let file = parse("seed.fio", SEED).unwrap();
        let [writer, reader] = file.jobs.as_slice() else { panic!("two jobs") };
        assert_eq!((writer.pattern, writer.size_bytes, writer.direct), (Pattern::Write, 4 << 30, true));
        assert_eq!((reader.pattern, reader.clones, reader.direct), (Pattern::Read, 2, false));
        assert_eq!(reader.runtime, Some(Duration::from_secs(10)));
        assert_eq!(reader.read_block_bytes, 4096, "fio's default");
        assert_eq!(reader.directory.as_deref(), Some("/mnt/sdc/fio/"));
    }

    #[test]
    fn names_every_unknown_option_and_bad_value_with_its_line() {
        let text = "[global]\nzonemode=zbd\n[a]\nrw=sideways\nsize=4q\nbs=0\n[b]\nsize=1k\nverify=md5\n";
        let error = parse("x.fio", text).unwrap_err();
        assert!(error.to_string().contains("\nx.fio:6: bs=0: is not a block size"), "{error}");
        let lines: Vec<_> = error.complaints.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 4, 5, 6, 8, 9]);
        assert!(error.to_string().starts_with("x.fio:2: zonemode: not an option"), "{error}");
    }

    #[test]
    fn sections_after_a_second_global_inherit_both() {
        let text = "[global]\nsize=1m\n[a]\n[global]\nbs=8k,64k\n[b]\nrw=randrw\nrwmixwrite=30\n";
        let file = parse("x.fio", text).unwrap();
        assert_eq!(file.jobs[0].read_block_bytes, 4096);
        assert_eq!((file.jobs[1].read_block_bytes, file.jobs[1].write_block_bytes), (8192, 65536));
        assert_eq!(file.jobs[1].read_percent, 70);
    }

    #[test]
    fn an_empty_file_and_a_missing_runtime_are_errors() {
        assert!(parse("x.fio", "# nothing\n").unwrap_err().to_string().contains("no job"));
        assert!(parse("x.fio", "[a]\nsize=1m\ntime_based\n").unwrap_err().to_string().contains("runtime"));
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_line_and_a_cure() {
        let message = |text: &str| parse("x.fio", text).unwrap_err().to_string();
        let cases = [
            ("[a]\nsize=0\n", "x.fio:2: [a]: size=0 is smaller than one block of 4096 bytes; give a larger"),
            ("[a]\nsize=1m\nnumjobs=0\n", "x.fio:3: numjobs=0: is not a whole number from 1 to 4096"),
            ("[a]\nsize=1m\nprio=9\n", "x.fio:3: prio=9: is not a whole number from 0 to 7"),
            ("[a]\nsize=1m\ndirect=1\noffset=100\n", "x.fio:4: [a]: direct=1 needs an offset"),
            ("rw=read\n[a]\nsize=1m\n", "x.fio:1: rw: stands in no section"),
            ("\u{feff}nonsense\n", "x.fio:1: nonsense: stands in no section"),
        ];
        for (text, expected) in cases {
            assert!(message(text).starts_with(expected), "{text:?}: {}", message(text));
        }
    }

    #[test]
    fn comments_may_stand_behind_options() {
        let file = parse("x.fio", "\u{feff}[a] ; one\nrw = write # two\nsize=1m;three\n# four\n").unwrap();
        assert_eq!((file.jobs[0].pattern, file.jobs[0].size_bytes), (Pattern::Write, 1 << 20));
    }

    #[test]
    fn options_of_global_are_told_apart() {
        let file = parse("x.fio", "[global]\nbs=8k\n[a]\nsize=1m\n").unwrap();
        let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        assert_eq!((file.global_options, &file.jobs[0].options), (pair("bs", "8k"), &pair("size", "1m")));
    }
}
