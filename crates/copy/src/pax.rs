//! The records of pax headers, whatever bytes their values have.
//!
//! Where it sits: between a tar stream and the crate `tar`, which takes a record to end at its first newline; access control lists and
//! names may have newlines. The stream passes through [`PaxFilter`], which keeps the records of each entry and shows the crate a space
//! for each newline in them.
//!
//! On disk: a record is `LENGTH KEY=VALUE\n`, LENGTH in decimal and of the whole record (POSIX.1-2017, pax, "pax Extended Header").

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::rc::Rc;

use tar::{EntryType, Header};

/// Bytes of a header, and what data is rounded up to.
const BLOCK: usize = 512;
/// Longer headers are no headers: values have 64 KiB at most.
const HEADER_BYTES_MAX: u64 = 64 << 20;
/// Where an old sparse header, and each block that continues it, says that another one follows.
const SPARSE_CONTINUES: usize = 482;
const SPARSE_CONTINUES_AGAIN: usize = 504;

/// Keys and values of one entry.
pub(crate) type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// The records of the entries that went through, in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct PaxRecords(Rc<RefCell<VecDeque<Records>>>);

impl PaxRecords {
    /// Those of the next entry.
    pub(crate) fn next(&self) -> Records {
        self.0.borrow_mut().pop_front().unwrap_or_default()
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The sum of all bytes, those of the sum itself taken as spaces.
fn has_valid_checksum(header: &Header) -> bool {
    const SUM: std::ops::Range<usize> = 148..156;
    let bytes = header.as_bytes();
    let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
    let own: u32 = bytes[SUM].iter().map(|byte| u32::from(*byte)).sum();
    header.cksum().is_ok_and(|stored| stored == sum - own + 8 * u32::from(b' '))
}

/// Take the records of a header apart: the key and the value of each, as places in `data`.
fn parse(data: &[u8]) -> Option<Vec<(std::ops::Range<usize>, std::ops::Range<usize>)>> {
    let (mut at, mut found) = (0, Vec::new());
    while at < data.len() {
        let rest = &data[at..];
        let space = rest.iter().take(20).position(|byte| *byte == b' ')?;
        let len: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
        let record = rest.get(..len).filter(|record| record.last() == Some(&b'\n'))?;
        let equals = record.iter().position(|byte| *byte == b'=').filter(|equals| *equals > space)?;
        found.push((at + space + 1..at + equals, at + equals + 1..at + len - 1));
        at += len;
    }
    Some(found)
}

/// See the module's head.
pub(crate) struct PaxFilter<R> {
    inner: R,
    records: PaxRecords,
    /// Records for the next entry that is no header of another.
    pending: Records,
    /// What is to be handed out before more is read.
    ready: Vec<u8>,
    given: usize,
    /// Bytes of data that pass unseen.
    passing: u64,
    is_at_start: bool,
    has_ended: bool,
}

impl<R: Read> PaxFilter<R> {
    pub(crate) fn new(inner: R) -> (Self, PaxRecords) {
        let records = PaxRecords::default();
        let filter = Self {
            inner,
            records: records.clone(),
            pending: Records::new(),
            ready: Vec::new(),
            given: 0,
            passing: 0,
            is_at_start: true,
            has_ended: false,
        };
        (filter, records)
    }

    /// Read `len` bytes more to hand out; fewer only at the end of the stream.
    fn take(&mut self, len: u64) -> io::Result<usize> {
        (&mut self.inner).take(len).read_to_end(&mut self.ready)
    }

    /// Read a header, and what must be seen with it.
    fn advance(&mut self) -> io::Result<()> {
        self.ready.clear();
        self.given = 0;
        let count = self.take(BLOCK as u64)?;
        self.has_ended = count < BLOCK;
        let is_first = std::mem::take(&mut self.is_at_start);
        if is_first && count == 0 {
            return Err(wrong("it is empty, and no archive"));
        }
        if self.has_ended || self.ready.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let header = Header::from_byte_slice(&self.ready).clone();
        if !has_valid_checksum(&header) {
            let what = if is_first { "it is no tar archive" } else { "a header is damaged" };
            return Err(wrong(what));
        }
        let Ok(mut size) = header.entry_size() else {
            // The crate says what is wrong with it.
            self.passing = u64::MAX;
            return Ok(());
        };
        let kind = header.entry_type();
        match kind {
            EntryType::XHeader => return self.read_records(size),
            EntryType::GNULongName | EntryType::GNULongLink => {}
            _ => {
                let records = std::mem::take(&mut self.pending);
                let given = records.iter().find(|(key, _)| key == b"size").map(|(_, value)| value);
                let given = given.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
                size = given.unwrap_or(size);
                self.records.0.borrow_mut().push_back(records);
            }
        }
        let mut continues = kind == EntryType::GNUSparse && self.ready[SPARSE_CONTINUES] != 0;
        while continues {
            let start = self.ready.len();
            continues = self.take(BLOCK as u64)? == BLOCK && self.ready[start + SPARSE_CONTINUES_AGAIN] != 0;
        }
        self.passing = size.checked_next_multiple_of(BLOCK as u64).unwrap_or(u64::MAX);
        Ok(())
    }

    fn read_records(&mut self, size: u64) -> io::Result<()> {
        if size > HEADER_BYTES_MAX {
            return Err(wrong("a pax header is too large"));
        }
        let start = self.ready.len();
        self.take(size.next_multiple_of(BLOCK as u64))?;
        let end = self.ready.len().min(start + size as usize);
        let data = &mut self.ready[start..end];
        for (key, value) in parse(data).ok_or_else(|| wrong("a pax header is malformed"))? {
            self.pending.push((data[key.clone()].to_vec(), data[value.clone()].to_vec()));
            for range in [key, value] {
                data[range].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for PaxFilter<R> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.given < self.ready.len() {
                let count = (self.ready.len() - self.given).min(memory.len());
                memory[..count].copy_from_slice(&self.ready[self.given..self.given + count]);
                self.given += count;
                return Ok(count);
            }
            if self.passing > 0 {
                let most = memory.len().min(usize::try_from(self.passing).unwrap_or(usize::MAX));
                let count = self.inner.read(&mut memory[..most])?;
                self.passing -= count as u64;
                return Ok(count);
            }
            if self.has_ended || memory.is_empty() {
                return Ok(0);
            }
            self.advance()?;
        }
    }
}

/// The name of an extended attribute as GNU tar writes it into a key, where `=` and `%` cannot stand.
pub(crate) fn decoded(name: &[u8]) -> Vec<u8> {
    let (mut at, mut decoded) = (0, Vec::with_capacity(name.len()));
    while at < name.len() {
        let (byte, len) = match name.get(at..at + 3) {
            Some(b"%3D") => (b'=', 3),
            Some(b"%25") => (b'%', 3),
            _ => (name[at], 1),
        };
        decoded.push(byte);
        at += len;
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_a_length_and_any_bytes() {
        let data = b"14 path=a\nb=c\n20 SCHILY.xattr.x=\xff\n";
        let data = [&data[..14], b"21 SCHILY.xattr.x=\xff\0\n"].concat();
        let found: Vec<_> =
            parse(&data).unwrap().into_iter().map(|(key, value)| (&data[key], &data[value])).collect();
        assert_eq!(found, [(&b"path"[..], &b"a\nb=c"[..]), (b"SCHILY.xattr.x", b"\xff\0")]);
        for wrong in ["x", "5 a=b", "7 a=b\n", "0 a=b\n", "6 abc\n", "99999999999999999999 a=b\n", "3=a\n"] {
            assert!(parse(wrong.as_bytes()).is_none(), "{wrong:?}");
        }
        assert_eq!(decoded(b"user.a%3Db%253D%"), b"user.a=b%3D%");
    }
}
