//! Transfers in flight at once: queues and streams of the file under test.

use diorite::{AlignedBuf, DirectQueue, DirectReader, DirectWriter};

use super::{FULL, Subject, allow};
use crate::access::{Access, Outcome, tell};

/// A queued write, and the number of bytes written.
struct Queued {
    tag: u64,
    offset: u64,
    data: Vec<u8>,
    is_short: bool,
}

impl Subject {
    /// Reads and writes in flight at once; where they overlap they take effect in the order of submission.
    pub(super) fn queue(&mut self) -> Outcome {
        let Some((_, file)) = self.handles.iter().find(|(way, _)| *way != Access::Cached).cloned() else {
            return self.read();
        };
        let mut queue: DirectQueue<AlignedBuf> = DirectQueue::new(4);
        let mut done = Vec::new();
        let (before, mut writes) = (self.model.clone(), Vec::new());
        for tag in 0..self.random.within(1..8) {
            let (offset, len) = self.range(self.unit);
            while queue.in_flight() >= 4 {
                tell(queue.reap(1, &mut done), "reap")?;
            }
            if self.random.one_in(2) {
                let memory = self.aligned(offset, len as usize);
                let data = memory.to_vec();
                match queue.write(&file, offset, memory, len as usize, tag) {
                    Ok(()) => {
                        self.put(offset, &data);
                        writes.push(Queued { tag, offset, data, is_short: false });
                    }
                    Err(refused) => match refused.error {
                        error if error.kind() == diorite::ErrorKind::StorageFull => {}
                        error => return Err(format!("queued write of {len} at {offset}: {error:?}")),
                    },
                }
            } else {
                // It must see the writes submitted before; nothing else is in flight then.
                while queue.in_flight() > 0 {
                    tell(queue.reap(1, &mut done), "reap")?;
                }
                if !Self::check_done(&mut done, &mut writes)? {
                    break;
                }
                let memory = AlignedBuf::zeroed(len as usize, 4096);
                let read = queue.read(&file, offset, memory, len as usize, tag);
                read.map_err(|refused| format!("queued read: {refused}"))?;
                let finished = tell(queue.next_finished(), "reap")?.ok_or("nothing was in flight")?;
                let got = tell(finished.result, "queued read")?;
                self.expect("queued read", offset, len, &finished.memory[..got])?;
            }
            Self::check_done(&mut done, &mut writes)?;
        }
        while queue.in_flight() > 0 {
            tell(queue.reap(1, &mut done), "reap")?;
        }
        if !Self::check_done(&mut done, &mut writes)? {
            self.model = before;
            for write in &writes {
                self.put(write.offset, &write.data);
            }
        }
        self.compare_all().map_err(|what| format!("after a queue: {what}"))
    }

    /// Cut the writes that are done to what was written of them: less than all where the volume filled up. Whether all of all were
    /// written so far. A write that was accepted does not fail for lack of space.
    fn check_done(done: &mut Vec<diorite::Finished<AlignedBuf>>, writes: &mut [Queued]) -> Outcome<bool> {
        for finished in done.drain(..) {
            let len = tell(finished.result, "queued write")?;
            let write = writes.iter_mut().find(|write| write.tag == finished.tag);
            let write = write.ok_or("a write that was not submitted has ended")?;
            write.is_short = len < write.data.len();
            write.data.truncate(len);
        }
        Ok(!writes.iter().any(|write| write.is_short))
    }

    pub(super) fn write_stream(&mut self) -> Outcome {
        let Some((_, file)) = self.handles.iter().find(|(way, _)| *way != Access::Cached).cloned() else {
            return self.write();
        };
        let (offset, len) = self.range(1);
        let offset = offset / self.unit * self.unit;
        let data = self.bytes(offset, len as usize);
        let chunk = 4096.max(self.unit as usize);
        let mut done = 0;
        let mut stream = || -> diorite::Result<()> {
            let mut writer = DirectWriter::new(file.clone(), offset, chunk, 3)?;
            for piece in data.chunks(chunk) {
                writer.buffer()?[..piece.len()].copy_from_slice(piece);
                writer.submit(piece.len())?;
                done += piece.len();
            }
            writer.finish().map(drop)
        };
        let result = stream();
        if allow(result, format_args!("stream of {len} to {offset}"), &[FULL])?.is_some() {
            self.put(offset, &data);
            return Ok(());
        }
        // How much arrived is not said: what arrived is there, the rest is as before.
        self.adopt(offset, &data)
    }

    pub(super) fn read_stream(&mut self) -> Outcome {
        let Some((_, file)) = self.handles.iter().find(|(way, _)| *way != Access::Cached).cloned() else {
            return self.view();
        };
        let offset = self.random.below(self.size() + 1) / self.unit * self.unit;
        let mut reader = tell(DirectReader::new(file, offset, 8192.max(self.unit as usize), 3), "stream")?;
        let mut found = Vec::new();
        while let Some(piece) = tell(reader.next_chunk(), "stream")? {
            found.extend_from_slice(piece);
        }
        self.expect("stream", offset, u64::MAX / 2, &found)
    }
}
