//! Durability: syncs, and writes with O_DSYNC or O_SYNC.
//!
//! A commit of a file has a sequence number below the map, that of its transaction, and is durable when that number
//! is on the disk: [`MapBlocks::is_durable`](crate::store::map::MapBlocks::is_durable). No flag here repeats this, so
//! a commit beside a sync, or a file that is closed and opened again, loses nothing.

use crate::store::backing::BackingStore;
use crate::store::map::{SyncKind, WriteCommit};
use crate::{Result, SetTime};

/// The method that makes the data of a synchronous write durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// Its bios carried FUA, if the device has that.
    ByFua,
    /// It needs a flush, if the device has a cache.
    ByFlush,
}

impl BackingStore {
    /// Record the size and the modification time, if they are newer than the recorded ones.
    pub(crate) fn record_metadata(&self, kind: SyncKind) -> Result<()> {
        let size = self.size();
        let size_at_least = (size > self.map.recorded_size()).then_some(size);
        let modified = if kind == SyncKind::All { self.time.get().map(SetTime::To) } else { None };
        self.commit(WriteCommit { size_at_least, modified, ..WriteCommit::default() })
    }

    /// Record the size alone, if it is newer.
    pub(crate) fn record_size(&self) -> Result<()> {
        let size = self.size();
        if self.map.recorded_size() >= size {
            return Ok(());
        }
        self.commit(WriteCommit { size_at_least: Some(size), ..WriteCommit::default() })
    }

    /// Whether the volume has the size and the modification time.
    pub(crate) fn is_recorded(&self) -> bool {
        self.time.get().is_none() && self.size() <= self.map.recorded_size()
    }

    /// Record the modification time that is pending, if there is one still: a time that was set by hand meanwhile is not overwritten.
    pub(crate) fn record_time(&self) -> Result<()> {
        self.time.record(|pending| match pending.map(SetTime::To) {
            None => Ok(()),
            modified => self.map.commit(WriteCommit { modified, ..WriteCommit::default() }),
        })
    }

    /// Sync the mapping and all written data.
    pub(crate) fn sync(&self, kind: SyncKind) -> Result<()> {
        self.shared.counters.flushes.add(1);
        self.map.sync(kind)
    }

    /// The last step of a write: make it durable as its handle asks. Its data has been written and recorded.
    pub(crate) fn make_durable(&self, sync: Option<SyncKind>, durable: Durable) -> Result<()> {
        let Some(kind) = sync else { return Ok(()) };
        if kind == SyncKind::All {
            self.record_metadata(kind)?;
        }
        if !self.map.is_durable(kind) {
            return self.sync(kind);
        }
        // An overwrite of reachable blocks: only the data needs a flush.
        let geometry = self.geometry();
        if geometry.volatile_cache && !(geometry.fua && durable == Durable::ByFua) {
            self.shared.counters.flushes.add(1);
            self.map.device().flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::time::Duration;

    use super::*;
    use crate::AlignedBuf;
    use crate::content::Content;
    use crate::content::model_tests::engine;
    use crate::content::write::Position;
    use crate::store::map::MapBlocks;
    use crate::store::toy_map::ToyMap;

    /// A sync between the end of a write's transfer and its commit: the flag that it cleared was set before the commit, and a later
    /// O_DSYNC overwrite made only its data durable.
    #[test]
    fn a_sync_beside_a_commit_does_not_hide_it() {
        let map = ToyMap::new(4096, 64, false);
        let view = map.reopen();
        let content = Content::new(Box::new(map), engine(256 << 10)).expect("content");
        let data = AlignedBuf::zeroed(4096, 4096);
        let write = |sync| {
            content.write_direct(&[IoSlice::new(&data)], Position::At(0), sync).expect("written");
        };
        let written = view.device().counters().snapshot().writes;
        std::thread::scope(|scope| {
            let held = view.hold_commits();
            let writer = scope.spawn(|| write(None));
            while view.device().counters().snapshot().writes == written {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(50));
            content.sync(SyncKind::Data).expect("synced");
            drop(held);
            writer.join().expect("writer");
        });
        assert!(!view.is_durable(SyncKind::Data), "no sync followed the commit");
        write(Some(SyncKind::Data));
        assert!(view.is_durable(SyncKind::Data), "what leads to the data is not durable");
    }
}
