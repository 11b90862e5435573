//! One entry of a queue of FUSE over `io_uring`: a ring with one command, and the memory through which requests and replies go.
//!
//! Source: the kernel's documentation "FUSE-over-io-uring" and its header `linux/fuse.h`.
//!
//! Safety policy: the kernel has the addresses of `headers` and `payload` from [`Entry::register`] until the ring is dropped. It uses them
//! only inside `io_uring_enter` of the thread that owns the entry: to deliver a request before the call returns, and to fetch the reply
//! when the next call begins. Both are inside [`Entry::exchange`], which has the entry by `&mut`. The ring is dropped before the memory.
#![allow(unsafe_code, reason = "see the module's head")]

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use diorite::AlignedBuf;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use rustix::io::Errno;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::protocol::abi::{InHeader, OutHeader};
use crate::protocol::request::{Arguments, Message};

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Where `len` lies in a submission queue entry: `io_uring` has no setter for it with these commands.
const SQE_LEN_AT: usize = 24;

/// `struct fuse_uring_req_header`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Headers {
    /// The header of the request, then that of the reply.
    in_out: [u8; 128],
    /// The request's first structure.
    first: [u8; 128],
    flags: u64,
    /// The number that the reply must have.
    commit_id: u64,
    payload_len: u32,
    padding: u32,
    reserved: u64,
}

/// `struct fuse_uring_cmd_req`, as long as a command can be.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Command {
    flags: u64,
    commit_id: u64,
    queue: u16,
    padding: [u8; 62],
}

const _: () = assert!(size_of::<Headers>() == 288 && size_of::<Command>() == 80);

/// See the module's head.
pub(super) struct Entry {
    /// Declared before the memory, and so dropped before it.
    ring: Ring,
    headers: Box<UnsafeCell<Headers>>,
    payload: AlignedBuf,
    queue: u16,
    /// Not registered with the ring: a ring lives as long as memory of its process, and would keep the session of a killed process.
    device: Arc<OwnedFd>,
}

pub(super) type Ring = IoUring<Entry128, cqueue::Entry>;

/// A ring for one command, on the thread that will use it.
///
/// # Errors
/// As `io_uring_setup(2)`.
pub(super) fn ring() -> io::Result<Ring> {
    let mut builder = Ring::builder();
    builder.setup_single_issuer().setup_defer_taskrun().build(2)
}

/// Whether this process may have such rings.
pub(super) fn is_possible() -> bool {
    ring().is_ok()
}

impl Entry {
    /// An entry of a queue, on the thread that made the ring.
    pub(super) fn new(device: Arc<OwnedFd>, queue: u16, (ring, payload): (Ring, AlignedBuf)) -> Self {
        Self { ring, headers: Box::new(UnsafeCell::new(Headers::new_zeroed())), payload, queue, device }
    }

    /// Offer the entry to the kernel, and wait for the first request.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub(super) fn register(&mut self) -> Result<(), Errno> {
        let memory = [
            libc::iovec { iov_base: self.headers.get().cast(), iov_len: size_of::<Headers>() },
            libc::iovec { iov_base: self.payload.as_mut_ptr().cast(), iov_len: self.payload.len() },
        ];
        let mut entry = self.command(REGISTER, 0, memory.as_ptr() as u64);
        let len = memory.len() as u32;
        // SAFETY: an entry is 128 bytes of plain data in the kernel's layout, of which 4 at this offset are `len`.
        unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN_AT).cast::<u32>().write_unaligned(len) };
        // The kernel has read `memory` when this returns.
        self.exchange(&entry)
    }

    /// The request that was delivered.
    pub(super) fn message(&self) -> Message<'_> {
        let headers = self.headers();
        let (header, _) = InHeader::read_from_prefix(&headers.in_out).expect("the field is longer");
        let len = (headers.payload_len as usize).min(self.payload.len());
        Message { header, arguments: Arguments::apart(&headers.first, &self.payload[..len]) }
    }

    /// Memory for the data of the reply.
    pub(super) fn payload(&mut self) -> &mut [u8] {
        &mut self.payload
    }

    /// Send the reply, whose body is the first `len` bytes of the payload, and wait for the next request.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub(super) fn reply_and_fetch(&mut self, header: &OutHeader, len: usize) -> Result<(), Errno> {
        let headers = self.headers.get_mut();
        headers.in_out[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        // A structure that is shorter in the next request ends with zeros.
        headers.first.fill(0);
        headers.payload_len = len as u32;
        let commit_id = headers.commit_id;
        let entry = self.command(COMMIT_AND_FETCH, commit_id, 0);
        self.exchange(&entry)
    }

    fn headers(&self) -> &Headers {
        // SAFETY: the kernel writes to it in `exchange` alone, which is not called while this borrow lasts.
        unsafe { &*self.headers.get() }
    }

    fn command(&self, operation: u32, commit_id: u64, address: u64) -> Entry128 {
        let command = Command { flags: 0, commit_id, queue: self.queue, padding: [0; 62] };
        let command: [u8; 80] = zerocopy::transmute!(command);
        opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), operation)
            .cmd(command)
            .addr(Some(address))
            .build()
    }

    /// Submit a command and wait until it has brought a request.
    ///
    /// # Errors
    /// `ENOTCONN`, `ECONNABORTED`: unmounted, or ended by force; others: the command.
    fn exchange(&mut self, entry: &Entry128) -> Result<(), Errno> {
        // SAFETY: the command has addresses of memory of `self`, which outlives the ring; see the module's head.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| Errno::BUSY)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
            if let Some(completion) = self.ring.completion().next() {
                let result = completion.result();
                return if result < 0 { Err(Errno::from_raw_os_error(-result)) } else { Ok(()) };
            }
        }
    }
}
