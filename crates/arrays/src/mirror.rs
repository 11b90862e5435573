//! Several devices with the same content.
//!
//! A read goes to the child with the fewest bytes in flight, and to the others if that child fails. A write goes to all children, and fails
//! if one of them fails.
//!
//! Invariants:
//! 1. A write has ended when it has ended on every child.
//! 2. If the children may differ, all reads go to the first.

use std::fmt;
use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diorite_block::{
    Bio, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op, Process, SharedQueue,
};

use diorite_device::OpenError;
use diorite_device::ThreadQueue;
use diorite_device::{common_geometry, execute_on_each};

/// Marks on the children: whether they may differ.
pub(crate) trait WriteMarks: Send + Sync + fmt::Debug {
    /// Before a write, mark that the children may differ.
    fn before_write(&self) -> Result<(), IoError>;
    /// All writes are durable on all children: mark that they are the same.
    fn all_is_the_same(&self) -> Result<(), IoError>;
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct MirrorDevice {
    name: String,
    children: Vec<Arc<dyn BlockDevice>>,
    /// Bytes of reads in flight, by child.
    reading: Vec<AtomicU64>,
    /// Whether reads may go to any child.
    in_sync: bool,
    marks: Option<Box<dyn WriteMarks>>,
    /// Whether a write has failed on a child.
    has_failed: AtomicBool,
    is_settled: AtomicBool,
    process: Process,
    geometry: Geometry,
    counters: IoCounters,
}

impl MirrorDevice {
    /// A read-only mirror of complete children.
    pub(crate) fn read_only(children: Vec<Arc<dyn BlockDevice>>) -> Result<Arc<dyn BlockDevice>, OpenError> {
        let mut device = Self::new("mirror".to_owned(), children, true, None)?;
        device.geometry.read_only = true;
        Ok(Arc::new(device))
    }

    /// A mirror; read-only without `marks`.
    pub(crate) fn new(
        name: String,
        children: Vec<Arc<dyn BlockDevice>>,
        in_sync: bool,
        marks: Option<Box<dyn WriteMarks>>,
    ) -> Result<Self, OpenError> {
        let mut geometry = common_geometry(&children)
            .ok_or_else(|| OpenError::BadJoin { spec: name.clone(), why: "there is no device".to_owned() })?;
        geometry.capacity_bytes -= geometry.capacity_bytes % u64::from(geometry.logical_block_size);
        geometry.read_only |= marks.is_none();
        let reading = children.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self {
            name,
            children,
            reading,
            in_sync,
            marks,
            has_failed: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
            process: Process::current(),
            geometry,
            counters: IoCounters::default(),
        })
    }

    /// Read from the child with the fewest bytes in flight, then from the others. After a failed write the children may differ, and the
    /// first is read.
    fn read(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
        let len: u64 = bios.iter().map(Bio::len).sum();
        let load = |child: &usize| self.reading[*child].load(Ordering::Relaxed);
        let count = if self.in_sync { self.children.len() } else { 1 };
        let may_choose = !self.has_failed.load(Ordering::Relaxed);
        let first = (0..count).filter(|child| may_choose || *child == 0).min_by_key(load).unwrap_or(0);
        self.reading[first].fetch_add(len, Ordering::Relaxed);
        let mut result = self.children[first].execute(bios);
        self.reading[first].fetch_sub(len, Ordering::Relaxed);
        for other in (0..count).filter(|other| *other != first) {
            if result.is_ok() {
                break;
            }
            result = self.children[other].execute(bios);
        }
        result.map_err(|error| self.own(error))
    }

    /// Run all operations except reads on all children.
    fn change(&self, bios: &[Bio<'_>]) -> Result<(), IoError> {
        if let Some(marks) = &self.marks
            && bios.iter().any(|bio| bio.op.is_write())
        {
            marks.before_write()?;
        }
        let lists = self.children.iter().map(|_| bios.iter().map(copy_of).collect()).collect();
        execute_on_each(&self.children, lists).map_err(|error| {
            self.has_failed.store(true, Ordering::Relaxed);
            self.own(error)
        })
    }

    fn own(&self, mut error: IoError) -> IoError {
        error.device = format!("{} ({})", self.name, error.device);
        error
    }
}

/// A copy of a bio that is no read.
fn copy_of<'s>(bio: &'s Bio<'_>) -> Bio<'s> {
    let memory = match &bio.memory {
        BioMemory::Write(segments) => BioMemory::Write(segments.clone()),
        BioMemory::None(len) => BioMemory::None(*len),
        BioMemory::Read(_) => BioMemory::None(0),
    };
    Bio { sector: bio.sector, memory, op: bio.op, flags: bio.flags, owner: bio.owner }
}

/// A copy of a read, into the same memory.
fn same_read<'s>(bio: &'s mut Bio<'_>) -> Option<Bio<'s>> {
    let BioMemory::Read(segments) = &mut bio.memory else { return None };
    let memory = BioMemory::Read(segments.iter_mut().map(|segment| IoSliceMut::new(segment)).collect());
    Some(Bio { sector: bio.sector, memory, op: bio.op, flags: bio.flags, owner: bio.owner })
}

impl MirrorDevice {
    /// Mark the children as the same after the last use, but not in a forked child, whose parent still uses them. After a failure they stay
    /// marked as different, which costs only a comparison.
    fn settle(&self) {
        if let Some(marks) = &self.marks
            && self.process.is_current()
            && !self.is_settled.swap(true, Ordering::Relaxed)
            && !self.has_failed.load(Ordering::Relaxed)
            && self.children.iter().all(|child| child.flush().is_ok())
        {
            let _ = marks.all_is_the_same();
        }
    }
}

impl Drop for MirrorDevice {
    fn drop(&mut self) {
        self.settle();
    }
}

impl BlockDevice for MirrorDevice {
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
        let changes: Vec<_> = bios.iter().filter(|bio| bio.op != Op::Read).map(copy_of).collect();
        let changed = if changes.is_empty() { Ok(()) } else { self.change(&changes) };
        let mut reads: Vec<_> = bios.iter_mut().filter_map(same_read).collect();
        let read = if reads.is_empty() { Ok(()) } else { self.read(&mut reads) };
        changed.and(read)
    }

    fn release(&self) {
        self.settle();
        self.children.iter().for_each(|child| child.release());
    }

    fn table_sector_bytes(&self) -> u32 {
        self.children.iter().map(|child| child.table_sector_bytes()).max().unwrap_or(512)
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(Box::new(ThreadQueue::open(self, depth)))
    }

    fn open_shared_queue(self: Arc<Self>, depth: u32) -> Option<Box<dyn SharedQueue>> {
        Some(Box::new(ThreadQueue::open(self, depth)))
    }
}

#[cfg(test)]
mod tests {
    use diorite_block::Sector;

    use super::*;
    use diorite_block::IoErrorKind;
    use diorite_device::PartitionDevice;
    use diorite_sim::image::ImageDevice;

    /// All that has this operation fails.
    #[derive(Debug)]
    struct Failing(Arc<ImageDevice>, Op);

    impl BlockDevice for Failing {
        fn geometry(&self) -> &Geometry {
            self.0.geometry()
        }
        fn counters(&self) -> &IoCounters {
            self.0.counters()
        }
        fn name(&self) -> String {
            "failing".to_owned()
        }
        fn execute(&self, bios: &mut [Bio<'_>]) -> Result<(), IoError> {
            match bios.iter().find(|bio| bio.op == self.1) {
                Some(bio) => Err((self as &dyn BlockDevice).error(bio, IoErrorKind::Short { done: 0 })),
                None => self.0.execute(bios),
            }
        }
        fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
            Ok(<dyn BlockDevice>::immediate_queue(self, depth))
        }
    }

    #[test]
    fn what_one_child_cannot_read_another_does() {
        let (bad, good) = (ImageDevice::zeroed(1 << 20), ImageDevice::zeroed(1 << 20));
        (&*good as &dyn BlockDevice)
            .write_bytes(4096, &[7; 4096], diorite_block::BioFlags::SYNC)
            .expect("written");
        let children: Vec<Arc<dyn BlockDevice>> = vec![Arc::new(Failing(bad, Op::Read)), good];
        let mirror = MirrorDevice::read_only(children.clone()).expect("a mirror");
        let window = PartitionDevice::window(mirror, "window".to_owned(), Sector(8), 8192).expect("a window");
        for _ in 0..8 {
            let mut memory = [0; 4096];
            (&*window as &dyn BlockDevice).read_bytes(0, &mut memory).expect("from the other");
            assert_eq!(memory, [7; 4096]);
        }
        // If the children may differ, only the first one is right, and its error is returned.
        let mirror = MirrorDevice::new("mirror".to_owned(), children, false, None).expect("a mirror");
        assert!((&mirror as &dyn BlockDevice).read_bytes(0, &mut [0; 4096]).is_err());
    }

    /// A write that only the first child supports as atomic was written there, and rejected by the others.
    #[test]
    fn no_larger_write_is_atomic_than_on_every_child() {
        let child = |atomic_write_bytes| {
            let geometry = Geometry { atomic_write_bytes, ..ImageDevice::geometry_for(1 << 20) };
            ImageDevice::zeroed_with(geometry)
        };
        let children: Vec<Arc<dyn BlockDevice>> = vec![child(64 << 10), child(0)];
        let marks = Some(Box::new(NoMarks) as Box<dyn WriteMarks>);
        let mirror = MirrorDevice::new("mirror".to_owned(), children.clone(), true, marks).expect("a mirror");
        let flags = diorite_block::BioFlags::SYNC | diorite_block::BioFlags::ATOMIC;
        let mut bios = [Bio::write(Sector(0), &[7; 4096], flags)];
        assert!(mirror.execute(&mut bios).is_err());
        let mut memory = [0; 4096];
        children[0].read_bytes(0, &mut memory).expect("read");
        assert!(memory == [0; 4096], "one child has it, the other has not");
    }

    #[derive(Debug)]
    struct NoMarks;

    impl WriteMarks for NoMarks {
        fn before_write(&self) -> Result<(), IoError> {
            Ok(())
        }
        fn all_is_the_same(&self) -> Result<(), IoError> {
            Ok(())
        }
    }

    /// Invariant 2. A block that was written to one child only was read new or old, depending on which child had less to do.
    #[test]
    fn after_a_failed_write_all_reads_go_to_the_first_child() {
        let children: Vec<Arc<dyn BlockDevice>> =
            vec![ImageDevice::zeroed(1 << 20), Arc::new(Failing(ImageDevice::zeroed(1 << 20), Op::Write))];
        let marks = Some(Box::new(NoMarks) as Box<dyn WriteMarks>);
        let mirror = MirrorDevice::new("mirror".to_owned(), children, true, marks).expect("a mirror");
        let mirror = &mirror;
        let device = mirror as &dyn BlockDevice;
        let bio_flags = diorite_block::BioFlags::SYNC;
        assert!(device.write_bytes(4096, &[7; 4096], bio_flags).is_err());
        for load in [0, 1 << 20] {
            mirror.reading[0].store(load, Ordering::Relaxed);
            let mut memory = [0; 4096];
            device.read_bytes(4096, &mut memory).expect("from the first");
            assert!(memory == [7; 4096], "with {load} bytes in flight on the first");
        }
    }
}
