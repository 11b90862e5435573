//! Whether a file or a block device supports direct I/O, and with which alignment.
//!
//! Where it sits: a step of `open`. The alignment that the system states (`statx`, then the logical block size, then 4096) is accepted only
//! after a real read, because filesystems and drivers err in both directions.
//!
//! Invariants:
//! 1. Memory alignment below a block is accepted only after the device put data into such memory, and not beside it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::kind::Kind;
use crate::error::{OpenError, os_error};
use crate::memory::buffer::AlignedBuf;
use crate::options::{Access, DirectIo};
use crate::sys::{self, DirectAlignment};

/// Larger block sizes are implausible.
const BLOCK_BYTES_MAX: u32 = 64 << 10;
/// The superblock of ext2/3/4, and the header of most filesystems: seldom a hole.
const PROBED_BYTE: u64 = 1024;

/// Verified alignments of direct I/O, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alignment {
    pub(crate) memory: u32,
    pub(crate) offset: u32,
}

/// How a file is transferred.
#[derive(Clone, Debug)]
pub(crate) enum HostCache {
    /// Past the host's page cache.
    Bypassed(Alignment),
    /// Through it: the caller wants it so.
    Wanted,
    /// Through it: direct I/O is refused, for this reason.
    Refused(String),
}

impl HostCache {
    pub(crate) fn alignment(&self) -> Option<Alignment> {
        match self {
            Self::Bypassed(alignment) => Some(*alignment),
            Self::Wanted | Self::Refused(_) => None,
        }
    }
}

/// Enable direct I/O according to the policy. `transfers` are what the file is used for.
pub(crate) fn make_direct(
    path: &Path,
    policy: DirectIo,
    fd: &OwnedFd,
    kind: Kind,
    transfers: Access,
) -> Result<HostCache, OpenError> {
    if policy == DirectIo::Off {
        return Ok(HostCache::Wanted);
    }
    match try_direct(fd, kind, transfers) {
        Ok(alignment) => Ok(HostCache::Bypassed(alignment)),
        Err(why) if policy == DirectIo::Required => {
            Err(OpenError::DirectRefused { path: path.to_owned(), why })
        }
        Err(why) => {
            set_direct(fd, false).map_err(os_error(path, "turn direct I/O off"))?;
            Ok(HostCache::Refused(why))
        }
    }
}

pub(crate) fn set_direct(fd: &OwnedFd, on: bool) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT })
}

/// Enable direct I/O and verify it by a read. The error is the reason in words.
fn try_direct(fd: &OwnedFd, kind: Kind, transfers: Access) -> Result<Alignment, String> {
    let stated = sys::direct_alignment(fd.as_fd(), transfers);
    if stated == DirectAlignment::Refused {
        return Err(
            "the filesystem does not support it for this file (encrypted, compressed or journalled data?)"
                .into(),
        );
    }
    set_direct(fd, true).map_err(|errno| match errno {
        Errno::INVAL => "the filesystem does not support O_DIRECT".to_owned(),
        _ => format!("turning O_DIRECT on: {}", io::Error::from(errno)),
    })?;
    let likely = match (stated, kind) {
        (DirectAlignment::Supported { memory, offset }, _) => Alignment { memory, offset: offset.max(512) },
        (_, Kind::BlockDevice) => {
            let block = rustix::fs::ioctl_blksszget(fd).unwrap_or(4096);
            Alignment { memory: block, offset: block }
        }
        _ => Alignment { memory: 4096, offset: 4096 },
    };
    let by_blocks = Alignment { memory: likely.memory.max(likely.offset), ..likely };
    let cautious = Alignment { memory: 4096, offset: likely.offset.max(4096) };
    let mut refusal = String::new();
    for alignment in [likely, by_blocks, cautious] {
        if !alignment.offset.is_power_of_two() || alignment.offset > BLOCK_BYTES_MAX {
            refusal = format!("it requires transfers of {} bytes", alignment.offset);
            continue;
        }
        match probe(fd, alignment) {
            // Every device accepts whole blocks of memory. A finer alignment must be verified.
            Ok(Proof::Seen) => return Ok(alignment),
            Ok(Proof::Nothing) if alignment.memory >= alignment.offset => return Ok(alignment),
            Ok(Proof::Nothing) => {}
            Err(errno) => {
                refusal = format!("a read of {} bytes: {}", alignment.offset, io::Error::from(errno));
            }
        }
    }
    Err(refusal)
}

/// The result of a successful read with an alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// The device put data into the memory, and not beside it.
    Seen,
    /// The range is a hole, which the driver never sees, or after the end of the file.
    Nothing,
}

/// Read one block into memory with the worst allowed alignment, between two guard blocks. Some drivers (zram) state a finer alignment
/// than they support, and write beside the memory.
fn probe(fd: &OwnedFd, alignment: Alignment) -> Result<Proof, Errno> {
    const UNTOUCHED: u8 = 0xA5;
    let (memory, block) = (alignment.memory as usize, alignment.offset as usize);
    let page = block.max(2 * memory).max(4096);
    let start = page + memory;
    let mut buffer = AlignedBuf::try_zeroed(start + block + page, page).map_err(|_| Errno::NOMEM)?;
    buffer.fill(UNTOUCHED);
    let offset = PROBED_BYTE - PROBED_BYTE % u64::from(alignment.offset);
    let read = rustix::io::pread(fd, &mut buffer[start..start + block], offset)?;
    let beside = buffer[..start].iter().chain(&buffer[start + block..]);
    if !beside.copied().all(|byte| byte == UNTOUCHED) {
        return Err(Errno::FAULT);
    }
    let has_data = buffer[start..start + read].iter().any(|byte| *byte != 0);
    Ok(if has_data { Proof::Seen } else { Proof::Nothing })
}
