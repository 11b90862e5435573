//! The file that a descriptor refers to.

use crate::sys;

/// The kind of a file in its mode.
const S_IFMT: u16 = 0o170_000;

/// The identity of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    device: u64,
    inode: u64,
}

impl Key {
    pub(crate) const NONE: Self = Self { device: 0, inode: 0 };

    /// Device and inode.
    pub(crate) fn words(self) -> [u64; 2] {
        [self.device, self.inode]
    }
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
        const S_IFREG: u16 = 0o100_000;
        const STATX_DIOALIGN: u32 = 0x2000;
        let found = sys::statx(fd)?;
        if found.mode() & S_IFMT != S_IFREG {
            return None;
        }
        // Offsets of `struct statx` in linux/stat.h.
        let device = u64::from(found.word(136)) << 32 | u64::from(found.word(140));
        let (memory, offset) = (found.word(152), found.word(156));
        let has_direct = found.word(0) & STATX_DIOALIGN != 0 && memory > 0 && offset > 0;
        Some(Self {
            fd,
            key: Key { device, inode: found.long(32) },
            size: found.long(40),
            alignment: has_direct.then_some((memory, offset)),
        })
    }

    /// The key of a descriptor, if it refers to a regular file.
    pub(crate) fn key_of(fd: i32) -> Option<Key> {
        Self::regular(fd).map(|file| file.key)
    }
}

/// The inode number of a descriptor that refers to a socket.
pub(crate) fn socket_inode(fd: i32) -> Option<u64> {
    const S_IFSOCK: u16 = 0o140_000;
    let found = sys::statx(fd)?;
    (found.mode() & S_IFMT == S_IFSOCK).then_some(found.long(32))
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
