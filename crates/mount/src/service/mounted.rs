//! The mounts of this program, as the kernel lists them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A mount of Diorite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    /// Its number among the mounts of the host.
    pub(crate) id: u64,
    /// Major and minor number of its device: no other mount of the host has them.
    pub(crate) numbers: String,
    /// Its directory.
    pub(crate) directory: PathBuf,
    /// The mounting user.
    pub(crate) user: u32,
    /// Options of the mount and of its filesystem.
    pub(crate) options: String,
    /// The source: an image, or the loop device over one.
    pub(crate) source: PathBuf,
}

/// The mount of Diorite that a path is on. The mount itself is not accessed: it may be stuck.
pub(crate) fn find(path: &Path) -> Option<Mounted> {
    let path = std::path::absolute(path).ok()?;
    let mounts = read_mounts()?;
    // By the given path first: following links may access the mount.
    innermost(&mounts, &path).or_else(|| innermost(&mounts, &path.canonicalize().ok()?))
}

#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
fn read_mounts() -> Option<Vec<u8>> {
    std::fs::read("/proc/thread-self/mountinfo").ok()
}

/// The mount on exactly this directory, of any kind, and its type.
pub(crate) fn mounted_on(directory: &Path) -> Option<(Mounted, Vec<u8>)> {
    let directory = std::path::absolute(directory).ok()?;
    let mounts = read_mounts()?;
    lines(&mounts).rev().find_map(|line| parse(line).filter(|(mounted, _)| mounted.directory == directory))
}

/// Major and minor number of the mount on exactly this directory.
pub fn device_numbers(directory: &Path) -> Option<String> {
    mounted_on(directory).map(|(mounted, _)| mounted.numbers)
}

/// The directories on which mounts of Diorite with this device (`MAJOR:MINOR`) are: more than one after `mount --bind`.
pub fn directories_of(numbers: &str) -> Vec<PathBuf> {
    let of_device = all().into_iter().filter(|mounted| mounted.numbers == numbers);
    of_device.map(|mounted| mounted.directory).collect()
}

/// All mounts of Diorite.
pub(crate) fn all() -> Vec<Mounted> {
    let mounts = read_mounts().unwrap_or_default();
    let is_own = |kind: &[u8]| std::str::from_utf8(kind).is_ok_and(is_own);
    let parsed = lines(&mounts).filter_map(parse);
    parsed.filter(|(_, kind)| is_own(kind)).map(|(mounted, _)| mounted).collect()
}

/// All directories with a mount, whatever its type, in the kernel's order.
pub(crate) fn mount_points() -> Vec<PathBuf> {
    let mounts = read_mounts().unwrap_or_default();
    let points = lines(&mounts).filter_map(parse);
    points.map(|(mounted, _)| mounted.directory).collect()
}

/// The mount of an image, by the sources in the kernel's list, and by the files of loop devices.
pub(crate) fn of_image(image: &Path) -> Option<Mounted> {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let wanted = identity(image)?;
    all().into_iter().find(|mounted| {
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

/// Other mounts below a directory.
pub(crate) fn below(directory: &Path) -> Vec<PathBuf> {
    let mounts = read_mounts().unwrap_or_default();
    let parsed = lines(&mounts).filter_map(parse).map(|(mounted, _)| mounted.directory);
    parsed.filter(|other| other != directory && other.starts_with(directory)).collect()
}

/// The type of the mount on exactly this directory.
pub fn type_of(directory: &Path) -> Option<String> {
    mounted_on(directory).map(|(_, kind)| String::from_utf8_lossy(&kind).into_owned())
}

/// Whether a type of mounts is of this program.
pub fn is_own(kind: &str) -> bool {
    matches!(kind, "fuse.diorite" | "fuseblk.diorite")
}

/// The mount of Diorite on exactly this directory.
pub(crate) fn exactly_on(directory: &Path) -> Option<Mounted> {
    let (mounted, kind) = mounted_on(directory)?;
    std::str::from_utf8(&kind).is_ok_and(is_own).then_some(mounted)
}

fn lines(mounts: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    mounts.split(|byte| *byte == b'\n')
}

/// The mount that a path is on: the last mount with the longest directory.
fn innermost(mounts: &[u8], path: &Path) -> Option<Mounted> {
    let (mounted, kind) = lines(mounts)
        .filter_map(parse)
        .filter(|(mounted, _)| path.starts_with(&mounted.directory))
        .max_by_key(|(mounted, _)| mounted.directory.as_os_str().len())?;
    std::str::from_utf8(&kind).is_ok_and(is_own).then_some(mounted)
}

/// A line: the mount and its type.
fn parse(line: &[u8]) -> Option<(Mounted, Vec<u8>)> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let numbers = String::from_utf8(fields.nth(1)?.to_vec()).ok()?;
    let directory = PathBuf::from(OsString::from_vec(unescaped(fields.nth(1)?)));
    let own = String::from_utf8_lossy(fields.next()?).into_owned();
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = rest.next()?.to_vec();
    let source = PathBuf::from(OsString::from_vec(unescaped(rest.next()?)));
    let all = rest.next().unwrap_or_default();
    let user = all.split(|byte| *byte == b',').find_map(|option| option.strip_prefix(b"user_id="));
    let user = user.and_then(|user| std::str::from_utf8(user).ok()?.parse().ok()).unwrap_or(0);
    let options = format!("{own},{}", String::from_utf8_lossy(all));
    Some((Mounted { id, numbers, directory, user, options, source }, kind))
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
        let found = |path: &str| innermost(MOUNTS, Path::new(path));
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
