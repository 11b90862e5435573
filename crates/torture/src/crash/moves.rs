//! Calls of the workload that move bytes within a file, and those about its names.

use super::oracle::Change;
use super::workload::Worker;
use crate::access::{Outcome, tell};

impl Worker {
    /// Collapse or insert a range. Earlier changes are synced: so a crash leaves all of it, moved or not.
    pub(super) fn shift(&mut self, slot: usize) -> Outcome {
        let (size, block) = (self.size(slot), self.block);
        let blocks = size / block;
        // After a failure the content of the range is unknown.
        let is_known = self.shared.disk.failed() == 0;
        if !self.slots[slot].own || !self.shared.moves || blocks < 3 || !is_known {
            return self.write(slot);
        }
        let at = self.handle(slot);
        let number = self.slots[slot].number;
        let file = self.slots[slot].handles[at].file.clone();
        self.sync_file(number, &file, true)?;
        let first = self.random.below(blocks - 1);
        let count = self.random.within(1..(blocks - first).max(2));
        let (offset, len) = (first * block, count * block);
        let collapse = self.random.one_in(2) && offset + len < size;
        if !collapse && size + len > super::workload::LARGEST {
            return Ok(());
        }
        let mut content = self.shared.oracle().files[number].content();
        let range = offset as usize..(offset + len) as usize;
        if collapse {
            content.drain(range);
        } else {
            content.splice(range.start..range.start, vec![0; range.len()]);
        }
        let begin = self.shared.now();
        self.shared.oracle().files[number].begin_move(begin, content);
        let done = if collapse { file.collapse_range(offset, len) } else { file.insert_range(offset, len) };
        if done.is_err() {
            self.shared.oracle().files[number].forget_content();
        }
        tell(done, if collapse { "collapse_range" } else { "insert_range" })?;
        let end = self.shared.now();
        self.shared.oracle().files[number].end_move(end);
        Ok(())
    }

    /// Give a file one more name, or take that away.
    pub(super) fn link(&mut self, slot: usize) -> Outcome {
        let number = self.slots[slot].number;
        let Some(path) = self.shared.path(number) else { return Ok(()) };
        if !self.slots[slot].own {
            return Ok(());
        }
        if self.has_link(number) {
            return self.unlink(number);
        }
        let begin = self.shared.now();
        let name = {
            let mut oracle = self.shared.oracle();
            let name = oracle.fresh_name(&mut self.random);
            oracle.files[number].names.begin_link(begin, name.clone());
            name
        };
        tell(self.shared.filesystem.hard_link(&path, &name), "hard_link")?;
        let end = self.shared.now();
        self.shared.oracle().files[number].names.end_link(end);
        Ok(())
    }

    fn has_link(&self, number: usize) -> bool {
        self.shared.oracle().files[number].names.link().is_some()
    }

    /// Take away the link of a file, if it has one.
    pub(super) fn unlink(&mut self, number: usize) -> Outcome {
        let Some(name) = self.shared.oracle().files[number].names.link().map(str::to_owned) else {
            return Ok(());
        };
        let begin = self.shared.now();
        self.shared.oracle().files[number].names.begin_unlink(begin);
        tell(self.shared.filesystem.remove_file(&name), "remove_file")?;
        let end = self.shared.now();
        self.shared.oracle().files[number].names.end_link(end);
        Ok(())
    }

    pub(super) fn rename(&mut self, slot: usize) -> Outcome {
        if !self.slots[slot].own {
            return Ok(());
        }
        let number = self.slots[slot].number;
        let Some(old) = self.shared.path(number) else { return Ok(()) };
        let now = self.shared.now();
        let new = {
            let mut oracle = self.shared.oracle();
            let new = oracle.fresh_name(&mut self.random);
            oracle.files[number].names.begin(now, Some(new.clone()));
            new
        };
        tell(self.shared.filesystem.rename(&old, &new), "rename")?;
        let now = self.shared.now();
        self.shared.oracle().files[number].names.end(now);
        Ok(())
    }

    pub(super) fn remove(&mut self, slot: usize) -> Outcome {
        if !self.slots[slot].own {
            return Ok(());
        }
        let number = self.slots[slot].number;
        let Some(path) = self.shared.path(number) else { return Ok(()) };
        self.unlink(number)?;
        let now = self.shared.now();
        {
            let mut oracle = self.shared.oracle();
            oracle.files[number].names.begin(now, None);
            oracle.files[number].begin(now, false, Change::Truncate(0));
        }
        tell(self.shared.filesystem.remove_file(&path), "remove_file")?;
        let now = self.shared.now();
        self.shared.oracle().files[number].names.end(now);
        if self.random.one_in(2) {
            self.slots[slot].handles.clear();
        }
        Ok(())
    }

    pub(super) fn recreate(&mut self, slot: usize) -> Outcome {
        self.slots[slot].handles.clear();
        self.slots[slot].number = self.shared.create(&mut self.random)?;
        Ok(())
    }
}
