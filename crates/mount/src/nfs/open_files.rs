//! Files that clients use. The protocol has no open, so the files used last are kept open here.
//!
//! A written file is synced before it is closed. A failure of that sync has no caller: it changes the write verifier, so that clients send
//! all uncommitted data again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use diorite::{FileKind, InodeNumber, Result};
use diorite_block::sync::{Mutex, Rank};

use crate::operations::{Caller, FileHandle, OpenFlags, Operations};

/// Files that are kept open.
const OPEN_MAX: usize = 128;

/// A file in use.
#[derive(Debug)]
pub(super) struct OpenFile {
    operations: Arc<Operations>,
    verifier: Arc<WriteVerifier>,
    pub(super) handle: FileHandle,
    can_write: bool,
    /// Something was written, and no sync has begun since.
    is_unsynced: AtomicBool,
}

/// The write verifier: it changes when unsynced data of clients may be lost.
#[derive(Debug)]
pub(super) struct WriteVerifier(AtomicU64);

impl WriteVerifier {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(AtomicU64::new(now.as_nanos() as u64))
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn change(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl OpenFile {
    pub(super) fn note_write(&self) {
        self.is_unsynced.store(true, Ordering::Release);
    }

    /// Make it durable.
    pub(super) fn sync(&self, data_only: bool) -> Result<()> {
        self.is_unsynced.store(false, Ordering::Release);
        self.operations.files().sync(self.handle, data_only).inspect_err(|_| self.verifier.change())
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.is_unsynced.load(Ordering::Acquire)
            && let Err(error) = self.sync(true)
        {
            log::error!("a file that was written cannot be made durable: {error}");
        }
        self.operations.files().close(self.handle);
    }
}

#[derive(Debug)]
struct Slot {
    file: Arc<OpenFile>,
    last_use: u64,
}

#[derive(Debug, Default)]
struct Table {
    slots: HashMap<InodeNumber, Slot>,
    uses: u64,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct OpenFiles {
    operations: Arc<Operations>,
    pub(super) verifier: Arc<WriteVerifier>,
    table: Mutex<Table>,
}

impl OpenFiles {
    pub(super) fn new(operations: Arc<Operations>) -> Self {
        Self {
            operations,
            verifier: Arc::new(WriteVerifier::new()),
            table: Mutex::ranked(Rank::NfsOpenFiles, Table::default()),
        }
    }

    /// The file of an inode if it is open.
    pub(super) fn find(&self, number: InodeNumber, write: bool) -> Option<Arc<OpenFile>> {
        let mut table = self.table.lock();
        table.uses += 1;
        let now = table.uses;
        let slot = table.slots.get_mut(&number).filter(|slot| slot.file.can_write || !write)?;
        slot.last_use = now;
        Some(Arc::clone(&slot.file))
    }

    /// A regular file, opened if it is not.
    pub(super) fn get(&self, number: InodeNumber, write: bool) -> Result<Arc<OpenFile>> {
        if let Some(file) = self.find(number, write) {
            return Ok(file);
        }
        if self.operations.node(number)?.kind() != FileKind::Regular {
            return Err(diorite::Error::InvalidArgument("only regular files can be read and written"));
        }
        let flags = OpenFlags { write, note_access: !write, ..OpenFlags::default() };
        let handle = self.operations.files().open(number, flags, &Caller { uid: 0, gid: 0, pid: 0 })?.handle;
        let file = Arc::new(OpenFile {
            operations: Arc::clone(&self.operations),
            verifier: Arc::clone(&self.verifier),
            handle,
            can_write: write,
            is_unsynced: AtomicBool::new(false),
        });
        let mut table = self.table.lock();
        let mut closed = Vec::new();
        if table.slots.len() >= OPEN_MAX
            && let Some(oldest) =
                table.slots.iter().min_by_key(|(_, slot)| slot.last_use).map(|(number, _)| *number)
        {
            closed.extend(table.slots.remove(&oldest));
        }
        table.uses += 1;
        let slot = Slot { file: Arc::clone(&file), last_use: table.uses };
        closed.extend(table.slots.insert(number, slot));
        drop(table);
        // Closing takes time.
        drop(closed);
        // If it has lost its last name meanwhile, it may have been looked for already.
        self.forget_nameless(number);
        Ok(file)
    }

    /// Make all durable that was written to an inode.
    pub(super) fn commit(&self, number: InodeNumber) -> Result<()> {
        match self.find(number, true) {
            Some(file) => file.sync(false),
            // It may be being closed, and is not durable before that has ended.
            None => self.operations.sync_node(number).inspect_err(|_| self.verifier.change()),
        }
    }

    /// A name of the file was removed. If that was the last, the file must not be kept open.
    pub(super) fn forget_nameless(&self, number: InodeNumber) {
        // As long as it is kept, the number is not another file's.
        let Some(file) = self.table.lock().slots.get(&number).map(|slot| Arc::clone(&slot.file)) else {
            return;
        };
        if self.operations.attributes(number).is_ok_and(|attributes| attributes.links > 0) {
            return;
        }
        // A file without a name need not be durable.
        file.is_unsynced.store(false, Ordering::Release);
        let slot = {
            let mut table = self.table.lock();
            let is_same = table.slots.get(&number).is_some_and(|slot| Arc::ptr_eq(&slot.file, &file));
            if is_same { table.slots.remove(&number) } else { None }
        };
        drop(slot);
    }

    /// Close all.
    pub(super) fn clear(&self) {
        let slots = std::mem::take(&mut self.table.lock().slots);
        drop(slots);
    }
}

#[cfg(test)]
mod tests {
    use diorite::mkfs::{Flavor, MkfsOptions};
    use diorite::{Filesystem, NodeSpec, Owner};

    use super::*;
    use crate::operations::{Settings, Source};

    /// A file that had to give way to others, and that another call still used, was taken for durable.
    #[test]
    fn a_file_that_is_being_closed_is_committed() {
        let directory = tempfile::tempdir().expect("a directory");
        let image = directory.path().join("a.img");
        let made = Filesystem::create(&image, 32 << 20, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
        let operations = Arc::new(Operations::new(made, Settings::default()));
        let files = OpenFiles::new(Arc::clone(&operations));
        let new = NodeSpec {
            kind: FileKind::Regular,
            permissions: 0o644,
            umask: 0,
            owner: Owner::default(),
            device: (0, 0),
        };
        let make = |name: &str| {
            let made = operations.create(InodeNumber::ROOT, name.as_bytes(), &new);
            made.expect("space").attributes.inode
        };
        let number = make("written");
        let file = files.get(number, true).expect("open");
        file.note_write();
        let source =
            Source::Caller { clear_privileges: false, flags: diorite::IoFlags::NONE, takes_part: false };
        let _ = operations.files().write(file.handle, b"content", 0, source).expect("space");
        for other in 0..OPEN_MAX {
            files.get(make(&format!("other-{other}")), false).expect("open");
        }
        assert!(files.find(number, true).is_none(), "it had to give way");
        files.commit(number).expect("it is durable");
        let copy = directory.path().join("copy.img");
        std::fs::copy(&image, &copy).expect("a copy");
        let killed = Filesystem::open(&copy).expect("open");
        assert_eq!(killed.read("/written").expect("the file"), b"content");
        drop(file);
        files.clear();
        operations.close().expect("close");
    }
}
