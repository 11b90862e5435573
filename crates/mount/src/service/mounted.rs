//! The mounts of this host, as the kernel lists them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Its number among the mounts of the host.
    pub id: u64,
    /// Major and minor number of its device, as `MAJOR:MINOR`. Several mounts have them after `mount --bind`.
    pub numbers: String,
    /// Its directory.
    pub directory: PathBuf,
    /// Its type.
    pub kind: String,
    /// The mounting user of a FUSE mount.
    pub user: u32,
    /// Options of the mount.
    pub options: String,
    /// Options of its filesystem.
    pub filesystem_options: String,
    /// The source: an image, or the loop device over one.
    pub source: PathBuf,
}

impl Mounted {
    /// Whether it is of this program.
    pub fn is_own(&self) -> bool {
        matches!(self.kind.as_str(), "fuse.diorite" | "fuseblk.diorite")
    }
}

/// All mounts, of any type, in the kernel's order.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
pub fn all() -> Vec<Mounted> {
    parse_all(&std::fs::read("/proc/thread-self/mountinfo").unwrap_or_default())
}

fn parse_all(mounts: &[u8]) -> Vec<Mounted> {
    mounts.split(|byte| *byte == b'\n').filter_map(parse).collect()
}

/// The mount on exactly this directory.
pub fn on(directory: &Path) -> Option<Mounted> {
    let directory = std::path::absolute(directory).ok()?;
    all().into_iter().rfind(|mounted| mounted.directory == directory)
}

/// The mount of Diorite that a path is on. The mount itself is not accessed: it may be stuck.
pub(crate) fn find(path: &Path) -> Option<Mounted> {
    let path = std::path::absolute(path).ok()?;
    let mounts = all();
    innermost(&mounts, &path).or_else(|| innermost(&mounts, &path.canonicalize().ok()?))
}

/// The mount of an image, by the sources in the kernel's list, and by the files of loop devices.
pub(crate) fn of_image(image: &Path) -> Option<Mounted> {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let wanted = identity(image)?;
    all().into_iter().filter(Mounted::is_own).find(|mounted| {
        let backing = loop_backing(&mounted.source).unwrap_or_else(|| mounted.source.clone());
        backing.is_absolute() && identity(&backing) == Some(wanted)
    })
}

/// The file that a loop device is over.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
pub(crate) fn loop_backing(device: &Path) -> Option<PathBuf> {
    let name = device.file_name().filter(|_| device.starts_with("/dev"))?;
    let mut path = std::fs::read(Path::new("/sys/block").join(name).join("loop/backing_file")).ok()?;
    path.truncate(path.trim_ascii_end().len());
    Some(PathBuf::from(OsString::from_vec(path)))
}

/// The mount that a path is on, if it is of Diorite: the last mount with the longest directory.
fn innermost(mounts: &[Mounted], path: &Path) -> Option<Mounted> {
    let on_path = mounts.iter().filter(|mounted| path.starts_with(&mounted.directory));
    on_path.max_by_key(|mounted| mounted.directory.as_os_str().len()).filter(|found| found.is_own()).cloned()
}

fn parse(line: &[u8]) -> Option<Mounted> {
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescaped(field)));
    let mut fields = line.split(|byte| *byte == b' ');
    let id = text(fields.next()?).parse().ok()?;
    let numbers = text(fields.nth(1)?);
    let directory = path(fields.nth(1)?);
    let options = text(fields.next()?);
    // Optional fields end with a hyphen.
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, source) = (text(rest.next()?), path(rest.next()?));
    let filesystem_options = text(rest.next().unwrap_or_default());
    let user = filesystem_options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
    let user = user.unwrap_or(0);
    Some(Mounted { id, numbers, directory, kind, user, options, filesystem_options, source })
}

/// Spaces and their like are written as `\040`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"\
22 1 254:0 / / rw,noatime shared:1 - ext4 /dev/vda rw\n\
30 22 0:40 / /mnt/a\\040b rw,nosuid shared:7 master:2 - fuse.diorite disk.img rw,user_id=1000,group_id=1000\n\
31 22 7:3 / /mnt/c rw - fuseblk.diorite /dev/loop3 rw,user_id=0,group_id=0,blksize=4096\n\
32 31 0:50 / /mnt/c/tmp rw - tmpfs tmpfs rw\n\
33 22 7:3 / /mnt/c rw - fuseblk.diorite /dev/loop3 rw,user_id=5\n";

    #[test]
    fn mounts_are_found_by_what_is_in_them() {
        let found = |path: &str| innermost(&parse_all(MOUNTS), Path::new(path));
        let rootless = found("/mnt/a b/x").expect("a mount");
        assert_eq!(
            (rootless.numbers.as_str(), rootless.user, rootless.directory),
            ("0:40", 1000, PathBuf::from("/mnt/a b"))
        );
        // The last one covers those before it.
        assert_eq!(found("/mnt/c").map(|mounted| mounted.user), Some(5));
        assert_eq!(found("/mnt/c/tmp/x"), None);
        assert_eq!(found("/etc"), None);
        let id = found("/mnt/c").map(|mounted| (mounted.id, mounted.source));
        assert_eq!(id, Some((33, PathBuf::from("/dev/loop3"))));
    }
}
