//! Several devices as one: striped chunk by chunk, or one after the other.
//!
//! Where it sits: on top of other devices. The bios of a call are cut along the layout, and adjacent parts on a child are merged. Parts on
//! files are submitted with one system call on the calling thread's ring, so one thread keeps all files busy. Other children execute
//! in threads of their own.
//!
//! Invariants:
//! 1. A child never gets a bio that is larger, or has more segments, than its geometry allows.
//! 2. A bio that must come after a flush comes after a flush of every child.

use std::sync::Arc;

use diorite_block::sync::is_simulated;
use diorite_block::{
    Bio, BioFlags, BioMemory, BlockDevice, Geometry, IoCounters, IoError, IoQueue, Op, Plug, Sector,
    SharedQueue,
};

use crate::error::OpenError;
use crate::transfers;
use crate::transfers::batch::{self, Part};
use crate::transfers::layout::Layout;
use crate::transfers::route::{Route, Target, file_under};
use crate::transfers::workers;

/// Largest bio of a joined device.
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
    /// A stripe with chunks of `chunk_bytes`. The space of a child beyond the size of the smallest is not used.
    ///
    /// # Errors
    /// There are no children, or they cannot be joined with this chunk.
    pub fn striped(children: Vec<Arc<dyn BlockDevice>>, chunk_bytes: u64) -> Result<Arc<Self>, OpenError> {
        let name = joined_name("stripe", &children);
        let bad = |why: String| OpenError::BadJoin { spec: name.clone(), why };
        let common = common_geometry(&children).ok_or_else(|| bad("there is nothing to join".to_owned()))?;
        let (block, count) = (common.logical_block_size, children.len() as u64);
        if chunk_bytes == 0 || !chunk_bytes.is_multiple_of(u64::from(block)) {
            return Err(bad(format!(
                "a chunk of {chunk_bytes} bytes is not a multiple of the block size {block}"
            )));
        }
        let capacity = (common.capacity_bytes / chunk_bytes * chunk_bytes).checked_mul(count);
        let capacity = capacity.ok_or_else(|| bad("together they are too large".to_owned()))?;
        if capacity == 0 {
            return Err(bad(format!("the smallest has no chunk of {chunk_bytes} bytes")));
        }
        let max_transfer_bytes =
            common.max_transfer_bytes.saturating_mul(count as u32).min(TRANSFER_BYTES_MAX);
        let geometry = Geometry { capacity_bytes: capacity, max_transfer_bytes, ..common };
        Ok(Self::new(name, children, Layout::Striped { chunk_bytes, children: count }, &geometry))
    }

    /// The children one after the other.
    ///
    /// # Errors
    /// There are no children, or they cannot be joined.
    pub fn linear(children: Vec<Arc<dyn BlockDevice>>) -> Result<Arc<Self>, OpenError> {
        let name = joined_name("linear", &children);
        let bad = |why: &str| OpenError::BadJoin { spec: name.clone(), why: why.to_owned() };
        let common = common_geometry(&children).ok_or_else(|| bad("there is nothing to join"))?;
        let block = u64::from(common.logical_block_size);
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
        let geometry = Geometry { capacity_bytes: end, ..common };
        Ok(Self::new(name, children, Layout::Linear { ends }, &geometry))
    }

    fn new(
        name: String,
        children: Vec<Arc<dyn BlockDevice>>,
        layout: Layout,
        geometry: &Geometry,
    ) -> Arc<Self> {
        let (transfer, block) = (geometry.max_transfer_bytes, geometry.logical_block_size);
        let max_transfer_bytes = (transfer - transfer % block).max(block);
        let geometry = Geometry { max_transfer_bytes, atomic_write_bytes: 0, ..*geometry };
        Arc::new(Self { name, children, layout, geometry, counters: IoCounters::default() })
    }

    /// Cut the bios along the layout. Adjacent parts on a child are merged, as far as its geometry allows.
    fn cut<'s>(&self, bios: &'s mut [Bio<'_>]) -> Vec<Vec<Bio<'s>>> {
        let plug = |flags| move |child: &Arc<dyn BlockDevice>| Plug::new(child.geometry(), flags);
        let mut all: Vec<_> = self.children.iter().map(plug(BioFlags::NONE)).collect();
        let mut without_memory: Vec<_> = self.children.iter().map(|_| Vec::new()).collect();
        for bio in bios {
            let _owner = bio.owner.enter();
            let flags = bio.flags.difference(BioFlags::PREFLUSH);
            let mut plugs: Vec<_> = self.children.iter().map(plug(flags)).collect();
            let (op, owner, mut offset) = (bio.op, bio.owner, bio.sector.to_bytes());
            match &mut bio.memory {
                BioMemory::Read(segments) => {
                    for segment in segments {
                        let mut memory: &'s mut [u8] = segment;
                        for run in self.layout.runs(offset, memory.len() as u64) {
                            let (now, later) = memory.split_at_mut(run.len as usize);
                            plugs[run.child].read(Sector::containing(run.offset), now);
                            (memory, offset) = (later, offset + run.len);
                        }
                    }
                }
                BioMemory::Write(segments) => {
                    for segment in segments {
                        let mut memory: &'s [u8] = segment;
                        for run in self.layout.runs(offset, memory.len() as u64) {
                            let (now, later) = memory.split_at(run.len as usize);
                            plugs[run.child].write(Sector::containing(run.offset), now);
                            (memory, offset) = (later, offset + run.len);
                        }
                    }
                }
                BioMemory::None(len) => {
                    for run in self.layout.merged_runs(offset, *len) {
                        let (sector, memory) = (Sector::containing(run.offset), BioMemory::None(run.len));
                        without_memory[run.child].push(Bio { sector, memory, op, flags, owner });
                    }
                }
            }
            all.iter_mut().zip(plugs).for_each(|(all, plug)| all.append(plug));
        }
        let joined = all.into_iter().map(Plug::into_bios).zip(without_memory);
        joined.map(|(with, without)| with.into_iter().chain(without).collect()).collect()
    }

    fn flush_children(&self) -> Result<(), IoError> {
        execute_on_each(&self.children, self.children.iter().map(|_| vec![Bio::flush()]).collect())
    }
}

/// The devices under a joined device or a window, their layout, and the offset of the first byte in it.
type Parts<'a> = (&'a [Arc<dyn BlockDevice>], &'a Layout, u64);

fn parts_of(front: &dyn BlockDevice) -> Option<Parts<'_>> {
    if let Some(joined) = front.as_any().and_then(|any| any.downcast_ref::<JoinedDevice>()) {
        return Some((&joined.children, &joined.layout, 0));
    }
    let (outer, start) = front.part_of()?;
    Some(match parts_of(&**outer) {
        Some((parts, layout, base)) => (parts, layout, base + start.to_bytes()),
        None => (std::slice::from_ref(outer), &Layout::Single, start.to_bytes()),
    })
}

/// The route to the files under a joined device or a window, if each has a ring.
fn route_of(front: &Arc<dyn BlockDevice>) -> Option<Route> {
    let (parts, layout, base) = parts_of(&**front)?;
    let targets = parts.iter().map(Target::of).collect::<Option<_>>()?;
    Some(Route { front: Arc::clone(front), layout: layout.clone(), targets, base })
}

/// A queue on a joined device or a window: through one ring if all files under it use that.
pub(crate) fn open_queue(front: Arc<dyn BlockDevice>, depth: u32) -> Box<dyn IoQueue> {
    let route = route_of(&front);
    transfers::queue::open(front, route, depth)
}

/// As [`open_queue`], for many threads.
pub(crate) fn open_shared_queue(front: Arc<dyn BlockDevice>, depth: u32) -> Option<Box<dyn SharedQueue>> {
    let route = route_of(&front);
    transfers::queue::open_shared(front, route, depth)
}

/// Bios of a child that is no file, and its result.
type Other<'a, 'b> = (&'a Arc<dyn BlockDevice>, &'a mut Vec<Bio<'b>>, Result<(), IoError>);

/// Run a list of bios on each child: first on files, at once; then on the other devices, each in a thread (in a simulation in turn).
///
/// # Errors
/// The first error of a bio, after all have ended.
pub fn execute_on_each(
    children: &[Arc<dyn BlockDevice>],
    mut lists: Vec<Vec<Bio<'_>>>,
) -> Result<(), IoError> {
    let mut parts = Vec::with_capacity(lists.len());
    let mut others: Vec<Other<'_, '_>> = Vec::new();
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
            others.push((child, bios, Ok(())));
        }
    }
    let result = if parts.is_empty() { Ok(()) } else { batch::execute_parts(&mut parts) };
    let execute = |(child, bios, ended): &mut Other<'_, '_>| *ended = child.execute(bios);
    if is_simulated() {
        others.iter_mut().for_each(execute);
    } else {
        workers::run_all(&mut others, execute);
    }
    others.into_iter().fold(result, |result, (.., ended)| result.and(ended))
}

fn joined_name(kind: &str, children: &[Arc<dyn BlockDevice>]) -> String {
    let names: Vec<_> = children.iter().map(|child| child.name()).collect();
    format!("{kind}:{}", names.join(","))
}

/// The geometry that all of several devices support, with the capacity of the smallest; none for no devices.
pub fn common_geometry(devices: &[Arc<dyn BlockDevice>]) -> Option<Geometry> {
    let both = |a: Geometry, b: Geometry| Geometry {
        capacity_bytes: a.capacity_bytes.min(b.capacity_bytes),
        logical_block_size: a.logical_block_size.max(b.logical_block_size),
        physical_block_size: a.physical_block_size.max(b.physical_block_size),
        memory_alignment: a.memory_alignment.max(b.memory_alignment),
        max_transfer_bytes: a.max_transfer_bytes.min(b.max_transfer_bytes),
        max_segments: a.max_segments.min(b.max_segments),
        atomic_write_bytes: a.atomic_write_bytes.min(b.atomic_write_bytes),
        volatile_cache: a.volatile_cache || b.volatile_cache,
        fua: a.fua && b.fua,
        discard: a.discard && b.discard,
        rotational: a.rotational || b.rotational,
        read_only: a.read_only || b.read_only,
    };
    devices.iter().map(|device| device.geometry().clone()).reduce(both)
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
            // After a failed flush, the bios are not executed.
            self.flush_children()?;
        }
        execute_on_each(&self.children, self.cut(bios))
    }

    fn release(&self) {
        self.children.iter().for_each(|child| child.release());
    }

    fn table_sector_bytes(&self) -> u32 {
        self.children.iter().map(|child| child.table_sector_bytes()).max().unwrap_or(512)
    }

    fn open_queue(self: Arc<Self>, depth: u32) -> Result<Box<dyn IoQueue>, IoError> {
        Ok(open_queue(self, depth))
    }

    fn open_shared_queue(self: Arc<Self>, depth: u32) -> Option<Box<dyn SharedQueue>> {
        open_shared_queue(self, depth)
    }

    fn as_any(&self) -> Option<&dyn std::any::Any> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diorite_sim::image::ImageDevice;

    fn memory(bytes: u64, max_transfer_bytes: u32, max_segments: u16) -> Arc<dyn BlockDevice> {
        let geometry = Geometry { max_transfer_bytes, max_segments, ..ImageDevice::geometry_for(bytes) };
        ImageDevice::zeroed_with(geometry)
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
