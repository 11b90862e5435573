//! Judges an image after a power cut: the volume must be consistent, and every file must keep its promises.

use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use diorite::check::{CheckOptions, check};
use diorite::{BlockDevice, FileKind, Filesystem, FilesystemOptions};
use diorite_sim::crash::{Loss, SUPERBLOCK};
use diorite_sim::image::SparseImage;

use super::oracle::{Class, FileLog, Rounding, Violation};
use crate::disk::disk;
use crate::formats::Format;
use crate::random::Random;

/// Bytes that are compared at once; every volume is a multiple of it.
const STEP: usize = 16 << 10;

/// An image file for e2fsck; only changed blocks are written again.
#[derive(Debug)]
pub struct Scratch {
    directory: tempfile::TempDir,
    held: Option<SparseImage>,
}

impl Scratch {
    /// In memory, where the system has a place for that.
    pub fn new() -> std::io::Result<Self> {
        let shared_memory = Path::new("/dev/shm");
        let mut builder = tempfile::Builder::new();
        builder.prefix("diorite-torture-");
        let directory =
            if shared_memory.is_dir() { builder.tempdir_in(shared_memory)? } else { builder.tempdir()? };
        Ok(Self { directory, held: None })
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("disk.img")
    }

    fn put(&mut self, image: &SparseImage) -> std::io::Result<()> {
        let file = std::fs::OpenOptions::new().write(true).create(true).truncate(false).open(self.path())?;
        file.set_len(image.len())?;
        let held = self.held.as_ref().filter(|held| held.len() == image.len());
        for (at, part) in image.parts_beside(held) {
            file.write_all_at(part, at)?;
        }
        self.held = Some(image.clone());
        Ok(())
    }

    /// The present content of the file.
    fn take(&mut self) -> std::io::Result<SparseImage> {
        let mut image = self.held.take().expect("something was put");
        #[expect(clippy::disallowed_methods, reason = "what e2fsck has written")]
        let file = std::fs::File::open(self.path())?;
        let (mut found, mut known) = ([0; STEP], [0; STEP]);
        for at in (0..image.len()).step_by(STEP) {
            file.read_exact_at(&mut found, at)?;
            image.read(at, &mut known);
            if found != known {
                image.write(at, &found);
            }
        }
        self.held = Some(image.clone());
        Ok(image)
    }

    fn e2fsck(&self, how: &str) -> std::io::Result<(i32, String)> {
        let output = Command::new("e2fsck").args(["-f", how]).arg(self.path()).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> =
            text.lines().filter(|line| !line.is_empty() && !line.starts_with("Fix?")).collect();
        Ok((output.status.code().unwrap_or(-1), lines[..lines.len().min(14)].join("\n")))
    }
}

/// Write an image to a file.
pub(super) fn export(image: &SparseImage, path: &Path) -> std::io::Result<()> {
    image.export(&mut std::fs::OpenOptions::new().write(true).create(true).truncate(true).open(path)?)
}

/// Whether there is an e2fsck.
pub fn has_e2fsck() -> bool {
    Command::new("e2fsck").arg("-V").output().is_ok()
}

/// How an image is looked at.
#[derive(Debug)]
pub(super) struct Inspection {
    /// Whether e2fsck looks at it as well; a volume without a journal always needs it, for the repair.
    pub outside: bool,
    /// Whether the primary superblock may be torn.
    pub torn_superblock: bool,
    /// Decides a second power cut, while the journal is replayed.
    pub second_cut: Option<Random>,
}

/// The judge of one run's images.
pub(super) struct Judge<'a> {
    pub format: &'a Format,
    pub files: &'a [FileLog],
    /// When the power was cut.
    pub cut: usize,
    pub scratch: &'a mut Scratch,
}

fn tool(error: &std::io::Error) -> Violation {
    Violation::new(Class::Fsck, format!("e2fsck: {error}"))
}

impl Judge<'_> {
    /// Look at one image.
    pub(super) fn judge(&mut self, image: &SparseImage, mut how: Inspection) -> Result<(), Violation> {
        if !self.format.journal {
            return self.judge_after_repair(image);
        }
        let disk = disk(image.clone(), true, self.cut as u64);
        let device: Arc<dyn BlockDevice> = disk.clone();
        // Opening for writing replays the journal.
        let filesystem = open(&device)?;
        if let Some(reason) = filesystem.read_only_reason() {
            if how.torn_superblock {
                drop(filesystem);
                return self.judge_after_repair(image);
            }
            return Err(Violation::new(Class::Open, format!("it is read-only: {reason}")));
        }
        let opened = disk.now();
        let seen = files_of(&filesystem)?;
        filesystem.close().map_err(|error| unreadable("close", &error))?;
        judge_check(&device)?;
        if how.outside {
            self.scratch.put(&disk.content()).map_err(|error| tool(&error))?;
            let (code, text) = self.scratch.e2fsck("-n").map_err(|error| tool(&error))?;
            if code != 0 {
                return Err(Violation::new(
                    Class::Fsck,
                    format!("after replay e2fsck -fn says ({code}):\n{text}"),
                ));
            }
        }
        judge_files(&seen, self.files, self.cut, self.rounding(false))?;
        let Some(mut random) = how.second_cut.take() else { return Ok(()) };
        let recording = disk.recording();
        let mut replay = recording.replay();
        let (moment, loss) = (random.index(opened + 1), random.pick(&Loss::KINDS));
        replay.advance(moment);
        let again = replay.point().image_after(loss, &SUPERBLOCK, random.number());
        let at = format!("a second cut at event {moment} of {opened} of the replay, {loss:?} lost");
        self.judge(&again, how).map_err(|wrong| wrong.at(at))
    }

    fn rounding(&self, repaired: bool) -> Rounding {
        Rounding { block: u64::from(self.format.block_size), repaired }
    }

    fn judge_after_repair(&mut self, image: &SparseImage) -> Result<(), Violation> {
        self.scratch.put(image).map_err(|error| tool(&error))?;
        let (code, text) = self.scratch.e2fsck("-y").map_err(|error| tool(&error))?;
        self.judge_repaired(code).map_err(|Violation { class, what }| Violation {
            class,
            what: format!("{what}\ne2fsck -fy has said:\n{text}"),
        })
    }

    fn judge_repaired(&mut self, code: i32) -> Result<(), Violation> {
        if code & !3 != 0 {
            return Err(Violation::new(Class::Fsck, format!("e2fsck -fy cannot repair it ({code})")));
        }
        let repaired = self.scratch.take().map_err(|error| tool(&error))?;
        let device: Arc<dyn BlockDevice> = disk(repaired, true, self.cut as u64);
        judge_check(&device)?;
        let seen = files_of(&open(&device)?)?;
        judge_files(&seen, self.files, self.cut, self.rounding(true))
    }
}

fn open(device: &Arc<dyn BlockDevice>) -> Result<Filesystem, Violation> {
    quiet_options().open_device(Arc::clone(device)).map_err(|error| unreadable("open", &error))
}

fn unreadable(what: &str, error: &diorite::Error) -> Violation {
    Violation::new(Class::Open, format!("{what}: {error}"))
}

fn quiet_options() -> FilesystemOptions {
    FilesystemOptions::new().cache_bytes(1 << 20).read_ahead_bytes(0)
}

fn judge_check(device: &Arc<dyn BlockDevice>) -> Result<(), Violation> {
    let report = check(&**device, &CheckOptions::default(), &mut |_| {})
        .map_err(|error| Violation::new(Class::Check, format!("check: {error}")))?;
    if report.problems.is_empty() {
        return Ok(());
    }
    let problems: Vec<String> = report.problems.iter().take(5).map(ToString::to_string).collect();
    Err(Violation::new(Class::Check, format!("check finds: {}", problems.join("; "))))
}

/// A file as it was found.
struct Seen {
    path: String,
    inode: u32,
    content: Vec<u8>,
}

/// Every regular file with its content.
fn files_of(filesystem: &Filesystem) -> Result<Vec<Seen>, Violation> {
    let mut seen = Vec::new();
    let mut directories = vec![String::new()];
    while let Some(directory) = directories.pop() {
        let at = if directory.is_empty() { "/" } else { &directory };
        for entry in filesystem.read_dir(at).map_err(|error| unreadable("read_dir", &error))? {
            let entry = entry.map_err(|error| unreadable("read_dir", &error))?;
            let path = format!("{directory}/{}", String::from_utf8_lossy(&entry.name));
            let attributes =
                filesystem.symlink_metadata(&path).map_err(|error| unreadable("stat", &error))?;
            match attributes.kind {
                FileKind::Directory => directories.push(path),
                FileKind::Regular if attributes.size <= 16 << 20 => {
                    let file = filesystem.open_file(&path).map_err(|error| unreadable("open", &error))?;
                    let mut content = vec![0; attributes.size as usize];
                    file.read_exact_at(&mut content, 0).map_err(|error| unreadable("read", &error))?;
                    seen.push(Seen { path, inode: attributes.inode.0, content });
                }
                kind => {
                    let what = format!("{path}: a {kind:?} of {} bytes", attributes.size);
                    return Err(Violation::new(Class::Size, what));
                }
            }
        }
    }
    Ok(seen)
}

fn judge_files(seen: &[Seen], files: &[FileLog], cut: usize, round: Rounding) -> Result<(), Violation> {
    let mut found: HashMap<usize, Vec<&Seen>> = HashMap::new();
    for file in seen {
        let is_lost = round.repaired && file.path.starts_with("/lost+found/");
        let is_candidate = |log: &FileLog| {
            if is_lost {
                log.inode == Some(file.inode)
            } else {
                log.names.may_be(&file.path, cut, &log.syncs)
            }
        };
        let candidates: Vec<usize> =
            (0..files.len()).filter(|number| is_candidate(&files[*number])).collect();
        if candidates.is_empty() && is_lost {
            // The inode of a file whose creation had not returned.
            continue;
        }
        let mut verdict = Err(Violation::new(Class::Name, "no call gives this name"));
        for number in candidates {
            verdict = files[number].judge(cut, &file.content, round);
            if verdict.is_ok() {
                found.entry(number).or_default().push(file);
                break;
            }
            verdict = verdict.map_err(|wrong| wrong.at(format_args!("file {number} (inode {})", file.inode)));
        }
        verdict.map_err(|wrong| wrong.at(&file.path))?;
    }
    for (number, log) in files.iter().enumerate() {
        let found = found.get(&number).map_or(&[][..], Vec::as_slice);
        judge_name(number, log, found, cut, round).map_err(|what| Violation::new(Class::Name, what))?;
    }
    Ok(())
}

/// Whether a file is where it was promised to be.
fn judge_name(
    number: usize,
    log: &FileLog,
    found: &[&Seen],
    cut: usize,
    round: Rounding,
) -> Result<(), String> {
    let repaired = round.repaired;
    let paths: Vec<&str> = found.iter().map(|file| file.path.as_str()).collect();
    // e2fsck clears an empty file that lost its name in the middle of a rename: nothing but the name is lost.
    if repaired
        && paths.is_empty()
        && log.names.is_renamed(cut, &log.syncs)
        && log.judge(cut, &[], round).is_ok()
    {
        return Ok(());
    }
    let is_lost = repaired && paths.iter().any(|path| path.starts_with("/lost+found/"));
    // Without a journal a rename between two directories may lose both names; another link of the file stays.
    let has_lost_names = repaired && !paths.is_empty() && log.names.is_renamed(cut, &log.syncs);
    if let Some(names) = log.names.presence(cut, &log.syncs)
        && !(is_lost || has_lost_names)
        && !paths.iter().any(|path| names.iter().any(|name| name == path))
    {
        return Err(format!("file {number} is not at {names:?}, as was promised, but at {paths:?}"));
    }
    if log.is_kept(cut) && paths.is_empty() {
        return Err(format!("file {number} was synced and is lost altogether"));
    }
    if !is_lost
        && let Some(name) =
            log.names.promised_links(cut, &log.syncs).iter().find(|name| !paths.contains(&name.as_str()))
    {
        return Err(format!("file {number} has no link {name}, as was promised, but {paths:?}"));
    }
    if found.iter().any(|file| file.inode != found[0].inode) {
        return Err(format!("the names of file {number} lead to different inodes: {paths:?}"));
    }
    if !repaired && paths.len() > log.names.most(cut) {
        return Err(format!("file {number} has too many names: {paths:?}"));
    }
    Ok(())
}
