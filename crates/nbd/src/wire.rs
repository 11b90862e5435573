//! Numbers and messages of the NBD protocol (`doc/proto.md` of the NBD project), all big-endian.

use std::io;

use diorite_block::IoErrorKind;

/// First bytes of a server's greeting.
pub(crate) const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Second eight bytes of a greeting, and first of each option.
pub(crate) const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Second eight bytes of a greeting of servers before 2012.
pub(crate) const OLD_STYLE: u64 = 0x0000_4202_8186_1253;
/// First bytes of each reply to an option.
pub(crate) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;

/// Handshake flags, which the client returns if it supports them.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
pub(crate) const NO_ZEROES: u16 = 1 << 1;

/// Options of the handshake.
pub(crate) const OPT_EXPORT_NAME: u32 = 1;
pub(crate) const OPT_LIST: u32 = 3;
#[cfg(feature = "tls")]
pub(crate) const OPT_STARTTLS: u32 = 5;
pub(crate) const OPT_GO: u32 = 7;

/// Replies to options; errors have the highest bit.
pub(crate) const REP_ACK: u32 = 1;
pub(crate) const REP_SERVER: u32 = 2;
pub(crate) const REP_INFO: u32 = 3;
pub(crate) const REP_ERROR: u32 = 1 << 31;
pub(crate) const REP_ERR_UNSUP: u32 = REP_ERROR | 1;
pub(crate) const REP_ERR_POLICY: u32 = REP_ERROR | 2;
pub(crate) const REP_ERR_TLS_REQD: u32 = REP_ERROR | 5;
pub(crate) const REP_ERR_UNKNOWN: u32 = REP_ERROR | 6;

/// Kinds of information on an export.
pub(crate) const INFO_EXPORT: u16 = 0;
pub(crate) const INFO_BLOCK_SIZE: u16 = 3;

/// Transmission flags of an export.
pub(crate) const READ_ONLY: u16 = 1 << 1;
pub(crate) const SEND_FLUSH: u16 = 1 << 2;
pub(crate) const SEND_FUA: u16 = 1 << 3;
pub(crate) const ROTATIONAL: u16 = 1 << 4;
pub(crate) const SEND_TRIM: u16 = 1 << 5;
pub(crate) const SEND_WRITE_ZEROES: u16 = 1 << 6;
pub(crate) const CAN_MULTI_CONN: u16 = 1 << 8;

/// Flag of a durable write.
pub(crate) const COMMAND_FUA: u16 = 1;

/// The server shuts down: the request must be sent again over another connection.
pub(crate) const ESHUTDOWN: u32 = 108;

/// A command to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
}

/// A request, without the data of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) flags: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Request {
    pub(crate) const BYTES: usize = 28;

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&(self.command as u16).to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// A reply, without the data of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) error: u32,
    pub(crate) cookie: u64,
}

impl Reply {
    pub(crate) const BYTES: usize = 16;

    /// None if it is not a simple reply.
    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let whole = u128::from_be_bytes(bytes);
        ((whole >> 96) as u32 == SIMPLE_REPLY)
            .then_some(Self { error: (whole >> 64) as u32, cookie: whole as u64 })
    }
}

/// The error of an error number of the protocol, which are those of Linux.
pub(crate) fn error_kind(error: u32) -> IoErrorKind {
    let known =
        [libc::EPERM, libc::EIO, libc::ENOMEM, libc::EINVAL, libc::ENOSPC, libc::EOVERFLOW, libc::ENOTSUP];
    let number = i32::try_from(error).ok().filter(|number| known.contains(number)).unwrap_or(libc::EIO);
    IoErrorKind::Device(io::Error::from_raw_os_error(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_known_by_its_magic() {
        let bytes = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 1, 2];
        assert_eq!(Reply::from_bytes(bytes), Some(Reply { error: 5, cookie: 258 }));
        assert_eq!(Reply::from_bytes([0; 16]), None);
    }

    #[test]
    fn unknown_errors_are_io_errors() {
        assert_eq!(error_kind(28).errno(), libc::ENOSPC);
        assert_eq!(error_kind(12345).errno(), libc::EIO);
        assert_eq!(error_kind(u32::MAX).errno(), libc::EIO);
    }
}
