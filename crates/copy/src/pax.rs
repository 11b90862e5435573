//! Entries of a tar stream, with the headers that describe each one.
//!
//! Where it sits: between the stream and `archive/`, which makes files of entries. The crate `tar` has the layout of a header. Its reader ends
//! a record of a pax header at the first newline, and values can have newlines; it also writes zeros for the holes of sparse files.
//!
//! Labels of volumes are no entries, and their numbers can be empty.
//!
//! On disk: a record is `LENGTH KEY=VALUE\n`, LENGTH in decimal and of the whole record (POSIX.1-2017, pax, "pax Extended Header").

use std::io::{self, Read};

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};

use crate::numbers::{self, SIZES, checked};

/// Size of a header. Data is padded to a multiple of it.
const BLOCK: usize = 512;
/// Limit of a header that describes an entry. Values have 64 KiB at most.
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

/// An entry. [`Entries`] then reads its data.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) header: Header,
    pub(crate) records: Records,
    pub(crate) name: Vec<u8>,
    /// The target of a link.
    pub(crate) link: Vec<u8>,
    /// Size of the data in the stream.
    pub(crate) size: u64,
    /// The map of a sparse file in the old form.
    pub(crate) sparse: Option<SparseMap>,
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

fn parse(data: &[u8]) -> Option<Records> {
    let (mut rest, mut records) = (data, Records::new());
    while !rest.is_empty() {
        let space = rest.iter().take(20).position(|byte| *byte == b' ')?;
        let len: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
        let (record, following) = rest.split_at_checked(len)?;
        let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        rest = following;
    }
    Some(records)
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
        return Some(format!("it is compressed; decompress it with `{command}`"));
    }
    let Some(first) = start.first_chunk::<BLOCK>() else {
        return text(if start.is_empty() { "it is empty" } else { "it is not a tar archive" });
    };
    if first.iter().any(|byte| *byte != 0) {
        let is_header = has_valid_checksum(Header::from_byte_slice(first));
        return if is_header { None } else { text("it is not a tar archive") };
    }
    // Two blocks of zeros are the end of an archive (POSIX.1-2017, pax, "ustar Interchange Format").
    let is_end = start.len() >= 2 * BLOCK && start.iter().all(|byte| *byte == 0);
    if is_end { None } else { text("it is not a tar archive: it begins with zeros") }
}

/// A stream that an archive is read from.
pub(crate) trait Stream: Read {
    /// Skip `count` bytes; returns fewer only at the end.
    fn skip(&mut self, count: u64) -> io::Result<u64>;
}

impl<S: Stream + ?Sized> Stream for &mut S {
    fn skip(&mut self, count: u64) -> io::Result<u64> {
        (**self).skip(count)
    }
}

/// A stream that is skipped by reading.
pub(crate) struct Forward<R>(pub(crate) R);

impl<R: Read> Read for Forward<R> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        self.0.read(memory)
    }
}

impl<R: Read> Stream for Forward<R> {
    fn skip(&mut self, count: u64) -> io::Result<u64> {
        io::copy(&mut (&mut self.0).take(count), &mut io::sink())
    }
}

/// A stream that counts its bytes.
struct Counted<S> {
    stream: S,
    position: u64,
}

impl<S: Stream> Read for Counted<S> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(memory)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl<S: Stream> Stream for Counted<S> {
    fn skip(&mut self, count: u64) -> io::Result<u64> {
        let skipped = self.stream.skip(count)?;
        self.position += skipped;
        Ok(skipped)
    }
}

/// Entries of a stream in order. Reads return the data of the last one.
pub(crate) struct Entries<S> {
    stream: Counted<S>,
    /// Records for all entries that follow.
    global: Records,
    /// Data that was not read, and the zeros after the data.
    unread: u64,
    padding: u64,
    is_at_start: bool,
}

impl<S: Stream> Entries<S> {
    pub(crate) fn new(stream: S) -> Self {
        let stream = Counted { stream, position: 0 };
        Self { stream, global: Records::new(), unread: 0, padding: 0, is_at_start: true }
    }

    /// The position in the stream, and the length of the data of the last entry from there.
    pub(crate) fn data(&self) -> (u64, u64) {
        (self.stream.position, self.unread)
    }

    /// Skip the rest of the data of the last entry.
    pub(crate) fn skip_data(&mut self) -> io::Result<()> {
        let rest = self.unread.saturating_add(self.padding);
        if self.stream.skip(rest)? < rest {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.begin(0);
        Ok(())
    }

    /// The next entry; `None` at the end of the archive.
    pub(crate) fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        let (mut own, mut name, mut link) = (Records::new(), None, None);
        while let Some(header) = self.header()? {
            let failed = |why: String| wrong(&about(&header, &why));
            let kind = header.entry_type();
            if kind.as_byte() == VOLUME_LABEL {
                continue;
            }
            if kind.as_byte() == CONTINUED {
                return Err(wrong(
                    "it continues a file of an earlier volume; unpack all volumes with `tar -xM`, and use that directory",
                ));
            }
            let size = numbers::checked("size", numbers::field(&header.as_old().size), &SIZES);
            let mut size: u64 = size.map_err(failed)?;
            match kind {
                EntryType::XHeader => own.extend(self.records(size)?),
                EntryType::XGlobalHeader => {
                    let records = self.records(size)?;
                    self.global.extend(records);
                }
                EntryType::GNULongName => name = Some(self.long_name(size)?),
                EntryType::GNULongLink => link = Some(self.long_name(size)?),
                _ => {
                    if let Some(given) = last(&own, "size") {
                        size = checked("size", numbers::record(given), &SIZES).map_err(failed)?;
                    }
                    let is_sparse = kind == EntryType::GNUSparse;
                    let sparse = is_sparse.then(|| self.sparse(&header)).transpose()?;
                    self.begin(size);
                    let records: Records = self.global.iter().cloned().chain(own).collect();
                    let given = last(&records, "GNU.sparse.name").or_else(|| last(&records, "path"));
                    let name = given.map(<[u8]>::to_vec).or(name);
                    let name = name.unwrap_or_else(|| header.path_bytes().into_owned());
                    let link = last(&records, "linkpath").map(<[u8]>::to_vec).or(link);
                    let link =
                        link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
                    return Ok(Some(Entry { header, records, name, link, size, sparse }));
                }
            }
        }
        if own.is_empty() && name.is_none() && link.is_none() {
            return Ok(None);
        }
        Err(wrong("it ends before an entry that a header describes; copy the archive again"))
    }

    /// The next header. `None` if the stream ends, or zeros end the archive.
    fn header(&mut self) -> io::Result<Option<Header>> {
        self.skip_data()?;
        let mut block = self.take(BLOCK)?;
        let is_zero = block.iter().all(|byte| *byte == 0);
        if std::mem::take(&mut self.is_at_start) {
            if is_zero {
                block.extend(self.take(START_BYTES - block.len())?);
            }
            if let Some(why) = no_archive(&block) {
                return Err(wrong(&why));
            }
        }
        if is_zero {
            return Ok(None);
        }
        let block = block.first_chunk::<BLOCK>().ok_or(io::ErrorKind::UnexpectedEof)?;
        let header = Header::from_byte_slice(block);
        if has_valid_checksum(header) { Ok(Some(header.clone())) } else { Err(wrong("a header is damaged")) }
    }

    /// Read `len` bytes; fewer only at the end of the stream.
    fn take(&mut self, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.stream).take(len as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Data of `size` bytes follows.
    fn begin(&mut self, size: u64) {
        self.unread = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    /// The data of a header that describes an entry.
    fn described(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > HEADER_BYTES_MAX {
            return Err(wrong("a header is too large"));
        }
        self.begin(size);
        let mut data = Vec::new();
        self.read_to_end(&mut data)?;
        Ok(data)
    }

    fn records(&mut self, size: u64) -> io::Result<Records> {
        parse(&self.described(size)?).ok_or_else(|| wrong("a pax header is malformed"))
    }

    /// A name of GNU tar, with a zero after it.
    fn long_name(&mut self, size: u64) -> io::Result<Vec<u8>> {
        let mut name = self.described(size)?;
        name.truncate(name.iter().position(|byte| *byte == 0).unwrap_or(name.len()));
        Ok(name)
    }

    /// The map in the header of a sparse file in the old form, and in the blocks after the header.
    fn sparse(&mut self, header: &Header) -> io::Result<SparseMap> {
        let gnu = header
            .as_gnu()
            .ok_or_else(|| wrong(&about(header, "its sparse header is not in the format of GNU tar")))?;
        let size = checked("sparse size", numbers::field(&gnu.realsize), &SIZES);
        let size = size.map_err(|why| wrong(&about(header, &why)))?;
        let mut map = SparseMap { size, pieces: Vec::new() };
        map.extend(&gnu.sparse)?;
        let mut continues = gnu.is_extended();
        while continues {
            let mut more = GnuExtSparseHeader::new();
            self.stream.read_exact(more.as_mut_bytes())?;
            map.extend(more.sparse())?;
            continues = more.is_extended();
        }
        Ok(map)
    }
}

impl<S: Stream> Read for Entries<S> {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        let most = memory.len().min(usize::try_from(self.unread).unwrap_or(usize::MAX));
        let count = self.stream.read(&mut memory[..most])?;
        if count == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unread -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_a_length_and_any_bytes() {
        let data = b"14 path=a\nb=c\n20 SCHILY.xattr.x=\xff\n";
        let data = [&data[..14], b"21 SCHILY.xattr.x=\xff\0\n"].concat();
        let found = [(&b"path"[..], &b"a\nb=c"[..]), (b"SCHILY.xattr.x", b"\xff\0")];
        assert_eq!(parse(&data).unwrap(), found.map(|(key, value)| (key.to_vec(), value.to_vec())));
        for wrong in ["x", "5 a=b", "7 a=b\n", "0 a=b\n", "6 abc\n", "99999999999999999999 a=b\n", "3=a\n"] {
            assert!(parse(wrong.as_bytes()).is_none(), "{wrong:?}");
        }
    }
}
