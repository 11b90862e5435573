//! The abilities of `io_uring` on this host.
//!
//! Where it sits: below rings. A probe runs once, when the first file is opened.

use std::io;
use std::sync::OnceLock;

use io_uring::{IoUring, Probe, opcode};

/// The abilities of this kernel's rings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// Vectored transfers of registered memory.
    pub(crate) vectored_fixed: bool,
}

/// The abilities of `io_uring`, or why it cannot be used.
pub(crate) fn abilities() -> Result<Abilities, io::Error> {
    static ABILITIES: OnceLock<Result<Abilities, i32>> = OnceLock::new();
    let probe = || {
        let ring = IoUring::new(4)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Nop::CODE,
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::Readv::CODE,
            opcode::Writev::CODE,
            opcode::Fsync::CODE,
        ];
        if !needed.into_iter().all(|code| probe.is_supported(code)) {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let vectored_fixed =
            probe.is_supported(opcode::ReadvFixed::CODE) && probe.is_supported(opcode::WritevFixed::CODE);
        Ok(Abilities { vectored_fixed })
    };
    ABILITIES
        .get_or_init(|| probe().map_err(|error: io::Error| error.raw_os_error().unwrap_or(libc::ENOSYS)))
        .map_err(io::Error::from_raw_os_error)
}
