//! Opening a volume: every number that later code relies on is checked here.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use diorite_block::BlockDevice;
use diorite_block::sync::{Mutex, Rank};

use crate::allocate::{Allocator, Zone};
use crate::base::{Core, SETTLE_CREDITS};
use crate::buffer::{BlockKind, BufferCache};
use crate::dentry_cache::DentryCache;
use crate::file::Files;
use crate::inodes::InodeStore;
use crate::layout::superblock::ENCODING_UTF8;
use crate::layout::{Compat, GroupDescriptor, Incompat, Layout, RoCompat, Superblock};
use crate::lifecycle::Lifecycle;
use crate::map::Mappings;
use crate::mmp::Mmp;
use crate::names::Names;
use crate::quota::Quotas;
use crate::transaction::{AbortLatch, CommitStore, HomeWriter, MetadataStore, TransactionId, Transactions};
use crate::types::{Access, VolumeOptions};
use crate::volume::Volume;
use crate::volume::checksums::VolumeChecksums;
use crate::volume::journal::{self, Journal, JournalParts, JournalSuperblock, LogMap};
use crate::volume::superblock::{SuperblockBackup, find_superblock};
use crate::xattr::Xattrs;
use crate::{Corrupt, DataMode, Error, FsBlock, Incompatible, Result};
use diorite_journal::in_place::InPlaceWriter;

/// More groups than any volume of a sane shape has; bounds the memory that a superblock can ask for.
const MAX_GROUPS: u32 = 1 << 22;

/// Descriptor blocks that are read together.
const DESCRIPTOR_BLOCKS_AT_ONCE: u32 = 64;

/// One inode without references stays in memory for so many bytes of metadata buffers: about what it takes with a name of it, as long
/// as that is short.
const METADATA_BYTES_PER_INODE: usize = 600;
const _: () = assert!(
    size_of::<crate::Inode>() < METADATA_BYTES_PER_INODE - 150,
    "with its places in tables, and a name"
);

impl Volume {
    /// Open the volume on `device`, with all checks; replays the journal if there is one.
    pub fn open(device: Arc<dyn BlockDevice>, options: VolumeOptions) -> Result<Arc<Self>> {
        let written_before = device.counters().snapshot().write_bytes;
        let recovered = recover(device, &options)?;
        let Recovered { device, superblock, layout, log, journal_damage, mmp, was_in_use, .. } = recovered;
        let (mut read_only, mut defects) = (recovered.read_only, recovered.defects);
        let cache = Arc::new(BufferCache::new(
            device.clone(),
            layout.block_size,
            layout.blocks_count,
            options.metadata_cache_bytes,
        ));
        let format = Arc::new(superblock.clone());
        let (descriptors, damage) = read_any_descriptors(&cache, &layout, &format)?;
        let zone = zone_of(&layout, &format, &descriptors);
        let overlap = zone
            .overlap()
            .map(|block| format!("two parts of its metadata claim block {block}; run e2fsck -f"));
        for what in damage.into_iter().chain(overlap) {
            read_only.get_or_insert_with(|| what.clone());
            defects.push(what);
        }
        let kept = (superblock.reserved_blocks_count(), options.reserved_blocks);
        let allocator =
            Arc::new(Allocator::new(cache.clone(), layout, zone, descriptors, kept, options.allocation));
        let superblock = Arc::new(Mutex::ranked(Rank::Superblock, superblock));
        cache.set_checksums(Arc::new(VolumeChecksums {
            layout,
            format: format.clone(),
            superblock: superblock.clone(),
            allocator: Arc::downgrade(&allocator),
        }));
        let latch = Arc::new(AbortLatch::default());
        let (store, first) = open_store(log, &device, &cache, &latch, &options);
        let interval = options.commit_interval;
        let transactions = Arc::new(Transactions::new(
            store,
            cache.clone(),
            latch.clone(),
            allocator.clone(),
            interval,
            first,
        ));
        // No more than there are, however much memory there may be for them.
        let inodes = options.metadata_cache_bytes / METADATA_BYTES_PER_INODE;
        let inodes = inodes.min(layout.inodes_count as usize);
        let store = MetadataStore {
            buffers: cache.clone(),
            transactions: transactions.clone(),
            latch: latch.clone(),
            is_in_place: !format.features().has_compat(Compat::HAS_JOURNAL),
            extra_credits: if format.features().has_ro_compat(RoCompat::QUOTA) { SETTLE_CREDITS } else { 0 },
        };
        let core = Arc::new(Core {
            device,
            store,
            options,
            layout,
            format,
            superblock,
            buffers: cache,
            allocator,
            transactions,
            latch,
            read_only: read_only.map_or_else(OnceLock::new, OnceLock::from),
            written_before,
            in_use: AtomicBool::new(false),
            marking: Mutex::ranked(Rank::Marking, ()),
            closed: AtomicBool::new(false),
            mmp,
        });
        // Twice as many: sets do not fill evenly.
        let dentries = Arc::new(DentryCache::new(2 * inodes));
        let maps = Arc::new(Mappings::new(&core));
        let inodes = Arc::new(InodeStore::new(maps.clone(), inodes, dentries.clone()));
        let quotas = Arc::new(open_quotas(&inodes)?);
        let files = Arc::new(Files::new(inodes.clone(), quotas.clone()));
        let xattrs = Arc::new(Xattrs::new(files.clone()));
        let lifecycle = Arc::new(Lifecycle::new(files.clone(), xattrs.clone()));
        let names = Names::new(lifecycle.clone(), dentries);
        defects.extend(finish_recovery(&lifecycle, was_in_use)?);
        Ok(Arc::new(Self {
            core,
            maps,
            inodes,
            quotas,
            files,
            xattrs,
            lifecycle,
            names,
            defects,
            journal_damage,
        }))
    }
}

/// Recovery after a crash: orphans are freed or truncated, and the superblock's counts are right again. A recorded
/// inode that cannot be an orphan is skipped and returned, and the superblock says that errors were found.
fn finish_recovery(lifecycle: &Lifecycle, was_in_use: bool) -> Result<Vec<String>> {
    let (core, inodes) = (&lifecycle.core, &lifecycle.inodes);
    if !core.has_journal() || core.read_only.get().is_some() {
        return Ok(Vec::new());
    }
    let orphans = inodes.load_orphans()?;
    if was_in_use || !orphans.found.is_empty() {
        core.mark_in_use()?;
    }
    inodes.forget_wrong_orphans(&orphans)?;
    let damaged = lifecycle.recover_orphans(&orphans.found)?;
    if !damaged.is_empty() && !core.latch.is_aborted() {
        core.record_errors()?;
    }
    let wrong = orphans.wrong.into_iter().chain(damaged);
    Ok(wrong.map(|what| format!("{what}; it is skipped: run e2fsck -f")).collect())
}

/// The store that writes closed transactions, and the number of the first one.
fn open_store(
    log: Option<(LogMap, JournalSuperblock)>,
    device: &Arc<dyn BlockDevice>,
    cache: &Arc<BufferCache>,
    latch: &Arc<AbortLatch>,
    options: &VolumeOptions,
) -> (Arc<dyn CommitStore>, TransactionId) {
    let block_size = cache.block_size();
    let Some((map, superblock)) = log else {
        let writer = HomeWriter::new(device.clone(), block_size);
        return (Arc::new(InPlaceWriter::new(cache, writer)), InPlaceWriter::FIRST);
    };
    let (journal, first) = Journal::new(JournalParts {
        device: device.clone(),
        block_size,
        map,
        superblock,
        cache: cache.clone(),
        latch: latch.clone(),
        clock: options.clock.clone(),
    });
    (Arc::new(journal), first)
}

/// Open the quota files of a writable volume; if they are damaged, the volume becomes read-only.
fn open_quotas(inodes: &Arc<InodeStore>) -> Result<Quotas> {
    match Quotas::load(inodes) {
        Err(Error::Corrupt(corrupt)) => {
            let reason = format!("what its users have cannot be counted: {corrupt}; run e2fsck -f");
            inodes.core.read_only.get_or_init(|| reason);
            Quotas::load(inodes)
        }
        loaded => loaded,
    }
}

/// A volume whose journal has been replayed.
struct Recovered {
    /// The device to read it through.
    device: Arc<dyn BlockDevice>,
    superblock: Superblock,
    layout: Layout,
    log: Option<(LogMap, JournalSuperblock)>,
    read_only: Option<String>,
    defects: Vec<String>,
    journal_damage: Option<Corrupt>,
    mmp: Option<Mmp>,
    was_in_use: bool,
}

/// Keep other hosts away, and replay the journal.
fn recover(device: Arc<dyn BlockDevice>, options: &VolumeOptions) -> Result<Recovered> {
    let (mut superblock, backup) = read_superblock(&*device)?;
    let has_journal = superblock.features().has_compat(Compat::HAS_JOURNAL);
    if options.data_mode == Some(DataMode::Journal) && !has_journal {
        return Err(Error::InvalidArgument("data=journal needs a journal, which the volume does not have"));
    }
    let mut layout = Layout::new(&superblock);
    check_device(&*device, &layout)?;
    let mut defects = Vec::new();
    if let Some(SuperblockBackup { block, damage }) = &backup {
        let size = layout.block_size.bytes();
        defects
            .push(format!("{damage}: a backup in block {block} was read; run e2fsck -b {block} -B {size}"));
    }
    if let Some(missing) = missing_blocks(&*device, &layout) {
        let all = layout.blocks_count;
        defects.push(format!(
            "the device ends before the filesystem does: the last {missing} of {all} blocks are missing"
        ));
    }
    let mut read_only = defects.first().cloned().or_else(|| read_only_reason(&*device, &superblock, options));
    let mut mmp = None;
    if read_only.is_none() {
        // Before anything is written.
        match Mmp::acquire(&device, &superblock, options) {
            Ok(acquired) => mmp = acquired,
            Err(Error::Corrupt(corrupt)) => {
                read_only = Some(format!("other hosts cannot be excluded: {corrupt}; run e2fsck"));
            }
            Err(error) => return Err(error),
        }
    }
    let access = if read_only.is_none() { Access::ReadWrite } else { Access::ReadOnly };
    let was_in_use = superblock.features().has_incompat(Incompat::RECOVER);
    let journal = match journal::open(device.clone(), &superblock, access, backup.is_some()) {
        // The files can still be read, in the state before the journal's transactions.
        Err(error) if !defects.is_empty() => {
            defects.push(format!("its journal was not replayed: {error}"));
            journal::OpenedJournal::none(device)
        }
        opened => opened?,
    };
    if let Some(damage) = &journal.damage {
        defects.push(format!("{damage}: what follows was not replayed; run e2fsck -f"));
    }
    if let Some(damage) = &journal.unreadable {
        defects.push(journal::unreadable_text(damage, was_in_use || backup.is_some()));
    }
    let device = journal.device;
    if journal.superblock_changed {
        superblock = read_superblock(&*device)?.0;
        layout = Layout::new(&superblock);
        check_device(&*device, &layout)?;
    }
    read_only = read_only
        .or_else(|| defects.first().cloned())
        .or(journal.read_only)
        .or_else(|| read_only_reason(&*device, &superblock, options));
    let mmp = mmp.filter(|_| read_only.is_none());
    let (log, journal_damage) = (journal.log, journal.damage.or(journal.unreadable));
    Ok(Recovered { device, superblock, layout, log, read_only, defects, journal_damage, mmp, was_in_use })
}

/// The superblock of a volume whose features are known.
fn read_superblock(device: &dyn BlockDevice) -> Result<(Superblock, Option<SuperblockBackup>)> {
    let (superblock, backup) = find_superblock(device)?;
    superblock.check_readable()?;
    Ok((superblock, backup))
}

fn check_device(device: &dyn BlockDevice, layout: &Layout) -> Result<()> {
    let logical = device.geometry().logical_block_size;
    let block_size = layout.block_size.bytes();
    if u64::from(logical) > block_size {
        return Err(Incompatible::LogicalBlock { block_size, logical }.into());
    }
    if layout.group_count > MAX_GROUPS {
        return Err(Incompatible::Other("the volume has more than 4 million block groups").into());
    }
    Ok(())
}

/// Blocks of the volume that the device does not have.
fn missing_blocks(device: &dyn BlockDevice, layout: &Layout) -> Option<u64> {
    let there = device.geometry().capacity_bytes / layout.block_size.bytes();
    layout.blocks_count.checked_sub(there).filter(|missing| *missing > 0)
}

/// The reason why the volume cannot be written, before anything was tried.
fn read_only_reason(
    device: &dyn BlockDevice,
    superblock: &Superblock,
    options: &VolumeOptions,
) -> Option<String> {
    let features = superblock.features();
    let unwritable = features.unwritable();
    if options.access == Access::ReadOnly {
        Some("it was opened read-only".to_owned())
    } else if device.geometry().read_only {
        Some("the device is read-only".to_owned())
    } else if !unwritable.is_empty() {
        Some(format!("it uses features that Diorite cannot update: {}", unwritable.join(", ")))
    } else if superblock.encoding().is_some_and(|encoding| encoding != ENCODING_UTF8) {
        Some("its names that ignore case (casefold) have an encoding that is not known".to_owned())
    } else {
        None
    }
}

/// The descriptors of all groups, or of those in a backup, by the block of its superblock.
fn read_descriptors(
    cache: &BufferCache,
    layout: &Layout,
    format: &Superblock,
    backup: Option<FsBlock>,
) -> Result<Vec<GroupDescriptor>> {
    let size = usize::from(layout.desc_size);
    let mut descriptors = Vec::with_capacity(layout.group_count as usize);
    for index in 0..layout.descriptor_blocks() {
        let is_plain = index < layout.plain_descriptor_blocks();
        let (mut block, mut kind) = (layout.descriptor_block(index), BlockKind::GroupDescriptors(index));
        if let Some(backup) = backup
            && is_plain
        {
            (block, kind) = (FsBlock(backup.0 + 1 + u64::from(index)), BlockKind::Plain);
        } else if is_plain && index % DESCRIPTOR_BLOCKS_AT_ONCE == 0 {
            let count = DESCRIPTOR_BLOCKS_AT_ONCE.min(layout.plain_descriptor_blocks() - index);
            let kind_of = |offset| BlockKind::GroupDescriptors(index + offset as u32);
            cache.read_ahead(block, u64::from(count), kind_of);
        }
        let buffer = cache.get(block, kind)?;
        let bytes = buffer.read();
        for place in bytes.chunks_exact(size) {
            let number = crate::GroupNumber(descriptors.len() as u32);
            if number.0 >= layout.group_count {
                break;
            }
            if !GroupDescriptor::has_valid_checksum(place, number, format) {
                return Err(Corrupt::Group {
                    group: number.0,
                    what: "the descriptor's checksum does not match",
                }
                .into());
            }
            let descriptor = GroupDescriptor::parse(place, format);
            descriptor.validate(number, format)?;
            descriptors.push(descriptor);
        }
    }
    Ok(descriptors)
}

/// The group descriptors, or if they are damaged a backup of them, with a note.
fn read_any_descriptors(
    cache: &BufferCache,
    layout: &Layout,
    format: &Superblock,
) -> Result<(Vec<GroupDescriptor>, Option<String>)> {
    match read_descriptors(cache, layout, format, None) {
        Err(Error::Corrupt(damage)) => {
            let (descriptors, block) = backup_descriptors(cache, layout, format).ok_or(damage.clone())?;
            let what = format!(
                "{damage}: the backup of the group descriptors after block {block} was read; run e2fsck"
            );
            Ok((descriptors, Some(what)))
        }
        read => Ok((read?, None)),
    }
}

/// The first sound backup of the group descriptors, and the block of its superblock.
fn backup_descriptors(
    cache: &BufferCache,
    layout: &Layout,
    format: &Superblock,
) -> Option<(Vec<GroupDescriptor>, u64)> {
    const BACKUPS_TRIED: usize = 4;
    layout.superblock_backups().into_iter().take(BACKUPS_TRIED).find_map(|block| {
        read_descriptors(cache, layout, format, Some(FsBlock(block))).ok().map(|found| (found, block))
    })
}

fn zone_of(layout: &Layout, format: &Superblock, descriptors: &[GroupDescriptor]) -> Zone {
    let mut ranges = Vec::with_capacity(descriptors.len() * 2);
    let mut add =
        |start: u64, blocks: u64| ranges.push((start, start.saturating_add(blocks).min(layout.blocks_count)));
    let first = layout.first_data_block;
    if let Some(mmp) = format.mmp_block() {
        add(mmp.0, 1);
    }
    for (number, group) in layout.groups().zip(descriptors) {
        add(layout.first_block(number).0, u64::from(layout.overhead_in(number)));
        add(group.block_bitmap.0, 1);
        add(group.inode_bitmap.0, 1);
        add(group.inode_table.0, u64::from(layout.inode_table_blocks()));
    }
    Zone::new(first, layout.blocks_count, ranges)
}
