//! Reads fio's INI job files.
//!
//! Interface: every option that is accepted is honoured; every option that is not known is named, with its line, and
//! nothing runs. Sizes take fio's suffixes (`k`, `m`, `g`, `t`, `p` and `kb`, ... are powers of 1024; `ki`, `kib`, ... of 1000) and times take
//! `us`, `ms`, `s`, `m`, `h`, `d`. How a file is split into sections is in `sections.rs`, what values look like in `values.rs`.

use std::fmt;
use std::time::Duration;

use super::sections::{Complaints, Origin, Reader, Section, Setting, Settings, canonical};
use super::spec::{
    BlockSizes, CommandPriority, EndsWith, Engine, FileOrder, Filling, Flow, Job, JobFile, LatencyTarget,
    Logs, Pattern, Size, SteadyState, Strides, Tolerance,
};
use super::values::{
    block_ranges, block_sizes, block_splits, byte_pattern, distribution, duration, engine, errors,
    file_order, file_sizes, microseconds, milliseconds, pattern, percents, preallocate, priority, rates,
    size, size_or_share, steady, text, tolerance, verify,
};
use super::verify::{Check, Verify};

/// What is wrong with a job file, all of it at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct JobFileError {
    /// File, line and complaint; line 0 is the file as a whole.
    pub complaints: Vec<(String, usize, String)>,
}

impl fmt::Display for JobFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (file, line, what)) in self.complaints.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            match line {
                0 => write!(f, "{separator}{file}: {what}")?,
                line => write!(f, "{separator}{file}:{line}: {what}")?,
            }
        }
        Ok(())
    }
}

/// Options of fio that cannot be honoured, and why.
const REFUSED: &[(&str, &str)] = &[
    ("numa_cpu_nodes", "threads are not bound to NUMA nodes here"),
    ("numa_mem_policy", "memory is not bound to NUMA nodes here"),
    ("cpus_allowed", "threads are not bound to processors here"),
    ("cpumask", "threads are not bound to processors here"),
    ("mem", "transfers have registered memory in huge pages here"),
    ("iomem", "transfers have registered memory in huge pages here"),
    ("max_open_zones", "zoned block devices are not known here"),
    ("read_beyond_wp", "zoned block devices are not known here"),
    ("cmdprio_bssplit", "priorities by the size of a request are not known here; use cmdprio_percentage"),
    ("read_iolog", "recorded I/O is not replayed here"),
    ("replay_redirect", "recorded I/O is not replayed here"),
    ("exec_prerun", "a job file starts no programs here"),
    ("exec_postrun", "a job file starts no programs here"),
    ("uid", "jobs run as the user who starts them"),
    ("gid", "jobs run as the user who starts them"),
];

/// Read the job file `text`; `file` is its name in messages.
///
/// # Errors
/// All that is wrong with it, each with its line.
pub fn parse(file: &str, text: &str) -> Result<JobFile, JobFileError> {
    parse_with(file, text, &[])
}

/// As [`parse`], with these options in place of those that the sections give. The file itself must be right without them, but for
/// what only they can say.
///
/// # Errors
/// As [`parse`].
pub fn parse_with(file: &str, text: &str, overrides: &[(String, String)]) -> Result<JobFile, JobFileError> {
    let mut complaints = Complaints::new();
    let mut reader = Reader::new(&mut complaints);
    reader.read(file, text);
    let (global, mut sections) = (reader.global, reader.sections);
    let mut jobs: Vec<Job> = sections.iter().map(|section| understand(section, &mut complaints)).collect();
    if !overrides.is_empty() && complaints.is_empty() {
        for section in &mut sections {
            set(section, overrides);
        }
        jobs = sections.iter().map(|section| understand(section, &mut complaints)).collect();
    }
    let whole = |what: String| (Origin { file: file.to_owned(), line: 0 }, what);
    if jobs.is_empty() && complaints.is_empty() {
        let cure = "no job in it; a job is a section such as [seqread] with rw= and size= under it";
        complaints.push(whole(cure.to_owned()));
    }
    for (index, job) in jobs.iter().enumerate() {
        let Some(awaited) = &job.wait_for else { continue };
        if !jobs[..index].iter().any(|other| other.name == *awaited) {
            complaints
                .push(whole(format!("[{}]: wait_for={awaited}: no job before it has that name", job.name)));
        }
    }
    // An option of [global] is complained of once, not once per job.
    complaints.sort();
    complaints.dedup();
    if complaints.is_empty() {
        Ok(JobFile { jobs, global_options: spelled(&global, |_| true) })
    } else {
        let complaints = complaints.into_iter().map(|(at, what)| (at.file, at.line, what)).collect();
        Err(JobFileError { complaints })
    }
}

fn set(section: &mut Section, overrides: &[(String, String)]) {
    for (option, value) in overrides {
        let at = Origin { file: format!("--set {option}"), line: 0 };
        let option = canonical(option).to_owned();
        section.settings.insert(option, Setting { value: value.clone(), at });
    }
}

/// Some of the options with their values, as the file spells them.
fn spelled(settings: &Settings, is_wanted: impl Fn(&String) -> bool) -> Vec<(String, String)> {
    let wanted = settings.iter().filter(|(name, _)| is_wanted(name));
    wanted.map(|(name, setting)| (name.clone(), setting.value.clone())).collect()
}

/// Takes options out of a section and remembers what was wrong with them.
struct Taker<'a> {
    section: &'a Section,
    settings: Settings,
    complaints: &'a mut Complaints,
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
                self.complaints.push((setting.at, format!("{option}={}: {expected}", setting.value)));
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

    fn is_on(&mut self, option: &str) -> bool {
        self.flag(option).unwrap_or(false)
    }

    fn number(&mut self, option: &str, least: u64, most: u64) -> Option<u64> {
        self.take(option, |value| {
            let number = value.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("is not a whole number from {least} to {most}"))
        })
    }

    fn percent(&mut self, option: &str) -> Option<u8> {
        self.number(option, 0, 100).map(|percent| percent as u8)
    }

    fn text(&mut self, option: &str) -> Option<String> {
        self.take(option, text)
    }

    /// An option of which only these values are what is done here anyhow.
    fn only(&mut self, option: &str, allowed: &[&str], why: &str) {
        self.take(option, |value| if allowed.contains(&value) { Ok(()) } else { Err(why.to_owned()) });
    }

    /// Where an option stands, or the section.
    fn at(&self, options: &[&str]) -> Origin {
        let found = options.iter().find_map(|option| self.section.settings.get(*option));
        found.map_or(&self.section.at, |setting| &setting.at).clone()
    }

    fn complain(&mut self, options: &[&str], what: &str) {
        let at = self.at(options);
        // What could not be read has been complained of.
        if !self.complaints.iter().any(|(other, _)| *other == at && other.line > 0) {
            self.complaints.push((at, format!("[{}]: {what}", self.section.name)));
        }
    }
}

#[expect(clippy::too_many_lines, reason = "a line for each option")]
fn understand(section: &Section, complaints: &mut Complaints) -> Job {
    let mut options = Taker { section, settings: section.settings.clone(), complaints };
    let (pattern, step, run_length) = options.take("rw", pattern).unwrap_or((Pattern::Read, 0, 1));
    let direct = options.flag("direct");
    let buffered = options.flag("buffered");
    let (engine_name, engine) =
        options.take("ioengine", engine).unwrap_or(("psync".to_owned(), Engine::Synchronous));
    let percent_read = options.percent("rwmixread");
    let percent_written = options.percent("rwmixwrite");
    let level = options.number("prio", 0, 7).map(|level| level as u8);
    let class = options.number("prioclass", 0, 3);
    let blocks = blocks(&mut options);
    let randseed = options.number("randseed", 0, u64::MAX);
    let repeats = options.flag("randrepeat").unwrap_or(true);
    let offset_step = options.take("offset_increment", size).unwrap_or(0);
    let seed = if repeats || randseed.is_some() { Some(randseed.unwrap_or(0x8989)) } else { None };
    accept_what_is_so(&mut options);
    let file_origin = options.at(&["filename", "directory"]);
    let job = Job {
        name: options.text("name").unwrap_or_else(|| section.name.clone()),
        section: section.name.clone(),
        description: options.text("description"),
        pattern,
        step,
        run_length,
        blocks,
        block_align: options.take("blockalign", size).filter(|align| *align > 0),
        distribution: options.take("random_distribution", distribution).unwrap_or_default(),
        strides: strides(&mut options),
        size: options.take("size", size_or_share),
        file_bytes: options.take("filesize", file_sizes),
        io_bytes: options.take("io_size", size).filter(|bytes| *bytes > 0),
        ios: options.number("number_ios", 1, u64::MAX),
        fills_device: options.is_on("fill_device"),
        offset_bytes: options.take("offset", size).unwrap_or(0),
        offset_step,
        direct: direct.unwrap_or_else(|| buffered.is_some_and(|buffered| !buffered)),
        clones: options.number("numjobs", 1, 4096).unwrap_or(1) as u32,
        depth: options.number("iodepth", 1, 4096).unwrap_or(1) as u32,
        engine_name,
        engine,
        runtime: options.take("runtime", duration).filter(|time| !time.is_zero()),
        time_based: options.is_on("time_based"),
        start_delay: options.take("startdelay", duration).unwrap_or_default(),
        ramp_time: options.take("ramp_time", duration).unwrap_or_default(),
        loops: options.number("loops", 1, u64::from(u32::MAX)).unwrap_or(1) as u32,
        fsync_every: every(options.number("fsync", 0, u64::from(u32::MAX))),
        fdatasync_every: every(options.number("fdatasync", 0, u64::from(u32::MAX))),
        end_fsync: options.is_on("end_fsync"),
        read_percent: percent_read.or(percent_written.map(|written| 100 - written)).unwrap_or(50),
        filenames: options.text("filename").map(|names| split_names(&names)).unwrap_or_default(),
        filename_format: options.text("filename_format"),
        files: options.number("nrfiles", 1, 1 << 20).unwrap_or(1) as u32,
        file_order: options.take("file_service_type", file_order).unwrap_or(FileOrder::RoundRobin(1)),
        directories: options.text("directory").map(|names| split_names(&names)).unwrap_or_default(),
        think_time: options.take("thinktime", microseconds).unwrap_or_default(),
        think_every: options.number("thinktime_blocks", 1, u64::from(u32::MAX)).unwrap_or(1) as u32,
        rate_bytes: options.take("rate", rates).unwrap_or_default(),
        rate_iops: options.take("rate_iops", rates).unwrap_or_default(),
        rate_min: options.take("rate_min", rates).unwrap_or_default(),
        rate_iops_min: options.take("rate_iops_min", rates).unwrap_or_default(),
        rate_cycle: options.take("ratecycle", milliseconds).unwrap_or(Duration::from_secs(1)),
        is_poisson: rate_process(&mut options),
        flow: flow(&mut options),
        ends_with: ends_with(&mut options),
        tolerance: tolerated(&mut options),
        priority: priority(class, level),
        group_reporting: options.is_on("group_reporting"),
        verify: verification(&mut options),
        filling: filling(&mut options),
        preallocate: options.take("fallocate", preallocate),
        overwrite: options.flag("overwrite"),
        create_on_open: options.is_on("create_on_open"),
        must_exist: !options.flag("allow_file_create").unwrap_or(true),
        unlink: options.is_on("unlink"),
        command_priority: command_priority(&mut options),
        logs: logs(&mut options),
        steady: steady_state(&mut options),
        latency_target: latency_target(&mut options),
        invalidate: options.flag("invalidate").unwrap_or(true),
        random_may_repeat: options.is_on("norandommap"),
        seed,
        stonewall: options.is_on("stonewall"),
        wait_for: options.text("wait_for"),
        new_group: options.is_on("new_group"),
        origin: section.at.to_string(),
        file_origin: file_origin.to_string(),
        options: spelled(&section.settings, |name| section.own.contains(name)),
        line: section.at.line,
    };
    let unknown: Vec<_> =
        options.settings.iter().map(|(option, setting)| (setting.at.clone(), option.clone())).collect();
    for (at, option) in unknown {
        let why = REFUSED.iter().find(|(refused, _)| *refused == option).map_or(
            "not an option that diorite job knows; remove it, or run this file with fio",
            |(_, why)| why,
        );
        options.complaints.push((at, format!("{option}: {why}")));
    }
    check(&job, &mut options);
    job
}

/// Options with values that are always so here.
fn accept_what_is_so(options: &mut Taker<'_>) {
    // Clones are threads; files are laid out one after the other before any job begins; the order of random blocks is
    // the program's own, each once; requests are in flight whatever the thread does.
    let _ = options.flag("thread");
    let _ = options.flag("create_serialize");
    let _ = options.flag("allrandrepeat");
    options.only("random_generator", &["lfsr", "tausworthe", "tausworthe64"], "is no generator of fio's");
    options.only("io_submit_mode", &["inline", "offload"], "is neither inline nor offload");
    options.only("verify_fatal", &["1"], "is not 1: the first wrong block ends the job here");
    // Blocks are checked where they are read, by the job's own thread.
    let _ = options.number("verify_async", 0, 4096);
    options.only("error_dump", &["0"], "is not 0: errors are counted here, not printed one by one");
}

fn every(count: Option<u64>) -> Option<u32> {
    count.filter(|count| *count > 0).map(|count| count as u32)
}

/// `a:b` are two files; `\\:` is a colon in a name.
fn split_names(names: &str) -> Vec<String> {
    let kept = names.replace("\\:", "\0");
    kept.split(':').map(|name| name.replace('\0', ":")).collect()
}

fn blocks(options: &mut Taker<'_>) -> [BlockSizes; 3] {
    let fixed = options.take("bs", block_sizes);
    let range = options.take("bsrange", block_ranges);
    let split = options.take("bssplit", block_splits);
    split.or(range).or(fixed).unwrap_or_else(|| std::array::from_fn(|_| BlockSizes::fixed(4096)))
}

fn strides(options: &mut Taker<'_>) -> Option<Strides> {
    let mode = options.text("zonemode").unwrap_or_else(|| "none".to_owned());
    let used = options.take("zonesize", size);
    let range = options.take("zonerange", size);
    let skip = options.take("zoneskip", size).unwrap_or(0);
    match (&*mode, used) {
        ("none", _) => None,
        ("strided", Some(used)) if used > 0 && range.unwrap_or(used) >= used => {
            let range = range.unwrap_or(used);
            Some(Strides { used, range, pitch: range.saturating_add(skip) })
        }
        ("strided", _) => {
            options.complain(
                &["zonesize", "zonemode"],
                "zonemode=strided needs a zonesize, no larger than the zonerange",
            );
            None
        }
        ("zbd", _) => {
            options.complain(&["zonemode"], "zonemode=zbd: zoned block devices are not known here");
            None
        }
        _ => {
            options.complain(&["zonemode"], "zonemode is none of none, strided, zbd");
            None
        }
    }
}

fn rate_process(options: &mut Taker<'_>) -> bool {
    let process = options.take("rate_process", |value| match value {
        "linear" => Ok(false),
        "poisson" => Ok(true),
        _ => Err("is neither linear nor poisson"),
    });
    process.unwrap_or(false)
}

fn flow(options: &mut Taker<'_>) -> Option<Flow> {
    let id = options.number("flow_id", 0, u64::from(u32::MAX)).unwrap_or(0) as u32;
    let sleep = options.take("flow_sleep", microseconds).unwrap_or_default();
    let weight = options.number("flow", 1, 1000)? as u32;
    Some(Flow { id, weight, sleep })
}

fn ends_with(options: &mut Taker<'_>) -> EndsWith {
    let what = options.take("exit_what", |value| match value {
        "group" | "1" => Ok(EndsWith::Group),
        "stonewall" => Ok(EndsWith::Wave),
        "all" => Ok(EndsWith::All),
        _ => Err("is none of group, stonewall, all"),
    });
    if options.is_on("exitall") { what.unwrap_or(EndsWith::Group) } else { EndsWith::Itself }
}

fn tolerated(options: &mut Taker<'_>) -> Tolerance {
    let tolerance = options.take("continue_on_error", tolerance).unwrap_or_default();
    Tolerance { ignored: options.take("ignore_error", errors).unwrap_or_default(), ..tolerance }
}

fn verification(options: &mut Taker<'_>) -> Verify {
    let check = options.take("verify", verify);
    let pattern = options.take("verify_pattern", byte_pattern);
    let check = check.unwrap_or(if pattern.is_some() { Check::Pattern } else { Check::None });
    if check == Check::Pattern && pattern.is_none() {
        options.complain(&["verify"], "verify=pattern needs a verify_pattern");
    }
    Verify {
        check,
        pattern: pattern.unwrap_or_default(),
        interval: options.take("verify_interval", size).filter(|bytes| *bytes > 0),
        after: options.flag("do_verify").unwrap_or(true),
        backlog: every(options.number("verify_backlog", 0, u64::from(u32::MAX))),
        dump: options.is_on("verify_dump"),
    }
}

fn filling(options: &mut Taker<'_>) -> Filling {
    let working_set = options.take("dedupe_mode", |value| match value {
        "repeat" => Ok(false),
        "working_set" => Ok(true),
        _ => Err("is neither repeat nor working_set"),
    });
    let percent = options.percent("dedupe_working_set_percentage").unwrap_or(5);
    Filling {
        zeros: options.is_on("zero_buffers"),
        refill: options.is_on("refill_buffers"),
        pattern: options.take("buffer_pattern", byte_pattern).unwrap_or_default(),
        compress_percent: options.percent("buffer_compress_percentage").unwrap_or(0),
        dedupe_percent: options.percent("dedupe_percentage").unwrap_or(0),
        working_set_percent: working_set.unwrap_or(false).then_some(percent),
        dedupe_global: options.is_on("dedupe_global"),
    }
}

fn command_priority(options: &mut Taker<'_>) -> Option<CommandPriority> {
    let class = options.number("cmdprio_class", 0, 3).or(Some(1));
    let level = options.number("cmdprio", 0, 7).map(|level| level as u8);
    let percent = options.take("cmdprio_percentage", percents)?;
    Some(CommandPriority { percent, priority: priority(class, level.or(Some(0))) })
}

fn logs(options: &mut Taker<'_>) -> Logs {
    let mut prefix = |option| {
        let name = options.section.name.clone();
        options.text(option).map(|prefix| if matches!(&*prefix, "" | "1") { name } else { prefix })
    };
    let (bandwidth, iops, latency) =
        (prefix("write_bw_log"), prefix("write_iops_log"), prefix("write_lat_log"));
    Logs {
        bandwidth,
        iops,
        latency,
        average: options.take("log_avg_msec", milliseconds).filter(|time| !time.is_zero()),
        offset: options.is_on("log_offset"),
        priority: options.is_on("log_prio"),
    }
}

fn steady_state(options: &mut Taker<'_>) -> Option<SteadyState> {
    let duration_of = options.take("ss_dur", duration).unwrap_or_default();
    let ramp = options.take("ss_ramp", duration).unwrap_or_default();
    let state = options.take("ss", steady)?;
    if duration_of.is_zero() {
        options.complain(&["ss"], "ss needs an ss_dur, such as ss_dur=30s");
    }
    Some(SteadyState { duration: duration_of, ramp, ..state })
}

fn latency_target(options: &mut Taker<'_>) -> Option<LatencyTarget> {
    let window = options.take("latency_window", microseconds).unwrap_or(Duration::from_secs(1));
    let percentile = options.take("latency_percentile", |value| {
        let percent = value.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
        percent.ok_or("is not a percentage")
    });
    let target = options.take("latency_target", microseconds).filter(|target| !target.is_zero())?;
    Some(LatencyTarget { target, window, percentile: percentile.unwrap_or(100.0) })
}

/// Options that are right alone and wrong together.
fn check(job: &Job, options: &mut Taker<'_>) {
    let largest = job.largest_block();
    let bytes = match (job.size, job.file_bytes) {
        (_, Some((least, _))) => Some(least),
        (Some(Size::Bytes(bytes)), None) => Some(bytes / u64::from(job.files)),
        _ => None,
    };
    if bytes.is_some_and(|bytes| bytes < largest) {
        let bytes = bytes.unwrap_or(0);
        let what = format!(
            "size={bytes} is smaller than one block of {largest} bytes; give a larger size or a smaller bs"
        );
        options.complain(&["size", "filesize", "bs", "bsrange", "bssplit"], &what);
    }
    if job.fills_device && job.pattern != Pattern::Write {
        options.complain(&["fill_device"], "fill_device=1 needs rw=write");
    }
    if job.time_based && job.runtime.is_none() && job.steady.is_none() {
        options.complain(&[], "time_based needs a runtime; add one such as runtime=10");
    }
    if job.direct && !job.blocks.iter().all(|sizes| sizes.are_multiples_of(512)) {
        options.complain(&["bs", "bsrange", "bssplit"], "direct=1 needs a bs that is a multiple of 512");
    }
    let steps = [job.offset_bytes, job.offset_step, job.step.unsigned_abs(), job.block_align.unwrap_or(0)];
    if job.direct && !steps.iter().all(|bytes| bytes.is_multiple_of(512)) {
        let spelled = ["offset", "offset_increment", "blockalign"];
        options.complain(&spelled, "direct=1 needs an offset that is a multiple of 512");
    }
    let least = job.blocks[0].least().min(job.blocks[1].least());
    let part = job.verify.interval.unwrap_or(u64::MAX).min(least);
    if job.verify.check != Check::None && part < job.verify.header_bytes() as u64 {
        let what = format!(
            "verify={} needs blocks of {} bytes or more",
            job.verify.check.name(),
            job.verify.header_bytes()
        );
        options.complain(&["verify"], &what);
    }
    if job.latency_target.is_some() && (job.engine != Engine::Queue || !job.direct || job.pattern.trims()) {
        let what =
            "latency_target needs reads or writes that are queued: an engine such as io_uring, and direct=1";
        options.complain(&["latency_target"], what);
    }
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
        assert_eq!(
            (writer.pattern, writer.size, writer.direct),
            (Pattern::Write, Some(Size::Bytes(4 << 30)), true)
        );
        assert_eq!((reader.pattern, reader.clones, reader.direct), (Pattern::Read, 2, false));
        assert_eq!(reader.runtime, Some(Duration::from_secs(10)));
        assert_eq!(reader.blocks[0], BlockSizes::fixed(4096), "fio's default");
        assert_eq!(reader.directories, ["/mnt/sdc/fio/"]);
    }

    #[test]
    fn names_every_unknown_option_and_bad_value_with_its_line() {
        let text = "[global]\nzoned=zbd\n[a]\nrw=sideways\nsize=4q\nbs=0\n[b]\nsize=1k\nverify=md17\n";
        let error = parse("x.fio", text).unwrap_err();
        assert!(error.to_string().contains("\nx.fio:6: bs=0: is not a block size"), "{error}");
        let lines: Vec<_> = error.complaints.iter().map(|(_, line, _)| *line).collect();
        assert_eq!(lines, [2, 4, 5, 6, 8, 9]);
        assert!(error.to_string().starts_with("x.fio:2: zoned: not an option"), "{error}");
    }

    #[test]
    fn sections_after_a_second_global_inherit_both() {
        let text = "[global]\nsize=1m\n[a]\n[global]\nbs=8k,64k\n[b]\nrw=randrw\nrwmixwrite=30\n";
        let file = parse("x.fio", text).unwrap();
        assert_eq!(file.jobs[0].blocks[0], BlockSizes::fixed(4096));
        assert_eq!(file.jobs[1].blocks[..2], [8192, 65536].map(BlockSizes::fixed));
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
            (
                "[a]\nsize=1m\nioengine=io_uring\niodepth=8\nlatency_target=500\n",
                "x.fio:5: [a]: latency_target needs reads or writes that are queued",
            ),
        ];
        for (text, expected) in cases {
            assert!(message(text).starts_with(expected), "{text:?}: {}", message(text));
        }
    }

    #[test]
    fn comments_may_stand_behind_options() {
        let file = parse("x.fio", "\u{feff}[a] ; one\nrw = write # two\nsize=1m;three\n# four\n").unwrap();
        assert_eq!((file.jobs[0].pattern, file.jobs[0].size), (Pattern::Write, Some(Size::Bytes(1 << 20))));
    }

    #[test]
    fn options_of_global_are_told_apart() {
        let file = parse("x.fio", "[global]\nbs=8k\n[a]\nsize=1m\n").unwrap();
        let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        assert_eq!((file.global_options, &file.jobs[0].options), (pair("bs", "8k"), &pair("size", "1m")));
    }

    #[test]
    fn what_is_set_replaces_what_the_file_says_and_hides_nothing() {
        let set = |option: &str, value: &str| (option.to_owned(), value.to_owned());
        let text = "[global]\nsize=10g\n[a]\nruntime=900\n";
        let file = parse_with("x.fio", text, &[set("size", "1m"), set("runtime", "1")]).unwrap();
        assert_eq!(
            (file.jobs[0].size, file.jobs[0].runtime),
            (Some(Size::Bytes(1 << 20)), Some(Duration::from_secs(1)))
        );
        let error = parse_with("x.fio", "[a]\nsize=1q\n", &[set("size", "1m")]).unwrap_err();
        assert!(error.to_string().starts_with("x.fio:2: size=1q"), "{error}");
        let error = parse_with("x.fio", "[a]\nnuma_mem_policy=bind:0\n", &[set("size", "1m")]).unwrap_err();
        assert_eq!(error.to_string(), "x.fio:2: numa_mem_policy: memory is not bound to NUMA nodes here");
        assert!(
            parse_with("x.fio", text, &[set("colour", "red")])
                .unwrap_err()
                .to_string()
                .starts_with("--set colour: colour: not an")
        );
    }

    #[test]
    fn names_waits_and_colons() {
        let text = "[global]\nname=all\nfilename=a:b\\:c\n[one]\n[two]\nname=second\nwait_for=one\nexitall\n";
        let file = parse("x.fio", text).unwrap();
        assert_eq!([&*file.jobs[0].name, &*file.jobs[1].name], ["one", "second"]);
        assert_eq!(file.jobs[0].filenames, ["a", "b:c"]);
        assert_eq!(file.jobs[1].ends_with, EndsWith::Group);
        assert!(parse("x.fio", "[a]\nwait_for=b\n").unwrap_err().to_string().contains("no job before it"));
    }
}
