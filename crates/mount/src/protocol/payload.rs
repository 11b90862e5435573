//! Memory for the data of one request. The device uses it directly.

use std::ops::{Deref, DerefMut};

use diorite::{AlignedBuf, RegisteredBuf, RegisteredBuffers};

use super::session::PAGE;

/// Requests that have memory on huge pages, registered with the rings, which more than doubles the speed of large transfers.
const REGISTERED_MAX: usize = 34;

/// A session's memory for requests.
pub(crate) struct Payloads {
    len: usize,
    pool: RegisteredBuffers,
}

/// As many bytes as a request has at most, from a page boundary on.
#[derive(Debug)]
pub(crate) enum Payload {
    Registered(RegisteredBuf),
    Plain(AlignedBuf),
}

impl Payloads {
    /// Memory for `requests` concurrent requests of `len` bytes; more is allocated when needed.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(len: usize, requests: usize) -> diorite::Result<Self> {
        let registered = requests.min(REGISTERED_MAX) as u32;
        Ok(Self { len, pool: RegisteredBuffers::new(len, registered).map_err(no_memory)? })
    }

    /// Bytes of each.
    pub(crate) fn bytes_of_each(&self) -> usize {
        self.len
    }

    /// Memory for one more request at a time.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn take(&self) -> diorite::Result<Payload> {
        match self.pool.try_take() {
            Some(buffer) => Ok(Payload::Registered(buffer)),
            None => Ok(Payload::Plain(AlignedBuf::try_zeroed(self.len, PAGE).map_err(no_memory)?)),
        }
    }
}

fn no_memory(source: std::io::Error) -> diorite::Error {
    diorite::Error::Os { what: "cannot get memory for requests", source }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Registered(buffer) => buffer,
            Self::Plain(buffer) => buffer,
        }
    }
}

impl DerefMut for Payload {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Registered(buffer) => buffer,
            Self::Plain(buffer) => buffer,
        }
    }
}
