//! The data of one file: its data ranges, read and written in pieces.
//!
//! Where it sits: below the copier. A small file is read and written alternately. A second thread writes a large one while
//! the next piece is read, so that both devices work at once. Pieces are written in order.
//!
//! Interface: [`FileData::copy`]. Both sides have ended when it returns, also after an error.

use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};

use diorite::AlignedBuf;

use crate::at_depth::{Span, SpanCopier, SpanError};
use crate::tree::{ReadFile, ReadStream, WriteFile};
use crate::{Error, Watch};

/// Size of a transfer: large enough for full bios, and on huge pages.
pub(crate) const CHUNK_BYTES: usize = 4 << 20;
/// Alignment for every direct device.
const ALIGNMENT: usize = 4096;
/// Pieces of a large file that are read, waiting, or written at once.
const PIECES: usize = 3;

/// The extent of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// End of the last data range.
    pub(crate) data_end: u64,
    /// End of the file. Another process can have moved it during the copy.
    pub(crate) end: u64,
    /// Bytes of all data ranges.
    pub(crate) bytes: u64,
}

/// Memory for pieces, reused for the next file.
pub(crate) struct FileData {
    memories: Vec<AlignedBuf>,
    spans: SpanCopier,
}

/// A piece on its way to the writer.
struct Piece {
    memory: AlignedBuf,
    len: usize,
    offset: u64,
}

/// Takes a piece, and supplies memory for the next one. `None`: the writer has ended, and has the error.
type Put<'a> = dyn FnMut(Piece) -> Result<Option<AlignedBuf>, Error> + 'a;

impl FileData {
    pub(crate) fn new() -> Self {
        Self { memories: Vec::new(), spans: SpanCopier::default() }
    }

    fn memories(&mut self, count: usize) -> Vec<AlignedBuf> {
        while self.memories.len() < count {
            self.memories.push(AlignedBuf::zeroed(CHUNK_BYTES, ALIGNMENT));
        }
        self.memories.split_off(self.memories.len() - count)
    }

    /// Copy each data range of a file of `size` bytes.
    pub(crate) fn copy(
        &mut self,
        reader: &dyn ReadFile,
        writer: &dyn WriteFile,
        size: u64,
        watch: &dyn Watch,
    ) -> Result<Copied, Error> {
        if size > CHUNK_BYTES as u64
            && let (Some(from), Some(to)) = (reader.in_library(), writer.in_library())
        {
            return self.copy_in_library((reader, from), (writer, to), size, watch);
        }
        if size <= CHUNK_BYTES as u64 {
            // Each piece is written before the next one is read.
            let memory = self.memories(1).pop();
            let mut put = |piece: Piece| {
                writer.write_at(&piece.memory[..piece.len], piece.offset)?;
                Ok(Some(piece.memory))
            };
            return self.read_all(reader, size, watch, memory, &mut put);
        }
        self.copy_with_worker(reader, writer, size, watch)
    }

    /// Copy each data range with many transfers in flight.
    fn copy_in_library(
        &mut self,
        (reader, from): (&dyn ReadFile, &diorite::File),
        (writer, to): (&dyn WriteFile, &diorite::File),
        size: u64,
        watch: &dyn Watch,
    ) -> Result<Copied, Error> {
        let (mut offset, mut copied) = (0, Copied::default());
        let mut data = 0;
        while let Some((start, end)) = reader.next_data(offset)? {
            // Whole pages keep transfers aligned when data begins in the middle of one.
            let start = start - start % ALIGNMENT as u64;
            let len = end.min(reader.size()?).saturating_sub(start);
            if len == 0 {
                break;
            }
            // Blocks that exist are written in parallel. A filesystem that cannot allocate allocates with each write.
            let _ = to.allocate(start, len);
            let span = Span { from: start, to: start, len };
            let done = self.spans.copy(from, to, span, watch).map_err(|error| match error {
                SpanError::Read(error) => reader.error_of_library("read", error),
                SpanError::Write(error) => writer.error_of_library("write", error),
                SpanError::Interrupted => Error::Interrupted,
            })?;
            data += done;
            offset = start + done;
            copied = Copied { data_end: offset, end: offset, bytes: data };
            if done < len {
                // The source was truncated, and blocks were allocated for what is gone.
                writer.set_size(offset)?;
                return Ok(copied);
            }
        }
        watch.advance(size.saturating_sub(data));
        // A hole at the end.
        Ok(Copied { end: reader.size()?.max(copied.end), ..copied })
    }

    /// Copy the bytes of a stream.
    pub(crate) fn copy_stream(
        &mut self,
        reader: &mut dyn ReadStream,
        writer: &dyn WriteFile,
        watch: &dyn Watch,
    ) -> Result<Copied, Error> {
        let mut memories = self.memories(1);
        let mut copied = Copied::default();
        if let Some(memory) = memories.first_mut() {
            loop {
                let mut len = 0;
                let mut at_end = false;
                while len < memory.len() && !at_end {
                    let count = reader.read(&mut memory[len..], watch)?;
                    (len, at_end) = (len + count, count == 0);
                    watch.advance(count as u64);
                }
                writer.write_at(&memory[..len], copied.end)?;
                let end = copied.end + len as u64;
                copied = Copied { data_end: end, end, bytes: end };
                if at_end {
                    break;
                }
            }
        }
        self.memories.append(&mut memories);
        Ok(copied)
    }

    /// Read here, and write on another thread.
    fn copy_with_worker(
        &mut self,
        reader: &dyn ReadFile,
        writer: &dyn WriteFile,
        size: u64,
        watch: &dyn Watch,
    ) -> Result<Copied, Error> {
        let (pieces, to_write) = sync_channel(PIECES);
        let (written, free) = channel();
        let mut memories = self.memories(PIECES);
        let first = memories.pop();
        for memory in memories {
            let _ = written.send(memory);
        }
        let (copied, wrote) = std::thread::scope(|scope| {
            let thread = scope.spawn(move || write_all(writer, &to_write, &written));
            // After an error of the writer, one of the two channels is closed.
            let mut put = |piece| Ok(pieces.send(piece).ok().and_then(|()| free.recv().ok()));
            let copied = self.read_all(reader, size, watch, first, &mut put);
            drop(pieces);
            let wrote = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            self.memories.extend(free.try_iter());
            (copied, wrote)
        });
        wrote.and(copied)
    }

    /// Read each data range, and pass the pieces to `put`. `memory` is for the first piece.
    fn read_all(
        &mut self,
        reader: &dyn ReadFile,
        size: u64,
        watch: &dyn Watch,
        mut memory: Option<AlignedBuf>,
        put: &mut Put<'_>,
    ) -> Result<Copied, Error> {
        let (mut offset, mut reported, mut copied) = (0, 0, Copied::default());
        while let Some((start, end)) = reader.next_data(offset)? {
            // Whole pages keep direct transfers aligned when data begins in the middle of one.
            offset = (start - start % ALIGNMENT as u64).max(offset);
            while offset < end {
                if watch.is_cancelled() {
                    return Err(Error::Interrupted);
                }
                let whole = (end - offset).checked_next_multiple_of(ALIGNMENT as u64).unwrap_or(u64::MAX);
                let piece_len = whole.min(CHUNK_BYTES as u64) as usize;
                let Some(mut held) = memory.take() else { return Ok(copied) };
                let len = reader.read_at(&mut held[..piece_len], offset)?;
                memory = put(Piece { memory: held, len, offset })?;
                offset += len as u64;
                copied = Copied { data_end: offset, end: offset, bytes: copied.bytes + len as u64 };
                watch.advance(offset - reported);
                reported = offset;
                if len < piece_len {
                    self.memories.extend(memory);
                    return Ok(copied);
                }
            }
        }
        self.memories.extend(memory);
        watch.advance(size.saturating_sub(reported));
        // A hole at the end.
        Ok(Copied { end: reader.size()?.max(copied.end), ..copied })
    }
}

/// The writing thread. Ends after the last piece.
fn write_all(
    writer: &dyn WriteFile,
    pieces: &Receiver<Piece>,
    written: &Sender<AlignedBuf>,
) -> Result<(), Error> {
    for Piece { memory, len, offset } in pieces {
        writer.write_at(&memory[..len], offset)?;
        // The receiver was dropped when the reader has failed.
        let _ = written.send(memory);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::Unwatched;

    struct Numbers(u64);

    impl ReadFile for Numbers {
        fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error> {
            let len = memory.len().min((self.0 - offset) as usize);
            memory[..len].fill((offset / CHUNK_BYTES as u64) as u8);
            Ok(len)
        }
        fn size(&self) -> Result<u64, Error> {
            Ok(self.0)
        }
        fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Error> {
            Ok((offset < self.0).then_some((offset, self.0)))
        }
    }

    /// Remembers what came; fails at a given piece.
    #[derive(Default)]
    struct Log(Mutex<Vec<(u64, usize, u8)>>, Option<usize>);

    impl WriteFile for Log {
        fn write_at(&self, data: &[u8], offset: u64) -> Result<(), Error> {
            let mut log = self.0.lock().unwrap();
            if self.1 == Some(log.len()) {
                return Err(Error::not_copied("full".into(), "full"));
            }
            log.push((offset, data.len(), data[0]));
            Ok(())
        }
        fn set_size(&self, _size: u64) -> Result<(), Error> {
            Ok(())
        }
        fn sync(&self) -> Result<(), Error> {
            Ok(())
        }
    }

    #[test]
    fn pieces_arrive_whole_and_in_order() {
        let (size, mut file_data) = (10 * CHUNK_BYTES as u64 + 5000, FileData::new());
        for _ in 0..2 {
            let log = Log::default();
            let copied = file_data.copy(&Numbers(size), &log, size, &Unwatched).unwrap();
            assert_eq!(copied, Copied { data_end: size, end: size, bytes: size });
            let pieces = log.0.into_inner().unwrap();
            assert_eq!(pieces.len(), 11);
            for (number, (offset, _, byte)) in pieces.iter().enumerate() {
                assert_eq!((*offset, usize::from(*byte)), ((number * CHUNK_BYTES) as u64, number));
            }
            assert_eq!(file_data.memories.len(), PIECES, "memory comes back");
        }
    }

    /// The writer's error is the one that is reported, and the reader does not wait for memory that never comes.
    #[test]
    fn failed_write_ends_the_copy() {
        let size = 50 * CHUNK_BYTES as u64;
        let log = Log(Mutex::default(), Some(3));
        let result = FileData::new().copy(&Numbers(size), &log, size, &Unwatched);
        assert!(matches!(result, Err(Error::Refused { .. })), "{result:?}");
    }

    type Change = fn(&std::fs::File);

    /// A file of the host that is written or cut while it is read: a piece at a time.
    struct Changing {
        file: std::fs::File,
        tree: Box<dyn ReadFile>,
        change: Change,
    }

    impl ReadFile for Changing {
        fn read_at(&self, memory: &mut [u8], offset: u64) -> Result<usize, Error> {
            (self.change)(&self.file);
            self.tree.read_at(memory, offset)
        }
        fn size(&self) -> Result<u64, Error> {
            self.tree.size()
        }
        fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, Error> {
            self.tree.next_data(offset)
        }
    }

    /// The end of a truncated file was copied as zeros. Data appended during the copy is copied without a gap.
    #[test]
    fn a_file_that_changes_is_copied_up_to_its_end() {
        use std::os::unix::fs::FileExt;

        use crate::{Follow, HostTree, Source};
        const FIRST: u64 = 3 * CHUNK_BYTES as u64 + 1000;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("from");
        let append: Change = |file| {
            let len = file.metadata().unwrap().len();
            if len < FIRST + 100_000 {
                file.write_all_at(&[1; 7001], len).unwrap();
            }
        };
        let cut: Change = |file| file.set_len(5000).unwrap();
        for change in [append, cut] {
            let file = std::fs::File::options().create(true).truncate(true).write(true).open(&path).unwrap();
            file.write_all_at(&vec![1; FIRST as usize], 0).unwrap();
            let meta = HostTree::new().meta(&path, Follow::No).unwrap();
            let tree = HostTree::new().open(&path, &meta).unwrap();
            let log = Log::default();
            let changing = Changing { file, tree, change };
            let copied = FileData::new().copy(&changing, &log, FIRST, &Unwatched).unwrap();
            let size = path.metadata().unwrap().len();
            assert_eq!(copied, Copied { data_end: size, end: size, bytes: size });
            let mut end = 0;
            for (offset, len, byte) in log.0.into_inner().unwrap() {
                assert_eq!((offset, byte), (end, 1));
                end += len as u64;
            }
            assert_eq!(end, size);
        }
    }
}
