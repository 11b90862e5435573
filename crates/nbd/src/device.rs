//! An export of an NBD server as a block device.
//!
//! Where it sits: beside [`diorite_device::FileDevice`].
//!
//! Interface:
//! - Several connections if the server offers them (`CAN_MULTI_CONN`).
//! - A lost connection is retried for `reconnect=SECONDS`, and unanswered requests are sent again.
//!
//! Invariants:
//! 1. Only unacknowledged requests are sent again. Sending one twice changes nothing.
//! 2. A flush never succeeds if acknowledged writes may be lost. If a connection is lost after acknowledged and unflushed writes, all later
//!    flushes fail until the device is opened again.
//!    A request that a silent server may still execute is not sent again: after `timeout=SECONDS` without an answer the device fails. When one
//!    connection is lost, the others are shut down for writing. The server closes each after its last request, and only then requests are sent
//!    again.
//! 3. When one connection is lost, all are closed, so no answer of the old server counts afterwards.
//! 4. A forked child sends and receives nothing, because it shares the connections with its parent.
//!
//! Locking: `sessions` is held exclusively during a reconnect.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diorite_block::sync::{Rank, RwLock};
use diorite_block::{
    Bio, BioFlags, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoErrorKind, IoQueue, Op, Process,
    SharedQueue,
};

use diorite_device::{Access, LockHolder, OpenError, OpenOptions, Sharing, ThreadQueue};

use crate::claim::Claim;
use crate::handshake::{self, Export};
use crate::session::{BATCH, Lost, Operation, Session};
use crate::uri::{NbdUri, parse};
use crate::wire::{self, Command};

/// Time to retry while a killed process still has the claim.
const STALE_LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// Largest transfer, if the server accepts it.
const TRANSFER_MAX: u32 = 2 << 20;
/// Largest range of a command without data.
const RANGE_MAX: u64 = 1 << 30;
/// Default number of connections, if the server allows several.
const CONNECTIONS: u32 = 4;
/// Most connections that one request may lose: a request may crash the server each time.
const TRIES_MAX: u32 = 5;
/// Time for the server to finish requests on the other connections when one is lost.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);

/// An export of an NBD server.
pub struct NbdDevice {
    uri: NbdUri,
    export: Export,
    geometry: Geometry,
    counters: IoCounters,
    sessions: RwLock<Sessions>,
    next_session: AtomicUsize,
    /// Number of writes acknowledged without FUA.
    acknowledged: AtomicU64,
    /// Number of these writes that a flush has made durable.
    flushed: AtomicU64,
    /// Whether acknowledged writes may have been lost with a connection.
    unflushed_lost: AtomicBool,
    process: Process,
    /// None for readers and cooperating writers.
    _claim: Option<Claim>,
}

diorite_block::short_debug!(NbdDevice, uri);

#[derive(Debug)]
struct Sessions {
    /// Number of reconnects.
    generation: u64,
    open: Vec<Arc<Session>>,
    /// The reason, if the connections are lost for good.
    failed: Option<String>,
}

impl NbdDevice {
    /// Connect to the export of a URI: `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, with `nbds` for TLS.
    ///
    /// # Errors
    /// [`OpenError::BadTarget`] for an invalid URI, [`OpenError::Os`] without a server or if it refuses, [`OpenError::ReadOnly`] for a
    /// read-only export opened for writing, and [`OpenError::Locked`] if it is open for writing on this host, by the same socket, or the same
    /// host and port.
    pub fn open(uri: &str, options: &OpenOptions) -> Result<Arc<Self>, OpenError> {
        let (parsed, window) =
            parse(uri).map_err(|why| OpenError::BadTarget { spec: uri.to_owned(), why })?;
        if !window.is_empty() {
            let why = "a window (partition, offset) is opened by open_target".to_owned();
            return Err(OpenError::BadTarget { spec: uri.to_owned(), why });
        }
        Self::open_parsed(parsed, options)
    }

    /// As [`NbdDevice::open`], with the result of [`parse`].
    ///
    /// # Errors
    /// As [`NbdDevice::open`].
    pub fn open_parsed(uri: NbdUri, options: &OpenOptions) -> Result<Arc<Self>, OpenError> {
        let path = uri.text.clone();
        let claim = claim(&uri, options)?;
        let os = |what| {
            let path = uri.text.clone().into();
            move |source| OpenError::Os { path, what, source }
        };
        let (transport, export) = handshake::connect(&uri).map_err(os("connect to the NBD server"))?;
        let geometry = geometry_of(&export, options.access).map_err(os("use the export"))?;
        if options.access == Access::ReadWrite && export.has(wire::READ_ONLY) {
            let why = "the server exports it read-only; open it read-only".to_owned();
            return Err(OpenError::ReadOnly { path: path.into(), why });
        }
        if geometry.capacity_bytes == 0 {
            let block = geometry.logical_block_size;
            return Err(OpenError::TooSmall { path: path.into(), bytes: export.bytes, block });
        }
        let mut open = vec![Arc::new(Session::new(transport, uri.timeout))];
        connect_more(&uri, &export, &mut open);
        Ok(Arc::new(Self {
            uri,
            export,
            geometry,
            counters: IoCounters::default(),
            sessions: RwLock::ranked(Rank::NbdSessions, Sessions { generation: 0, open, failed: None }),
            next_session: AtomicUsize::new(0),
            acknowledged: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            unflushed_lost: AtomicBool::new(false),
            process: Process::current(),
            _claim: claim,
        }))
    }

    /// A session for one batch of requests, and its generation.
    fn session(&self) -> Result<(Arc<Session>, u64), IoErrorKind> {
        if !self.process.is_current() {
            let why = "it was opened before the fork, and its connections are the parent's; open it again in this process";
            return Err(IoErrorKind::Device(io::Error::new(ErrorKind::PermissionDenied, why)));
        }
        let sessions = self.sessions.read();
        if let Some(why) = &sessions.failed {
            return Err(gone(why));
        }
        let at = self.next_session.fetch_add(1, Ordering::Relaxed) % sessions.open.len();
        Ok((Arc::clone(&sessions.open[at]), sessions.generation))
    }

    /// Reconnect, unless another thread has done so since `generation`.
    fn reconnect(&self, generation: u64, lost: Lost) -> Result<(), IoErrorKind> {
        for session in self.sessions.read().of(generation) {
            session.lose(lost.clone());
        }
        let mut sessions = self.sessions.write();
        if sessions.of(generation).is_empty() {
            return sessions.failed.as_deref().map_or(Ok(()), |why| Err(gone(why)));
        }
        let is_over = self.is_all_over(&sessions.open, &lost);
        // Invariants 2 and 3: no session of this generation acknowledges anything any more.
        if self.geometry.volatile_cache
            && self.acknowledged.load(Ordering::SeqCst) > self.flushed.load(Ordering::SeqCst)
        {
            self.unflushed_lost.store(true, Ordering::SeqCst);
        }
        let why = lost.why;
        let silent = || io::Error::other("the server may still execute old requests after new ones");
        let again = if is_over { self.connect_again() } else { Err(silent()) };
        match again {
            Ok(open) => {
                log::warn!("{}: the connection to the server was lost ({why}) and restored", self.uri.text);
                sessions.open = open;
                sessions.generation += 1;
                Ok(())
            }
            Err(error) => {
                let why = format!("the connection was lost ({why}) and could not be restored: {error}");
                log::error!("{}: {why}", self.uri.text);
                sessions.failed = Some(why.clone());
                Err(gone(&why))
            }
        }
    }

    /// Whether the server executes no more requests of these lost connections. All are closed afterwards.
    fn is_all_over(&self, sessions: &[Arc<Session>], lost: &Lost) -> bool {
        let timeout = self.uri.timeout.map_or(FINISH_TIMEOUT, |timeout| timeout.min(FINISH_TIMEOUT));
        let deadline = Instant::now() + if lost.may_retry { timeout } else { Duration::ZERO };
        // No short circuit, because the call closes the session.
        let late = sessions.iter().filter(|session| !session.is_over(deadline)).count();
        lost.may_retry && late == 0
    }

    /// Retry with growing pauses, until it succeeds or the time is over.
    fn connect_again(&self) -> io::Result<Vec<Arc<Session>>> {
        let give_up = Instant::now() + self.uri.reconnect;
        let mut pause = Duration::from_millis(10);
        loop {
            let error = match handshake::connect(&self.uri) {
                Ok((transport, export)) if export == self.export => {
                    let mut open = vec![Arc::new(Session::new(transport, self.uri.timeout))];
                    connect_more(&self.uri, &export, &mut open);
                    return Ok(open);
                }
                Ok(_) => return Err(io::Error::other("the server now has another export under this name")),
                Err(error) => error,
            };
            if Instant::now() + pause > give_up {
                return Err(error);
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    /// Run transfers of one command, with reconnects.
    fn run(&self, transfers: &mut [Operation<'_, '_>]) -> Result<(), IoErrorKind> {
        for batch in transfers.chunks_mut(BATCH) {
            let mut tries = 0;
            loop {
                let from = batch.iter().position(|transfer| transfer.result.is_none());
                let Some(from) = from else { break };
                // Replies come in any order. A request with a reply is not sent again.
                let to = from + batch[from..].iter().take_while(|transfer| transfer.result.is_none()).count();
                let (session, generation) = self.session()?;
                if let Err(lost) = session.run(&mut batch[from..to], &self.acknowledged) {
                    tries += 1;
                    if tries > TRIES_MAX {
                        return Err(gone(&format!(
                            "the connection was lost {tries} times in a row: {}",
                            lost.why
                        )));
                    }
                    self.reconnect(generation, lost)?;
                }
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), IoErrorKind> {
        if !self.geometry.volatile_cache {
            return Ok(());
        }
        let covered = self.acknowledged.load(Ordering::SeqCst);
        let mut transfer =
            [Operation { command: Command::Flush, fua: false, offset: 0, len: 0, bio: None, result: None }];
        self.run(&mut transfer)?;
        let [transfer] = transfer;
        transfer.result.unwrap_or(Ok(()))?;
        if self.unflushed_lost.load(Ordering::SeqCst) {
            let why = "the connection to the NBD server was lost after writes that were not flushed; they may be lost";
            return Err(IoErrorKind::Device(io::Error::other(why)));
        }
        self.flushed.fetch_max(covered, Ordering::SeqCst);
        Ok(())
    }

    /// Run bios of one command with memory. The first error of each is left in `errors`.
    fn run_bios(
        &self,
        command: Command,
        bios: &mut [(usize, &mut Bio<'_>)],
        errors: &mut [Option<IoErrorKind>],
    ) {
        let flush_after = !self.geometry.fua && bios.iter().any(|(_, bio)| bio.flags.contains(BioFlags::FUA));
        let mut transfers: Vec<_> = bios
            .iter_mut()
            .map(|(_, bio)| Operation {
                command,
                fua: self.geometry.fua && command == Command::Write && bio.flags.contains(BioFlags::FUA),
                offset: bio.sector.to_bytes(),
                len: bio.len() as u32,
                bio: Some(bio),
                result: None,
            })
            .collect();
        let lost = self.run(&mut transfers);
        let results: Vec<_> = transfers.into_iter().map(|transfer| transfer.result).collect();
        let flushed = if flush_after { self.flush() } else { Ok(()) };
        for ((at, bio), result) in bios.iter().zip(results) {
            let error = match result {
                Some(Err(kind)) => Some(kind),
                Some(Ok(())) if bio.flags.contains(BioFlags::FUA) => {
                    flushed.as_ref().err().map(IoErrorKind::duplicate)
                }
                Some(Ok(())) => None,
                None => Some(lost.as_ref().err().map_or(IoErrorKind::Gone, IoErrorKind::duplicate)),
            };
            errors[*at] = error;
        }
    }

    /// Run a bio without memory.
    fn run_range(&self, bio: &Bio<'_>) -> Result<(), IoErrorKind> {
        let command = match bio.op {
            Op::Flush => return self.flush(),
            Op::Discard if self.geometry.discard => Command::Trim,
            Op::WriteZeroes if self.export.has(wire::SEND_WRITE_ZEROES) => Command::WriteZeroes,
            Op::WriteZeroes => return self.write_zero_bytes(bio),
            Op::Discard | Op::Read | Op::Write => return Err(IoErrorKind::Unsupported),
        };
        let (start, end) = (bio.sector.to_bytes(), bio.end().to_bytes());
        let mut transfers: Vec<_> = (start..end)
            .step_by(RANGE_MAX as usize)
            .map(|offset| {
                let len = (end - offset).min(RANGE_MAX) as u32;
                Operation { command, fua: false, offset, len, bio: None, result: None }
            })
            .collect();
        self.run(&mut transfers)?;
        transfers.into_iter().find_map(|transfer| transfer.result?.err()).map_or(Ok(()), Err)
    }

    /// Write zeros as data, for a server without the command.
    fn write_zero_bytes(&self, bio: &Bio<'_>) -> Result<(), IoErrorKind> {
        let zeros = vec![0; self.geometry.max_transfer_bytes.min(256 << 10) as usize];
        let (mut offset, end) = (bio.sector.to_bytes(), bio.end().to_bytes());
        while offset < end {
            let len = (end - offset).min(zeros.len() as u64);
            let sector = diorite_block::Sector::containing(offset);
            let memory = BioMemory::Write(vec![IoSlice::new(&zeros[..len as usize])]);
            let mut piece = Bio { sector, memory, op: Op::Write, flags: bio.flags, owner: bio.owner };
            let mut error = [None];
            self.run_bios(Command::Write, &mut [(0, &mut piece)], &mut error);
            let [error] = error;
            error.map_or(Ok(()), Err)?;
            offset += len;
        }
        Ok(())
    }
}

impl Sessions {
    /// The sessions, if they still belong to `generation`.
    fn of(&self, generation: u64) -> &[Arc<Session>] {
        if self.generation == generation && self.failed.is_none() { &self.open } else { &[] }
    }
}

/// The claim of an exclusive writer.
fn claim(uri: &NbdUri, options: &OpenOptions) -> Result<Option<Claim>, OpenError> {
    if options.access != Access::ReadWrite || options.sharing != Sharing::Exclusive {
        return Ok(None);
    }
    let path = || uri.text.clone().into();
    let give_up = Instant::now() + STALE_LOCK_TIMEOUT;
    let taken = loop {
        match Claim::take(uri) {
            // A killed process has the claim until it is gone.
            Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(5));
            }
            taken => break taken,
        }
    };
    match taken {
        Ok(claim) => Ok(Some(claim)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            Err(OpenError::Locked { path: path(), holder: LockHolder::Unknown, used: "open" })
        }
        Err(source) => Err(OpenError::NoLocks { path: path(), source }),
    }
}

/// Open more connections, if the server allows several. A failure is no error, because one is enough.
fn connect_more(uri: &NbdUri, export: &Export, open: &mut Vec<Arc<Session>>) {
    let wanted = if export.has(wire::CAN_MULTI_CONN) { uri.connections.unwrap_or(CONNECTIONS) } else { 1 };
    while open.len() < wanted as usize {
        match handshake::connect(uri) {
            Ok((transport, other)) if other == *export => {
                open.push(Arc::new(Session::new(transport, uri.timeout)));
            }
            _ => return,
        }
    }
}

fn geometry_of(export: &Export, access: Access) -> io::Result<Geometry> {
    let (least, preferred, most) = export.block_sizes;
    let logical_block_size = least.max(512);
    if !logical_block_size.is_power_of_two() || logical_block_size > 64 << 10 || most < logical_block_size {
        let why = format!("transfers of {least} to {most} bytes are not supported");
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    let whole = |bytes: u32| bytes / logical_block_size * logical_block_size;
    Ok(Geometry {
        capacity_bytes: export.bytes / u64::from(logical_block_size) * u64::from(logical_block_size),
        logical_block_size,
        physical_block_size: if preferred.is_power_of_two() {
            preferred.clamp(logical_block_size, 64 << 10)
        } else {
            logical_block_size
        },
        memory_alignment: 1,
        max_transfer_bytes: whole(most.min(TRANSFER_MAX)),
        max_segments: 1024,
        atomic_write_bytes: 0,
        volatile_cache: export.has(wire::SEND_FLUSH),
        fua: export.has(wire::SEND_FUA),
        discard: export.has(wire::SEND_TRIM),
        rotational: export.has(wire::ROTATIONAL),
        read_only: access == Access::ReadOnly || export.has(wire::READ_ONLY),
    })
}

fn gone(why: &str) -> IoErrorKind {
    IoErrorKind::Device(io::Error::new(ErrorKind::NotConnected, why))
}

impl BlockDevice for NbdDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        &self.counters
    }

    fn name(&self) -> String {
        self.uri.text.clone()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let mut errors: Vec<Option<IoErrorKind>> =
            bios.iter().map(|bio| self.geometry.check(bio).err()).collect();
        let preflush = bios.iter().any(|bio| bio.flags.contains(BioFlags::PREFLUSH));
        if preflush && let Err(kind) = self.flush() {
            for error in &mut errors {
                error.get_or_insert_with(|| kind.duplicate());
            }
        }
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for (at, bio) in bios.iter_mut().enumerate() {
            if errors[at].is_some() {
                continue;
            }
            self.counters.count(bio.op, bio.len());
            match bio.op {
                Op::Read => reads.push((at, bio)),
                Op::Write => writes.push((at, bio)),
                Op::Flush | Op::Discard | Op::WriteZeroes => errors[at] = self.run_range(bio).err(),
            }
        }
        self.run_bios(Command::Read, &mut reads, &mut errors);
        self.run_bios(Command::Write, &mut writes, &mut errors);
        let first = errors.into_iter().enumerate().find_map(|(at, error)| Some((at, error?)));
        first.map_or(Ok(()), |(at, kind)| Err((self as &dyn BlockDevice).error(&bios[at], kind)))
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(Box::new(ThreadQueue::open(self, depth)))
    }

    fn open_shared_queue(self: Arc<Self>, depth: u32) -> Option<Box<dyn SharedQueue>> {
        Some(Box::new(ThreadQueue::open(self, depth)))
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        // The connections of a forked child are its parent's.
        if !self.process.is_current() {
            return;
        }
        let sessions = self.sessions.get_mut();
        for session in &sessions.open {
            session.disconnect();
        }
    }
}
