//! Open files of the host: one content for all handles of a process on one file.
//!
//! Where it sits: between [`HostFile`](crate::HostFile), which opens, and the content. A file is identified by its device and inode number, so
//! hard links, symbolic links and renamed files lead to the same content.
//!
//! Interface: [`open`] makes the content or joins it; [`HostOwner`] keeps it until the last handle is dropped.
//!
//! Locking: one [`Place`] for each file. Its lock is held across I/O, for an open and for the last close, so that no open sees a file of
//! which dirty pages are being written and whose lock is about to be released. The table of places is locked for look-ups only.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use diorite_block::sync::{Mutex, Rank};
use diorite_block::{BlockDevice, Process};
use diorite_device::{FileDevice, FileIdentity, OfProcess, SharedOpen};

use crate::cache::engine::{Engine, EngineOptions};
use crate::content::Content;
use crate::handle::file::FileOwner;
use crate::handle::host::map::{HostMap, Length, os};
use crate::handle::raw::{OwnedContent, device_attributes};
use crate::{Attributes, DirectIo, Error, Result};

/// A younger file may change again without a change of its times.
const SETTLED: Duration = Duration::from_secs(2);

/// The open files of this process. A forked child starts with none: its parent's pages are its parent's to write.
static PLACES: OfProcess<std::sync::Mutex<HashMap<FileIdentity, Arc<Place>>>> = OfProcess::new();

/// Where the handles of one file find its content.
#[derive(Debug)]
struct Place {
    identity: FileIdentity,
    file: Mutex<Weak<OpenFile>>,
}

impl Place {
    fn of(identity: FileIdentity) -> Arc<Self> {
        let mut places = PLACES.get().lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Self { identity, file: Mutex::ranked(Rank::HostOpen, Weak::new()) });
        Arc::clone(places.entry(identity).or_insert_with(new))
    }

    /// The content of the file, which is open once more.
    fn open(&self, file: SharedOpen) -> Result<Arc<OpenFile>> {
        let mut shared = self.file.lock();
        if let Some(open) = shared.upgrade() {
            open.device.join(file)?;
            open.revalidate()?;
            return Ok(open);
        }
        let open = OpenFile::new(FileDevice::of_shared(file)?)?;
        *shared = Arc::downgrade(&open);
        Ok(open)
    }

    /// Forget a place that no other thread has.
    fn forget(self: &Arc<Self>) {
        let mut places = PLACES.get().lock().unwrap_or_else(PoisonError::into_inner);
        // The table has one reference, and the caller another one.
        if Arc::strong_count(self) == 2
            && places.get(&self.identity).is_some_and(|place| Arc::ptr_eq(place, self))
        {
            places.remove(&self.identity);
        }
    }
}

/// What all handles of one file share.
#[derive(Debug)]
pub(super) struct OpenFile {
    owned: OwnedContent,
    pub(super) device: Arc<FileDevice>,
    length: Arc<Mutex<Length>>,
}

/// Make the content of a file that is open, or join the content that it has already.
pub(super) fn open(file: SharedOpen, path: &Path) -> Result<HostOwner> {
    let path = path.to_owned();
    let process = Process::current();
    let Some(identity) = file.identity()? else {
        let file = Some(OpenFile::new(FileDevice::of_shared(file)?)?);
        return Ok(HostOwner { file, place: None, process, path });
    };
    let place = Place::of(identity);
    match place.open(file) {
        Ok(file) => Ok(HostOwner { file: Some(file), place: Some(place), process, path }),
        Err(error) => {
            place.forget();
            Err(error)
        }
    }
}

impl OpenFile {
    fn new(device: Arc<FileDevice>) -> Result<Arc<Self>> {
        let engine = Engine::new(&EngineOptions::default())?;
        let size = device.file_size().map_err(|source| os("cannot get the size", source))?;
        let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
        let length = Arc::new(Mutex::ranked(Rank::HostLength, Length::new(size)));
        let map = HostMap { device: Arc::clone(&device), shared, length: Arc::clone(&length) };
        let content = Content::new(Box::new(map), engine)?;
        let open = Self { owned: OwnedContent::new(&content), device, length };
        open.note_version()?;
        Ok(Arc::new(open))
    }

    pub(super) fn content(&self) -> &Arc<Content> {
        &self.owned.content
    }

    /// Note the version of the file. Returns whether it is the noted one.
    fn note_version(&self) -> Result<bool> {
        if self.device.is_block_device() {
            return Ok(true);
        }
        let version = self.device.version().map_err(|source| os("cannot get the attributes", source))?;
        let mut length = self.length.lock();
        let is_same = length.version == Some(version);
        length.version = version.is_older_than(SETTLED).then_some(version);
        Ok(is_same)
    }

    /// Drop the clean pages if the file was changed since they were last known to be current, and take over its size. Changes of this process
    /// count as well: the host does not tell who changed a file.
    fn revalidate(&self) -> Result<()> {
        if !self.note_version()? {
            self.content().drop_clean_if_free();
        }
        self.check_size().map(drop)
    }

    /// Take over a size that another program has set. Returns whether there was one. Nothing happens while transfers of this process change the size or hold the range.
    fn check_size(&self) -> Result<bool> {
        if self.device.is_block_device() {
            return Ok(false);
        }
        let Some(seen) = self.length.lock().outside_size(&self.device)? else { return Ok(false) };
        let content = self.content();
        let start = content.store.locked_range(seen.min(content.store.size()), 0).start;
        let Some(_range) = content.store.ranges.try_exclusive(start..u64::MAX) else { return Ok(false) };
        let mut length = self.length.lock();
        let Some(new) = length.outside_size(&self.device)?.filter(|new| *new >= start) else {
            return Ok(false);
        };
        let old = std::mem::replace(&mut length.size, new);
        length.changes += 1;
        drop(length);
        content.adopt_size(old, new)?;
        Ok(true)
    }
}

/// The owner of one handle. The content goes with the last one.
#[derive(Debug)]
pub(super) struct HostOwner {
    /// Until it is dropped.
    file: Option<Arc<OpenFile>>,
    place: Option<Arc<Place>>,
    process: Process,
    path: PathBuf,
}

impl HostOwner {
    pub(super) fn open_file(&self) -> &OpenFile {
        self.file.as_ref().expect("it is there until the owner is dropped")
    }
}

impl Drop for HostOwner {
    fn drop(&mut self) {
        // A lock of the parent may be held for ever in a forked child.
        let place = self.place.take().filter(|_| self.process.is_current());
        let lock = place.as_ref().map(|place| place.file.lock());
        self.file = None;
        drop(lock);
        if let Some(place) = place {
            place.forget();
        }
    }
}

impl FileOwner for HostOwner {
    fn write_back(&self) -> Result<()> {
        self.open_file().owned.write_back()
    }

    fn attributes(&self) -> Result<Attributes> {
        use std::os::unix::fs::MetadataExt;
        let file = self.open_file();
        file.check_size()?;
        let host = file.device.metadata().map_err(|source| os("cannot get the attributes", source))?;
        let time = |seconds, nanoseconds: i64| crate::Timestamp { seconds, nanoseconds: nanoseconds as u32 };
        let store = &file.content().store;
        let modified = store.time.get().unwrap_or(time(host.mtime(), host.mtime_nsec()));
        Ok(Attributes {
            permissions: (host.mode() & 0o7777) as u16,
            links: host.nlink() as u32,
            owner: crate::Owner { uid: host.uid(), gid: host.gid() },
            sectors: host.blocks(),
            accessed: time(host.atime(), host.atime_nsec()),
            changed: time(host.ctime(), host.ctime_nsec()),
            ..device_attributes(store.size(), modified)
        })
    }

    fn check_size(&self) -> Result<bool> {
        self.open_file().check_size()
    }

    fn direct_refusal(&self) -> Option<&str> {
        self.open_file().device.direct_refusal()
    }

    fn direct_io(&self, wanted: DirectIo) -> Result<DirectIo> {
        match self.direct_refusal() {
            Some(why) if wanted == DirectIo::Required => {
                Err(Error::DirectRefused(why.to_owned()).at(&self.path))
            }
            _ => Ok(wanted),
        }
    }

    fn streams(&self) -> bool {
        self.open_file().device.is_direct()
    }
}
