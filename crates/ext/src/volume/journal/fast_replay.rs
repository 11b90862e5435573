//! Fast commits are replayed on a volume without its journal, in memory.
//!
//! Where it sits: between replay of the log and opening the volume. A volume is opened on a [`ScratchDevice`] over the device as
//! the log leaves it, every change is made with the volume's own operations, and it is closed. Nothing reaches the disk before
//! all of that has succeeded. Unsupported records are rejected, and the error names them; the volume is not changed. Quota is settled with every change, as
//! always; the kernel's own replay does not.
//!
//! Every change may have been made already: a replay that was cut off is done again.

use std::sync::Arc;

use diorite_block::{BioFlags, BlockDevice};
use hashbrown::HashMap;

use super::fast_commit::{self, FastChange};
use super::format::JournalSuperblock;
use super::home_superblock::edit_superblock;
use crate::BlockRun;
use crate::layout::inode::LINKS;
use crate::layout::{Compat, Incompat, RoCompat, Superblock};
use crate::{Access, Corrupt, Error, InodeNumber, ReservedBlocks, Result, Volume, VolumeOptions};
use diorite_journal::log::{FastCommits, LogReader, ScratchDevice};

/// The generation, which distinguishes inodes that had the same number.
const GENERATION: std::ops::Range<usize> = 0x64..0x68;

/// The fast commits of a volume's journal.
#[derive(Debug, Default)]
pub(super) struct FastCommitArea(Vec<FastChange>);

impl FastCommits<Error> for FastCommitArea {
    fn read(
        &mut self,
        reader: &mut LogReader<'_>,
        superblock: &JournalSuperblock,
        sequence: u32,
    ) -> diorite_journal::Result<Option<Corrupt>> {
        let (changes, damage) = fast_commit::read(reader, superblock, sequence)?;
        self.0 = changes;
        Ok(damage)
    }

    fn clear(&mut self) {
        self.0.clear();
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn replay(&self, scratch: Arc<ScratchDevice>) -> Result<Result<(), Corrupt>> {
        match replay(&scratch, &self.0) {
            Err(Error::Corrupt(damage)) => Ok(Err(damage)),
            replayed => replayed.map(Ok),
        }
    }
}

/// Make `changes` on the volume that `scratch` shows.
fn replay(scratch: &Arc<ScratchDevice>, changes: &[FastChange]) -> Result<()> {
    let original = change_superblock(&**scratch, |superblock| {
        let mut plain = superblock.features();
        plain.compat -= Compat::HAS_JOURNAL | Compat::FAST_COMMIT | Compat::ORPHAN_FILE;
        plain.incompat -= Incompat::RECOVER | Incompat::MMP;
        plain.ro_compat -= RoCompat::ORPHAN_PRESENT;
        superblock.set_features(plain);
    })?;
    let options = VolumeOptions {
        access: Access::ReadWrite,
        reserved_blocks: ReservedBlocks::Usable,
        ..VolumeOptions::default()
    };
    let volume = Volume::open(scratch.clone(), options)?;
    if let Some(reason) = volume.read_only_reason() {
        return Err(Error::ReadOnly(reason));
    }
    for change in changes {
        if let FastChange::AddRange { inode, extent } = change {
            volume.core.check_run(*inode, extent.start, extent.block, u64::from(extent.blocks))?;
            let blocks = u64::from(extent.blocks);
            volume.core.allocator.keep_out(BlockRun { start: extent.block, blocks })?;
        }
    }
    let changes = Changes::new(changes);
    let on = FastReplay { volume: &volume };
    (0..changes.all.len()).try_for_each(|at| changes.apply(&on, at))?;
    volume.close()?;
    change_superblock(&**scratch, |superblock| {
        superblock.set_features(original.features());
        superblock.set_state(original.state());
    })?;
    Ok(())
}

/// A volume on which fast commits are replayed. The code of each kind of change is beside the structure that it changes: `replay.rs` of inodes,
/// mappings and names.
pub(crate) struct FastReplay<'v> {
    pub(crate) volume: &'v Volume,
}

/// Changes in order, with an index of the inodes and links among them.
struct Changes<'a> {
    all: &'a [FastChange],
    /// The last name that a link gives an inode.
    last_links: HashMap<InodeNumber, usize>,
    /// Where the inode itself is.
    inodes: HashMap<InodeNumber, Vec<usize>>,
}

impl<'a> Changes<'a> {
    fn new(all: &'a [FastChange]) -> Self {
        let (mut last_links, mut inodes) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for (at, change) in all.iter().enumerate() {
            match change {
                FastChange::Link { inode, .. } => drop(last_links.insert(*inode, at)),
                FastChange::Inode { inode, .. } => inodes.entry(*inode).or_default().push(at),
                _ => {}
            }
        }
        Self { all, last_links, inodes }
    }

    /// The bytes of an inode as of change `at`.
    fn inode_as_of(&self, at: usize, inode: InodeNumber) -> Option<&'a [u8]> {
        let places = self.inodes.get(&inode)?;
        match &self.all[*places.get(places.partition_point(|place| *place <= at))?] {
            FastChange::Inode { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// The bytes of an inode as of change `at` that has no name then, and gets one later, as the same file.
    fn nameless_as_of(&self, at: usize, inode: InodeNumber) -> Option<&'a [u8]> {
        let bytes = self.inode_as_of(at, inode)?;
        let named = self.inode_as_of(*self.last_links.get(&inode).filter(|link| **link > at)?, inode)?;
        let is_same = bytes.get(GENERATION) == named.get(GENERATION);
        (bytes.get(LINKS) == Some(&[0, 0]) && is_same).then_some(bytes)
    }

    /// Make change `at`.
    fn apply(&self, on: &FastReplay<'_>, at: usize) -> Result<()> {
        match &self.all[at] {
            FastChange::AddRange { inode, extent } => {
                // Ranges come before their inode, which is there unless it was made without a name.
                if let (false, Some(bytes)) = (on.is_in_use(*inode)?, self.nameless_as_of(at, *inode)) {
                    replay_nameless(on, *inode, bytes)?;
                }
                on.replay_extent(*inode, extent)
            }
            FastChange::RemoveRange { inode, start, blocks } => {
                on.replay_removal(*inode, u64::from(*start), u64::from(*blocks))
            }
            FastChange::Create { directory, inode, name } => on.replay_name(*directory, *inode, name, false),
            FastChange::Link { directory, inode, name } => {
                // So does a name that is linked.
                if let (false, Some(bytes)) = (on.is_in_use(*inode)?, self.inode_as_of(at, *inode)) {
                    on.replay_inode(*inode, bytes)?;
                }
                on.replay_name(*directory, *inode, name, true)
            }
            FastChange::Unlink { directory, inode, name } => on.replay_unlink(*directory, *inode, name),
            FastChange::Inode { inode, bytes } => match at.checked_sub(1) {
                Some(before) if self.nameless_as_of(before, *inode) == Some(bytes) => {
                    replay_nameless(on, *inode, bytes)
                }
                _ => on.replay_inode(*inode, bytes),
            },
        }
    }
}

/// An inode that has no name yet and gets one: its links are right once it has.
fn replay_nameless(on: &FastReplay<'_>, inode: InodeNumber, bytes: &[u8]) -> Result<()> {
    let mut bytes = bytes.to_vec();
    bytes[LINKS.start] = 1;
    on.replay_inode(inode, &bytes)
}

/// Change the superblock on the device; returns the old one.
fn change_superblock(device: &dyn BlockDevice, edit: impl FnOnce(&mut Superblock)) -> Result<Superblock> {
    let edited = edit_superblock(device, edit)?;
    device.write_bytes(edited.start, &edited.memory, BioFlags::META)?;
    Ok(edited.original)
}

#[cfg(test)]
mod tests {
    use diorite_sim::image::{ImageDevice, SparseImage};

    use super::*;
    use crate::layout::extent::Extent;
    use crate::{BlockSize, FileBlock, FileKind, FsBlock, NodeSpec, Owner};
    use diorite_ext_tools::mkfs::{Flavor, MkfsOptions, mkfs};

    const SIZE: BlockSize = BlockSize::new(1024).unwrap();

    /// A volume with files and directories, and the bytes of its inodes.
    fn volume(features: &str) -> (Arc<dyn BlockDevice>, Vec<Vec<u8>>) {
        let device: Arc<dyn BlockDevice> = ImageDevice::new(SparseImage::new(8 << 20));
        let options = MkfsOptions {
            flavor: Flavor::Ext4,
            block_size: Some(1024),
            features: features.to_owned(),
            uuid: Some([1; 16]),
            hash_seed: Some([2; 16]),
            ..MkfsOptions::default()
        };
        mkfs(&*device, &options).unwrap();
        let volume = Volume::open(Arc::clone(&device), VolumeOptions::default()).unwrap();
        let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
        let (mut spec, mut inodes) = (
            NodeSpec {
                kind: FileKind::Regular,
                permissions: 0o644,
                umask: 0,
                owner: Owner::default(),
                device: (0, 0),
            },
            vec![],
        );
        for n in 0..16_u64 {
            spec.kind = if n % 4 == 3 { FileKind::Directory } else { FileKind::Regular };
            let inode = volume.names.create(&root, format!("name{n}").as_bytes(), &spec).unwrap();
            if spec.kind == FileKind::Regular {
                volume.files.allocate_unwritten(&inode, FileBlock(n), n + 1, Some(20_000)).unwrap();
            }
            inodes.push(inode.number());
        }
        volume.sync().unwrap();
        let bytes = |number: &InodeNumber| {
            let raw = volume.inodes.raw(*number).unwrap();
            raw.buffer.read()[raw.offset..raw.offset + raw.len].to_vec()
        };
        let inodes = inodes.iter().map(bytes).collect();
        volume.close().unwrap();
        (device, inodes)
    }

    fn random_change(random: &mut fastrand::Rng, inodes: &[Vec<u8>]) -> FastChange {
        let mut number =
            || InodeNumber(if random.u8(..30) == 0 { random.u32(..) } else { random.u32(1..34) });
        let (inode, directory) = (number(), number());
        let directory = if random.u8(..3) > 0 { InodeNumber::ROOT } else { directory };
        let name = format!("name{}", random.u8(..24)).into_bytes();
        match random.u8(..7) {
            0 => {
                let start = if random.u8(..20) == 0 { random.u32(..) } else { random.u32(..60) };
                let block = if random.u8(..20) == 0 { random.u64(..1 << 48) } else { random.u64(..8192) };
                let (blocks, unwritten) = (random.u32(..40), random.bool());
                let extent =
                    Extent { start: FileBlock(start.into()), block: FsBlock(block), blocks, unwritten };
                FastChange::AddRange { inode, extent }
            }
            1 => FastChange::RemoveRange {
                inode,
                start: random.u32(..60),
                blocks: random.u32(..) >> random.u8(..32),
            },
            2 => FastChange::Create { directory, inode, name },
            3 => FastChange::Link { directory, inode, name },
            4 => FastChange::Unlink { directory, inode, name },
            _ => {
                let mut bytes = inodes[random.usize(..inodes.len())].clone();
                for _ in 0..random.usize(..4) {
                    let at = random.usize(..bytes.len());
                    bytes[at] = random.u8(..);
                }
                bytes.truncate(if random.u8(..20) == 0 { random.usize(..257) } else { 256 });
                FastChange::Inode { inode, bytes }
            }
        }
    }

    /// ARCHITECTURE invariant 10: invalid records end in an error, or in some volume; never in a panic, a loop
    /// or a write.
    #[test]
    fn senseless_fast_commits_are_survived() {
        for features in ["fast_commit,quota", "fast_commit,bigalloc,^metadata_csum"] {
            let (device, inodes) = volume(features);
            let (mut random, mut replayed) = (fastrand::Rng::with_seed(3), 0);
            for _ in 0..400 {
                let count = random.usize(1..30);
                let changes: Vec<_> = (0..count).map(|_| random_change(&mut random, &inodes)).collect();
                let scratch = Arc::new(ScratchDevice::new(Arc::clone(&device), SIZE));
                replayed += u32::from(replay(&scratch, &changes).is_ok());
            }
            assert!(replayed > 10, "{features}: {replayed} of 400 were replayed");
        }
    }
}
