//! Reads fio's INI job files.
//!
//! Interface: every accepted option is honoured, or has no effect here as [`NO_EFFECT`] lists. Any other option is an error
//! with its line, and nothing runs. Sizes take fio's suffixes (`k`, `m`, `g`, `t`, `p` and `kb`, ... are powers of 1024;
//! `ki`, `kib`, ... of 1000); times take `us`, `ms`, `s`, `m`, `h`, `d`. `sections.rs` splits a file into sections, and
//! `values.rs` reads values.

use std::fmt;

use super::check::{Check, Verify};
use super::sections::{Complaints, Origin, Reader, Section, Setting, Settings, canonical};
use super::spec::{BlockSizes, Engine, Job, JobFile, Pattern, Size};
use super::values::{
    block_ranges, block_sizes, block_splits, byte_pattern, duration, engine, file_sizes, microseconds,
    pattern, preallocate, priority, rates, size, size_or_share, tolerance, verify, whole_number,
};

/// All errors of a job file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct JobFileError {
    /// File, line and message; line 0 is the whole file.
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

/// Options of fio that are not supported, and what can replace them here.
const REPLACED: &[(&str, &str)] = &[
    ("ioscheduler", "--scheduler"),
    ("cmdprio cmdprio_percentage cmdprio_class cmdprio_bssplit", "prio and prioclass"),
    ("flow flow_id flow_sleep rate_min rate_iops_min ratecycle rate_process", "rate and rate_iops"),
    ("write_bw_log write_iops_log write_lat_log write_hist_log", "--json"),
    ("zero_buffers buffer_pattern", "verify_pattern"),
    ("ignore_error", "continue_on_error"),
    ("exit_what", "exitall"),
];

/// Options that change nothing here. Any value is accepted.
const NO_EFFECT: [&str; 5] = [
    // Clones are threads. Files are laid out one after the other before any job begins.
    "thread create_serialize create_fsync allrandrepeat unique_filename openfiles lockfile softrandommap scramble_buffers \
     allow_mounted_write",
    // One clock measures all times, and all are reported.
    "gtod_reduce gtod_cpu clocksource disable_lat disable_clat disable_slat disable_bw_measurement disable_bw clat_percentiles \
     lat_percentiles slat_percentiles percentile_list significant_figures block_error_percentiles disk_util stats unit_base \
     bwavgtime iopsavgtime per_job_logs log_entries",
    // The library's queue decides how transfers are submitted and reaped, and has registered memory in huge pages.
    "iodepth_batch iodepth_batch_submit iodepth_batch_complete iodepth_batch_complete_min iodepth_batch_complete_max iodepth_low \
     serialize_overlap userspace_reap hipri hipri_percentage fixedbufs registerfiles nonvectored force_async sqthread_poll \
     sqthread_poll_cpu mem iomem mem_align iomem_align hugepage-size lockmem",
    // Hints.
    "fadvise_hint write_hint write_barrier",
    // The job's thread checks blocks when it reads them.
    "verify_async verify_async_cpus verify_backlog_batch verify_state_save experimental_verify verify_dump",
];

/// Read the job file `text`; `file` is its name in messages.
///
/// # Errors
/// All errors of the file, each with its line.
pub fn parse(file: &str, text: &str) -> Result<JobFile, JobFileError> {
    parse_with(file, text, &[])
}

/// As [`parse`], but these options replace options of the sections. The file must be correct without them.
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
        let what = "no job: a job is a section such as [seqread] with rw= and size= under it";
        complaints.push(whole(what.to_owned()));
    }
    for (index, job) in jobs.iter().enumerate() {
        let Some(awaited) = &job.wait_for else { continue };
        if !jobs[..index].iter().any(|other| other.name == *awaited) {
            complaints
                .push(whole(format!("[{}]: wait_for={awaited}: no job before it has that name", job.name)));
        }
    }
    // An error in [global] is reported once, not once for each job.
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

/// Options with their values, as the file spells them.
fn spelled(settings: &Settings, is_wanted: impl Fn(&String) -> bool) -> Vec<(String, String)> {
    let wanted = settings.iter().filter(|(name, _)| is_wanted(name));
    wanted.map(|(name, setting)| (name.clone(), setting.value.clone())).collect()
}

/// Takes options out of a section and collects errors.
struct Taker<'a> {
    section: &'a Section,
    settings: Settings,
    complaints: &'a mut Complaints,
}

impl Taker<'_> {
    /// The option, read by `read`, whose error describes the expected value.
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
            _ => Err("expected 0 or 1"),
        })
    }

    fn is_on(&mut self, option: &str) -> bool {
        self.flag(option).unwrap_or(false)
    }

    fn number(&mut self, option: &str, least: u64, most: u64) -> Option<u64> {
        self.take(option, |value| {
            let number = whole_number(value).filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("expected a whole number from {least} to {most}"))
        })
    }

    fn percent(&mut self, option: &str) -> Option<u8> {
        self.number(option, 0, 100).map(|percent| percent as u8)
    }

    fn text(&mut self, option: &str) -> Option<String> {
        self.settings.remove(option).map(|setting| setting.value)
    }

    /// An option that may only have these values.
    fn only(&mut self, option: &str, allowed: &[&str], why: &str) {
        self.take(option, |value| if allowed.contains(&value) { Ok(()) } else { Err(why.to_owned()) });
    }

    /// Position of the first of these options, or of the section.
    fn at(&self, options: &[&str]) -> Origin {
        let found = options.iter().find_map(|option| self.section.settings.get(*option));
        found.map_or(&self.section.at, |setting| &setting.at).clone()
    }

    fn complain(&mut self, options: &[&str], what: &str) {
        let at = self.at(options);
        // A value that could not be read has been reported.
        if !self.complaints.iter().any(|(other, _)| *other == at && other.line > 0) {
            self.complaints.push((at, format!("[{}]: {what}", self.section.name)));
        }
    }
}

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
    let seed = if repeats || randseed.is_some() { Some(randseed.unwrap_or(0x8989)) } else { None };
    accept_without_effect(&mut options);
    let file_origin = options.at(&["filename", "directory"]);
    let job = Job {
        name: options.text("name").unwrap_or_else(|| section.name.clone()),
        section: section.name.clone(),
        description: options.text("description"),
        pattern,
        step,
        run_length,
        blocks,
        blocks_unaligned: options.is_on("bs_unaligned"),
        size: options.take("size", size_or_share),
        file_bytes: options.take("filesize", file_sizes),
        io_bytes: options.take("io_size", size_or_share).filter(|bytes| *bytes != Size::Bytes(0)),
        ios: options.number("number_ios", 1, u64::MAX),
        fills_device: options.is_on("fill_device"),
        offset: options.take("offset", size_or_share).unwrap_or_default(),
        offset_step: options.take("offset_increment", size_or_share).unwrap_or_default(),
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
        end_fsync: options.is_on("end_fsync") | options.is_on("fsync_on_close"),
        read_percent: percent_read.or(percent_written.map(|written| 100 - written)).unwrap_or(50),
        filenames: options.text("filename").map(|names| split_names(&names)).unwrap_or_default(),
        filename_format: options.text("filename_format"),
        files: options.number("nrfiles", 1, 1 << 20).unwrap_or(1) as u32,
        directories: options.text("directory").map(|names| split_names(&names)).unwrap_or_default(),
        think_time: options.take("thinktime", microseconds).unwrap_or_default(),
        think_every: options.number("thinktime_blocks", 1, u64::from(u32::MAX)).unwrap_or(1) as u32,
        rate_bytes: options.take("rate", rates).unwrap_or_default(),
        rate_iops: options.take("rate_iops", rates).unwrap_or_default(),
        ends_group: options.is_on("exitall"),
        tolerance: options.take("continue_on_error", tolerance).unwrap_or_default(),
        priority: priority(class, level),
        group_reporting: options.is_on("group_reporting"),
        verify: verification(&mut options),
        preallocate: options.take("fallocate", preallocate),
        overwrite: options.flag("overwrite"),
        must_exist: !options.flag("allow_file_create").unwrap_or(true),
        unlink: options.is_on("unlink"),
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
        let is_it = |(names, _): &&(&str, &str)| names.split(' ').any(|name| name == option);
        let instead = REPLACED.iter().find(is_it);
        let instead = instead.map_or("remove it".to_owned(), |(_, instead)| format!("use {instead}"));
        let what = format!("{option}: not supported; {instead}, or run the file with fio on a mount");
        options.complaints.push((at, what));
    }
    check(&job, &mut options);
    job
}

/// Options with no effect here, and options with one accepted value.
fn accept_without_effect(options: &mut Taker<'_>) {
    for option in NO_EFFECT.iter().flat_map(|options| options.split(' ')) {
        options.settings.remove(option);
    }
    options.only(
        "random_distribution",
        &["random"],
        "expected random; for others run the file with fio on a mount",
    );
    options.only("random_generator", &["lfsr", "tausworthe", "tausworthe64"], "expected lfsr or tausworthe");
    options.only("io_submit_mode", &["inline", "offload"], "expected inline or offload");
    options.only("file_service_type", &["roundrobin", "roundrobin:1"], "expected roundrobin");
    options.only("verify_fatal", &["1"], "expected 1: the first wrong block ends the job");
    options.only("error_dump", &["0"], "expected 0: errors are counted, not printed one by one");
    options.only("kb_base", &["1024"], "expected 1024: k is 1024 bytes, and ki is 1000");
    options.only("rw_sequencer", &["sequential"], "expected sequential");
    options.only("thinktime_blocks_type", &["complete"], "expected complete");
    options.only("unified_rw_reporting", &["0", "none"], "expected none: directions are reported apart");
}

fn every(count: Option<u64>) -> Option<u32> {
    count.filter(|count| *count > 0).map(|count| count as u32)
}

/// `a:b` are two files; `\\:` is a colon in a name.
fn split_names(names: &str) -> Vec<String> {
    let kept = names.replace("\\:", "\0");
    kept.split(':').map(|name| name.replace('\0', ":")).collect()
}

fn blocks(options: &mut Taker<'_>) -> [BlockSizes; 2] {
    let fixed = options.take("bs", block_sizes);
    let range = options.take("bsrange", block_ranges);
    let split = options.take("bssplit", block_splits);
    split.or(range).or(fixed).unwrap_or_else(|| std::array::from_fn(|_| BlockSizes::fixed(4096)))
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
    }
}

/// Combinations of options that are errors.
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
            "size={bytes} is smaller than one block of {largest} bytes; choose a larger size or a smaller bs"
        );
        options.complain(&["size", "filesize", "bs", "bsrange", "bssplit"], &what);
    }
    if job.fills_device && job.pattern != Pattern::Write {
        options.complain(&["fill_device"], "fill_device=1 needs rw=write");
    }
    if job.time_based && job.runtime.is_none() {
        options.complain(&[], "time_based needs a runtime; add one such as runtime=10");
    }
    if job.direct && (job.blocks_unaligned || !job.blocks.iter().all(|sizes| sizes.are_multiples_of(512))) {
        let options_of_sizes = ["bs_unaligned", "bs", "bsrange", "bssplit"];
        options.complain(&options_of_sizes, "direct=1 needs a bs that is a multiple of 512");
    }
    let offsets =
        [job.offset, job.offset_step].map(|size| if let Size::Bytes(bytes) = size { bytes } else { 0 });
    let step = job.step.unsigned_abs();
    if job.direct && !offsets.iter().chain(&[step]).all(|bytes| bytes.is_multiple_of(512)) {
        let spelled = ["offset", "offset_increment", "rw"];
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
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        assert!(error.to_string().contains("\nx.fio:6: bs=0: expected a block size"), "{error}");
        let lines: Vec<_> = error.complaints.iter().map(|(_, line, _)| *line).collect();
        assert_eq!(lines, [2, 4, 5, 6, 8, 9]);
        assert!(error.to_string().starts_with("x.fio:2: zoned: not supported"), "{error}");
    }

    #[test]
    fn sections_after_a_second_global_inherit_both() {
        let text = "[global]\nsize=1m\n[a]\n[global]\nbs=8k,64k\n[b]\nrw=randrw\nrwmixwrite=30\n";
        let file = parse("x.fio", text).unwrap();
        assert_eq!(file.jobs[0].blocks[0], BlockSizes::fixed(4096));
        assert_eq!(file.jobs[1].blocks, [8192, 65536].map(BlockSizes::fixed));
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
            (
                "[a]\nsize=0\n",
                "x.fio:2: [a]: size=0 is smaller than one block of 4096 bytes; choose a larger",
            ),
            ("[a]\nsize=1m\nnumjobs=0\n", "x.fio:3: numjobs=0: expected a whole number from 1 to 4096"),
            ("[a]\nsize=1m\nprio=9\n", "x.fio:3: prio=9: expected a whole number from 0 to 7"),
            ("[a]\nsize=1m\ndirect=1\noffset=100\n", "x.fio:4: [a]: direct=1 needs an offset"),
            ("rw=read\n[a]\nsize=1m\n", "x.fio:1: rw: is in no section"),
            ("\u{feff}nonsense\n", "x.fio:1: nonsense: is in no section"),
            ("[a]\nsize=1m\ndirect=1\nbs_unaligned\n", "x.fio:4: [a]: direct=1 needs a bs"),
            (
                "[a]\nsize=1m\nlatency_target=500\n",
                "x.fio:3: latency_target: not supported; remove it, or run the file with fio on a mount",
            ),
            (
                "[a]\nsize=1m\nrate_min=1m\n",
                "x.fio:3: rate_min: not supported; use rate and rate_iops, or run",
            ),
            ("[a]\nsize=1m\nwrite_bw_log=x\n", "x.fio:3: write_bw_log: not supported; use --json, or run"),
            (
                "[a]\nsize=1m\nrandom_distribution=zoned:50/5:50/95\n",
                "x.fio:3: random_distribution=zoned:50/5:50/95: expected random; for others run the file with fio",
            ),
        ];
        for (text, expected) in cases {
            assert!(message(text).starts_with(expected), "{text:?}: {}", message(text));
        }
    }

    /// Job files that were made for fio have them: the whole file was refused for them.
    #[test]
    fn options_without_effect_are_accepted() {
        let text = "[a]\nsize=0x100000\noffset=25%\ngtod_reduce=1\niodepth=0x10\ndisable_lat=1\nmem=mmaphuge\n\
                    percentile_list=50:99\nfsync_on_close=1\n";
        let file = parse("x.fio", text).unwrap();
        let job = &file.jobs[0];
        assert_eq!((job.size, job.offset, job.depth), (Some(Size::Bytes(1 << 20)), Size::Percent(25), 16));
        assert!(job.end_fsync);
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
        assert_eq!(
            error.to_string(),
            "x.fio:2: numa_mem_policy: not supported; remove it, or run the file with fio on a mount"
        );
        assert!(
            parse_with("x.fio", text, &[set("colour", "red")])
                .unwrap_err()
                .to_string()
                .starts_with("--set colour: colour: not supported; remove it")
        );
    }

    #[test]
    fn names_waits_and_colons() {
        let text = "[global]\nname=all\nfilename=a:b\\:c\n[one]\n[two]\nname=second\nwait_for=one\nexitall\n";
        let file = parse("x.fio", text).unwrap();
        assert_eq!([&*file.jobs[0].name, &*file.jobs[1].name], ["one", "second"]);
        assert_eq!(file.jobs[0].filenames, ["a", "b:c"]);
        assert!(file.jobs[1].ends_group && !file.jobs[0].ends_group);
        assert!(parse("x.fio", "[a]\nwait_for=b\n").unwrap_err().to_string().contains("no job before it"));
    }
}
