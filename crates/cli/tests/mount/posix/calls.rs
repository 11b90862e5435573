//! Sequences of calls, on files made by earlier calls of the sequence.

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, OFlags, RenameFlags, SeekFrom, StatxFlags,
    Timespec, Timestamps, XattrFlags,
};
use rustix::io::Result;

struct Table<'a> {
    root: &'a Path,
    rows: Vec<(String, String)>,
}

impl Table<'_> {
    fn row<T: Debug>(&mut self, name: &str, result: Result<T>) {
        let shown = match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => format!("{error}"),
        };
        self.rows.push((name.to_owned(), shown));
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.root.join(name)
    }

    fn open(&self, name: &str, flags: OFlags) -> Result<OwnedFd> {
        rustix::fs::open(self.at(name), flags, Mode::from(0o666))
    }

    fn opened(&mut self, name: &str, flags: OFlags) {
        let result = self.open(name, flags).map(drop);
        self.row(&format!("open {name} {flags:?}"), result);
    }

    fn mkdir(&mut self, name: &str, mode: u32) {
        let result = rustix::fs::mkdir(self.at(name), Mode::from(mode));
        self.row(&format!("mkdir {name}"), result);
    }

    fn rename(&mut self, from: &str, to: &str, flags: RenameFlags) {
        let result = rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), flags);
        self.row(&format!("rename {from} {to} {flags:?}"), result);
    }

    fn link(&mut self, from: &str, to: &str) {
        let result = rustix::fs::link(self.at(from), self.at(to));
        self.row(&format!("link {from} {to}"), result);
    }

    fn unlink(&mut self, name: &str) {
        let result = rustix::fs::unlink(self.at(name));
        self.row(&format!("unlink {name}"), result);
    }

    fn rmdir(&mut self, name: &str) {
        let result = rustix::fs::rmdir(self.at(name));
        self.row(&format!("rmdir {name}"), result);
    }

    /// The part of the result that does not depend on time, place and inode numbers.
    fn stat(&mut self, name: &str) {
        let result = rustix::fs::lstat(self.at(name)).map(|stat| {
            let size = if stat.st_mode & 0o170_000 == 0o040_000 { 0 } else { stat.st_size };
            (format!("{:o}", stat.st_mode), stat.st_nlink, stat.st_uid, stat.st_gid, size, stat.st_rdev)
        });
        self.row(&format!("stat {name}"), result);
    }

    fn set_xattr(&mut self, name: &str, attribute: &str, value: &[u8], flags: XattrFlags) {
        let result = rustix::fs::lsetxattr(self.at(name), attribute, value, flags);
        self.row(&format!("setxattr {name} {attribute} {} {flags:?}", value.len()), result);
    }

    fn xattr(&mut self, name: &str, attribute: &str, len: usize) {
        let mut value = vec![0u8; len];
        let result = rustix::fs::lgetxattr(self.at(name), attribute, &mut value[..]);
        self.row(&format!("getxattr {name} {attribute} {len}"), result);
    }

    /// Times set to now, both or one, and to others.
    fn touches(&mut self, name: &str) {
        let (now, omit) = (rustix::fs::UTIME_NOW, rustix::fs::UTIME_OMIT);
        for (accessed, modified) in [(now, now), (omit, now), (now, omit), (omit, 7), (7, 7)] {
            let time = |nanoseconds| Timespec { tv_sec: 1_000_000, tv_nsec: nanoseconds };
            let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
            let result = rustix::fs::utimensat(CWD, self.at(name), &times, AtFlags::empty());
            self.row(&format!("utimens {name} {accessed} {modified}"), result);
        }
    }

    fn set_flags(&mut self, name: &str, flags: IFlags) {
        let result = self.open(name, OFlags::RDONLY).and_then(|file| {
            let kept = rustix::fs::ioctl_getflags(&file)? & !(IFlags::IMMUTABLE | IFlags::APPEND);
            rustix::fs::ioctl_setflags(&file, kept | flags)
        });
        self.row(&format!("set flags {name} {flags:?}"), result);
    }
}

/// The rows of all calls.
pub(super) fn rows(root: &Path) -> super::Rows {
    let mut table = Table { root, rows: Vec::new() };
    names(&mut table);
    renames(&mut table);
    modes(&mut table);
    files(&mut table);
    ranges(&mut table);
    attributes(&mut table);
    frozen(&mut table);
    table.rows
}

fn names(table: &mut Table<'_>) {
    let long = "n".repeat(256);
    table.mkdir("d", 0o755);
    table.mkdir("d", 0o755);
    table.mkdir("none/x", 0o755);
    table.mkdir(&long, 0o755);
    table.mkdir(&"n".repeat(255), 0o700);
    table.opened("f", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR);
    table.opened("f", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR);
    table.opened("f/x", OFlags::CREATE | OFlags::RDWR);
    table.opened("d", OFlags::RDWR);
    table.opened("d", OFlags::CREATE | OFlags::RDONLY);
    table.opened("f", OFlags::DIRECTORY);
    table.opened("none", OFlags::RDONLY);
    table.opened(&long, OFlags::CREATE | OFlags::RDWR);
    table.opened("d/", OFlags::CREATE | OFlags::RDWR);
    table.opened("d", OFlags::TMPFILE | OFlags::RDONLY);
    let links = [("f", "s"), ("none", "dangling"), ("loop", "loop"), ("d", "sd"), ("", "empty")];
    for (target, name) in links {
        let result = rustix::fs::symlink(target, table.at(name));
        table.row(&format!("symlink {target} {name}"), result);
    }
    let result = rustix::fs::symlink("t".repeat(4095), table.at("long-link"));
    table.row("symlink of 4095", result);
    let result =
        rustix::fs::readlink(table.at("long-link"), Vec::new()).map(|target| target.as_bytes().len());
    table.row("readlink of 4095", result);
    table.opened("s", OFlags::RDONLY | OFlags::NOFOLLOW);
    table.opened("dangling", OFlags::RDONLY);
    table.opened("dangling", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR);
    table.opened("loop", OFlags::RDONLY);
    let result = rustix::fs::readlink(table.at("f"), Vec::new());
    table.row("readlink f", result);
    table.link("f", "hard");
    table.link("f", "hard");
    table.link("d", "hard-directory");
    table.link("none", "x");
    table.link("f", "none/x");
    table.link("s", "hard-symlink");
    for name in ["f", "hard", "d", "s", "sd", "hard-symlink", "none", "f/x"] {
        table.stat(name);
    }
    table.unlink("d");
    table.unlink("none");
    table.unlink("f/x");
    table.rmdir("f");
    table.rmdir("none");
    table.rmdir("d/.");
    table.rmdir("d/..");
    table.mkdir("d/below", 0o711);
    table.rmdir("d");
    table.rmdir("sd");
    table.unlink("hard");
    table.stat("f");
    table.stat("d");
    table.rmdir("d/below");
    table.stat("d");
    let devices = [("fifo", FileType::Fifo), ("char", FileType::CharacterDevice), ("sock", FileType::Socket)];
    for (name, kind) in devices {
        let device = if kind == FileType::CharacterDevice { rustix::fs::makedev(259, 70_000) } else { 0 };
        let result = rustix::fs::mknodat(CWD, table.at(name), kind, Mode::from(0o640), device);
        table.row(&format!("mknod {name}"), result);
        table.stat(name);
    }
    let result = rustix::fs::mknodat(CWD, table.at("fifo"), FileType::Fifo, Mode::RUSR, 0);
    table.row("mknod fifo again", result);
}

fn renames(table: &mut Table<'_>) {
    let none = RenameFlags::empty();
    for name in ["a", "b", "c"] {
        table.opened(name, OFlags::CREATE | OFlags::RDWR);
    }
    for name in ["da", "db", "da/below", "full", "full/x"] {
        table.mkdir(name, 0o755);
    }
    table.rename("a", "a", none);
    table.rename("none", "a", none);
    table.rename("a", "none/a", none);
    table.rename("a", "da", none);
    table.rename("da", "a", none);
    table.rename("da", "da/below/x", none);
    table.rename("da/below", "da", none);
    table.rename("db", "full", none);
    table.rename("full", "db", none);
    table.rename("a", "b", RenameFlags::NOREPLACE);
    table.rename("a", "new", RenameFlags::NOREPLACE);
    table.rename("new", "none", RenameFlags::EXCHANGE);
    table.rename("new", "db", RenameFlags::EXCHANGE);
    table.rename("new", "da", RenameFlags::EXCHANGE);
    table.rename("b", "c", RenameFlags::EXCHANGE | RenameFlags::NOREPLACE);
    table.rename("b", "moved", RenameFlags::WHITEOUT);
    table.rename("b", "c", RenameFlags::WHITEOUT | RenameFlags::EXCHANGE);
    table.rename("da/.", "x", none);
    table.rename("moved", &"n".repeat(256), none);
    for name in ["a", "b", "c", "new", "da", "db", "full", "moved"] {
        table.stat(name);
    }
}

fn modes(table: &mut Table<'_>) {
    // A mask is the process's: that of the tests is left alone.
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 027; : > masked; mkdir masked.d"]).current_dir(table.root);
    assert!(shell.status().expect("a shell").success());
    table.stat("masked");
    table.stat("masked.d");
    for mode in [0o4755, 0o2755, 0o2745, 0o6711, 0o1777, 0] {
        let result = rustix::fs::chmod(table.at("masked"), Mode::from(mode));
        table.row(&format!("chmod {mode:o}"), result);
        table.stat("masked");
        let owner = Some(rustix::process::Uid::from_raw(mode & 0o7));
        let result = rustix::fs::chownat(CWD, table.at("masked"), owner, None, AtFlags::SYMLINK_NOFOLLOW);
        table.row("chown", result);
        table.stat("masked");
    }
    let group = rustix::process::Gid::from_raw(77);
    let result = rustix::fs::chownat(CWD, table.at("masked.d"), None, Some(group), AtFlags::empty());
    table.row("chgrp masked.d", result);
    let result = rustix::fs::chmod(table.at("masked.d"), Mode::from(0o2775));
    table.row("chmod masked.d", result);
    table.opened("masked.d/file", OFlags::CREATE | OFlags::RDWR);
    table.mkdir("masked.d/directory", 0o755);
    table.stat("masked.d/file");
    table.stat("masked.d/directory");
    let time = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    // Later ones the kernel cuts for ext4 and keeps for FUSE, until the inode is read again.
    for seconds in [0, -1, 1 << 31, (1 << 33) - 1] {
        let times =
            Timestamps { last_access: time(seconds, 1), last_modification: time(seconds, 999_999_999) };
        let result = rustix::fs::utimensat(CWD, table.at("masked"), &times, AtFlags::empty());
        table.row(&format!("utimens {seconds}"), result);
        let result = rustix::fs::stat(table.at("masked"))
            .map(|stat| (stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec));
        table.row("times", result);
    }
}

/// Ranges that are copied, holes that are found, and what `statx` and `lsattr` tell.
fn ranges(table: &mut Table<'_>) {
    let Ok(from) = table.open("from", OFlags::CREATE | OFlags::RDWR) else { return };
    let Ok(to) = table.open("to", OFlags::CREATE | OFlags::RDWR) else { return };
    let Ok(reader) = table.open("to", OFlags::RDONLY) else { return };
    for (offset, len) in [(0, 20_000), (1 << 20, 5000)] {
        table.row("pwrite", rustix::io::pwrite(&from, &crate::common::pattern(len, 3), offset));
    }
    let copies = [
        (0, 0, 10_000),
        (5000, 777, 1),
        (19_000, 100_000, 1 << 20),
        (2 << 20, 0, 10),
        (1 << 20, 50, 1 << 30),
    ];
    for (mut at, mut to_at, len) in copies {
        let result = rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), len);
        table.row(&format!("copy_file_range {len}"), result.map(|copied| (copied, at, to_at)));
        table.row("size", rustix::fs::fstat(&to).map(|stat| stat.st_size));
    }
    let (mut at, mut overlapping) = (0, 100);
    let result = rustix::fs::copy_file_range(&from, Some(&mut at), &from, Some(&mut overlapping), 5000);
    table.row("copy_file_range onto itself", result);
    let result = rustix::fs::copy_file_range(&from, None, &reader, None, 5000);
    table.row("copy_file_range to a reader", result);
    let mut content = vec![0; 2 << 20];
    let result = rustix::io::pread(&to, &mut content, 0);
    table.row(
        "copied",
        result
            .map(|len| content[..len].iter().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte))),
    );
    for offset in [0, 20_000, 30_000, 1 << 20, (1 << 20) + 5000, 3 << 20] {
        table.row(&format!("data from {offset}"), rustix::fs::seek(&from, SeekFrom::Data(offset)));
        table.row(&format!("hole from {offset}"), rustix::fs::seek(&from, SeekFrom::Hole(offset)));
    }
    let known = StatxFlags::BTIME | StatxFlags::BASIC_STATS;
    let result = rustix::fs::statx(&from, "", AtFlags::EMPTY_PATH, known).map(|stat| {
        let has_birth = stat.stx_btime.tv_sec > 0 && stat.stx_btime.tv_sec <= stat.stx_mtime.tv_sec;
        (stat.stx_mask & StatxFlags::BTIME.bits(), has_birth, stat.stx_size, stat.stx_blocks)
    });
    table.row("statx", result);
    table.opened("flagged", OFlags::CREATE | OFlags::RDWR);
    for flags in [IFlags::NODUMP, IFlags::NOATIME, IFlags::SYNC, IFlags::empty()] {
        table.set_flags("flagged", flags);
        let settable = IFlags::NODUMP | IFlags::NOATIME | IFlags::SYNC;
        let flags = table.open("flagged", OFlags::RDONLY).and_then(rustix::fs::ioctl_getflags);
        table.row("flags", flags.map(|now| now & settable));
    }
}

fn files(table: &mut Table<'_>) {
    let Ok(file) = table.open("content", OFlags::CREATE | OFlags::RDWR) else { return };
    let result = rustix::io::pwrite(&file, b"content", 100);
    table.row("pwrite", result);
    let mut memory = [0; 200];
    for offset in [0, 50, 106, 107, 1 << 40] {
        let result = rustix::io::pread(&file, &mut memory, offset);
        table.row(&format!("pread {offset}"), result);
    }
    let size = |file: &OwnedFd| rustix::fs::fstat(file).map(|stat| stat.st_size);
    for len in [50, 5000, 1 << 44, 1 << 50, 0] {
        let result = rustix::fs::ftruncate(&file, len);
        table.row(&format!("truncate {len}"), result);
        table.row("size", size(&file));
    }
    let keep = FallocateFlags::KEEP_SIZE;
    let modes = [
        (FallocateFlags::empty(), 0, 100_000),
        (keep, 200_000, 100_000),
        (FallocateFlags::PUNCH_HOLE | keep, 4096, 8192),
        (FallocateFlags::PUNCH_HOLE, 0, 4096),
        (FallocateFlags::ZERO_RANGE, 90_000, 50_000),
        (FallocateFlags::ZERO_RANGE | keep, 130_000, 50_000),
        (FallocateFlags::empty(), 0, 0),
        (FallocateFlags::empty(), 1 << 43, 1 << 43),
    ];
    for (mode, offset, len) in modes {
        let result = rustix::fs::fallocate(&file, mode, offset, len);
        table.row(&format!("fallocate {mode:?} {offset} {len}"), result);
        table.row("size", size(&file));
    }
    let Ok(reader) = table.open("content", OFlags::RDONLY) else { return };
    table.row("write to a reader", rustix::io::pwrite(&reader, b"x", 0));
    table.row("truncate of a reader", rustix::fs::ftruncate(&reader, 0));
    table.row("allocate of a reader", rustix::fs::fallocate(&reader, FallocateFlags::empty(), 0, 10));
    let Ok(appender) = table.open("content", OFlags::WRONLY | OFlags::APPEND | OFlags::TRUNC) else { return };
    for _ in 0..3 {
        table.row("append", rustix::io::write(&appender, b"appended"));
        table.row("size", size(&file));
    }
    table.row("fsync", rustix::fs::fsync(&appender));
    let result = table.open("d", OFlags::RDONLY).and_then(rustix::fs::fsync);
    table.row("fsync d", result);
    let result = table.open("d", OFlags::RDONLY).and_then(|d| rustix::io::read(d, &mut memory));
    table.row("read d", result);
}

fn attributes(table: &mut Table<'_>) {
    let any = XattrFlags::empty();
    table.opened("x", OFlags::CREATE | OFlags::RDWR);
    table.set_xattr("x", "user.a", b"1", XattrFlags::REPLACE);
    table.set_xattr("x", "user.a", b"1", XattrFlags::CREATE);
    table.set_xattr("x", "user.a", b"2", XattrFlags::CREATE);
    table.set_xattr("x", "user.a", b"22", XattrFlags::REPLACE);
    table.set_xattr("x", "user.empty", b"", any);
    table.set_xattr("x", "user.large", &[7; 3000], any);
    table.set_xattr("x", "user.larger", &vec![7; 60_000], any);
    table.set_xattr("x", "user.too-large", &vec![7; 70_000], any);
    table.set_xattr("x", "user.", b"1", any);
    table.set_xattr("x", "bogus.a", b"1", any);
    table.set_xattr("x", &format!("user.{}", "n".repeat(251)), b"1", any);
    table.set_xattr("x", "trusted.a", b"1", any);
    table.set_xattr("x", "security.a", b"1", any);
    table.set_xattr("s", "user.a", b"1", any);
    table.set_xattr("fifo", "user.a", b"1", any);
    table.set_xattr("d", "user.a", b"1", any);
    table.set_xattr("x", "system.posix_acl_access", b"bad", any);
    table.set_xattr("x", "system.posix_acl_default", &[2, 0, 0, 0], any);
    for (attribute, len) in
        [("user.a", 10), ("user.a", 1), ("user.a", 0), ("user.empty", 10), ("user.none", 10)]
    {
        table.xattr("x", attribute, len);
    }
    table.xattr("x", "bogus.a", 10);
    let mut list = [0u8; 1000];
    let result = rustix::fs::llistxattr(table.at("x"), &mut list[..]).map(|len| {
        let mut names: Vec<_> = list[..len].split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        names.sort();
        names
    });
    table.row("listxattr", result);
    let mut short = [0u8; 3];
    table.row("listxattr short", rustix::fs::llistxattr(table.at("x"), &mut short[..]));
    for attribute in ["user.a", "user.a", "trusted.a", "bogus.a"] {
        let result = rustix::fs::lremovexattr(table.at("x"), attribute);
        table.row(&format!("removexattr {attribute}"), result);
    }
    // rwx for one user more: the mask is the group's bits then.
    let mut list = vec![2u8, 0, 0, 0];
    for (tag, bits, id) in
        [(1u16, 6u16, u32::MAX), (2, 7, 1000), (4, 4, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)]
    {
        list.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    table.set_xattr("x", "system.posix_acl_access", &list, any);
    table.stat("x");
    table.set_xattr("d", "system.posix_acl_default", &list, any);
    table.opened("d/inherits", OFlags::CREATE | OFlags::RDWR);
    table.stat("d/inherits");
    table.xattr("d/inherits", "system.posix_acl_access", 100);
    table.row("chmod x", rustix::fs::chmod(table.at("x"), Mode::from(0o700)));
    table.xattr("x", "system.posix_acl_access", 100);
    table.stat("x");
}

fn frozen(table: &mut Table<'_>) {
    table.opened("frozen", OFlags::CREATE | OFlags::RDWR);
    table.mkdir("frozen.d", 0o755);
    table.opened("frozen.d/x", OFlags::CREATE | OFlags::RDWR);
    for flag in [IFlags::IMMUTABLE, IFlags::APPEND] {
        table.set_flags("frozen", flag);
        table.set_flags("frozen.d", flag);
        table.opened("frozen", OFlags::RDWR);
        table.opened("frozen", OFlags::WRONLY | OFlags::APPEND);
        table.opened("frozen", OFlags::WRONLY | OFlags::TRUNC);
        table.row("chmod frozen", rustix::fs::chmod(table.at("frozen"), Mode::from(0o600)));
        table.unlink("frozen");
        table.rename("frozen", "thawed", RenameFlags::empty());
        table.link("frozen", "thawed");
        table.set_xattr("frozen", "user.a", b"1", XattrFlags::empty());
        table.touches("frozen");
        table.touches("frozen.d");
        table.unlink("frozen.d/x");
        table.opened("frozen.d/y", OFlags::CREATE | OFlags::RDWR);
        table.set_flags("frozen", IFlags::empty());
        table.set_flags("frozen.d", IFlags::empty());
    }
    table.unlink("frozen");
}
