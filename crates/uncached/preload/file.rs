//! The file that a descriptor refers to.

use crate::sys;

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    device: u64,
    inode: u64,
}

impl Key {
    pub(crate) const NONE: Self = Self { device: 0, inode: 0 };
}

/// A regular file at the time of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    pub(crate) fd: i32,
    pub(crate) key: Key,
    pub(crate) size: u64,
    /// Alignment of memory and of offsets for direct I/O; `None` without direct I/O.
    pub(crate) alignment: Option<(u32, u32)>,
}

impl File {
    /// `None` if the descriptor is closed or refers to anything else.
    pub(crate) fn regular(fd: i32) -> Option<Self> {
        const S_IFMT: u16 = 0o170_000;
        const S_IFREG: u16 = 0o100_000;
        const STATX_DIOALIGN: u32 = 0x2000;
        let found = sys::statx(fd)?;
        let word = |at: usize| {
            let raw = found.0.get(at..at + 4)?;
            Some(u32::from_ne_bytes(raw.try_into().ok()?))
        };
        let long = |at: usize| {
            let raw = found.0.get(at..at + 8)?;
            Some(u64::from_ne_bytes(raw.try_into().ok()?))
        };
        // Offsets of `struct statx` in linux/stat.h.
        let mode = u16::from_ne_bytes([found.0[28], found.0[29]]);
        if mode & S_IFMT != S_IFREG {
            return None;
        }
        let device = u64::from(word(136)?) << 32 | u64::from(word(140)?);
        let (memory, offset) = (word(152)?, word(156)?);
        let has_direct = word(0)? & STATX_DIOALIGN != 0 && memory > 0 && offset > 0;
        Some(Self {
            fd,
            key: Key { device, inode: long(32)? },
            size: long(40)?,
            alignment: has_direct.then_some((memory, offset)),
        })
    }

    /// The key of a descriptor, if it refers to a regular file.
    pub(crate) fn key_of(fd: i32) -> Option<Key> {
        Self::regular(fd).map(|file| file.key)
    }
}

/// The path of a descriptor in `/proc`, with its NUL byte.
pub(crate) struct ProcPath {
    text: [u8; 32],
    len: usize,
}

impl ProcPath {
    pub(crate) fn of(fd: i32) -> Self {
        let mut path = Self { text: [0; 32], len: 0 };
        path.push(b"/proc/self/fd/");
        let mut digits = [0; 10];
        let mut rest = fd.unsigned_abs();
        let mut first = digits.len();
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        path.push(&digits[first..]);
        path.len += 1;
        path
    }

    fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.text[self.len] = *byte;
            self.len += 1;
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.text[..self.len]
    }
}
