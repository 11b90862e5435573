//! The data of regular files: copied, or recorded where it is.

use std::io::Read;
use std::path::Path;

use super::Unpacker;
use crate::Error;
use crate::pax::{Entries, SparseMap, Stream};
use crate::tree::{Attributes, LostAttribute, Meta, Piece, Recorder, WriteFile};

/// Size of a write. Reads from a pipe are smaller.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

impl Unpacker<'_> {
    /// Record where the data of a regular file is.
    pub(super) fn record(
        &mut self,
        recorder: &dyn Recorder,
        data: &mut Entries<impl Stream>,
        path: &Path,
        size: u64,
        sparse: Option<SparseMap>,
    ) -> Result<(), Error> {
        let (mut from, len) = data.data();
        let ranges = sparse.map_or_else(|| vec![(0, len)], |map| map.pieces);
        if ranges.iter().try_fold(0u64, |sum, (_, len)| sum.checked_add(*len)).is_none_or(|sum| sum > len) {
            return Err(self.entry_error("the sparse file has less data than its map"));
        }
        let mut pieces = Vec::with_capacity(ranges.len());
        for (start, len) in ranges {
            pieces.push(Piece { start, len, from });
            from += len;
        }
        // A stream is kept as far as it was read.
        data.skip_data().map_err(|source| self.error(source))?;
        if self.is_taken(path)? {
            self.sink.remove(path)?;
        }
        recorder.make_reference(path, size, &pieces)?;
        self.summary.files += 1;
        Ok(())
    }

    /// Make a regular file. Returns the attributes that the destination does not hold.
    pub(super) fn file(
        &mut self,
        data: &mut impl Read,
        path: &Path,
        (meta, attributes): (&Meta, &Attributes),
        sparse: Option<SparseMap>,
    ) -> Result<Vec<LostAttribute>, Error> {
        self.watch.begin(path, meta.size);
        let file = self.sink.create_new(&self.target(path)?, Some(meta.size))?;
        self.write(data, file.content(), meta.size, sparse)?;
        let lost = file.set_meta(meta, attributes)?;
        file.complete()?;
        self.summary.files += 1;
        Ok(lost)
    }

    fn write(
        &mut self,
        data: &mut impl Read,
        file: &dyn WriteFile,
        size: u64,
        sparse: Option<SparseMap>,
    ) -> Result<(), Error> {
        let is_sparse = sparse.is_some();
        let mut buffer = Vec::with_capacity(CHUNK_BYTES);
        let pieces = sparse.map_or_else(|| vec![(0, u64::MAX)], |map| map.pieces);
        let mut end = 0;
        for (start, len) in pieces {
            let (mut offset, until) = (start, start.saturating_add(len));
            while offset < until {
                if self.watch.is_cancelled() {
                    return Err(Error::Interrupted);
                }
                let most = (until - offset).min(CHUNK_BYTES as u64);
                buffer.clear();
                let count =
                    data.by_ref().take(most).read_to_end(&mut buffer).map_err(|source| self.error(source))?;
                if count == 0 && is_sparse {
                    return Err(self.entry_error("the sparse file has less data than its map"));
                } else if count == 0 {
                    break;
                }
                file.write_at(&buffer, offset)?;
                self.summary.bytes += count as u64;
                offset += count as u64;
                self.watch.advance(count as u64);
            }
            end = offset;
        }
        file.set_size(if is_sparse { size } else { end })
    }
}
