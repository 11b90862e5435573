//! Failures of commands: one line on standard error, and an exit status.
//!
//! A line is `diorite: OBJECT: what happened: why; what to do`.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use diorite::ErrorKind;
use diorite::front_end::{VolumeInfo, array_of, open_target, partitions_with_volumes};
use diorite_device::{LockHolder, OpenError, OpenOptions as DeviceOptions, Partition};

use diorite_mount::MountOptions;
use diorite_mount::status::{Location, location_of};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::foreign;
use crate::inside::Inside;
use crate::stdout;

/// Failures of parts of a command, after which the command continued.
static PARTIAL: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Result of a command.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// The exit status after SIGPIPE in a shell. This program ignores the signal and closes its images first.
const ENDED_BY_SIGPIPE: u8 = 128 + 13;

/// Why a command did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The operation failed; the text names the object, what happened, and why.
    Failed(String),
    /// The arguments contradict each other.
    Usage(String),
    /// All failures are reported already, one line for each object.
    Reported,
    /// The shell ended with this status, and there is nothing to report.
    Exit(u8),
    /// The reader of the output closed it. The exit status is the one of SIGPIPE.
    OutputClosed,
}

impl Failure {
    /// The failure of an open; the error names the device. An invalid name is wrong usage.
    pub(crate) fn open(error: &OpenError) -> Self {
        match error {
            OpenError::BadTarget { .. } => Self::Usage(error.to_string()),
            OpenError::Locked { path, holder: holder @ LockHolder::Process(process, _), .. } => {
                Self::Failed(match location_of(*process, path) {
                    None => error.to_string(),
                    Some(Location::Mount(directory)) => format!(
                        "{}: locked by {holder}: it is mounted on {directory}; use it there, or unmount it: diorite umount {directory}",
                        path.display(),
                        directory = directory.display()
                    ),
                    Some(Location::Detached) => format!(
                        "{}: locked by {holder}: its mount is detached: programs have files of it open, or it is in another mount \
                         namespace; end those programs, or that process",
                        path.display()
                    ),
                    Some(Location::Server(address)) => format!(
                        "{}: locked by {holder}: it is served, {address}; use it there, or end that process",
                        path.display()
                    ),
                })
            }
            _ => Self::Failed(error.to_string()),
        }
    }

    /// `object: cannot {what}: why`, for an error of the library about `object`.
    pub(crate) fn of(object: impl fmt::Display, what: &str, error: &diorite::Error) -> Self {
        let bare = error.without_path();
        if let Some(error) = error.open_error() {
            return Self::open(error);
        }
        let object = object.to_string();
        if error.is_no_volume()
            && let Some(found) = content_of(&object)
        {
            return Self::Failed(format!("{object}: cannot {what}: {found}"));
        }
        let cure = if error.is_no_volume() && object.contains('?') { "" } else { cure(error) };
        Self::Failed(format!("{object}: cannot {what}: {bare}{cure}"))
    }

    /// As [`Failure::of`], for an image whose part is chosen by mount options.
    pub(crate) fn of_mount(image: &str, options: &MountOptions, what: &str, error: &diorite::Error) -> Self {
        if !error.is_no_volume() {
            return Self::of(image, what, error);
        }
        if let Some(offset) = &options.offset {
            return Self::Failed(format!(
                "{image}: cannot {what}: no ext2, ext3 or ext4 volume begins at byte {offset}; give another offset with -o offset=BYTES"
            ));
        }
        match partitions_text(image, options.partition, "choose one with -o partition=N") {
            Some(found) => Self::Failed(format!("{image}: cannot {what}: {found}")),
            None => Self::of(image, what, error),
        }
    }

    /// A map for `Result::map_err`, as [`Failure::of`].
    pub(crate) fn map<'a>(
        object: impl fmt::Display + 'a,
        what: &'a str,
    ) -> impl FnOnce(diorite::Error) -> Self + 'a {
        move |error| Self::of(object, what, &error)
    }

    /// Append text to the message.
    pub(crate) fn with(self, more: &str) -> Self {
        match self {
            Self::Failed(text) => Self::Failed(text + more),
            other => other,
        }
    }

    /// For an error of the host about `object`.
    pub(crate) fn host(object: impl fmt::Display, what: &str, error: &io::Error) -> Self {
        Self::Failed(format!("{object}: cannot {what}: {}", reason(error)))
    }

    /// Report the failure of a part of a command, which continues. Wrong usage and a closed output end it.
    pub(crate) fn of_part(self) -> Result<()> {
        match self {
            Self::Failed(text) => complain_of_part(&text),
            Self::Reported => {}
            other => return Err(other),
        }
        Ok(())
    }

    /// Print the line, if there is one, and return the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Failed(text) => {
                complain(text);
                ExitCode::FAILURE
            }
            Self::Usage(text) => {
                complain(text);
                print_error(if Inside::current().is_some() { "Try 'help'." } else { "Try 'diorite help'." });
                ExitCode::from(2)
            }
            Self::Reported => ExitCode::FAILURE,
            Self::Exit(status) => ExitCode::from(*status),
            Self::OutputClosed => ExitCode::from(ENDED_BY_SIGPIPE),
        }
    }
}

/// Print the failure of a part of a command, which continues.
pub(crate) fn complain_of_part(text: &str) {
    complain(text);
    PARTIAL.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
}

/// The failures of a command as JSON; empty after success.
pub(crate) fn json_errors(done: &Result<()>) -> Vec<Value> {
    let last = match done {
        Err(Failure::Failed(text) | Failure::Usage(text)) => Some(text.clone()),
        Ok(()) | Err(Failure::Reported) => None,
        Err(Failure::OutputClosed | Failure::Exit(_)) => return Vec::new(),
    };
    let mut texts = std::mem::take(&mut *PARTIAL.lock().unwrap_or_else(PoisonError::into_inner));
    texts.extend(last);
    texts.iter().map(|text| json_error(text, std::env::args_os().skip(1))).collect()
}

/// A message `OBJECT: what: why; remedy` as JSON. An object that is a word of the command line may contain `: `.
fn json_error(text: &str, words: impl Iterator<Item = OsString>) -> Value {
    let words = words.map(|word| word.to_string_lossy().into_owned());
    let named = words.filter(|word| text.strip_prefix(word).is_some_and(|rest| rest.starts_with(": ")));
    let end = named.map(|word| word.len()).max().or_else(|| text.find(": "));
    let (object, rest) = end.map_or((None, text), |end| (Some(&text[..end]), &text[end + 2..]));
    let (happened, remedy) = rest.split_once("; ").map_or((rest, None), |(a, b)| (a, Some(b)));
    let (what, why) = happened.split_once(": ").map_or((happened, None), |(a, b)| (a, Some(b)));
    json!({ "object": object, "what": what, "why": why, "remedy": remedy, "message": text })
}

/// Print a line with the program's name on standard error; control characters are escaped.
pub(crate) fn complain(text: &str) {
    print_error(&format!("diorite: {}", visible(text)));
}

/// Print a line on standard error. If that fails, the exit status still reports the failure.
pub(crate) fn print_error(line: &str) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// Escape control characters, so that a name in a hostile image cannot control the terminal.
pub(crate) fn visible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut visible, c| {
        if c.is_control() {
            visible.extend(c.escape_default());
        } else {
            visible.push(c);
        }
        visible
    })
}

/// The advice for a file that is too large.
const FILE_SIZE_CURE: &str =
    "; raise the limit on the size of files (ulimit -f), or use a filesystem with larger ones";

/// The text of an error of the host, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    if error.raw_os_error() == Some(Errno::FBIG.raw_os_error()) {
        return format!("file too large{FILE_SIZE_CURE}");
    }
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// The content of a target without a volume, if it is known.
fn content_of(name: &str) -> Option<String> {
    if let Some(format) = foreign::describe(Path::new(name)) {
        return Some(format!("not an ext2, ext3 or ext4 volume: {format}"));
    }
    let device = open_target(name, &DeviceOptions::read_only()).ok();
    if let Some(array) = device.and_then(|device| array_of(&*device)) {
        return Some(format!("it is {}", visible(&array)));
    }
    let part = name.rsplit_once("?partition=");
    let chosen = part.and_then(|(disk, number)| Some((disk, Some(number.parse().ok()?))));
    let (disk, number) = chosen.unwrap_or((name, None));
    partitions_text(disk, number, "add ?partition=N to the name of the disk")
}

/// The partitions of the disk `name`, which has no volume in the `chosen` partition or outside of partitions. `cure` says how to choose one.
fn partitions_text(name: &str, chosen: Option<u32>, cure: &str) -> Option<String> {
    let device = open_target(name, &DeviceOptions::read_only()).ok()?;
    let partitions = partitions_with_volumes(&device).ok().filter(|list| !list.is_empty())?;
    let text = |(partition, volume): &(Partition, Option<VolumeInfo>)| {
        let holds = volume.as_ref().map_or("", VolumeInfo::flavor);
        format!("{partition} {holds}").trim_end().to_owned()
    };
    let list_of = |with_volume: bool| -> String {
        let shown = partitions.iter().filter(|(_, volume)| volume.is_some() || !with_volume);
        shown.map(text).collect::<Vec<_>>().join(", ")
    };
    let (all, volumes) = (list_of(false), list_of(true));
    Some(match chosen {
        None => format!("it is a disk with partitions: {all}; {cure}"),
        Some(number) if volumes.is_empty() => {
            format!("neither partition {number} nor another one holds an ext2, ext3 or ext4 volume: {all}")
        }
        Some(number) => {
            format!("partition {number} holds no ext2, ext3 or ext4 volume; volumes are on {volumes}; {cure}")
        }
    })
}

/// The advice for an error of the library, if there is one.
fn cure(error: &diorite::Error) -> &'static str {
    if error.is_no_volume() {
        return "; if it is a disk with partitions, name one: ?partition=1";
    }
    let cause = match error.without_path() {
        diorite::Error::WriteBack(cause) => cause.without_path(),
        other => other,
    };
    match (cause, error.kind()) {
        (cause, _) if cause.is_of_device() && error.errno() == Errno::NOSPC.raw_os_error() => {
            "; the host's filesystem has no space for the image; free some space there"
        }
        (cause, _) if cause.is_of_device() && error.errno() == Errno::FBIG.raw_os_error() => FILE_SIZE_CURE,
        (diorite::Error::DirectRefused(_), _) => "; leave out --direct",
        (_, ErrorKind::Other) if error.errno() == Errno::NAMETOOLONG.raw_os_error() => {
            "; use a shorter name; for a long target of a link, use larger blocks (mkfs -b, up to 4096)"
        }
        (_, kind) => cure_of(kind),
    }
}

/// The advice for a kind of error, if there is one.
fn cure_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "; `diorite ls` lists the directory",
        ErrorKind::AlreadyExists => "; remove it first or choose another name",
        ErrorKind::IsADirectory => "; name a file, or use -r if the command supports it",
        ErrorKind::StorageFull => {
            "; remove something, or make a larger image (`diorite df` shows the blocks, `df -i` the inodes)"
        }
        ErrorKind::DirectoryNotEmpty => "; use rm -r to remove it recursively",
        ErrorKind::NotADirectory => "; a part of the path is not a directory: `diorite ls -l` shows its type",
        ErrorKind::QuotaExceeded => "; remove something, or raise the limit with setquota or edquota",
        ErrorKind::FilesystemLoop => {
            "; a symbolic link on the path leads back to itself: `diorite ls -l` shows the targets"
        }
        ErrorKind::Corrupt => "; `diorite check` lists the problems, e2fsck may repair them",
        _ => "",
    }
}

impl From<diorite_copy::Error> for Failure {
    fn from(error: diorite_copy::Error) -> Self {
        if matches!(error, diorite_copy::Error::Interrupted) && stdout::has_lost_reader() {
            return Self::OutputClosed;
        }
        let text = match &error {
            diorite_copy::Error::Host { path, what, source } => {
                format!("{}: cannot {what}: {}", path.display(), reason(source))
            }
            diorite_copy::Error::Image { source, .. } => format!("{error}{}", cure(source)),
            other => format!("{other}{}", other.kind().map_or("", cure_of)),
        };
        Self::Failed(text)
    }
}

impl From<diorite_bench::Error> for Failure {
    fn from(error: diorite_bench::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<io::Error> for Failure {
    /// For errors of standard output.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::host("standard output", "write", &error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_object_reason_and_cure() {
        let error = diorite::Error::BeyondEnd.at("/x");
        let Failure::Failed(text) = Failure::of("disk.img:/x", "read", &error) else { panic!() };
        assert_eq!(text, "disk.img:/x: cannot read: the offset is at or after the end of the file");
        let error = io::Error::from_raw_os_error(13);
        let Failure::Failed(text) = Failure::host("x", "open", &error) else { panic!() };
        assert_eq!(text, "x: cannot open: permission denied");
    }

    #[test]
    fn message_is_taken_apart() {
        let error = |text, word: &str| json_error(text, std::iter::once(word.into()));
        let all = error("a: b:/x: cannot read: it: is gone; look; again", "a: b:/x");
        assert_eq!(
            all,
            json!({
                "object": "a: b:/x", "what": "cannot read", "why": "it: is gone", "remedy": "look; again",
                "message": "a: b:/x: cannot read: it: is gone; look; again",
            })
        );
        let bare = error("interrupted; completed changes remain", "x");
        assert_eq!((&bare["object"], &bare["what"]), (&Value::Null, &json!("interrupted")));
        assert_eq!(error("b: not a directory", "x")["object"], "b");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(visible("a\u{1b}[31mb\n"), "a\\u{1b}[31mb\\n");
    }

    #[test]
    fn closed_output_is_no_complaint() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(failure, Failure::OutputClosed);
    }
}
