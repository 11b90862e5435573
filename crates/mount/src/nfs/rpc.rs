//! ONC RPC (RFC 5531) over TCP: records, calls, and the heads of replies.

use std::io::{self, Read};

use super::xdr::{Garbage, Reader, Writer};

/// The longest record: a write of the largest size and its head.
pub(super) const RECORD_MAX: usize = (1 << 20) + 4096;
const LAST_FRAGMENT: u32 = 1 << 31;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const AUTH_NONE: u32 = 0;
const AUTH_UNIX: u32 = 1;
const AUTH_BODY_MAX: usize = 400;
const GROUPS_MAX: u32 = 16;
const AUTH_BADCRED: u32 = 1;
const AUTH_TOOWEAK: u32 = 5;

/// Who calls, as the client's host says.
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
    /// `None`: it does not say.
    pub(super) auth: Option<UnixAuth>,
    pub(super) arguments: Reader<'a>,
}

/// What a call gets instead of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Denied: no such version of RPC.
    RpcMismatch,
    /// Denied: how it says who calls is not understood, or not enough.
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

/// Read a record into `record`: `false` at the end of the stream.
///
/// # Errors
/// The stream fails, or the record is too long.
pub(super) fn read_record(stream: &mut impl Read, record: &mut Vec<u8>) -> io::Result<bool> {
    record.clear();
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
        let at = record.len();
        record.resize(at + len, 0);
        stream.read_exact(&mut record[at..])?;
        if head & LAST_FRAGMENT != 0 {
            return Ok(true);
        }
    }
}

/// Take a call apart. `None`: it is none, and gets no reply.
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

    #[test]
    fn records_come_in_fragments_and_have_a_largest_size() {
        let mut stream: &[u8] = &[0, 0, 0, 2, 1, 2, 0x80, 0, 0, 1, 3, 0x80, 0, 0, 0];
        let mut record = Vec::new();
        assert!(read_record(&mut stream, &mut record).expect("whole"));
        assert_eq!(record, [1, 2, 3]);
        assert!(read_record(&mut stream, &mut record).expect("empty") && record.is_empty());
        assert!(!read_record(&mut stream, &mut record).expect("the end"));
        let mut long: &[u8] = &[0xff, 0xff, 0xff, 0xff];
        assert!(read_record(&mut long, &mut record).is_err());
    }
}
