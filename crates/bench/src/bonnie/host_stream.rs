//! Sequential direct I/O on a host file with several transfers in flight: one thread for each, with its own memory.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use diorite_device::AlignedBuf;

use super::CHUNK_BYTES;
use super::chunks::{ChunkReader, ChunkWriter, IN_FLIGHT, huge_buffer};
use crate::error::Error;
use crate::host::{HostFile, WorkFile};

/// Read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Read,
    Write,
}

/// Memory of a transfer, and its valid bytes.
type Done = Result<(AlignedBuf, usize), Error>;

/// A thread with one transfer at a time.
struct Lane {
    orders: Sender<(AlignedBuf, u64)>,
    done: Receiver<Done>,
    is_busy: bool,
    memory: Option<AlignedBuf>,
}

/// Lanes, used in turn, so that chunks keep their order.
pub(super) struct HostStream {
    file: Arc<HostFile>,
    direction: Direction,
    lanes: Vec<Lane>,
    turn: usize,
    /// Offset of the next transfer.
    offset: u64,
    /// Bytes of the caller's chunk.
    shown: Option<usize>,
}

impl HostStream {
    pub(super) fn new(file: HostFile, direction: Direction) -> Result<Self, Error> {
        let file = Arc::new(file);
        let mut stream = Self { file, direction, lanes: Vec::new(), turn: 0, offset: 0, shown: None };
        for _ in 0..IN_FLIGHT {
            let memory = huge_buffer(CHUNK_BYTES, AlignedBuf::try_zeroed)?;
            stream.lanes.push(lane(&stream.file, direction, memory)?);
        }
        if direction == Direction::Read {
            (0..stream.lanes.len()).for_each(|index| stream.order(index));
        }
        Ok(stream)
    }

    /// Give a lane the next chunk.
    fn order(&mut self, index: usize) {
        let lane = &mut self.lanes[index];
        if let Some(memory) = lane.memory.take() {
            // An ended thread has left an error, which is returned when the lane is next.
            lane.is_busy = lane.orders.send((memory, self.offset)).is_ok();
            self.offset += CHUNK_BYTES as u64;
        }
    }

    /// Wait for the transfer of a lane; its bytes.
    fn settle(&mut self, index: usize) -> Result<usize, Error> {
        let lane = &mut self.lanes[index];
        if !std::mem::take(&mut lane.is_busy) {
            return Ok(0);
        }
        match lane.done.recv() {
            Ok(done) => {
                let (memory, bytes) = done?;
                lane.memory = Some(memory);
                Ok(bytes)
            }
            Err(_) => Err(Error::Interrupted),
        }
    }
}

fn lane(file: &Arc<HostFile>, direction: Direction, memory: AlignedBuf) -> Result<Lane, Error> {
    let (orders, inbox) = channel::<(AlignedBuf, u64)>();
    let (outbox, done) = channel::<Done>();
    let file = Arc::clone(file);
    let body = move || {
        for (mut memory, offset) in inbox {
            let moved = match direction {
                Direction::Read => file.read_at(&mut memory[..CHUNK_BYTES], offset),
                Direction::Write => file.write_all_at(&memory[..CHUNK_BYTES], offset).map(|()| CHUNK_BYTES),
            };
            if outbox.send(moved.map(|bytes| (memory, bytes))).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("host direct".to_owned()).spawn(body);
    // The thread ends when the stream drops its channel.
    thread.map_err(|source| Error::Memory { bytes: 0, source })?;
    Ok(Lane { orders, done, is_busy: false, memory: Some(memory) })
}

impl ChunkReader for HostStream {
    fn next_chunk(&mut self) -> Result<Option<&[u8]>, Error> {
        if self.shown.take().is_some() {
            self.order(self.turn);
            self.turn = (self.turn + 1) % self.lanes.len();
        }
        let bytes = self.settle(self.turn)?;
        if bytes == 0 {
            return Ok(None);
        }
        self.shown = Some(bytes);
        Ok(self.lanes[self.turn].memory.as_ref().map(|memory| &memory[..bytes]))
    }
}

impl ChunkWriter for HostStream {
    fn buffer(&mut self) -> Result<&mut [u8], Error> {
        self.settle(self.turn)?;
        match &mut self.lanes[self.turn].memory {
            Some(memory) => Ok(&mut memory[..CHUNK_BYTES]),
            None => Err(Error::Interrupted),
        }
    }

    fn submit(&mut self) -> Result<(), Error> {
        self.settle(self.turn)?;
        self.order(self.turn);
        self.turn = (self.turn + 1) % self.lanes.len();
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), Error> {
        debug_assert_eq!(self.direction, Direction::Write);
        for index in 0..self.lanes.len() {
            self.settle(index)?;
        }
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{FileIo, Start};

    #[test]
    fn chunks_keep_their_order() {
        const CHUNKS: u8 = 2 * IN_FLIGHT as u8 + 3;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let open = |create| HostFile::open(&path, FileIo::Buffered, create).unwrap();
        let mut writer: Box<dyn ChunkWriter> =
            Box::new(HostStream::new(open(Start::New), Direction::Write).unwrap());
        for number in 0..CHUNKS {
            writer.buffer().unwrap().fill(number);
            writer.submit().unwrap();
        }
        writer.finish().unwrap();
        let mut reader = HostStream::new(open(Start::Existing), Direction::Read).unwrap();
        for number in 0..CHUNKS {
            let chunk = reader.next_chunk().unwrap().expect("all written chunks");
            assert!(chunk.len() == CHUNK_BYTES && chunk.iter().all(|byte| *byte == number), "{number}");
        }
        assert!(reader.next_chunk().unwrap().is_none());
    }
}
