//! The simplest possible map, for tests: blocks in a table, on a device full of garbage, so that a block that
//! becomes readable before it is written is detected at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use diorite_block::sync::Mutex;
use diorite_block::{BioFlags, BlockDevice, Sector};
use diorite_sim::image::ImageDevice;

use crate::store::map::{
    MapBlocks, Mapping, MappingKind, ReservationToken, Reserved, ReservedRun, SyncKind, WriteCommit,
};
use crate::{Error, Result};

pub(crate) const GARBAGE: u8 = 0xa5;

#[derive(Debug, Default)]
struct State {
    /// File block to device block, and whether it is written.
    blocks: BTreeMap<u64, (u64, bool)>,
    free: Vec<u64>,
    size: u64,
    claimed: u64,
    /// Number of the last commit, and of the last that a sync has covered.
    committed: u64,
    durable: u64,
}

#[derive(Debug)]
pub(crate) struct ToyMap {
    device: Arc<dyn BlockDevice>,
    block: u64,
    unwritten: bool,
    state: Arc<Mutex<State>>,
    /// Held while a commit waits to begin.
    gate: Arc<Mutex<()>>,
}

#[derive(Debug)]
struct Token {
    state: Arc<Mutex<State>>,
    blocks: Vec<(u64, u64)>,
}

impl ReservationToken for Token {}

impl Drop for Token {
    fn drop(&mut self) {
        self.state.lock().free.extend(self.blocks.iter().map(|(_, block)| *block));
    }
}

impl ToyMap {
    /// A file of no bytes on a device of `blocks` blocks. With `unwritten`, blocks can be allocated and not written.
    pub(crate) fn new(block: u64, blocks: u64, unwritten: bool) -> Self {
        let device: Arc<dyn BlockDevice> = ImageDevice::zeroed(block * blocks);
        Self::on(device, block, unwritten)
    }

    /// The same on a device.
    pub(crate) fn on(device: Arc<dyn BlockDevice>, block: u64, unwritten: bool) -> Self {
        let capacity = device.geometry().capacity_bytes;
        let garbage = crate::AlignedBuf::zeroed(1 << 20, 4096);
        let mut garbage = garbage;
        garbage.fill(GARBAGE);
        let mut at = 0;
        while at < capacity {
            let len = (capacity - at).min(garbage.len() as u64);
            device.write_bytes(at, &garbage[..len as usize], BioFlags::NONE).expect("memory");
            at += len;
        }
        // Given out from both ends in turn, so that files are in several pieces.
        let blocks = capacity / block;
        let free = (0..blocks)
            .map(|number| if number / 7 % 2 == 0 { number } else { blocks - 1 - number })
            .collect::<std::collections::BTreeSet<_>>();
        let mut free: Vec<u64> = free.into_iter().collect();
        free.sort_by_key(|number| (number / 5 % 3, *number));
        let state = State { free, ..State::default() };
        Self { device, block, unwritten, state: Arc::new(Mutex::new(state)), gate: Arc::default() }
    }

    /// Another view of the same file, as after opening it again.
    pub(crate) fn reopen(&self) -> Self {
        Self {
            device: Arc::clone(&self.device),
            block: self.block,
            unwritten: self.unwritten,
            state: Arc::clone(&self.state),
            gate: Arc::clone(&self.gate),
        }
    }

    /// No commit begins until this is dropped.
    pub(crate) fn hold_commits(&self) -> impl Drop + '_ {
        self.gate.lock()
    }

    pub(crate) fn claimed(&self) -> u64 {
        self.state.lock().claimed
    }

    /// A thread that asks for a mapping waits until this is dropped.
    pub(crate) fn stall(&self) -> impl Drop + '_ {
        self.state.lock()
    }
}

impl MapBlocks for ToyMap {
    fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    fn block_size(&self) -> u64 {
        self.block
    }

    fn recorded_size(&self) -> u64 {
        self.state.lock().size
    }

    fn max_size(&self) -> u64 {
        1 << 40
    }

    fn map(&self, offset: u64, len: u64) -> Result<Mapping> {
        let state = self.state.lock();
        let (first, last) = (offset / self.block, (offset + len.max(1) - 1) / self.block);
        let sector = |block: u64| Sector::containing(block * self.block);
        let kind = |block: u64| match state.blocks.get(&block) {
            None => MappingKind::Hole,
            Some((at, true)) => MappingKind::Mapped(sector(*at)),
            Some((at, false)) => MappingKind::Unwritten(sector(*at)),
        };
        let start = kind(first);
        let mut end = first + 1;
        while end <= last {
            let follows = match (start, kind(end)) {
                (MappingKind::Hole, MappingKind::Hole) => true,
                (MappingKind::Mapped(a), MappingKind::Mapped(b))
                | (MappingKind::Unwritten(a), MappingKind::Unwritten(b)) => {
                    a.after_bytes((end - first) * self.block) == b
                }
                _ => false,
            };
            if !follows {
                break;
            }
            end += 1;
        }
        Ok(Mapping { offset: first * self.block, len: (end - first) * self.block, kind: start })
    }

    fn reserve(&self, offset: u64, len: u64) -> Result<Reserved> {
        let mut state = self.state.lock();
        let mut runs: Vec<ReservedRun> = Vec::new();
        let mut blocks = Vec::new();
        for block in offset / self.block..(offset + len).div_ceil(self.block) {
            assert!(!state.blocks.contains_key(&block), "only holes are reserved");
            let Some(at) = state.free.pop() else {
                state.free.extend(blocks.iter().map(|(_, at)| *at));
                return Err(diorite_ext::Error::NoSpace.into());
            };
            blocks.push((block, at));
            let sector = Sector::containing(at * self.block);
            match runs.last_mut() {
                Some(last) if last.sector.after_bytes(last.len) == sector => last.len += self.block,
                _ => runs.push(ReservedRun { offset: block * self.block, len: self.block, sector }),
            }
        }
        Ok(Reserved { runs, token: Box::new(Token { state: Arc::clone(&self.state), blocks }) })
    }

    fn claim(&self, blocks: u64) -> Result<()> {
        let mut state = self.state.lock();
        if state.claimed + blocks > state.free.len() as u64 {
            return Err(diorite_ext::Error::NoSpace.into());
        }
        state.claimed += blocks;
        Ok(())
    }

    fn release_claim(&self, blocks: u64) {
        let mut state = self.state.lock();
        state.claimed = state.claimed.checked_sub(blocks).expect("what was claimed is released once");
    }

    fn commit(&self, commit: WriteCommit) -> Result<()> {
        drop(self.gate.lock());
        for reserved in commit.reserved {
            let mut token: Token = reserved.into_token();
            let blocks = std::mem::take(&mut token.blocks);
            let mut state = self.state.lock();
            for (block, at) in blocks {
                assert!(state.blocks.insert(block, (at, true)).is_none(), "a hole is filled once");
            }
        }
        let mut state = self.state.lock();
        for (offset, len) in commit.converted {
            for block in offset / self.block..(offset + len) / self.block {
                state.blocks.get_mut(&block).expect("unwritten blocks are there").1 = true;
            }
        }
        state.size = state.size.max(commit.size_at_least.unwrap_or(0));
        state.committed += 1;
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64, size_at_least: Option<u64>) -> Result<()> {
        if !self.unwritten {
            return Err(Error::Unsupported("no unwritten blocks"));
        }
        let mut state = self.state.lock();
        for block in offset / self.block..(offset + len).div_ceil(self.block) {
            if !state.blocks.contains_key(&block) {
                let at = state.free.pop().ok_or(diorite_ext::Error::NoSpace)?;
                state.blocks.insert(block, (at, false));
            }
        }
        state.size = state.size.max(size_at_least.unwrap_or(0));
        Ok(())
    }

    fn truncate(&self, size: u64) -> Result<()> {
        let mut state = self.state.lock();
        let gone = state.blocks.split_off(&size.div_ceil(self.block));
        state.free.extend(gone.values().map(|(at, _)| *at));
        state.size = size;
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> Result<()> {
        let mut state = self.state.lock();
        for block in offset / self.block..(offset + len) / self.block {
            if let Some((at, _)) = state.blocks.remove(&block) {
                state.free.push(at);
            }
        }
        Ok(())
    }

    fn is_durable(&self, _kind: SyncKind) -> bool {
        let state = self.state.lock();
        state.durable == state.committed
    }

    fn sync(&self, _kind: SyncKind) -> Result<()> {
        let committed = self.state.lock().committed;
        self.device.flush()?;
        let mut state = self.state.lock();
        state.durable = state.durable.max(committed);
        Ok(())
    }
}
