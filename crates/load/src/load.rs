//! Moves data into memory: mappings of cached files, and one queue of direct reads over all others.
//!
//! Where it sits: over the plan. The arena is cut into transfers, filled by the library's queue, and joined.
//!
//! The rule: with [`DirectIo::Preferred`], a file of the host is mapped if its filesystem has no direct I/O, or if at least three quarters
//! of the range with the chosen tensors are in the host's page cache. Reading a cached page by a fault costs a tenth of a read from the disk,
//! and the rest is read ahead. Everything else is read into the arena.

use std::io::Read;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};

use diorite::{AlignedBuf, DirectIo, DirectQueue, TransferMemory};
use diorite_device::{FileMapping, MemoryPart, MemoryParts, MemoryPopulator, SharedMemory};
use flate2::bufread::DeflateDecoder;

use crate::error::{Damage, LoadError, Result};
use crate::files::{TensorFiles, unit};
use crate::plan::{ALIGNMENT, Layout};
use crate::reading::FileBytes;
use crate::source::Way;
use crate::tensor::{Checksum, Data, TensorInfo};

/// Size of a transfer. Larger ones gain nothing on a disk, and smaller ones cost CPU time.
const TRANSFER_BYTES: u64 = 1 << 20;
/// Transfers in flight, over all files.
const DEPTH: u32 = 32;
/// Bytes whose pages are allocated by one call.
const POPULATED_BYTES: usize = 8 << 20;
/// Bytes that are decompressed between two calls of the watch.
const STEP_BYTES: usize = 1 << 20;

/// Is told the bytes that are loaded and the bytes of all; a break ends the load with [`LoadError::Interrupted`].
pub type Watch<'w> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'w;

/// How the bytes of a load moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Read from the device into their place.
    pub direct_bytes: u64,
    /// Mapped from the host's page cache.
    pub mapped_bytes: u64,
    /// Read through the host's page cache, whose copy the kernel made.
    pub buffered_bytes: u64,
    /// Decompressed.
    pub decompressed_bytes: u64,
    /// Bytes that the CPU copied or decompressed: 0 if all data was read directly or mapped.
    pub copied_bytes: u64,
}

/// A loaded tensor. Clones share the memory, which lives as long as one of its tensors.
#[derive(Clone, Debug)]
pub struct Tensor {
    info: TensorInfo,
    memory: SharedMemory,
    range: Range<usize>,
}

impl Tensor {
    /// What the header says.
    pub fn info(&self) -> &TensorInfo {
        &self.info
    }

    /// The data. A tensor of a mapped file shows writes of other processes to pages that were not stored to.
    pub fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[self.range.clone()]
    }

    /// The memory, which contains [`Tensor::range`]. For bindings.
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// The place of the data in [`Tensor::memory`].
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// Loaded tensors.
#[derive(Debug)]
pub struct Tensors {
    /// In the order of the choice.
    pub list: Vec<Tensor>,
    /// How the bytes moved.
    pub report: Report,
}

impl TensorFiles {
    /// Plan a load of these tensors: which files are mapped, and how much memory the others need.
    ///
    /// # Errors
    /// The sizes overflow, or a file is shorter than its header says.
    pub fn plan(&self, numbers: &[usize]) -> Result<Plan<'_>> {
        Plan::new(self, numbers, self.direct)
    }

    /// Load these tensors.
    ///
    /// # Errors
    /// A file cannot be read, there is no memory, or compressed data or a checksum is wrong.
    pub fn load(&self, numbers: &[usize]) -> Result<Tensors> {
        self.plan(numbers)?.load(&mut |_, _| ControlFlow::Continue(()))
    }
}

/// A load that has not begun.
#[derive(Debug)]
pub struct Plan<'f> {
    files: &'f TensorFiles,
    chosen: Vec<usize>,
    /// By file: the mapping, if it is mapped.
    mappings: Vec<Option<FileMapping>>,
    layout: Layout,
}

impl<'f> Plan<'f> {
    pub(crate) fn new(files: &'f TensorFiles, chosen: &[usize], direct: DirectIo) -> Result<Self> {
        let mut mappings: Vec<Option<FileMapping>> = Vec::new();
        mappings.resize_with(files.sources.len(), || None);
        if direct != DirectIo::Required {
            for (file, mapping) in mappings.iter_mut().enumerate() {
                *mapping = mapping_of(files, chosen, file);
            }
        }
        let mut plan = Self { files, chosen: chosen.to_vec(), mappings, layout: Layout::default() };
        let read: Vec<&TensorInfo> = plan.chosen().filter(|tensor| !plan.is_mapped(tensor)).collect();
        plan.layout = files.layout(&read)?;
        Ok(plan)
    }

    fn chosen(&self) -> impl Iterator<Item = &'f TensorInfo> + use<'f, '_> {
        self.chosen.iter().map(|number| &self.files.tensors()[*number])
    }

    fn is_mapped(&self, tensor: &TensorInfo) -> bool {
        self.mappings[tensor.file].is_some() && !tensor.is_compressed()
    }

    /// The same load without a mapping: everything is read into the arena.
    ///
    /// # Errors
    /// The sizes overflow.
    pub fn without_mappings(self) -> Result<Self> {
        Self::new(self.files, &self.chosen, DirectIo::Required)
    }

    /// The memory that [`Plan::load_into`] needs, at a multiple of 4096.
    pub fn arena_bytes(&self) -> u64 {
        self.layout.arena_bytes
    }

    /// Load into new memory, on huge pages if the system has them.
    ///
    /// # Errors
    /// As [`TensorFiles::load`].
    pub fn load(self, watch: &mut Watch<'_>) -> Result<Tensors> {
        let bytes = self.arena_bytes();
        let no_memory = |source| LoadError::Memory { bytes, source };
        let len = usize::try_from(bytes).map_err(|_| no_memory(std::io::ErrorKind::OutOfMemory.into()))?;
        let memory = AlignedBuf::try_zeroed(len, ALIGNMENT as usize).map_err(no_memory)?;
        self.load_into(Box::new(memory), watch)
    }

    /// Load into memory of the caller, which lives as long as the tensors.
    ///
    /// # Errors
    /// As [`TensorFiles::load`], and if the memory is too small or not aligned.
    pub fn load_into(mut self, memory: Box<dyn TransferMemory>, watch: &mut Watch<'_>) -> Result<Tensors> {
        if (memory.as_slice().len() as u64) < self.arena_bytes() {
            return Err(diorite::Error::InvalidArgument("the memory is smaller than the plan").into());
        }
        let copied_before = self.copied_bytes();
        let mut progress = Progress { done: 0, total: self.total_bytes(), watch };
        let mut report = Report::default();
        for tensor in self.chosen().filter(|tensor| self.is_mapped(tensor)) {
            report.mapped_bytes += tensor.bytes;
        }
        progress.advance(report.mapped_bytes)?;
        let mut memory = self.read_runs(memory, &mut report, &mut progress)?;
        self.decompress(memory.as_mut_slice(), &mut report, &mut progress)?;
        let files_copied = self.copied_bytes().saturating_sub(copied_before);
        report.copied_bytes = files_copied + report.buffered_bytes + report.decompressed_bytes;
        let list = self.tensors(memory);
        for tensor in &list {
            check_stored(self.files, tensor)?;
        }
        Ok(Tensors { list, report })
    }

    fn total_bytes(&self) -> u64 {
        let moved = self.chosen().filter(|tensor| self.is_mapped(tensor) || tensor.is_compressed());
        moved.map(|tensor| tensor.bytes).sum::<u64>()
            + self.layout.runs.iter().map(|run| run.len).sum::<u64>()
    }

    /// Bytes that the library copied so far. Files of one image share their counter.
    fn copied_bytes(&self) -> u64 {
        let sources = &self.files.sources;
        let is_first = |at: usize| {
            let image = sources[at].image;
            image.is_none() || !sources[..at].iter().any(|other| other.image == image)
        };
        let counted = (0..sources.len()).filter(|at| is_first(*at));
        counted.map(|at| sources[at].file.stats().bytes_copied).sum()
    }

    /// Read all runs with one queue, while a second thread allocates the pages of the arena ahead of it.
    fn read_runs(
        &self,
        memory: Box<dyn TransferMemory>,
        report: &mut Report,
        progress: &mut Progress<'_, '_>,
    ) -> Result<Box<dyn TransferMemory>> {
        let mut parts = MemoryParts::new(memory);
        let has_ended = AtomicBool::new(false);
        let read = std::thread::scope(|scope| {
            let bytes = self.layout.read_bytes as usize;
            if bytes > 2 * POPULATED_BYTES {
                let (populator, has_ended) = (parts.populator(), &has_ended);
                scope.spawn(move || populate(&populator, bytes, has_ended));
            }
            let read = self.submit_runs(&mut parts, report, progress);
            has_ended.store(true, Ordering::Relaxed);
            read
        });
        read?;
        Ok(parts.join().expect("all transfers have ended"))
    }

    /// Submit the reads of all runs, and wait for them.
    fn submit_runs(
        &self,
        parts: &mut MemoryParts,
        report: &mut Report,
        progress: &mut Progress<'_, '_>,
    ) -> Result<()> {
        let mut queue = DirectQueue::new(DEPTH);
        let mut used = 0;
        for run in &self.layout.runs {
            let source = &self.files.sources[run.file];
            let (unit, end) = (unit(source), run.offset + run.len);
            drop(parts.take((run.place - used) as usize));
            let mut at = run.offset;
            while at < end {
                let needed = (at + TRANSFER_BYTES - at % TRANSFER_BYTES).min(end) - at;
                let len = needed.next_multiple_of(unit) as usize;
                let part = parts.take(len).expect("the layout has space for whole blocks");
                if queue.in_flight() == DEPTH {
                    self.reap(&mut queue, report, progress)?;
                }
                let tag = (run.file as u64) << 32 | needed;
                queue
                    .read(&source.file, at, part, len, tag)
                    .map_err(|refused| LoadError::File(refused.error))?;
                at += needed;
            }
            used = run.place + run.len.next_multiple_of(unit);
        }
        while queue.in_flight() > 0 {
            self.reap(&mut queue, report, progress)?;
        }
        Ok(())
    }

    fn reap(
        &self,
        queue: &mut DirectQueue<MemoryPart>,
        report: &mut Report,
        progress: &mut Progress<'_, '_>,
    ) -> Result<()> {
        let Some(finished) = queue.next_finished()? else { return Ok(()) };
        let source = &self.files.sources[(finished.tag >> 32) as usize];
        let (needed, count) = (finished.tag & 0xffff_ffff, finished.result? as u64);
        if count < needed {
            let size = source.file.size();
            return Err(Damage::BeyondEnd { end: size + needed - count, size }.at(&source.name, None));
        }
        match source.way {
            Way::Direct => report.direct_bytes += needed,
            Way::Buffered => report.buffered_bytes += needed,
        }
        progress.advance(needed)
    }

    /// The place of a tensor that is read, by its number among those.
    fn place(&self, number: usize, tensor: &TensorInfo) -> Range<usize> {
        let start = self.layout.places[number] as usize;
        start..start + tensor.bytes as usize
    }

    /// Decompress the tensors that are compressed.
    fn decompress(
        &self,
        memory: &mut [u8],
        report: &mut Report,
        progress: &mut Progress<'_, '_>,
    ) -> Result<()> {
        let read = self.chosen().filter(|tensor| !self.is_mapped(tensor));
        for (number, tensor) in read.enumerate().filter(|(_, tensor)| tensor.is_compressed()) {
            decompress(self.files, tensor, &mut memory[self.place(number, tensor)], progress)?;
            report.decompressed_bytes += tensor.bytes;
        }
        Ok(())
    }

    fn tensors(&mut self, memory: Box<dyn TransferMemory>) -> Vec<Tensor> {
        let is_mapped: Vec<bool> = self.chosen().map(|tensor| self.is_mapped(tensor)).collect();
        let arena = SharedMemory::new(memory);
        let mapped: Vec<Option<SharedMemory>> = std::mem::take(&mut self.mappings)
            .into_iter()
            .map(|mapping| mapping.map(|mapping| SharedMemory::new(Box::new(mapping))))
            .collect();
        let mut read = 0;
        let tensor = |(info, is_mapped): (&TensorInfo, bool)| match &mapped[info.file] {
            Some(memory) if is_mapped => {
                let start = info.offset() as usize;
                Tensor {
                    info: info.clone(),
                    memory: memory.clone(),
                    range: start..start + info.bytes as usize,
                }
            }
            _ => {
                let range = self.place(read, info);
                read += 1;
                Tensor { info: info.clone(), memory: arena.clone(), range }
            }
        };
        self.chosen().zip(is_mapped).map(tensor).collect()
    }
}

/// Allocate the pages of the arena, step by step. Otherwise the submitting thread would clear each page while the disk waits.
fn populate(populator: &MemoryPopulator, bytes: usize, has_ended: &AtomicBool) {
    for start in (0..bytes).step_by(POPULATED_BYTES) {
        if has_ended.load(Ordering::Relaxed) {
            break;
        }
        populator.populate(start..bytes.min(start + POPULATED_BYTES));
    }
}

/// The mapping of a file, if the rule says so.
fn mapping_of(files: &TensorFiles, chosen: &[usize], file: usize) -> Option<FileMapping> {
    let source = &files.sources[file];
    let stored = chosen.iter().map(|number| &files.tensors()[*number]);
    let stored = stored.filter(|tensor| tensor.file == file && !tensor.is_compressed() && tensor.bytes > 0);
    let (start, end) = stored
        .map(|tensor| (tensor.offset(), tensor.offset() + tensor.bytes))
        .reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))?;
    let mapping = FileMapping::open(source.host.as_deref()?).ok()?;
    if (mapping.as_slice().len() as u64) < end {
        return None;
    }
    let cached = mapping.cached_bytes(start, end - start).unwrap_or(0);
    let is_cached = cached / 3 >= (end - start) / 4;
    if source.way == Way::Buffered || is_cached {
        if cached < end - start {
            mapping.read_ahead();
        }
        return Some(mapping);
    }
    None
}

/// Decompress a tensor into its place.
fn decompress(
    files: &TensorFiles,
    tensor: &TensorInfo,
    memory: &mut [u8],
    progress: &mut Progress<'_, '_>,
) -> Result<()> {
    let Data::Deflated { offset, deflated_bytes, skip, checksum } = &tensor.data else { return Ok(()) };
    let source = &files.sources[tensor.file];
    let damaged = |damage: Damage| damage.at(&source.name, Some(&tensor.name));
    let bytes = FileBytes::new(&source.file, &source.name)?;
    let mut stream = DeflateDecoder::new(bytes.reader(*offset, offset + deflated_bytes));
    let skipped = std::io::copy(&mut (&mut stream).take(*skip), &mut std::io::sink());
    if skipped.ok() != Some(*skip) {
        return Err(damaged(Damage::Compressed));
    }
    for step in memory.chunks_mut(STEP_BYTES) {
        stream.read_exact(step).map_err(|_| damaged(Damage::Compressed))?;
        progress.advance(step.len() as u64)?;
    }
    if stream.read(&mut [0]).ok() != Some(0) {
        return Err(damaged(Damage::Compressed));
    }
    check_sum(checksum, memory).map_err(damaged)
}

fn check_stored(files: &TensorFiles, tensor: &Tensor) -> Result<()> {
    match &tensor.info.data {
        Data::Stored { checksum: Some(checksum), .. } => check_sum(checksum, tensor.bytes())
            .map_err(|damage| damage.at(files.file_name(tensor.info.file), Some(&tensor.info.name))),
        _ => Ok(()),
    }
}

fn check_sum(checksum: &Checksum, data: &[u8]) -> Result<(), Damage> {
    let (before, before_bytes) = checksum.before;
    let mut hasher = crc32fast::Hasher::new_with_initial_len(before, before_bytes);
    hasher.update(data);
    let (computed, stored) = (hasher.finalize(), checksum.whole);
    if computed == stored { Ok(()) } else { Err(Damage::Checksum { computed, stored }) }
}

struct Progress<'p, 'w> {
    done: u64,
    total: u64,
    watch: &'p mut Watch<'w>,
}

impl Progress<'_, '_> {
    fn advance(&mut self, bytes: u64) -> Result<()> {
        self.done += bytes;
        match (self.watch)(self.done, self.total) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(LoadError::Interrupted),
        }
    }
}
