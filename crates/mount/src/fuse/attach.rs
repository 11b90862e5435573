//! Mounting and unmounting.
//!
//! The superuser mounts it as `fuseblk`, on a loop device: then the kernel's `sync`, `syncfs` and `umount` wait for this program, which they do
//! not for the plain type `fuse`. Others mount it as `fuse` with the help of `fusermount3`; for them `fsync` is what makes a file durable.
//! Nothing is read or written through the loop device. It is over the image, so that others see that the image is in use; over a memfd where
//! no single file is the image. It shows no more than the image's boot block: its cache would keep an old superblock, which `tune2fs` would
//! write over that of the volume. Read-only mounts, and those with `fsname=`, are of the plain type.

use std::ffi::CString;
use std::fmt::Write as _;
use std::io::{IoSliceMut, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use rustix::process::getuid;

use super::namespace::{self, Entry, in_callers};
use super::{MountError, sys};
use crate::service::mounted;
use crate::service::watch::user_name;

/// The file of a mount's loop device.
#[derive(Debug)]
pub(super) enum Backing {
    /// The host's file that holds the image. `is_whole`: the volume begins where the file does.
    Image { path: PathBuf, is_whole: bool },
    /// A memfd: the image is no file of the host, or several.
    Memory,
}

impl Backing {
    fn open(&self) -> rustix::io::Result<OwnedFd> {
        match self {
            Self::Image { path, .. } => rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()),
            Self::Memory => {
                let file = memfd_create(c"diorite", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
                ftruncate(&file, BLOCK_SIZE)?;
                fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
                Ok(file)
            }
        }
    }

    /// Bytes that the loop device shows; 0: all.
    fn limit(&self) -> u64 {
        if matches!(self, Self::Image { is_whole: true, .. }) { BOOT_BLOCK } else { 0 }
    }

    /// As programs that list loop devices may show it.
    fn name(&self) -> &[u8] {
        match self {
            Self::Image { path, .. } => path.as_os_str().as_bytes(),
            Self::Memory => b"diorite",
        }
    }
}

/// Block size of the loop device.
const BLOCK_SIZE: u64 = 4096;
/// Bytes before the superblock.
const BOOT_BLOCK: u64 = 1024;

/// Arguments of a mount.
#[derive(Debug)]
pub(super) struct MountRequest<'a> {
    pub(super) directory: &'a Path,
    /// The source in the list of mounts.
    pub(super) source: &'a str,
    /// The file of the loop device of the superuser's mount; `None`: the plain type.
    pub(super) backing: Option<Backing>,
    pub(super) flags: MountFlags,
    pub(super) allow_other: bool,
    pub(super) default_permissions: bool,
    /// Bytes of a read at most: the memory of a request. The kernel's limit in pages depends on their size, and does not hold for its own reads
    /// (`kernel_read`) past its cache.
    pub(super) max_read: usize,
}

/// Mount: the descriptor through which requests come.
pub(super) fn attach(request: &MountRequest<'_>) -> Result<OwnedFd, MountError> {
    if !rustix::process::geteuid().is_root() {
        return attach_by_helper(request);
    }
    let failed =
        |source: Errno| MountError::Attach { directory: request.directory.to_owned(), source: source.into() };
    let device = sys::open_fuse().map_err(|source| MountError::NoFuse { source: source.into() })?;
    if let Some(backing) = &request.backing
        && let Ok(file) = backing.open()
        && let Ok((path, _keep)) = sys::attach_loop(&file, backing.name(), backing.limit())
    {
        match mount_as("fuseblk.diorite", &path, &device, request) {
            Ok(()) => return Ok(device),
            // Without block devices, as in a container: a plain mount may still do.
            Err(Errno::NODEV | Errno::PERM | Errno::INVAL | Errno::NOTBLK) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    mount_as("fuse.diorite", request.source, &device, request).map_err(failed)?;
    Ok(device)
}

fn mount_as(
    kind: &str,
    source: &str,
    device: &OwnedFd,
    request: &MountRequest<'_>,
) -> rustix::io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    let mut data = format!(
        "fd={},rootmode=40000,user_id={user},group_id={group},max_read={}",
        device.as_raw_fd(),
        request.max_read
    );
    for (is_wanted, word) in
        [(request.allow_other, ",allow_other"), (request.default_permissions, ",default_permissions")]
    {
        data += if is_wanted { word } else { "" };
    }
    if kind.starts_with("fuseblk") {
        let _ = write!(data, ",blksize={BLOCK_SIZE}");
    }
    let data = CString::new(data).map_err(|_| Errno::INVAL)?;
    in_callers(|| mount(source, request.directory, kind, request.flags, data.as_c_str()))
}

/// Have `fusermount3` mount: it is allowed to, and sends the descriptor over a socket.
fn attach_by_helper(request: &MountRequest<'_>) -> Result<OwnedFd, MountError> {
    let failed =
        |source: std::io::Error| MountError::Attach { directory: request.directory.to_owned(), source };
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| failed(error.into()))?;
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(|error| failed(error.into()))?;
    let mut options =
        format!("fsname={},subtype=diorite,max_read={}", escaped(request.source), request.max_read);
    let words = [
        (request.flags.contains(MountFlags::RDONLY), "ro"),
        (request.flags.contains(MountFlags::NOEXEC), "noexec"),
        (request.flags.contains(MountFlags::NOATIME), "noatime"),
        (request.flags.contains(MountFlags::NOSYMFOLLOW), "nosymfollow"),
        (request.allow_other, "allow_other"),
        (request.default_permissions, "default_permissions"),
    ];
    for (_, word) in words.iter().filter(|(is_wanted, _)| *is_wanted) {
        let _ = write!(options, ",{word}");
    }
    let mut helper = Command::new("fusermount3");
    helper.arg("-o").arg(options).arg("--").arg(request.directory);
    helper.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    helper.stderr(Stdio::piped());
    let mut child = helper.spawn().map_err(|source| MountError::NoHelper { source })?;
    drop(theirs);
    let received = receive_descriptor(&ours);
    let mut said = String::new();
    if let Some(stderr) = &mut child.stderr {
        let _ = stderr.read_to_string(&mut said);
    }
    let _ = child.wait();
    received.ok_or_else(|| {
        let said = said.trim().trim_start_matches("fusermount3: ");
        let said = if said.is_empty() { "it sent no descriptor" } else { said };
        MountError::Helper { directory: request.directory.to_owned(), said: said.to_owned() }
    })
}

/// Commas and backslashes of a value of an option.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

fn receive_descriptor(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    recvmsg(socket.as_fd(), &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}

/// Unmount the volume of this process, as [`detach`], by a new process.
///
/// The kernel's call waits until this program has written the rest of the data. Made here, it would hold the descriptors of `/dev/fuse` open
/// when this process is killed meanwhile, and so never return; neither would `sync(2)` on the host. A child waits only until they are closed.
///
/// # Errors
/// As `umount` or `fusermount3` reports it.
pub fn detach_own(directory: &Path, lazily: bool) -> Result<(), MountError> {
    if !rustix::process::geteuid().is_root() {
        return detach_by_helper(directory, lazily);
    }
    let mut command = match namespace::entry() {
        Entry::Here => Command::new("umount"),
        Entry::Process(namespace) => {
            let mut command = Command::new("nsenter");
            command.arg(format!("--mount={}", namespace.display())).args(["--", "umount"]);
            command
        }
        Entry::Ended => return Ok(()),
    };
    // The path is canonical already, and no helper may run.
    command.args(["--no-canonicalize", "--internal-only"]).args(lazily.then_some("--lazy"));
    command.arg("--").arg(directory).stdin(Stdio::null());
    // A terminal's signals are for this program.
    command.process_group(0);
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(refused(directory, &output)),
        // Not even `umount`: there is no other way.
        Err(_) => detach(directory, lazily),
    }
}

fn detach_by_helper(directory: &Path, lazily: bool) -> Result<(), MountError> {
    let mut helper = Command::new("fusermount3");
    helper.arg(if lazily { "-uz" } else { "-u" }).arg("--").arg(directory);
    helper.stdin(Stdio::null()).process_group(0);
    let output = helper.output().map_err(|source| MountError::NoHelper { source })?;
    if output.status.success() { Ok(()) } else { Err(refused(directory, &output)) }
}

/// The error of a program that did not unmount.
fn refused(directory: &Path, output: &Output) -> MountError {
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim().trim_start_matches("fusermount3: ").trim_start_matches("umount: ");
    let source =
        std::io::Error::other(said.trim_start_matches(&format!("{}: ", directory.display())).to_owned());
    MountError::Detach { directory: directory.to_owned(), source }
}

/// Unmount a directory; with `lazily` it is out of the tree at once, and goes when the last open file in it is closed.
///
/// # Errors
/// As the kernel or `fusermount3` reports it.
pub fn detach(directory: &Path, lazily: bool) -> Result<(), MountError> {
    let failed = |source| MountError::Detach { directory: directory.to_owned(), source };
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match unmount(directory, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => match mounted::on(directory) {
            Some(mounted) if mounted.user != getuid().as_raw() => {
                let user = user_name(mounted.user);
                Err(failed(std::io::Error::other(format!(
                    "it belongs to {user}: only that user and root can unmount it"
                ))))
            }
            _ => detach_by_helper(directory, lazily),
        },
        Err(Errno::INVAL) => Err(failed(std::io::Error::other("nothing is mounted on it"))),
        Err(error) => Err(failed(error.into())),
    }
}

/// Set readahead and dirty limits to those of the kernel's own filesystems; the defaults for FUSE are lower. For the superuser. A failure costs
/// speed only.
#[allow(clippy::disallowed_methods, reason = "files of the kernel")]
pub(super) fn tune_writeback(directory: &Path) {
    let Some(mounted::Mounted { numbers, .. }) = mounted::on(directory) else { return };
    for suffix in ["", "-fuseblk"] {
        let control = PathBuf::from(format!("/sys/class/bdi/{numbers}{suffix}"));
        for (name, value) in [("read_ahead_kb", "1024"), ("strict_limit", "0"), ("max_ratio", "100")] {
            let _ = std::fs::write(control.join(name), value);
        }
    }
}

/// Whether the kernel offers FUSE over `io_uring`.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
pub(super) fn is_over_io_uring_allowed() -> bool {
    std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|value| value.trim() == "Y")
}

/// End the connection of a mount, by the numbers of its device (`MAJOR:MINOR`): programs that use it get errors. For the superuser.
///
/// # Errors
/// As the kernel reports it.
#[allow(clippy::disallowed_methods, reason = "a file of the kernel")]
pub fn abort(numbers: &str) -> std::io::Result<()> {
    let minor = numbers.split_once(':').map_or(numbers, |(_, minor)| minor);
    std::fs::write(Path::new("/sys/fs/fuse/connections").join(minor).join("abort"), "1")
}
