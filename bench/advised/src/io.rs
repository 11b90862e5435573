//! Files of the programs, in both ways.

use std::collections::HashMap;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

const ALIGNMENT: usize = 4096;
/// Bytes of a transfer of a direct stream, and how many are in flight.
const STREAM_BYTES: usize = 1 << 20;
const LANES: usize = 4;

/// The switch of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Buffered,
    Direct,
}

impl Way {
    fn flags(self) -> i32 {
        match self {
            Self::Buffered => 0,
            Self::Direct => rustix::fs::OFlags::DIRECT.bits() as i32,
        }
    }

    pub fn open(self, path: &Path) -> Result<File> {
        File::options().read(true).custom_flags(self.flags()).open(path)
    }

    pub fn create(self, path: &Path) -> Result<File> {
        File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(self.flags())
            .open(path)
    }
}

/// Memory whose first byte is on a page.
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub fn new(len: usize) -> Self {
        let memory = vec![0; len + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, len }
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// A file in order, in calls of `len` bytes.
pub enum Reader {
    Calls { file: File, memory: Aligned, offset: u64 },
    Stream { lanes: Vec<Lane>, turn: usize, memory: Aligned, used: usize, filled: usize, call: usize },
}

/// A thread with one transfer at a time.
pub struct Lane {
    orders: Sender<(Aligned, u64, usize)>,
    done: Receiver<Result<(Aligned, usize)>>,
    next: u64,
}

fn lane(
    file: &Arc<File>,
    is_writing: bool,
) -> (Sender<(Aligned, u64, usize)>, Receiver<Result<(Aligned, usize)>>) {
    let (orders, to_do) = channel::<(Aligned, u64, usize)>();
    let (finished, done) = channel();
    let file = Arc::clone(file);
    std::thread::spawn(move || {
        while let Ok((mut memory, offset, len)) = to_do.recv() {
            let moved = if is_writing {
                file.write_all_at(&memory.bytes()[..len], offset).map(|()| len)
            } else {
                file.read_at(&mut memory.bytes()[..len], offset)
            };
            if finished.send(moved.map(|len| (memory, len))).is_err() {
                return;
            }
        }
    });
    (orders, done)
}

impl Reader {
    pub fn new(path: &Path, way: Way, call: usize) -> Result<Self> {
        let file = way.open(path)?;
        if way == Way::Buffered {
            return Ok(Self::Calls { file, memory: Aligned::new(call), offset: 0 });
        }
        let file = Arc::new(file);
        let lanes = (0..LANES).map(|index| {
            let (orders, done) = lane(&file, false);
            let next = (index * STREAM_BYTES) as u64;
            let _ = orders.send((Aligned::new(STREAM_BYTES), next, STREAM_BYTES));
            Lane { orders, done, next }
        });
        Ok(Self::Stream {
            lanes: lanes.collect(),
            turn: 0,
            memory: Aligned::new(STREAM_BYTES),
            used: 0,
            filled: 0,
            call,
        })
    }

    /// The next bytes; empty at the end.
    pub fn next(&mut self) -> Result<&[u8]> {
        match self {
            Self::Calls { file, memory, offset } => {
                let len = file.read_at(memory.bytes(), *offset)?;
                *offset += len as u64;
                Ok(&memory.bytes()[..len])
            }
            Self::Stream { lanes, turn, memory, used, filled, call } => {
                if used == filled {
                    let lane = &mut lanes[*turn];
                    let (ready, len) = lane.done.recv().expect("a lane")?;
                    let old = std::mem::replace(memory, ready);
                    (*used, *filled) = (0, len);
                    lane.next += (LANES * STREAM_BYTES) as u64;
                    let _ = lane.orders.send((old, lane.next, STREAM_BYTES));
                    *turn = (*turn + 1) % LANES;
                }
                let end = (*used + (*call).min(STREAM_BYTES)).min(*filled);
                let part = *used..end;
                *used = end;
                Ok(&memory.bytes()[part])
            }
        }
    }
}

/// A new file in order.
pub enum Writer {
    Calls {
        file: File,
        offset: u64,
    },
    Stream {
        file: Arc<File>,
        lanes: Vec<Lane>,
        busy: usize,
        turn: usize,
        memory: Aligned,
        used: usize,
        offset: u64,
    },
}

impl Writer {
    pub fn new(path: &Path, way: Way) -> Result<Self> {
        let file = way.create(path)?;
        if way == Way::Buffered {
            return Ok(Self::Calls { file, offset: 0 });
        }
        let file = Arc::new(file);
        let lanes = (0..LANES).map(|_| {
            let (orders, done) = lane(&file, true);
            Lane { orders, done, next: 0 }
        });
        let lanes = lanes.collect();
        Ok(Self::Stream {
            file,
            lanes,
            busy: 0,
            turn: 0,
            memory: Aligned::new(STREAM_BYTES),
            used: 0,
            offset: 0,
        })
    }

    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        match self {
            Self::Calls { file, offset } => {
                file.write_all_at(bytes, *offset)?;
                *offset += bytes.len() as u64;
                Ok(())
            }
            Self::Stream { lanes, busy, turn, memory, used, offset, .. } => {
                while !bytes.is_empty() {
                    let len = bytes.len().min(STREAM_BYTES - *used);
                    memory.bytes()[*used..*used + len].copy_from_slice(&bytes[..len]);
                    (*used, bytes) = (*used + len, &bytes[len..]);
                    if *used == STREAM_BYTES {
                        send(lanes, busy, turn, memory, STREAM_BYTES, *offset)?;
                        (*used, *offset) = (0, *offset + STREAM_BYTES as u64);
                    }
                }
                Ok(())
            }
        }
    }

    /// Write the rest; with `sync`, make all durable.
    pub fn finish(self, sync: bool) -> Result<()> {
        let file = match self {
            Self::Calls { file, .. } => Arc::new(file),
            Self::Stream { file, mut lanes, mut busy, mut turn, mut memory, used, offset } => {
                if used > 0 {
                    let len = used.next_multiple_of(ALIGNMENT);
                    send(&mut lanes, &mut busy, &mut turn, &mut memory, len, offset)?;
                }
                for index in 0..busy {
                    lanes[(turn + LANES - busy + index) % LANES].done.recv().expect("a lane")?;
                }
                if used > 0 {
                    file.set_len(offset + used as u64)?;
                }
                file
            }
        };
        if sync { file.sync_data() } else { Ok(()) }
    }
}

fn send(
    lanes: &mut [Lane],
    busy: &mut usize,
    turn: &mut usize,
    memory: &mut Aligned,
    len: usize,
    offset: u64,
) -> Result<()> {
    let lane = &mut lanes[*turn];
    let spare = if *busy == LANES {
        *busy -= 1;
        lane.done.recv().expect("a lane")?.0
    } else {
        Aligned::new(STREAM_BYTES)
    };
    let full = std::mem::replace(memory, spare);
    let _ = lane.orders.send((full, offset, len));
    *busy += 1;
    *turn = (*turn + 1) % LANES;
    Ok(())
}

/// A file of pages: through the kernel's cache, or below a cache of the program that gives pages a second chance.
pub struct Pages {
    file: File,
    page: usize,
    memory: Aligned,
    own: Option<Own>,
}

struct Own {
    frames: Vec<(u64, bool, Box<[u8]>)>,
    index: HashMap<u64, usize>,
    hand: usize,
    frames_max: usize,
}

impl Pages {
    pub fn new(path: &Path, way: Way, page: usize, cache_bytes: usize) -> Result<Self> {
        let frames_max = cache_bytes / page;
        let own = Own { frames: Vec::new(), index: HashMap::new(), hand: 0, frames_max };
        let file = way.open(path)?;
        Ok(Self {
            file,
            page,
            memory: Aligned::new(page),
            own: (way == Way::Direct && frames_max > 0).then_some(own),
        })
    }

    /// Copy a page to `to`.
    pub fn read(&mut self, number: u64, to: &mut [u8]) -> Result<()> {
        let offset = number * self.page as u64;
        let Some(own) = &mut self.own else {
            self.file.read_exact_at(self.memory.bytes(), offset)?;
            to.copy_from_slice(self.memory.bytes());
            return Ok(());
        };
        if let Some(at) = own.index.get(&number) {
            let frame = &mut own.frames[*at];
            frame.1 = true;
            to.copy_from_slice(&frame.2);
            return Ok(());
        }
        self.file.read_exact_at(self.memory.bytes(), offset)?;
        to.copy_from_slice(self.memory.bytes());
        if own.frames.len() < own.frames_max {
            own.index.insert(number, own.frames.len());
            own.frames.push((number, false, to.to_vec().into_boxed_slice()));
            return Ok(());
        }
        while std::mem::take(&mut own.frames[own.hand].1) {
            own.hand = (own.hand + 1) % own.frames_max;
        }
        let frame = &mut own.frames[own.hand];
        own.index.remove(&frame.0);
        own.index.insert(number, own.hand);
        frame.0 = number;
        frame.2.copy_from_slice(to);
        own.hand = (own.hand + 1) % own.frames_max;
        Ok(())
    }
}
