//! ONC RPC (RFC 5531) over TCP: records, calls, and the heads of replies.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use super::xdr::{Garbage, Reader, Writer};

/// The longest record: a write of the largest size and its head.
pub(super) const RECORD_MAX: usize = (1 << 20) + 4096;
const LAST_FRAGMENT: u32 = 1 << 31;
/// Memory for a record before any of it has come.
const FIRST_BYTES: usize = 64 << 10;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const AUTH_NONE: u32 = 0;
const AUTH_UNIX: u32 = 1;
const AUTH_BODY_MAX: usize = 400;
const GROUPS_MAX: u32 = 16;
const AUTH_BADCRED: u32 = 1;
const AUTH_TOOWEAK: u32 = 5;

/// The caller, as the client's host names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnixAuth {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
}

/// A call.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) id: u32,
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) procedure: u32,
    /// `None`: no authentication.
    pub(super) auth: Option<UnixAuth>,
    pub(super) arguments: Reader<'a>,
}

/// The reply to a call that is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Denied: no such version of RPC.
    RpcMismatch,
    /// Denied: the authentication is malformed, or too weak.
    Auth(u32),
    ProgramUnavailable,
    /// The version that there is.
    ProgramMismatch(u32),
    ProcedureUnavailable,
    GarbageArguments,
}

impl From<Garbage> for Refusal {
    fn from(_: Garbage) -> Self {
        Self::GarbageArguments
    }
}

/// The time limit of a client for a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadLimits {
    /// Until it begins the next one.
    pub(super) idle: Duration,
    /// From its first byte to its last.
    pub(super) record: Duration,
}

/// A stream with a limit on the time of each read, and of all reads of a record together.
struct Timed<'a, R> {
    stream: &'a mut R,
    limits: ReadLimits,
    since: Instant,
    has_begun: bool,
}

impl<R: Read> Read for Timed<'_, R> {
    /// Some bytes; 0 at the end of the stream, or if the client is idle.
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        loop {
            let limit = if self.has_begun { self.limits.record } else { self.limits.idle };
            let is_late = self.since.elapsed() > limit;
            if is_late && self.has_begun {
                let what = format!("a call is not complete after {limit:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            } else if is_late {
                return Ok(0);
            }
            match self.stream.read(memory) {
                Err(error) if is_not_yet(&error) => {}
                Ok(len) if len > 0 && !self.has_begun => {
                    (self.has_begun, self.since) = (true, Instant::now());
                    return Ok(len);
                }
                done => return done,
            }
        }
    }
}

/// Whether a read or write ended by its timeout or by a signal.
pub(super) fn is_not_yet(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Read a record into `record`: `false` at the end of the stream. Reads of `stream` fail after some time, so that the limits are looked at.
///
/// # Errors
/// The stream fails, or the record is too long, or takes too long.
pub(super) fn read_record(
    stream: &mut impl Read,
    record: &mut Vec<u8>,
    limits: ReadLimits,
) -> io::Result<bool> {
    record.clear();
    let mut stream = Timed { stream, limits, since: Instant::now(), has_begun: false };
    loop {
        let mut head = [0; 4];
        if let Err(error) = stream.read_exact(&mut head) {
            let is_end = record.is_empty()
                && matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset);
            return if is_end { Ok(false) } else { Err(error) };
        }
        let head = u32::from_be_bytes(head);
        let len = (head & !LAST_FRAGMENT) as usize;
        if record.len() + len > RECORD_MAX {
            return Err(io::Error::other("a record is too long"));
        }
        // Memory is taken as bytes come, not as they are announced.
        record.reserve(len.min(FIRST_BYTES));
        if (&mut stream).take(len as u64).read_to_end(record)? < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if head & LAST_FRAGMENT != 0 {
            return Ok(true);
        }
    }
}

/// Parse a call. `None`: it is no call, and gets no reply.
pub(super) fn parse(record: &[u8]) -> Option<Result<Call<'_>, (u32, Refusal)>> {
    let mut reader = Reader::new(record);
    let id = reader.u32().ok()?;
    if reader.u32().ok()? != CALL {
        return None;
    }
    Some(parse_call(id, reader).map_err(|refusal| (id, refusal)))
}

fn parse_call(id: u32, mut reader: Reader<'_>) -> Result<Call<'_>, Refusal> {
    if reader.u32()? != RPC_VERSION {
        return Err(Refusal::RpcMismatch);
    }
    let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (flavor, body) = (reader.u32()?, reader.opaque(AUTH_BODY_MAX)?);
    let auth = match flavor {
        AUTH_NONE => None,
        AUTH_UNIX => Some(parse_auth(body).map_err(|_| Refusal::Auth(AUTH_BADCRED))?),
        _ => return Err(Refusal::Auth(AUTH_TOOWEAK)),
    };
    // A verifier, which these flavors have no use for.
    reader.u32()?;
    reader.opaque(AUTH_BODY_MAX)?;
    Ok(Call { id, program, version, procedure, auth, arguments: reader })
}

fn parse_auth(body: &[u8]) -> Result<UnixAuth, Garbage> {
    let mut reader = Reader::new(body);
    reader.u32()?;
    reader.opaque(255)?;
    let (uid, gid, count) = (reader.u32()?, reader.u32()?, reader.u32()?);
    if count > GROUPS_MAX {
        return Err(Garbage);
    }
    let groups = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
    Ok(UnixAuth { uid, gid, groups })
}

/// Begin a record with the head of a reply to a call that was carried out; the results follow.
pub(super) fn begin_reply(id: u32, writer: &mut Writer) {
    writer.bytes.clear();
    // The length comes when it is known. Accepted, no verifier, success.
    writer.words([0, id, REPLY, 0, AUTH_NONE, 0, 0]);
}

/// A whole reply to a call that is not carried out.
pub(super) fn refuse(id: u32, refusal: Refusal, writer: &mut Writer) {
    writer.bytes.clear();
    writer.words([0, id, REPLY]);
    let accepted = |status| [0, AUTH_NONE, 0, status];
    match refusal {
        Refusal::RpcMismatch => writer.words([1, 0, RPC_VERSION, RPC_VERSION]),
        Refusal::Auth(status) => writer.words([1, 1, status]),
        Refusal::ProgramUnavailable => writer.words(accepted(1)),
        Refusal::ProgramMismatch(version) => {
            writer.words(accepted(2).into_iter().chain([version, version]));
        }
        Refusal::ProcedureUnavailable => writer.words(accepted(3)),
        Refusal::GarbageArguments => writer.words(accepted(4)),
    }
    end_reply(writer);
}

/// The record is complete.
pub(super) fn end_reply(writer: &mut Writer) {
    let len = writer.bytes.len() as u32 - 4;
    writer.set_u32(0, LAST_FRAGMENT | len);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(auth: (u32, &[u8])) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.words([9, CALL, 2, 100_003, 3, 1, auth.0]);
        writer.opaque(auth.1);
        writer.words([0, 0, 77]);
        writer.bytes
    }

    #[test]
    fn calls_are_taken_apart() {
        let mut auth = Writer::default();
        auth.u32(1);
        auth.opaque(b"host");
        auth.words([1000, 100, 2, 5, 6]);
        let record = call((AUTH_UNIX, &auth.bytes));
        let mut parsed = parse(&record).expect("a call").expect("whole");
        assert_eq!((parsed.id, parsed.program, parsed.procedure), (9, 100_003, 1));
        assert_eq!(parsed.auth, Some(UnixAuth { uid: 1000, gid: 100, groups: vec![5, 6] }));
        assert_eq!(parsed.arguments.u32(), Ok(77));
        for len in 8..record.len() - 4 {
            assert_eq!(
                parse(&record[..len]).expect("a call").err(),
                Some((9, Refusal::GarbageArguments)),
                "{len}"
            );
        }
        let strange = call((6, b""));
        assert_eq!(parse(&strange).expect("a call").err(), Some((9, Refusal::Auth(AUTH_TOOWEAK))));
        let short = call((AUTH_UNIX, &auth.bytes[..8]));
        assert_eq!(parse(&short).expect("a call").err(), Some((9, Refusal::Auth(AUTH_BADCRED))));
    }

    const LIMITS: ReadLimits =
        ReadLimits { idle: Duration::from_millis(200), record: Duration::from_millis(200) };

    const PATIENT: ReadLimits = ReadLimits { record: Duration::from_secs(60), ..LIMITS };

    /// A client that goes on with a call without an end kept the thread of its connection, and it had the memory that it announced.
    #[test]
    fn a_client_that_is_slow_is_given_up() {
        /// One byte at a time, and in between none.
        struct Slow(&'static [u8], u32);
        impl Read for Slow {
            fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
                std::thread::sleep(Duration::from_millis(2));
                self.1 += 1;
                if self.1 > 5000 {
                    return Ok(0);
                } else if self.1 % 2 == 1 || self.0.is_empty() {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                // The last byte is repeated.
                memory[0] = self.0[0];
                self.0 = if self.0.len() > 1 { &self.0[1..] } else { self.0 };
                Ok(1)
            }
        }
        let mut record = Vec::new();
        let started = Instant::now();
        for slow in [&[0x80, 0x10, 0, 0, 1][..], &[0]] {
            let error = read_record(&mut Slow(slow, 0), &mut record, LIMITS).expect_err("not complete");
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(record.capacity() <= 2 * FIRST_BYTES, "{}", record.capacity());
        }
        assert!(!read_record(&mut Slow(&[], 0), &mut record, LIMITS).expect("nothing to say"));
        assert!(started.elapsed() < Duration::from_secs(10));
        let mut whole = Slow(&[0x80, 0, 0, 2, 5], 0);
        assert!(read_record(&mut whole, &mut record, PATIENT).expect("in time") && record == [5, 5]);
    }

    #[test]
    fn records_come_in_fragments_and_have_a_largest_size() {
        let mut stream: &[u8] = &[0, 0, 0, 2, 1, 2, 0x80, 0, 0, 1, 3, 0x80, 0, 0, 0];
        let mut record = Vec::new();
        assert!(read_record(&mut stream, &mut record, LIMITS).expect("whole"));
        assert_eq!(record, [1, 2, 3]);
        assert!(read_record(&mut stream, &mut record, LIMITS).expect("empty") && record.is_empty());
        assert!(!read_record(&mut stream, &mut record, LIMITS).expect("the end"));
        let mut long: &[u8] = &[0xff, 0xff, 0xff, 0xff];
        assert!(read_record(&mut long, &mut record, LIMITS).is_err());
    }
}
