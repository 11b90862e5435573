//! XDR (RFC 4506), as far as the protocol needs it: numbers of 32 and 64 bits, and bytes with a length, in multiples of four.

/// Malformed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Garbage;

/// The rest of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Garbage> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(Garbage)?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Garbage> {
        self.take(4).map(|bytes| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Garbage> {
        Ok(u64::from(self.u32()?) << 32 | u64::from(self.u32()?))
    }

    /// A value that may be left out.
    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Garbage>,
    ) -> Result<Option<T>, Garbage> {
        if self.u32()? == 0 { Ok(None) } else { read(self).map(Some) }
    }

    /// So many bytes.
    pub(super) fn fixed(&mut self, len: usize) -> Result<&'a [u8], Garbage> {
        let bytes = self.take(len)?;
        self.take(len.next_multiple_of(4) - len)?;
        Ok(bytes)
    }

    /// Bytes with their length before them, at most `max`.
    pub(super) fn opaque(&mut self, max: usize) -> Result<&'a [u8], Garbage> {
        let len = self.u32()? as usize;
        if len > max { Err(Garbage) } else { self.fixed(len) }
    }
}

/// A message under construction.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn u32(&mut self, number: u32) {
        self.bytes.extend(number.to_be_bytes());
    }

    pub(super) fn words(&mut self, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            self.u32(number);
        }
    }

    pub(super) fn u64(&mut self, number: u64) {
        self.bytes.extend(number.to_be_bytes());
    }

    pub(super) fn opaque(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.bytes.extend(bytes);
        self.pad();
    }

    /// Zeros up to a multiple of four.
    pub(super) fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Replace a number.
    pub(super) fn set_u32(&mut self, at: usize, number: u32) {
        self.bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_beyond_it() {
        let mut writer = Writer::default();
        writer.u32(7);
        writer.u64(1 << 40);
        writer.opaque(b"abcde");
        assert_eq!(writer.bytes.len(), 4 + 8 + 4 + 8);
        let mut reader = Reader::new(&writer.bytes);
        assert_eq!((reader.u32(), reader.u64(), reader.opaque(5)), (Ok(7), Ok(1 << 40), Ok(&b"abcde"[..])));
        assert_eq!(reader.u32(), Err(Garbage));
        assert_eq!(Reader::new(&writer.bytes[12..]).opaque(4), Err(Garbage));
        assert_eq!(Reader::new(&[0xff; 8]).opaque(usize::MAX), Err(Garbage));
    }
}
