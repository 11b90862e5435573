//! Changes of the blocks of a range, and copies of ranges. A change of blocks is made in steps: a caller that is killed ends it between two.

use std::ops::Range;

use diorite::{ErrorKind, File, Result, SetAttributes, SetTime};

use super::privileges::{Privileges, clear_for_content};
use super::{Caller, FileHandle, OpenHandles, interrupted};

/// Bytes that a copy has in memory.
const COPY_STEP: usize = 1 << 20;
/// Bytes of a step: a caller that is killed waits for one step at most.
const STEP: u64 = 1 << 30;

/// Returns `true` if the caller was killed.
pub type IsOver<'a> = &'a dyn Fn() -> bool;

/// A change of a range of a file (`fallocate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The range has blocks.
    Allocate {
        /// Also beyond the end, which stays.
        keep_size: bool,
    },
    /// The range is a hole.
    Punch,
    /// The range is zero and has blocks.
    Zero {
        /// The end stays.
        keep_size: bool,
    },
}

impl OpenHandles {
    /// Change where a file has blocks.
    ///
    /// # Errors
    /// As [`File::allocate`], [`File::punch_hole`], [`File::zero_range`]; `EINTR`: a part was done when it was over.
    pub fn allocate(
        &self,
        handle: FileHandle,
        (offset, len): (u64, u64),
        what: Allocation,
        caller: &Caller,
        is_over: IsOver<'_>,
    ) -> Result<Privileges> {
        let open = self.file(handle)?;
        let file = open.writable()?;
        let privileges = clear_for_content(open.node(), caller.set_ids())?;
        let (end, size) = (offset.saturating_add(len), file.size());
        let space = self.view.filesystem.statfs();
        let free = space.blocks_available.saturating_mul(space.block_size);
        match what {
            Allocation::Allocate { keep_size } => allocate(file, offset..end, keep_size, free, is_over),
            Allocation::Punch => punch(file, offset..end, is_over),
            Allocation::Zero { keep_size } => {
                if end > size {
                    match allocate(file, size.max(offset)..end, keep_size, free, is_over) {
                        // Not all files can have blocks beyond their end.
                        Err(error) if keep_size && error.kind() == ErrorKind::Unsupported => {}
                        allocated => allocated?,
                    }
                }
                let zero = |part: Range<u64>| file.zero_range(part.start, part.end - part.start);
                in_steps(offset..end.min(size), is_over, zero)
            }
        }?;
        self.view.inode_changed(open.node())?;
        Ok(privileges)
    }

    /// Copy a range from one open file to another, whose set-user-ID and set-group-ID are cleared. Returns the bytes copied: fewer if the
    /// first file ends, or the volume is full.
    ///
    /// # Errors
    /// As [`File::read_at`] and [`File::write_at`], if nothing was copied.
    pub fn copy_range(
        &self,
        (from, from_offset): (FileHandle, u64),
        (to, to_offset): (FileHandle, u64),
        len: u64,
        caller: &Caller,
    ) -> Result<(u64, Privileges)> {
        let (from, to) = (self.file(from)?, self.file(to)?);
        let target = to.writable()?;
        let privileges = clear_for_content(to.node(), caller.set_ids())?;
        let mut memory = from.direct().buffer(COPY_STEP.min(len as usize).next_multiple_of(4096))?;
        let mut copied = 0;
        while copied < len {
            let step = memory.len().min((len - copied) as usize);
            let result = from
                .direct()
                .read_at(&mut memory[..step], from_offset + copied)
                .and_then(|got| target.write_at(&memory[..got], to_offset + copied));
            match result {
                // The end of the source.
                Ok(0) => break,
                Ok(written) => copied += written as u64,
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        if copied > 0 {
            // The kernel, which sends times otherwise, sends none for a caller that is killed.
            let now = Some(SetTime::Now);
            to.node().set_attributes(&SetAttributes {
                modified: now,
                changed: now,
                ..SetAttributes::default()
            })?;
        }
        Ok((copied, privileges))
    }
}

/// The size changes when all of it has blocks. A range of more than `free` bytes is allocated in one step: if that fails, its blocks are freed.
fn allocate(file: &File, range: Range<u64>, keep_size: bool, free: u64, is_over: IsOver<'_>) -> Result<()> {
    let len = range.end - range.start;
    let all = || {
        if keep_size { file.allocate_keep_size(range.start, len) } else { file.allocate(range.start, len) }
    };
    if range.end > file.max_size() || len > free {
        return all();
    }
    match in_steps(range.clone(), is_over, |part| file.allocate_keep_size(part.start, part.end - part.start))
    {
        // Not all files can have blocks beyond their end.
        Err(error) if error.kind() == ErrorKind::Unsupported => all(),
        Ok(()) if !keep_size => all(),
        allocated => allocated,
    }
}

/// After the end of the file there is nothing that takes long.
fn punch(file: &File, range: Range<u64>, is_over: IsOver<'_>) -> Result<()> {
    let punch = |part: Range<u64>| file.punch_hole(part.start, part.end - part.start);
    let end = range.end.min(file.size().next_multiple_of(STEP));
    in_steps(range.start..end, is_over, punch)?;
    let rest = range.start.max(end)..range.end;
    if rest.is_empty() { Ok(()) } else { punch(rest) }
}

/// Do it to one part of a range after the other.
fn in_steps(
    range: Range<u64>,
    is_over: IsOver<'_>,
    mut step: impl FnMut(Range<u64>) -> Result<()>,
) -> Result<()> {
    let mut at = range.start;
    while at < range.end {
        if at > range.start && is_over() {
            return Err(interrupted());
        }
        let end = (at / STEP + 1).saturating_mul(STEP).min(range.end);
        step(at..end)?;
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[test]
    fn steps_are_the_whole_range_and_few_where_they_are_fast() {
        let steps = RefCell::new(Vec::new());
        let note = |part: Range<u64>| {
            steps.borrow_mut().push(part);
            Ok(())
        };
        in_steps(5..1 << 44, &|| false, note).expect("nothing fails");
        let steps = steps.into_inner();
        assert!(steps.windows(2).all(|pair| pair[0].end == pair[1].start && !pair[0].is_empty()));
        assert_eq!((steps[0].start, steps.last().map(|step| step.end)), (5, Some(1 << 44)));
        in_steps(7..7, &|| true, |_| panic!("nothing is to be done")).expect("nothing fails");
    }

    #[test]
    fn no_step_begins_when_it_is_over() {
        let count = Cell::new(0);
        let ended = in_steps(0..1 << 40, &|| count.get() == 3, |_| {
            count.set(count.get() + 1);
            Ok(())
        });
        assert_eq!((ended.map_err(|error| error.errno()), count.get()), (Err(4), 3));
    }
}
