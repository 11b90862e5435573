//! Lines of text as system calls.
//!
//! Interface: a line is one call or several with ` ; ` between them; words in braces are alternatives, so that `rename {f,d} {g,none}` is four
//! lines. Each is carried out in a directory of its own, with the files of the group that it names in it, as a user. A row has what the calls gave and
//! what they changed there: names, kinds and permissions, links, owners, sizes, extended attributes, and which have a new modification time.
//! `LONG255` is a name of so many bytes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Gid, IFlags, Mode, OFlags, RenameFlags,
    SeekFrom, StatxFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::{Errno, Result};

/// By whom calls are made.
#[derive(Clone, Copy)]
pub(crate) struct User {
    pub(crate) name: &'static str,
    pub(crate) id: u32,
    /// Beside that with the user's number.
    pub(crate) groups: &'static [u32],
}

/// Lines that begin with the same files.
pub(super) struct Group {
    /// Lines that make them, by the superuser.
    pub(super) files: &'static [&'static str],
    /// Lines that follow when all have their times.
    pub(super) marks: &'static [&'static str],
    pub(super) calls: &'static [&'static str],
}

/// The modification time of all files before a call.
const BEFORE: i64 = 1_000_000_000;

/// Flags by their names, with `+` between them; `-` is none.
macro_rules! flags {
    ($type:ty, $words:expr) => {
        $words.split('+').filter(|word| *word != "-").fold(<$type>::empty(), |all, word| {
            all | <$type>::from_name(word).unwrap_or_else(|| panic!("no flag {word}"))
        })
    };
}

/// Carry out the lines of a group in directories below `top`.
pub(super) fn run(top: &Path, group: &Group, user: &User, rows: &mut super::Rows) {
    fs::create_dir(top).expect("a directory");
    let lines = group.calls.iter().flat_map(|line| expanded(line));
    for (index, line) in lines.enumerate() {
        let root = top.join(index.to_string());
        fs::create_dir(&root).expect("a directory");
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("chmod");
        let mut made = Case { root: root.clone(), files: Vec::new() };
        for line in wanted(group.files, &line) {
            made.must(&line);
        }
        rustix::fs::chown(&root, Some(Uid::from_raw(1000)), Some(Gid::from_raw(1000))).expect("chown");
        let old = Timestamps { last_access: time(BEFORE, 0), last_modification: time(BEFORE, 0) };
        for name in tree(&root).keys() {
            let path = root.join(name);
            rustix::fs::utimensat(CWD, path, &old, AtFlags::SYMLINK_NOFOLLOW).expect("times");
        }
        for line in wanted(group.marks, &line) {
            made.must(&line);
        }
        drop(made);
        let before = tree(&root);
        let given = as_user(user, || {
            let mut case = Case { root: root.clone(), files: Vec::new() };
            let given: Vec<_> = line.split(" ; ").map(|call| shown(case.call(call))).collect();
            given.join("; ")
        });
        rows.push((format!("{}: {line}", user.name), given + &changes(&before, &tree(&root))));
    }
}

/// The lines that a line with alternatives stands for.
pub(super) fn expanded(line: &str) -> Vec<String> {
    let Some((before, rest)) = line.split_once('{') else { return vec![line.to_owned()] };
    let (words, after) = rest.split_once('}').expect("a brace that ends");
    let ends = expanded(after);
    words.split(',').flat_map(|word| ends.iter().map(move |end| format!("{before}{word}{end}"))).collect()
}

/// The lines for files that a line of calls names, or another of these that does.
fn wanted(files: &[&str], line: &str) -> Vec<String> {
    let top = |word: &str| word.split('/').next().unwrap_or_default().to_owned();
    let mut named: Vec<String> = line.split_whitespace().map(top).collect();
    let mut wanted: Vec<_> = files.iter().flat_map(|line| expanded(line)).rev().collect();
    wanted.retain(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let made = top(words[if words[0] == "symlink" { 2 } else { 1 }]);
        let is_wanted = named.contains(&made);
        if is_wanted {
            named.extend(words.into_iter().map(top));
        }
        is_wanted
    });
    wanted.reverse();
    wanted
}

/// Run in a thread that is the user's.
fn as_user(user: &User, calls: impl FnOnce() -> String + Send) -> String {
    let ids = || {
        if user.id != 0 {
            let groups: Vec<_> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
            rustix::thread::set_thread_groups(&groups).expect("setgroups");
            rustix::thread::set_thread_gid(Gid::from_raw(user.id)).expect("setgid");
            rustix::thread::set_thread_uid(Uid::from_raw(user.id)).expect("setuid");
        }
        calls()
    };
    std::thread::scope(|scope| scope.spawn(ids).join().expect("calls"))
}

/// All that is below a directory, but for what no call changes.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::from([(String::new(), described(root))]);
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root.join(&directory)).expect("list") {
            let entry = entry.expect("entry");
            let name = directory.join(entry.file_name());
            found.insert(name.to_string_lossy().into_owned(), described(&entry.path()));
            if entry.file_type().expect("its kind").is_dir() {
                directories.push(name);
            }
        }
    }
    found
}

fn described(path: &Path) -> String {
    let stat = fs::symlink_metadata(path).expect("stat");
    let size = if stat.is_dir() { 0 } else { stat.len() };
    let touched = if stat.mtime() == BEFORE { "" } else { " touched" };
    let mut names = vec![0u8; 4096];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut attributes: Vec<_> = names[..len]
        .split(|byte| *byte == 0)
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    attributes.sort();
    let attributes = attributes.join(" ");
    format!("{:o} {} {}:{} {size}{attributes}{touched}", stat.mode(), stat.nlink(), stat.uid(), stat.gid())
}

/// The differences from before.
fn changes(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> String {
    let short = |name: &str| if name.len() > 20 { format!("{}..", &name[..8]) } else { name.to_owned() };
    let gone =
        before.keys().filter(|name| !after.contains_key(*name)).map(|name| format!(" -{}", short(name)));
    let new = after.iter().filter(|(name, is)| before.get(*name) != Some(is));
    let new = new.map(|(name, is)| format!(" [{}: {is}]", short(name)));
    gone.chain(new).collect()
}

fn shown(result: Result<String>) -> String {
    result.unwrap_or_else(name_of)
}

/// As in the tables of errors: `EPERM`, where the number has such a name here.
fn name_of(error: Errno) -> String {
    let names = [
        (Errno::PERM, "EPERM"),
        (Errno::NOENT, "ENOENT"),
        (Errno::ACCESS, "EACCES"),
        (Errno::EXIST, "EEXIST"),
        (Errno::NOTDIR, "ENOTDIR"),
        (Errno::ISDIR, "EISDIR"),
        (Errno::INVAL, "EINVAL"),
        (Errno::OPNOTSUPP, "EOPNOTSUPP"),
        (Errno::NOTTY, "ENOTTY"),
        (Errno::NOTEMPTY, "ENOTEMPTY"),
    ];
    let name = names.iter().find(|(known, _)| *known == error).map(|(_, name)| (*name).to_owned());
    name.unwrap_or_else(|| error.to_string())
}

fn done<T: Debug>(result: Result<T>) -> Result<String> {
    result.map(|value| format!("{value:?}"))
}

fn time(seconds: i64, nanoseconds: i64) -> Timespec {
    Timespec { tv_sec: seconds, tv_nsec: nanoseconds as _ }
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

fn mode(word: &str) -> Mode {
    Mode::from(u32::from_str_radix(word, 8).expect("an octal number"))
}

/// An access control list: `minimal`, or one with an entry for a user and a mask; or what is none.
fn access_list(kind: &str) -> Vec<u8> {
    let entries: &[(u16, u16, u32)] = match kind {
        "minimal" => &[(1, 6, u32::MAX), (4, 4, u32::MAX), (0x20, 4, u32::MAX)],
        "full" => &[
            (1, 6, u32::MAX),
            (2, 7, 1000),
            (4, 4, u32::MAX),
            (8, 6, 2000),
            (0x10, 5, u32::MAX),
            (0x20, 0, u32::MAX),
        ],
        "without-mask" => &[(1, 6, u32::MAX), (2, 7, 1000), (4, 4, u32::MAX), (0x20, 0, u32::MAX)],
        "empty" => &[],
        _ => return b"bad".to_vec(),
    };
    let mut list = vec![2, 0, 0, 0];
    for (tag, bits, id) in entries {
        list.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}

/// Calls in a directory. Those of open files are of the one that was opened last.
struct Case {
    root: PathBuf,
    files: Vec<OwnedFd>,
}

impl Case {
    fn at(&self, name: &str) -> PathBuf {
        let name = match name.split_once("LONG") {
            Some((before, len)) => format!("{before}{}", "n".repeat(number(len))),
            None => name.replace("DEEP", &"./".repeat(2048)),
        };
        self.root.join(name)
    }

    fn file(&self) -> Result<&OwnedFd> {
        self.files.last().ok_or(Errno::BADF)
    }

    fn must(&mut self, line: &str) {
        self.call(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }

    fn call(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["make", name, permissions, owner] => {
                self.make(name, permissions, owner);
                Ok(String::new())
            }
            ["open", name, flags, rest @ ..] => {
                let permissions = mode(rest.first().unwrap_or(&"666"));
                let file = rustix::fs::open(self.at(name), flags!(OFlags, flags), permissions)?;
                self.files.push(file);
                Ok("opened".to_owned())
            }
            ["setfl", flags] => done(rustix::fs::fcntl_setfl(self.file()?, flags!(OFlags, flags))),
            ["write", text] => done(rustix::io::write(self.file()?, text.as_bytes())),
            ["pwrite", offset, text] => {
                done(rustix::io::pwrite(self.file()?, text.as_bytes(), number(offset)))
            }
            ["read", len] => done(rustix::io::read(self.file()?, &mut vec![0; number(len)][..])),
            ["pread", offset, len] => {
                done(rustix::io::pread(self.file()?, &mut vec![0; number(len)][..], number(offset)))
            }
            ["seek", whence, offset] => {
                let from = match *whence {
                    "set" => SeekFrom::Start(number(offset)),
                    "end" => SeekFrom::End(number(offset)),
                    "data" => SeekFrom::Data(number(offset)),
                    _ => SeekFrom::Hole(number(offset)),
                };
                done(rustix::fs::seek(self.file()?, from))
            }
            ["ftruncate", size] => done(rustix::fs::ftruncate(self.file()?, number(size))),
            ["fallocate", flags, offset, len] => {
                let flags = flags!(FallocateFlags, flags);
                done(rustix::fs::fallocate(self.file()?, flags, number(offset), number(len)))
            }
            ["fsync"] => done(rustix::fs::fsync(self.file()?)),
            ["fdatasync"] => done(rustix::fs::fdatasync(self.file()?)),
            ["fchmod", permissions] => done(rustix::fs::fchmod(self.file()?, mode(permissions))),
            ["flock", how] => done(rustix::fs::flock(self.file()?, lock(how))),
            ["lock", how] => done(rustix::fs::fcntl_lock(self.file()?, lock(how))),
            ["size"] => done(rustix::fs::fstat(self.file()?).map(|stat| stat.st_size)),
            ["linkfd", name] => {
                let path = format!("/proc/thread-self/fd/{}", self.file()?.as_raw_fd());
                done(rustix::fs::linkat(CWD, path, CWD, self.at(name), AtFlags::SYMLINK_FOLLOW))
            }
            _ => self.call_by_name(&words, line),
        }
    }

    fn call_by_name(&mut self, words: &[&str], line: &str) -> Result<String> {
        match words {
            ["mkdir", name, permissions] => done(rustix::fs::mkdir(self.at(name), mode(permissions))),
            ["mknod", name, kind, permissions] => {
                let (kind, device) = match *kind {
                    "char" => (FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
                    "fifo" => (FileType::Fifo, 0),
                    "sock" => (FileType::Socket, 0),
                    _ => (FileType::RegularFile, 0),
                };
                done(rustix::fs::mknodat(CWD, self.at(name), kind, mode(permissions), device))
            }
            ["symlink", target, name] => done(rustix::fs::symlink(*target, self.at(name))),
            ["link", from, to] => done(rustix::fs::link(self.at(from), self.at(to))),
            ["readlink", name] => done(rustix::fs::readlink(self.at(name), Vec::new())),
            ["unlink", name] => done(rustix::fs::unlink(self.at(name))),
            ["rmdir", name] => done(rustix::fs::rmdir(self.at(name))),
            ["rename", from, to, flags] => {
                let flags = flags!(RenameFlags, flags);
                done(rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), flags))
            }
            ["chmod", name, permissions] => done(rustix::fs::chmod(self.at(name), mode(permissions))),
            [call @ ("chown" | "lchown"), name, owner] => {
                let follow = if *call == "chown" { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                let (uid, gid) = owner.split_once(':').expect("USER:GROUP");
                let id = |word: &str| (word != "-1").then(|| number(word));
                let (uid, gid) = (id(uid).map(Uid::from_raw), id(gid).map(Gid::from_raw));
                done(rustix::fs::chownat(CWD, self.at(name), uid, gid, follow))
            }
            ["utimes", name, accessed, modified] => {
                let time = |word: &str| match word {
                    "now" => time(0, rustix::fs::UTIME_NOW as _),
                    "omit" => time(0, rustix::fs::UTIME_OMIT as _),
                    seconds => time(number(seconds), 0),
                };
                let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
                done(rustix::fs::utimensat(CWD, self.at(name), &times, AtFlags::empty()))
            }
            ["access", name, what] => done(rustix::fs::access(self.at(name), flags!(Access, what))),
            ["stat", name] => done(rustix::fs::stat(self.at(name)).map(|stat| format!("{:o}", stat.st_mode))),
            ["statx", name] => {
                let known = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
                let stat = rustix::fs::statx(CWD, self.at(name), AtFlags::SYMLINK_NOFOLLOW, known)?;
                let blocks = if stat.stx_mode & 0o40_000 == 0 { stat.stx_blocks } else { 0 };
                done(Ok((stat.stx_mask & known.bits(), blocks, stat.stx_rdev_minor)))
            }
            ["truncate", name, size] => {
                // `rustix` has no call for a path.
                let file = rustix::fs::open(self.at(name), OFlags::WRONLY, Mode::empty())?;
                done(rustix::fs::ftruncate(file, number(size)))
            }
            ["list", name] => done(Self::positions(&self.at(name)).map(|all| all.len())),
            ["seek-each", name] => Self::seek_each(&self.at(name)),
            _ => self.call_for_attributes(words, line),
        }
    }

    fn call_for_attributes(&mut self, words: &[&str], line: &str) -> Result<String> {
        match words {
            ["setxattr", name, attribute, len, flags] => {
                let (attribute, value) = (Self::attribute(attribute), vec![7; number(len)]);
                done(rustix::fs::lsetxattr(self.at(name), attribute, &value, flags!(XattrFlags, flags)))
            }
            ["getxattr", name, attribute, len] => {
                let mut value = vec![0; number(len)];
                done(rustix::fs::lgetxattr(self.at(name), Self::attribute(attribute), &mut value[..]))
            }
            ["listxattr", name, len] => {
                done(rustix::fs::llistxattr(self.at(name), &mut vec![0u8; number(len)][..]))
            }
            ["removexattr", name, attribute] => {
                done(rustix::fs::lremovexattr(self.at(name), Self::attribute(attribute)))
            }
            ["setacl", name, kind, list] => {
                let attribute = format!("system.posix_acl_{kind}");
                done(rustix::fs::lsetxattr(self.at(name), attribute, &access_list(list), XattrFlags::empty()))
            }
            [call @ ("chattr" | "unchattr"), name, flag] => {
                let flag = IFlags::from_bits_retain(u32::from_str_radix(flag, 16).expect("a number"));
                let flags = OFlags::RDONLY | OFlags::NONBLOCK;
                let file = rustix::fs::open(self.at(name), flags, Mode::empty())?;
                let now = rustix::fs::ioctl_getflags(&file)?;
                let wanted =
                    if *call == "chattr" { now.bits() | flag.bits() } else { now.bits() & !flag.bits() };
                rustix::fs::ioctl_setflags(&file, IFlags::from_bits_retain(wanted))?;
                done(rustix::fs::ioctl_getflags(&file).map(|flags| flags.bits()))
            }
            _ => panic!("no call: {line}"),
        }
    }

    /// A regular file, or a directory where the name ends so.
    fn make(&mut self, name: &str, permissions: &str, owner: &str) {
        let path = self.at(name);
        if name.ends_with('/') {
            fs::create_dir(&path).expect("mkdir");
        } else {
            fs::write(&path, "content").expect("write");
        }
        self.must(&format!("chown {name} {owner}:{owner}"));
        fs::set_permissions(&path, fs::Permissions::from_mode(mode(permissions).bits())).expect("chmod");
    }

    fn attribute(name: &str) -> String {
        match name.split_once("LONG") {
            Some((before, len)) => format!("{before}{}", "n".repeat(number(len))),
            None => name.to_owned(),
        }
    }

    /// Names of a directory, each with the place after it.
    fn positions(path: &Path) -> Result<Vec<(String, u64)>> {
        let directory = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
        Self::rest_of(&directory)
    }

    fn rest_of(directory: &OwnedFd) -> Result<Vec<(String, u64)>> {
        let mut memory = [const { std::mem::MaybeUninit::uninit() }; 512];
        let mut entries = rustix::fs::RawDir::new(directory, &mut memory);
        let mut found = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry?;
            found.push((entry.file_name().to_string_lossy().into_owned(), entry.next_entry_cookie()));
        }
        Ok(found)
    }

    /// Whether from the place after each name on come the names that follow it.
    fn seek_each(path: &Path) -> Result<String> {
        let all = Self::positions(path)?;
        let directory = rustix::fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty())?;
        let mut same = 0;
        for (index, (_, next)) in all.iter().enumerate() {
            rustix::fs::seek(&directory, SeekFrom::Start(*next))?;
            same += usize::from(Self::rest_of(&directory)? == all[index + 1..]);
        }
        Ok(format!("{same} of {}", all.len()))
    }
}

/// A lock that is not waited for.
fn lock(how: &str) -> FlockOperation {
    match how {
        "shared" => FlockOperation::NonBlockingLockShared,
        "exclusive" => FlockOperation::NonBlockingLockExclusive,
        _ => FlockOperation::NonBlockingUnlock,
    }
}
