//! The records of pax headers, with any bytes in their values.
//!
//! Where it sits: between a tar stream and the crate `tar`. The crate ends a record at its first newline, and values can have newlines. So the
//! stream passes through [`PaxFilter`], which keeps the records of each entry and replaces each newline in them by a space.
//!
//! The filter also reads the map in the header of a sparse file in GNU tar's old form. The crate would write zeros for its holes; it gets
//! the header of a regular file that has the data only. Labels of volumes and headers for all later entries are not passed on: they are no
//! files, and the numbers of a label can be empty.
//!
//! On disk: a record is `LENGTH KEY=VALUE\n`, LENGTH in decimal and of the whole record (POSIX.1-2017, pax, "pax Extended Header").

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::rc::Rc;

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use crate::numbers::{self, SIZES, checked};

/// Size of a header. Data is padded to a multiple of it.
const BLOCK: usize = 512;
/// Limit of a pax header. Values have 64 KiB at most.
const HEADER_BYTES_MAX: u64 = 64 << 20;
/// Types of GNU tar: the label of a volume, and the rest of a file that began on another volume.
const VOLUME_LABEL: u8 = b'V';
const CONTINUED: u8 = b'M';

/// Keys and values of one entry.
pub(crate) type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// The last value of a keyword, unless that is empty.
pub(crate) fn last<'r>(records: &'r Records, keyword: &str) -> Option<&'r [u8]> {
    let found = records.iter().rev().find(|(key, _)| key == keyword.as_bytes());
    found.map(|(_, value)| value.as_slice()).filter(|value| !value.is_empty())
}

/// Data ranges of a sparse file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SparseMap {
    /// Size of the file.
    pub(crate) size: u64,
    /// Start and length of each piece, in bytes; the data of the pieces follows without gaps.
    pub(crate) pieces: Vec<(u64, u64)>,
}

impl SparseMap {
    /// Add a piece. It must follow the last one and end within the size.
    pub(crate) fn push(&mut self, start: u64, len: u64) -> io::Result<()> {
        let end = self.pieces.last().map_or(0, |(start, len)| start + len);
        let until = start.checked_add(len).filter(|until| start >= end && *until <= self.size);
        until.ok_or_else(|| wrong("the map of a sparse file is malformed"))?;
        self.pieces.push((start, len));
        Ok(())
    }

    /// Add the pieces of a header in the old form. Unused pieces are empty.
    fn extend(&mut self, headers: &[GnuSparseHeader]) -> io::Result<()> {
        let used = headers.iter().filter(|header| header.offset[0] != 0 && header.numbytes[0] != 0);
        let number =
            |field: &[u8]| checked("sparse map", numbers::field(field), &SIZES).map_err(|why| wrong(&why));
        used.map(|header| (number(&header.offset), number(&header.numbytes)))
            .try_for_each(|(start, len)| self.push(start?, len?))
    }
}

/// Parts of an entry that the crate does not return.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) records: Records,
    /// The map of a sparse file in the old form.
    pub(crate) sparse: Option<SparseMap>,
}

/// These parts of the entries that passed the filter, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct PaxRecords(Rc<RefCell<VecDeque<Extra>>>);

impl PaxRecords {
    /// The parts of the next entry.
    pub(crate) fn next(&self) -> Extra {
        self.0.borrow_mut().pop_front().unwrap_or_default()
    }
}

/// A sentence about the entry of a header.
fn about(header: &Header, what: &str) -> String {
    let name = header.path_bytes();
    format!("`{}`: {what}", String::from_utf8_lossy(&name))
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Compares the sum of all bytes, with spaces for those of the sum itself.
fn has_valid_checksum(header: &Header) -> bool {
    const SUM: std::ops::Range<usize> = 148..156;
    let bytes = header.as_bytes();
    let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
    let own: u32 = bytes[SUM].iter().map(|byte| u32::from(*byte)).sum();
    header.cksum().is_ok_and(|stored| stored == sum - own + 8 * u32::from(b' '))
}

/// The ranges of key and value of each record in `data`.
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

/// Bytes at the start of a file or stream that [`no_archive`] needs: an archive without entries is all zeros.
pub const START_BYTES: usize = 1 << 20;

/// Decompressors, by the first bytes of compressed files.
const COMPRESSED: [(&[u8], &str); 4] = [
    (b"\x1f\x8b", "gzip -dc"),
    (b"\xfd7zXZ\0", "xz -dc"),
    (b"\x28\xb5\x2f\xfd", "zstd -dc"),
    (b"BZh", "bzip2 -dc"),
];

/// The command that decompresses a file that begins with `start`, if it is compressed.
pub fn decompressor(start: &[u8]) -> Option<&'static str> {
    COMPRESSED.iter().find(|(mark, _)| start.starts_with(mark)).map(|(_, command)| *command)
}

/// Why a file that begins with `start` is no tar archive. `start` has [`START_BYTES`], or the whole file.
pub fn no_archive(start: &[u8]) -> Option<String> {
    let text = |text: &str| Some(text.to_owned());
    if let Some(command) = decompressor(start) {
        return Some(format!("it is compressed; put `{command}` in front"));
    }
    let Some(first) = start.first_chunk::<BLOCK>() else {
        return text(if start.is_empty() { "it is empty, and no archive" } else { "it is no tar archive" });
    };
    if first.iter().any(|byte| *byte != 0) {
        let is_header = has_valid_checksum(Header::from_byte_slice(first));
        return if is_header { None } else { text("it is no tar archive") };
    }
    // Two blocks of zeros are the end of an archive (POSIX.1-2017, pax, "ustar Interchange Format").
    let is_end = start.len() >= 2 * BLOCK && start.iter().all(|byte| *byte == 0);
    if is_end { None } else { text("it begins with zeros, and is no tar archive") }
}

/// See the module's head.
pub(crate) struct PaxFilter<R> {
    inner: R,
    records: PaxRecords,
    /// Records for all entries that follow.
    global: Records,
    /// Records for the next entry that is no header of another.
    pending: Records,
    /// Bytes to return before more are read.
    ready: Vec<u8>,
    given: usize,
    /// Bytes of data that are passed on unchanged.
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
            global: Records::new(),
            pending: Records::new(),
            ready: Vec::new(),
            given: 0,
            passing: 0,
            is_at_start: true,
            has_ended: false,
        };
        (filter, records)
    }

    /// Read `len` bytes more to return; fewer only at the end of the stream.
    fn take(&mut self, len: u64) -> io::Result<usize> {
        (&mut self.inner).take(len).read_to_end(&mut self.ready)
    }

    /// Read a header and its records. There can be nothing to return afterwards.
    fn advance(&mut self) -> io::Result<()> {
        self.ready.clear();
        self.given = 0;
        let count = self.take(BLOCK as u64)?;
        self.has_ended = count < BLOCK;
        if std::mem::take(&mut self.is_at_start) {
            self.check_start()?;
        } else if (1..BLOCK).contains(&count) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.has_ended || self.ready.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let header = Header::from_byte_slice(&self.ready).clone();
        if !has_valid_checksum(&header) {
            return Err(wrong("a header is damaged"));
        }
        let kind = header.entry_type();
        match kind.as_byte() {
            VOLUME_LABEL => {
                self.ready.clear();
                return Ok(());
            }
            CONTINUED => {
                return Err(wrong(
                    "it begins with the rest of a file that began on an earlier volume; unpack all volumes with `tar -xM`, and \
                     use the directory that this makes",
                ));
            }
            _ => {}
        }
        let mut size = numbers::size(&header).map_err(|why| wrong(&about(&header, &why)))?;
        match kind {
            EntryType::XHeader => {
                let records = self.read_records(size)?;
                self.pending.extend(records);
                return Ok(());
            }
            EntryType::XGlobalHeader => {
                let records = self.read_records(size)?;
                self.global.extend(records);
                self.ready.clear();
                return Ok(());
            }
            EntryType::GNULongName | EntryType::GNULongLink => {}
            _ => {
                let own = std::mem::take(&mut self.pending);
                if let Some(given) = last(&own, "size") {
                    size = checked("size", numbers::record(given), &SIZES)
                        .map_err(|why| wrong(&about(&header, &why)))?;
                }
                let sparse = if kind == EntryType::GNUSparse { self.read_sparse(header)? } else { None };
                let records = self.global.iter().cloned().chain(own).collect();
                self.records.0.borrow_mut().push_back(Extra { records, sparse });
            }
        }
        self.passing = size.checked_next_multiple_of(BLOCK as u64).unwrap_or(u64::MAX);
        Ok(())
    }

    /// Check the first block. The zeros of an archive without entries are not passed on.
    fn check_start(&mut self) -> io::Result<()> {
        let is_zero = self.ready.iter().all(|byte| *byte == 0);
        if is_zero {
            self.take((START_BYTES - self.ready.len()) as u64)?;
        }
        if let Some(why) = no_archive(&self.ready) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        if is_zero {
            self.ready.clear();
            self.has_ended = true;
        }
        Ok(())
    }

    /// Read the rest of the header of a sparse file in the old form, and pass on the header of a regular file.
    fn read_sparse(&mut self, mut header: Header) -> io::Result<Option<SparseMap>> {
        // The crate reports errors of others.
        let Some(gnu) = header.as_gnu() else { return Ok(None) };
        let size = checked("sparse size", numbers::field(&gnu.realsize), &SIZES);
        let size = size.map_err(|why| wrong(&about(&header, &why)))?;
        let mut map = SparseMap { size, pieces: Vec::new() };
        map.extend(&gnu.sparse)?;
        let mut continues = gnu.is_extended();
        while continues {
            let mut more = GnuExtSparseHeader::new();
            self.inner.read_exact(more.as_mut_bytes())?;
            map.extend(more.sparse())?;
            continues = more.is_extended();
        }
        header.set_entry_type(EntryType::Regular);
        header.set_cksum();
        self.ready.clear();
        self.ready.extend_from_slice(header.as_bytes());
        Ok(Some(map))
    }

    /// The records of a pax header, which is passed on without the newlines in them.
    fn read_records(&mut self, size: u64) -> io::Result<Records> {
        if size > HEADER_BYTES_MAX {
            return Err(wrong("a pax header is too large"));
        }
        let start = self.ready.len();
        self.take(size.next_multiple_of(BLOCK as u64))?;
        let end = start + size as usize;
        if self.ready.len() < end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (data, mut records) = (&mut self.ready[start..end], Records::new());
        for (key, value) in parse(data).ok_or_else(|| wrong("a pax header is malformed"))? {
            records.push((data[key.clone()].to_vec(), data[value.clone()].to_vec()));
            for range in [key, value] {
                data[range].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
            }
        }
        Ok(records)
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
                if count == 0 && most > 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
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
    }
}
