//! Several devices as one: striped chunk by chunk, or one after the other.
//!
//! Where it sits: on top of other devices of this crate. The bios of a call are cut along the layout. Adjacent parts on a child
//! are merged again. All children that are files are submitted with one system call on the calling thread's ring,
//! so that one thread keeps all of them busy. Other children execute in turn.
//!
//! Invariants:
//! 1. A child never gets a bio that is larger, or has more segments, than it takes.
//! 2. What must come after a flush comes after a flush of every child.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use diorite_block::{
    Bio, BioFlags, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op, Sector, SharedQueue,
};

use crate::batch::{self, Part};
use crate::error::OpenError;
use crate::joined_queue::JoinedQueue;
use crate::layout::{Layout, Run};
use crate::ring_queue;
use crate::route::Target;
use crate::thread_queue;
use crate::under::file_under;

/// Joined devices take larger bios than their children, but not more than this.
const TRANSFER_BYTES_MAX: u32 = 16 << 20;

/// See the module's head.
pub struct JoinedDevice {
    name: String,
    children: Vec<Arc<dyn BlockDevice>>,
    layout: Layout,
    geometry: Geometry,
    counters: IoCounters,
}

diorite_block::short_debug!(JoinedDevice, name, geometry);

impl JoinedDevice {
    /// The children's space in turns of `chunk_bytes`; what a larger child has more than the smallest is not used.
    ///
    /// # Errors
    /// There are no children, or they cannot be joined with turns of that size.
    pub fn striped(children: Vec<Arc<dyn BlockDevice>>, chunk_bytes: u64) -> Result<Arc<Self>, OpenError> {
        let name = joined_name("stripe", &children);
        let bad = |why: String| OpenError::BadJoin { spec: name.clone(), why };
        let block = u64::from(common(&children, |g| g.logical_block_size).max(512));
        if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(block) {
            return Err(bad(format!(
                "a chunk of {chunk_bytes} bytes is not a multiple of the block size {block}"
            )));
        }
        let count = children.len() as u64;
        let smallest = children.iter().map(|child| child.geometry().capacity_bytes).min().unwrap_or(0);
        let capacity = (smallest / chunk_bytes * chunk_bytes).checked_mul(count);
        let capacity = capacity.ok_or_else(|| bad("together they are too large".to_owned()))?;
        if capacity == 0 {
            return Err(bad(format!("the smallest has no chunk of {chunk_bytes} bytes")));
        }
        Ok(Self::new(name, children, Layout::Striped { chunk_bytes, children: count }, capacity))
    }

    /// The children's space one after the other.
    ///
    /// # Errors
    /// There are no children, or they cannot be joined.
    pub fn linear(children: Vec<Arc<dyn BlockDevice>>) -> Result<Arc<Self>, OpenError> {
        let name = joined_name("linear", &children);
        let bad = |why: &str| OpenError::BadJoin { spec: name.clone(), why: why.to_owned() };
        let block = u64::from(common(&children, |g| g.logical_block_size).max(512));
        let mut ends = Vec::with_capacity(children.len());
        let mut end = 0_u64;
        for child in &children {
            let capacity = child.geometry().capacity_bytes;
            end = end
                .checked_add(capacity - capacity % block)
                .ok_or_else(|| bad("together they are too large"))?;
            ends.push(end);
        }
        if end == 0 {
            return Err(bad("there is nothing to join"));
        }
        Ok(Self::new(name, children, Layout::Linear { ends }, end))
    }

    fn new(
        name: String,
        children: Vec<Arc<dyn BlockDevice>>,
        layout: Layout,
        capacity_bytes: u64,
    ) -> Arc<Self> {
        let all = |what: fn(&Geometry) -> bool| children.iter().all(|child| what(child.geometry()));
        let any = |what: fn(&Geometry) -> bool| children.iter().any(|child| what(child.geometry()));
        let logical_block_size = common(&children, |g| g.logical_block_size);
        let smallest_transfer =
            children.iter().map(|child| child.geometry().max_transfer_bytes).min().unwrap_or(512);
        let max_transfer_bytes = match &layout {
            Layout::Striped { .. } => {
                smallest_transfer.saturating_mul(children.len() as u32).min(TRANSFER_BYTES_MAX)
            }
            _ => smallest_transfer,
        };
        let geometry = Geometry {
            capacity_bytes,
            logical_block_size,
            physical_block_size: common(&children, |g| g.physical_block_size),
            memory_alignment: common(&children, |g| g.memory_alignment),
            max_transfer_bytes: (max_transfer_bytes - max_transfer_bytes % logical_block_size)
                .max(logical_block_size),
            max_segments: children.iter().map(|child| child.geometry().max_segments).min().unwrap_or(1),
            atomic_write_bytes: 0,
            volatile_cache: any(|g| g.volatile_cache),
            fua: all(|g| g.fua),
            discard: all(|g| g.discard),
            rotational: any(|g| g.rotational),
            read_only: any(|g| g.read_only),
        };
        Arc::new(Self { name, children, layout, geometry, counters: IoCounters::default() })
    }

    /// The devices that it is made of.
    pub fn children(&self) -> &[Arc<dyn BlockDevice>] {
        &self.children
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The files with rings under the children, if each has one.
    fn targets(&self) -> Option<Vec<Target>> {
        self.children.iter().map(Target::of).collect()
    }

    fn has_files(&self) -> bool {
        self.children.iter().any(|child| file_under(&**child).is_some())
    }

    /// Cut the bios along the layout, in the order of the range.
    fn cut<'s>(&self, bios: &'s mut [Bio<'_>]) -> Vec<Vec<Bio<'s>>> {
        let mut cut =
            Cut { lists: self.children.iter().map(|child| ChildBios::new(child.geometry())).collect() };
        for bio in bios {
            let (op, owner, offset, len) = (bio.op, bio.owner, bio.sector.to_bytes(), bio.len());
            let flags = without(bio.flags, BioFlags::PREFLUSH);
            let mut runs = Runs { layout: &self.layout, offset, rest: len };
            match &mut bio.memory {
                BioMemory::Read(segments) => {
                    for segment in segments {
                        let mut memory: &'s mut [u8] = segment;
                        while !memory.is_empty() {
                            let run = runs.take(memory.len() as u64);
                            let (now, later) = memory.split_at_mut(run.len as usize);
                            memory = later;
                            cut.lists[run.child].read(run, now, Model { op, flags, owner });
                        }
                    }
                }
                BioMemory::Write(segments) => {
                    for segment in segments {
                        let mut memory: &'s [u8] = segment;
                        while !memory.is_empty() {
                            let run = runs.take(memory.len() as u64);
                            let (now, later) = memory.split_at(run.len as usize);
                            memory = later;
                            cut.lists[run.child].write(run, now, Model { op, flags, owner });
                        }
                    }
                }
                BioMemory::None(_) => {
                    for run in self.layout.merged_runs(offset, len) {
                        cut.lists[run.child].without_memory(run, Model { op, flags, owner });
                    }
                }
            }
        }
        cut.lists.into_iter().map(|list| list.bios).collect()
    }

    fn flush_children(&self) -> Result<(), IoError> {
        run_on(&self.children, self.children.iter().map(|_| vec![Bio::flush()]).collect())
    }
}

/// Run each child's bios: files all at once, others in turn.
pub(crate) fn run_on(children: &[Arc<dyn BlockDevice>], mut lists: Vec<Vec<Bio<'_>>>) -> Result<(), IoError> {
    let mut parts = Vec::with_capacity(lists.len());
    let mut others = Vec::new();
    for (child, bios) in children.iter().zip(&mut lists).filter(|(_, bios)| !bios.is_empty()) {
        if let Some((device, shift)) = file_under(&**child) {
            if shift > 0 || !std::ptr::addr_eq(device, &raw const **child) {
                for bio in &mut *bios {
                    child.counters().count(bio.op, bio.len());
                    bio.sector = Sector(bio.sector.0 + shift);
                }
            }
            parts.push(Part { device, bios });
        } else {
            others.push((child, bios));
        }
    }
    let mut result = if parts.is_empty() { Ok(()) } else { batch::execute_parts(&mut parts) };
    for (child, bios) in others {
        let ended = child.execute(bios);
        result = result.and(ended);
    }
    result
}

fn joined_name(kind: &str, children: &[Arc<dyn BlockDevice>]) -> String {
    let names: Vec<_> = children.iter().map(|child| child.name()).collect();
    format!("{kind}:{}", names.join(","))
}

/// The largest of the children's powers of two, which is a multiple of all.
fn common(children: &[Arc<dyn BlockDevice>], what: fn(&Geometry) -> u32) -> u32 {
    children.iter().map(|child| what(child.geometry())).max().unwrap_or(512)
}

fn without(flags: BioFlags, unwanted: BioFlags) -> BioFlags {
    let all = [
        BioFlags::SYNC,
        BioFlags::NO_IDLE,
        BioFlags::META,
        BioFlags::READ_AHEAD,
        BioFlags::FUA,
        BioFlags::PREFLUSH,
    ];
    let kept = all.into_iter().filter(|flag| flags.contains(*flag) && !unwanted.contains(*flag));
    kept.fold(BioFlags::NONE, |kept, flag| kept | flag)
}

/// What the parts of a bio have in common.
#[derive(Clone, Copy)]
struct Model {
    op: Op,
    flags: BioFlags,
    owner: diorite_block::IoOwner,
}

/// What of a bio's range is still to be cut.
struct Runs<'l> {
    layout: &'l Layout,
    offset: u64,
    rest: u64,
}

impl Runs<'_> {
    fn take(&mut self, len: u64) -> Run {
        let run = self.layout.first_run(self.offset, len.min(self.rest));
        self.offset += run.len;
        self.rest -= run.len;
        run
    }
}

struct Cut<'s> {
    lists: Vec<ChildBios<'s>>,
}

/// The bios of one child, grown as runs are added.
struct ChildBios<'s> {
    bios: Vec<Bio<'s>>,
    /// Length of the last one.
    last_bytes: u64,
    max_bytes: u64,
    max_segments: usize,
}

impl<'s> ChildBios<'s> {
    fn new(geometry: &Geometry) -> Self {
        let max_segments = usize::from(geometry.max_segments);
        Self {
            bios: Vec::new(),
            last_bytes: 0,
            max_bytes: u64::from(geometry.max_transfer_bytes),
            max_segments,
        }
    }

    /// Bytes of `len` that fit into the last bio; 0 if a new one must be opened.
    fn mergeable_bytes(&self, offset: u64, len: u64, model: Model) -> u64 {
        match self.bios.last() {
            Some(last)
                if last.op == model.op
                    && last.flags == model.flags
                    && last.owner == model.owner
                    && last.sector.to_bytes() + self.last_bytes == offset
                    && last.segment_count() < self.max_segments =>
            {
                len.min(self.max_bytes - self.last_bytes)
            }
            _ => 0,
        }
    }

    fn open(&mut self, offset: u64, len: u64, memory: BioMemory<'s>, model: Model) {
        let Model { op, flags, owner } = model;
        self.bios.push(Bio { sector: Sector::containing(offset), memory, op, flags, owner });
        self.last_bytes = len;
    }

    fn read(&mut self, run: Run, mut memory: &'s mut [u8], model: Model) {
        let mut offset = run.offset;
        while !memory.is_empty() {
            let mergeable = self.mergeable_bytes(offset, memory.len() as u64, model);
            let len = if mergeable > 0 { mergeable } else { self.max_bytes.min(memory.len() as u64) };
            let (now, later) = memory.split_at_mut(len as usize);
            memory = later;
            match self.bios.last_mut().map(|bio| &mut bio.memory) {
                Some(BioMemory::Read(segments)) if mergeable > 0 => {
                    segments.push(IoSliceMut::new(now));
                    self.last_bytes += len;
                }
                _ => self.open(offset, len, BioMemory::Read(vec![IoSliceMut::new(now)]), model),
            }
            offset += len;
        }
    }

    fn write(&mut self, run: Run, mut memory: &'s [u8], model: Model) {
        let mut offset = run.offset;
        while !memory.is_empty() {
            let mergeable = self.mergeable_bytes(offset, memory.len() as u64, model);
            let len = if mergeable > 0 { mergeable } else { self.max_bytes.min(memory.len() as u64) };
            let (now, later) = memory.split_at(len as usize);
            memory = later;
            match self.bios.last_mut().map(|bio| &mut bio.memory) {
                Some(BioMemory::Write(segments)) if mergeable > 0 => {
                    segments.push(IoSlice::new(now));
                    self.last_bytes += len;
                }
                _ => self.open(offset, len, BioMemory::Write(vec![IoSlice::new(now)]), model),
            }
            offset += len;
        }
    }

    fn without_memory(&mut self, run: Run, model: Model) {
        self.open(run.offset, run.len, BioMemory::None(run.len), model);
    }
}

impl BlockDevice for JoinedDevice {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn counters(&self) -> &IoCounters {
        &self.counters
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        (self as &dyn BlockDevice).check(bios)?;
        for bio in &*bios {
            self.counters.count(bio.op, bio.len());
        }
        if bios.iter().any(|bio| bio.op == Op::Flush || bio.flags.contains(BioFlags::PREFLUSH)) {
            // What was to come after a flush that failed stays undone.
            self.flush_children()?;
        }
        run_on(&self.children, self.cut(bios))
    }

    fn release(&self) {
        self.children.iter().for_each(|child| child.release());
    }

    fn table_sector_bytes(&self) -> u32 {
        self.children.iter().map(|child| child.table_sector_bytes()).max().unwrap_or(512)
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        if let Some(targets) = self.targets()
            && let Some(queue) = ring_queue::open(
                Arc::clone(&self) as Arc<dyn BlockDevice>,
                self.layout().clone(),
                targets,
                depth,
            )
        {
            return Ok(queue);
        }
        if self.has_files() {
            return Ok(Box::new(thread_queue::open(self, depth)));
        }
        Ok(Box::new(JoinedQueue::open(self, depth)?))
    }

    fn open_shared_queue(self: Arc<Self>, depth: u32) -> Option<Box<dyn SharedQueue>> {
        let ring = self.targets().and_then(|targets| {
            let layout = self.layout().clone();
            ring_queue::open_shared(Arc::clone(&self) as Arc<dyn BlockDevice>, layout, targets, depth)
        });
        match ring {
            None if self.has_files() => Some(Box::new(thread_queue::open(self, depth))),
            ring => ring,
        }
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn memory(bytes: u64, max_transfer_bytes: u32, max_segments: u16) -> Arc<dyn BlockDevice> {
        let geometry = Geometry { max_transfer_bytes, max_segments, ..MemoryDevice::geometry_for(bytes) };
        MemoryDevice::with_geometry("child", geometry)
    }

    /// Invariant 1, and ARCHITECTURE invariant 8: adjacent chunks of a child are one bio.
    #[test]
    fn chunks_of_a_child_grow_together() {
        let children: Vec<_> = (0..4).map(|_| memory(4 << 20, 1 << 20, 1024)).collect();
        let device = JoinedDevice::striped(children, 64 << 10).unwrap();
        let data = vec![7; 4 << 20];
        let mut bios = [Bio::write(Sector(0), &data, BioFlags::SYNC)];
        let lists = device.cut(&mut bios);
        assert!(lists.iter().all(|bios| bios.len() == 1 && bios[0].len() == 1 << 20));
        assert!(lists.iter().all(|bios| bios[0].segment_count() == 16));

        let children: Vec<_> = (0..2).map(|_| memory(4 << 20, 256 << 10, 3)).collect();
        let device = JoinedDevice::striped(children, 64 << 10).unwrap();
        let mut bios = [Bio::write(Sector(0), &data[..1 << 20], BioFlags::SYNC)];
        for bio in device.cut(&mut bios).iter().flatten() {
            assert!(bio.len() <= 256 << 10 && bio.segment_count() <= 3);
        }
    }

    #[test]
    fn devices_that_do_not_fit_are_refused_with_the_reason() {
        let error = |result: Result<Arc<JoinedDevice>, OpenError>| result.unwrap_err().to_string();
        let two = || vec![memory(1 << 20, 4096, 1), memory(1 << 20, 4096, 1)];
        assert!(error(JoinedDevice::striped(two(), 1000)).contains("not a multiple"));
        assert!(error(JoinedDevice::striped(two(), 2 << 20)).contains("no chunk"));
        assert!(error(JoinedDevice::linear(Vec::new())).contains("nothing"));
    }

    #[test]
    fn sizes_add_up() {
        let children = || vec![memory(1 << 20, 4096, 1), memory((2 << 20) + 512, 4096, 1)];
        let striped = JoinedDevice::striped(children(), 64 << 10).unwrap();
        assert_eq!(striped.geometry().capacity_bytes, 2 << 20);
        assert_eq!(JoinedDevice::linear(children()).unwrap().geometry().capacity_bytes, (3 << 20) + 512);
    }
}
