//! Calls of the workload that move bytes within a file, and those about its names.

use super::oracle::{Change, FileLog};
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
        if self.shared.oracle().files[number].names.link().is_some() {
            return self.unlink(number);
        }
        let name = self.shared.oracle().fresh_name(&mut self.random);
        let begin = |log: &mut FileLog, now| log.names.begin_link(now, Some(name.clone()));
        let link = || tell(self.shared.filesystem.hard_link(&path, &name), "hard_link");
        self.shared.change_name(number, begin, link)
    }

    /// Take away the link of a file, if it has one.
    pub(super) fn unlink(&mut self, number: usize) -> Outcome {
        let Some(name) = self.shared.oracle().files[number].names.link().map(str::to_owned) else {
            return Ok(());
        };
        let unlink = || tell(self.shared.filesystem.remove_file(&name), "remove_file");
        self.shared.change_name(number, |log, now| log.names.begin_link(now, None), unlink)
    }

    pub(super) fn rename(&mut self, slot: usize) -> Outcome {
        if !self.slots[slot].own {
            return Ok(());
        }
        let number = self.slots[slot].number;
        let Some(old) = self.shared.path(number) else { return Ok(()) };
        let new = self.shared.oracle().fresh_name(&mut self.random);
        let begin = |log: &mut FileLog, now| log.names.begin(now, Some(new.clone()));
        self.shared.change_name(number, begin, || tell(self.shared.filesystem.rename(&old, &new), "rename"))
    }

    pub(super) fn remove(&mut self, slot: usize) -> Outcome {
        if !self.slots[slot].own {
            return Ok(());
        }
        let number = self.slots[slot].number;
        let Some(path) = self.shared.path(number) else { return Ok(()) };
        self.unlink(number)?;
        let begin = |log: &mut FileLog, now| {
            log.begin(now, false, Change::Truncate(0));
            log.names.begin(now, None)
        };
        let remove = || tell(self.shared.filesystem.remove_file(&path), "remove_file");
        self.shared.change_name(number, begin, remove)?;
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
