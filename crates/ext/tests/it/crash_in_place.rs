//! Without a journal, consistency depends on the order of writes: no block on the disk refers to an unwritten block, whatever part
//! of the device's volatile cache a power cut leaves (ARCHITECTURE invariants 5 and 6).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::common;
use crate::crash;
use std::sync::Arc;

use common::{have, pattern, read_file, run, write_blocks};
use crash::{at, directory, file, load, make_image, save, scratch};
use diorite_ext::{Access, FileBlock, RenameMode, SyncKind, Volume, VolumeOptions, XattrMode};
use diorite_sim::crash::{RecordingDevice, Tearing};
use diorite_sim::image::{ImageDevice, SparseImage};

const EXT2: &str = "-t ext2 -b 1024";
const EXT4: &str = "-t ext4 -O ^has_journal -b 1024";

struct World {
    scratch: tempfile::TempDir,
    recorder: Arc<RecordingDevice>,
    volume: Arc<Volume>,
}

fn world(arguments: &str) -> Option<World> {
    if !have(&["mke2fs", "e2fsck"]) {
        return None;
    }
    let scratch = scratch();
    let recorder = RecordingDevice::on_image(make_image(scratch.path(), arguments, "16M"));
    let volume = Volume::open(recorder.clone(), VolumeOptions::default()).unwrap();
    Some(World { scratch, recorder, volume })
}

impl World {
    fn block(&self) -> usize {
        self.volume.block_size().bytes() as usize
    }

    fn create(&self, path: &str) {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        self.volume.names.create(&at(&self.volume, parent), name.as_bytes(), &file()).unwrap();
    }

    /// Write blocks of a pattern, as the library does: data first, then the mapping.
    fn write(&self, path: &str, block: usize, content: &[u8]) {
        let end = (block * self.block() + content.len()) as u64;
        write_blocks(&self.volume, &at(&self.volume, path), block as u64, content, Some(end)).unwrap();
    }

    fn sync(&self, path: &str) {
        self.volume.sync_inode(&at(&self.volume, path), SyncKind::All).unwrap();
    }

    /// Make another file durable, which lies in the same block of the inode table.
    fn sync_another(&self, number: usize) {
        let path = format!("another{number}");
        self.create(&path);
        self.sync(&path);
    }

    /// Show every crash after e2fsck to `check`, with the marks before it.
    fn crashes(&self, tearing: Tearing, check: impl Fn(&Volume, &[u64]) -> Result<(), String>) {
        let points = self.recorder.recording().crash_points().count();
        self.crashes_of((150 / points).clamp(4, 40), tearing, check);
    }

    /// At most `limit` images of each crash point.
    fn crashes_of(
        &self,
        limit: usize,
        tearing: Tearing,
        check: impl Fn(&Volume, &[u64]) -> Result<(), String>,
    ) {
        let recording = self.recorder.recording();
        let points = recording.crash_points().count();
        let mut images = 0;
        for point in recording.crash_points() {
            for fates in point.fates(limit, tearing, 7) {
                let (volume, output) = self.repaired(&point.image(&fates));
                images += 1;
                if let Err(wrong) = check(&volume, point.marks()) {
                    let unflushed = point.unflushed();
                    panic!("{wrong}: crash {}, {unflushed:?}: {fates:?}: e2fsck: {output}", point.number());
                }
            }
        }
        println!("{points} crash points, {images} images");
    }

    fn repaired(&self, image: &SparseImage) -> (Arc<Volume>, String) {
        let path = self.scratch.path().join("crashed");
        save(image, &path);
        let (code, output) = run("e2fsck", &["-fy", &path.to_string_lossy()]);
        assert!(code <= 1, "{output}");
        let read_only = VolumeOptions { access: Access::ReadOnly, ..VolumeOptions::default() };
        (Volume::open(ImageDevice::new(load(&path)), read_only).unwrap(), output)
    }
}

fn content(volume: &Volume, path: &str) -> Option<Vec<u8>> {
    let mut inode = volume.inodes.get(diorite_ext::InodeNumber::ROOT).unwrap();
    for name in path.split('/') {
        inode = volume.names.lookup(&inode, name.as_bytes()).ok()?;
    }
    Some(read_file(volume, &inode))
}

fn begins_with(volume: &Volume, path: &str, wanted: &[u8]) -> Result<(), String> {
    match content(volume, path) {
        Some(found) if found.starts_with(wanted) => Ok(()),
        Some(found) => Err(format!("{path} has {} bytes and not what was synced", found.len())),
        None => Err(format!("{path} is gone")),
    }
}

/// A file of 12 synced blocks grew by one, unsynced. The sync of another inode of the same inode-table block wrote it with a pointer
/// to an indirect block that was never written, and e2fsck cleared it.
#[test]
fn sync_of_another_inode_writes_nothing_that_is_not_there() {
    for arguments in [EXT2, EXT4] {
        let Some(world) = world(arguments) else { return };
        let synced = pattern(1, 12 * world.block());
        world.create("a");
        world.write("a", 0, &synced);
        world.volume.sync().unwrap();
        world.recorder.mark(1);
        for block in 0..40 {
            world.write("a", 12 + 3 * block, &pattern(2, world.block()));
        }
        world.sync_another(0);
        world.crashes(Tearing::Never, |volume, marks| {
            if marks.is_empty() { Ok(()) } else { begins_with(volume, "a", &synced) }
        });
    }
}

/// The inode was written with no flush after the data that it reaches: a volatile cache could keep the one and lose the other.
#[test]
fn no_stale_block_shows_in_a_file_without_a_journal() {
    for arguments in [EXT2, EXT4] {
        let Some(world) = world(arguments) else { return };
        let stale = vec![0xaa; 12 << 20];
        world.create("old");
        world.write("old", 0, &stale[..stale.len() / world.block() * world.block()]);
        world.volume.sync().unwrap();
        world.volume.names.unlink(&at(&world.volume, ""), b"old").unwrap();
        world.volume.sync().unwrap();
        world.recorder.mark(1);
        world.create("new");
        for step in 0..6 {
            world.write("new", step * 9, &vec![0xbb; 9 * world.block()]);
            world.sync("new");
        }
        world.crashes(Tearing::Allowed, |volume, marks| {
            let found = content(volume, "new").unwrap_or_default();
            let is_stale = !marks.is_empty() && found.contains(&0xaa);
            if is_stale { Err("a stale block shows".to_owned()) } else { Ok(()) }
        });
    }
}

/// `itable_unused` was not written with the inode: e2fsck did not look at it. And the name that leads to it, as with a journal.
#[test]
fn synced_new_files_are_reachable() {
    for arguments in [EXT2, EXT4, "-t ext4 -O ^has_journal,^metadata_csum,uninit_bg -b 1024"] {
        let Some(world) = world(arguments) else { return };
        let wanted = pattern(3, 3 * world.block());
        for number in 0..30 {
            let path = format!("f{number}");
            world.create(&path);
            world.write(&path, 0, &wanted);
            if number % 5 == 4 {
                world.sync(&path);
                world.recorder.mark(number);
            }
        }
        world.crashes(Tearing::Never, |volume, marks| {
            marks.iter().try_for_each(|number| begins_with(volume, &format!("f{number}"), &wanted))
        });
    }
}

/// A synced file is replaced by rename, unsynced: what its name leads to is the old content or the new.
#[test]
fn rename_over_a_synced_file_leaves_one_of_the_two() {
    for arguments in [EXT2, EXT4] {
        let Some(world) = world(arguments) else { return };
        let contents: Vec<_> = (0..6).map(|number| pattern(number, 2 * world.block())).collect();
        world.create("target");
        world.write("target", 0, &contents[0]);
        world.volume.sync().unwrap();
        for (number, new) in contents.iter().enumerate().skip(1) {
            world.recorder.mark(number as u64 - 1);
            world.create("temporary");
            world.write("temporary", 0, new);
            world.sync("temporary");
            let root = at(&world.volume, "");
            world.volume.names.rename(&root, b"temporary", &root, b"target", RenameMode::Replace).unwrap();
            if number % 2 == 0 {
                world.sync_another(number);
            }
        }
        world.crashes(Tearing::Never, |volume, marks| {
            let Some(last) = marks.last().map(|mark| *mark as usize) else { return Ok(()) };
            let found = content(volume, "target").ok_or("the target is gone")?;
            // The renames since the last write-out may be there or not; the one that is under way is the newest.
            let allowed = &contents[last.saturating_sub(2)..(last + 2).min(contents.len())];
            if allowed.contains(&found) {
                Ok(())
            } else {
                Err("neither the old content nor the new".to_owned())
            }
        });
    }
}

/// Leaves of a directory's index, and nodes of an extent tree, are split: half of what they have is in a new block, which is reachable
/// before the old one is without it.
#[test]
fn splits_lose_no_synced_names() {
    for arguments in [EXT2, EXT4] {
        let Some(world) = world(arguments) else { return };
        let name = |number: u64| format!("d/a-name-that-takes-some-bytes-{number}");
        world.volume.names.create(&at(&world.volume, ""), b"d", &directory()).unwrap();
        for number in 0..120u64 {
            world.create(&name(number));
            if number % 20 == 19 {
                world.volume.sync().unwrap();
                world.recorder.mark(number + 1);
            }
        }
        world.crashes(Tearing::Never, |volume, marks| {
            let synced = marks.last().copied().unwrap_or(0);
            (0..synced).try_for_each(|number| begins_with(volume, &name(number), b""))
        });
    }
}

#[test]
fn splits_lose_no_synced_blocks() {
    for arguments in [EXT2, EXT4] {
        let Some(world) = world(arguments) else { return };
        world.create("f");
        let mut synced = vec![0; 600 * world.block()];
        let mut written = Vec::new();
        let one = |number: usize| pattern(number as u64, world.block());
        let put = |synced: &mut Vec<u8>, block: usize| {
            synced[block * world.block()..(block + 1) * world.block()].copy_from_slice(&one(block));
        };
        world.write("f", 599, &one(599));
        put(&mut synced, 599);
        // Every fourth block, in an order that fills nodes from within.
        for step in 0..140 {
            let block = step * 61 % 149 * 4;
            world.write("f", block, &one(block));
            written.push(block);
            if step % 14 == 13 {
                world.sync_another(step);
                world.recorder.mark(written.len() as u64);
            }
        }
        world.crashes(Tearing::Never, |volume, marks| {
            let Some(count) = marks.last().map(|mark| *mark as usize) else { return Ok(()) };
            let found = content(volume, "f").ok_or("the file is gone")?;
            let bad = written[..count].iter().find(|block| {
                found.get(**block * world.block()..(**block + 1) * world.block()) != Some(&one(**block))
            });
            bad.map_or(Ok(()), |block| Err(format!("block {block} of {count} synced ones is not there")))
        });
    }
}

/// Attributes in blocks: changes of one file, unsynced, leave those of others.
#[test]
fn attributes_stay() {
    let Some(world) = world("-t ext4 -O ^has_journal -b 1024 -I 128") else { return };
    let value = vec![5; 200];
    let names = ["a", "b", "c"];
    for name in names {
        world.create(name);
        world.volume.set_xattr(&at(&world.volume, name), b"user.x", &value, XattrMode::Set).unwrap();
    }
    world.volume.sync().unwrap();
    world.recorder.mark(1);
    for round in 0..8u8 {
        world.volume.set_xattr(&at(&world.volume, "a"), b"user.y", &[round; 50], XattrMode::Set).unwrap();
        world.volume.remove_xattr(&at(&world.volume, "a"), b"user.y").unwrap();
        world.sync_another(round.into());
    }
    world.crashes(Tearing::Never, |volume, marks| {
        if marks.is_empty() {
            return Ok(());
        }
        names.iter().try_for_each(|name| match volume.xattrs.get(&at(volume, name), b"user.x") {
            Ok(found) if found == value => Ok(()),
            other => Err(format!("{name}: {other:?}")),
        })
    });
}

/// The number of a removed file was used again before the removal of its name was durable: the old name showed another file.
#[test]
fn names_never_lead_to_another_file() {
    for arguments in [EXT2, EXT4] {
        let Some(world) = world(arguments) else { return };
        world.volume.names.create(&at(&world.volume, ""), b"d", &directory()).unwrap();
        for number in 0..8 {
            let path = format!("d/old{number}");
            world.create(&path);
            world.write(&path, 0, &vec![0xaa; world.block()]);
        }
        world.volume.sync().unwrap();
        world.recorder.mark(1);
        for number in 0..8 {
            world.volume.names.unlink(&at(&world.volume, "d"), format!("old{number}").as_bytes()).unwrap();
            let path = format!("new{number}");
            world.create(&path);
            world.write(&path, 0, &vec![0xbb; world.block()]);
            world.sync(&path);
        }
        world.crashes(Tearing::Never, |volume, marks| {
            let shows =
                |number: usize| content(volume, &format!("d/old{number}")).is_some_and(|c| c.contains(&0xbb));
            match (0..8).find(|number| !marks.is_empty() && shows(*number)) {
                Some(number) => Err(format!("d/old{number} shows the content of a new file")),
                None => Ok(()),
            }
        });
    }
}

/// A punched or cut file whose blocks went to another one shows nothing of that.
#[test]
fn freed_blocks_are_not_reused_before_the_change_is_durable() {
    for arguments in [EXT2, EXT4] {
        let Some(world) = world(arguments) else { return };
        world.create("cut");
        world.write("cut", 0, &vec![0xaa; 300 * world.block()]);
        world.volume.sync().unwrap();
        for round in 0..5 {
            world
                .volume
                .files
                .truncate(&at(&world.volume, "cut"), (250 - round * 50) * world.block() as u64)
                .unwrap();
            world.volume.files.punch(&at(&world.volume, "cut"), FileBlock(round * 7), 3).unwrap();
            let path = format!("new{round}");
            world.create(&path);
            world.write(&path, 0, &vec![0xbb; 200 * world.block()]);
            world.sync(&path);
        }
        world.crashes(Tearing::Never, |volume, _| {
            let mixed = content(volume, "cut").is_some_and(|content| content.contains(&0xbb));
            if mixed { Err("the cut file shows another's data".to_owned()) } else { Ok(()) }
        });
    }
}

/// A synced file was renamed to another block of a directory: the block without its old name came to the disk, the one with the new name
/// did not, and e2fsck put the file into `lost+found`.
#[test]
fn a_renamed_file_has_one_of_its_names() {
    for arguments in [EXT2, EXT4] {
        let Some(world) = world(arguments) else { return };
        let rename = |from: &str, to: &str| {
            let ((from, old), (to, new)) = (from.rsplit_once('/').unwrap(), to.rsplit_once('/').unwrap());
            let (from, to) = (at(&world.volume, from), at(&world.volume, to));
            world
                .volume
                .names
                .rename(&from, old.as_bytes(), &to, new.as_bytes(), RenameMode::Replace)
                .unwrap();
        };
        // Blocks that are not adjacent reach the disk one by one.
        for name in ["a", "between", "b", "after", "c"] {
            world.volume.names.create(&at(&world.volume, ""), name.as_bytes(), &directory()).unwrap();
        }
        let contents = [1, 2, 3].map(|seed| pattern(seed, world.block()));
        for (path, content) in ["a/one", "b/two", "c/new"].iter().zip(&contents) {
            world.create(path);
            world.write(path, 0, content);
        }
        world.volume.sync().unwrap();
        world.recorder.mark(1);
        // In one transaction there and back, then over another file.
        rename("a/one", "b/uno");
        rename("b/two", "a/dos");
        world.volume.sync().unwrap();
        rename("c/new", "b/uno");
        world.volume.sync().unwrap();
        world.crashes_of(40, Tearing::Never, |volume, marks| {
            let has = |path: &str, number: usize| begins_with(volume, path, &contents[number]).is_ok();
            if marks.is_empty() || has("a/one", 0) || has("b/uno", 0) || has("b/uno", 2) {
                let is_there = |paths: [&str; 2], number: usize| paths.iter().any(|path| has(path, number));
                if marks.is_empty() || is_there(["b/two", "a/dos"], 1) && is_there(["c/new", "b/uno"], 2) {
                    return Ok(());
                }
            }
            Err("a file has lost its name".to_owned())
        });
    }
}
