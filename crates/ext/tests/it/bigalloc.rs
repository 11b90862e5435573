//! Volumes that allocate in clusters: the kernel and Diorite change them in the same way, with threads, when full,
//! and after a crash.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use crate::common;
use std::sync::Arc;

use common::{Bench, MemoryDevice, Mount, have, inode_of, pattern, read_file, run, shell, write_blocks};
use diorite_ext::layout::Layout;
use diorite_ext::{Error, FileBlock, FileKind, InodeNumber, NodeSpec, Owner, Volume, VolumeOptions};

const ARGUMENTS: [&str; 3] = [
    "-t ext4 -O bigalloc -b 4096 -C 65536",
    "-t ext4 -O bigalloc,^has_journal -b 1024 -C 16384",
    "-t ext4 -O bigalloc,inline_data,orphan_file -b 4096 -C 16384",
];

fn file(volume: &Volume, name: &str) -> Arc<diorite_ext::Inode> {
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    let owner = Owner::default();
    let spec = NodeSpec { kind: FileKind::Regular, permissions: 0o644, umask: 0, owner, device: (0, 0) };
    volume.names.create(&root, name.as_bytes(), &spec).unwrap()
}

/// Reservations that are held while others of the same cluster are made, dropped, committed and punched.
#[test]
fn reservations_share_clusters() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ARGUMENTS {
        let bench = Bench::new();
        let (device, volume) = bench.open(&bench.image(arguments, "64M"));
        let inode = file(&volume, "file");
        let free = volume.space().blocks_free;
        let per_cluster = Layout::new(volume.superblock()).blocks_per_cluster;
        let block = volume.block_size().bytes();
        volume.files.make_not_inline(&inode).unwrap();
        let reserve = |at, blocks| volume.files.reserve(&inode, FileBlock(at), blocks).unwrap();
        let commit = |reservation: diorite_ext::Reservation| {
            let size_at_least = reservation.runs().last().map(|run| (run.start.0 + run.blocks) * block);
            let reservations = vec![reservation];
            let mut commit = diorite_ext::WriteCommit { reservations, size_at_least, ..Default::default() };
            volume.files.commit_write(&inode, &mut commit).unwrap();
        };
        // Two parts of one cluster, and one that is given up.
        let (first, second, third) = (reserve(0, 1), reserve(2, 1), reserve(1, 1));
        assert_eq!(first.runs()[0].block.0 + 2, second.runs()[0].block.0, "one cluster ({arguments})");
        drop(third);
        commit(second);
        // The only mapped block goes while a reservation has another part of its cluster.
        volume.files.punch(&inode, FileBlock(2), 1).unwrap();
        assert_eq!(inode.attributes().sectors, 0);
        volume.sync().unwrap();
        bench.check_running(&device);
        commit(first);
        assert_eq!(inode.attributes().sectors * 512, u64::from(per_cluster) * block);
        // Freed while held, and then given up: free again when that is durable, and not before.
        let held = reserve(1, 1);
        volume.files.truncate(&inode, 0).unwrap();
        drop(held);
        volume.sync().unwrap();
        let held = reserve(0, u64::from(per_cluster) * 3 + 1);
        assert_eq!(held.runs().len(), 1, "{arguments}");
        drop(held);
        assert_eq!(volume.space().blocks_free, free, "{arguments}");
        volume.close().unwrap();
        bench.check(&device);
    }
}

/// Threads that write, punch and cut parts of the same files, each in blocks of its own.
#[test]
fn threads_share_clusters() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ARGUMENTS {
        let bench = Bench::new();
        let (device, volume) = bench.open(&bench.image(arguments, "64M"));
        let block = volume.block_size().bytes() as usize;
        let files: Vec<_> = (0..2).map(|index| file(&volume, &format!("f{index}"))).collect();
        for inode in &files {
            volume.files.make_not_inline(inode).unwrap();
        }
        let rounds = 60;
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (volume, files) = (&volume, &files);
                scope.spawn(move || {
                    for round in 0..rounds {
                        for (index, inode) in files.iter().enumerate() {
                            let at = round / 2 * 8 + thread;
                            let seed = round * 100 + thread * 10 + index as u64;
                            let size = Some((at + 1) * block as u64);
                            write_blocks(volume, inode, at, &pattern(seed, block), size).unwrap();
                            if round % 3 == 0 {
                                volume.files.punch(inode, FileBlock(at), 1).unwrap();
                                write_blocks(volume, inode, at, &pattern(seed, block), size).unwrap();
                            }
                            if round % 10 == 5 {
                                volume.sync().unwrap();
                            }
                        }
                    }
                });
            }
        });
        for (index, inode) in files.iter().enumerate() {
            let content = read_file(&volume, inode);
            for at in 0..rounds / 2 {
                for thread in 0..4 {
                    let seed = (at * 2 + 1) * 100 + thread * 10 + index as u64;
                    let start = (at * 8 + thread) as usize * block;
                    assert!(
                        content[start..start + block] == pattern(seed, block),
                        "{arguments}: {at} {thread}"
                    );
                }
            }
        }
        volume.close().unwrap();
        bench.check(&device);
    }
}

#[test]
fn full_volume_says_so_and_gives_everything_back() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ARGUMENTS {
        let bench = Bench::new();
        let (device, volume) = bench.open(&bench.image(&format!("{arguments} -m 0"), "32M"));
        let inode = file(&volume, "file");
        volume.files.make_not_inline(&inode).unwrap();
        let block = volume.block_size().bytes();
        let free = volume.space().blocks_free;
        let mut at = 0;
        let full = loop {
            match write_blocks(
                &volume,
                &inode,
                at * 7,
                &pattern(at, block as usize),
                Some((at * 7 + 1) * block),
            ) {
                Ok(()) => at += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::NoSpace), "{full:?}");
        assert!(
            volume.space().blocks_available
                < 40 * u64::from(Layout::new(volume.superblock()).blocks_per_cluster)
        );
        volume.files.truncate(&inode, 0).unwrap();
        volume.sync().unwrap();
        assert_eq!(volume.space().blocks_free, free);
        volume.close().unwrap();
        bench.check(&device);
    }
}

const FILL: &str = r"
    for i in $(seq 40); do head -c $((i * 3000)) /dev/urandom > f$i; done
    mkdir d; for i in $(seq 400); do echo $i > d/a-name-that-takes-some-space-$i; done
    dd if=/dev/urandom of=sparse bs=4096 count=1 seek=7 conv=notrunc status=none
    dd if=/dev/urandom of=sparse bs=4096 count=2 seek=1000 conv=notrunc status=none
    fallocate -l 300000 unwritten; dd if=/dev/urandom of=unwritten bs=4096 count=3 seek=20 conv=notrunc status=none
    fallocate -p -o 20480 -l 40960 f30; truncate -s 50000 f35
    ln -s $(head -c 200 /dev/zero | tr '\0' x) link; rm f2 d/*7; sync";

const NAMES: [&str; 5] = ["f30", "f35", "sparse", "unwritten", "f40"];

/// Diorite reads and changes a volume that the kernel filled, and the kernel reads it again: contents, sectors and free space.
#[test]
fn kernel_and_library_change_the_same_volume() {
    if !have(&["mke2fs", "e2fsck", "debugfs"]) {
        return;
    }
    for arguments in ARGUMENTS {
        let bench = Bench::new();
        let image = bench.image(arguments, "64M");
        let Some(mount) = Mount::new(&bench, &image, "") else { return };
        shell(&mount.at, FILL);
        let value = [b'y'; 900];
        rustix::fs::setxattr(mount.at.join("f3"), "user.x", &value, rustix::fs::XattrFlags::empty()).unwrap();
        let contents = NAMES.map(|name| std::fs::read(mount.at.join(name)).unwrap());
        drop(mount);
        let (device, volume) = bench.open(&image);
        bench.check(&device);
        let block = volume.block_size().bytes();
        for (name, content) in NAMES.iter().zip(contents) {
            let inode = volume.inodes.get(inode_of(&image, name)).unwrap();
            assert!(read_file(&volume, &inode) == content, "{name} ({arguments})");
            // Change it, in the middle of clusters.
            volume.files.punch(&inode, FileBlock(1), 2).unwrap();
            let at = inode.attributes().size / block + 1;
            let end = Some((at + 3) * block);
            write_blocks(&volume, &inode, at, &pattern(at, block as usize * 3), end).unwrap();
            write_blocks(&volume, &inode, 2, &pattern(2, block as usize), None).unwrap();
        }
        let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
        for name in ["f5", "f6", "link"] {
            volume.names.unlink(&root, name.as_bytes()).unwrap();
        }
        volume.close().unwrap();
        bench.check(&device);
        device.save(&image);
        let ours = Volume::open(device, VolumeOptions::default()).unwrap();
        let Some(mount) = Mount::new(&bench, &image, "") else { return };
        for name in NAMES {
            let inode = ours.inodes.get(inode_of(&image, name)).unwrap();
            assert!(
                std::fs::read(mount.at.join(name)).unwrap() == read_file(&ours, &inode),
                "{name} ({arguments})"
            );
            let blocks = shell(&mount.at, &format!("stat -c %b {name}"));
            assert_eq!(blocks.trim(), inode.attributes().sectors.to_string(), "{name} ({arguments})");
        }
        let space = shell(&mount.at, "stat -f -c '%b %f' .");
        let (blocks, free) = (ours.space().blocks, ours.space().blocks_free);
        assert_eq!(space.trim(), format!("{blocks} {free}"), "{arguments}");
        // The kernel goes on where we ended.
        shell(
            &mount.at,
            "rm f30 unwritten; dd if=/dev/urandom of=f35 bs=4096 count=9 conv=notrunc,fsync status=none",
        );
        drop(mount);
        let (code, output) = common::run("e2fsck", &["-fn", &image.to_string_lossy()]);
        assert_eq!(code, 0, "{arguments}: {output}");
    }
}

/// Images with numbers that cannot be: an error that says so.
#[test]
fn hostile_cluster_sizes_are_refused() {
    if !have(&["mke2fs"]) {
        return;
    }
    let bench = Bench::new();
    let image = bench.image("-t ext4 -O bigalloc,^metadata_csum -b 4096 -C 65536", "64M");
    let good = std::fs::read(&image).unwrap();
    for (offset, value) in [
        (28, 0_u32),
        (28, 1),
        (28, 7),
        (28, 21),
        (28, 40),
        (28, u32::MAX),
        (32, 4096),
        (36, 0),
        (36, 1 << 20),
    ] {
        let mut bytes = good.clone();
        bytes[1024 + offset..1024 + offset + 4].copy_from_slice(&value.to_le_bytes());
        let result = Volume::open(MemoryDevice::new(bytes), VolumeOptions::default());
        assert!(result.is_err(), "{value} at {offset} of the superblock");
    }
}

/// Clusters without extents: mke2fs makes no such volume, the kernel mounts none for writing, and here it is read only too.
#[test]
fn without_extents_a_volume_is_only_read() {
    if !have(&["mke2fs", "debugfs"]) {
        return;
    }
    let bench = Bench::new();
    let path = bench.path("refused").to_string_lossy().into_owned();
    let (code, said) =
        run("mke2fs", &["-q", "-F", "-t", "ext4", "-O", "bigalloc,^extent,^64bit", &path, "16M"]);
    assert!(code != 0 && said.contains("bigalloc") && said.contains("extents"), "{said}");

    let image = bench.image("-t ext4 -O bigalloc,^64bit -b 4096", "16M");
    run("debugfs", &["-w", "-R", "feature -extent", &image.to_string_lossy()]);
    assert!(Mount::new(&bench, &image, "").is_none(), "the kernel writes to it");
    let (_, volume) = bench.open(&image);
    let reason = volume.read_only_reason().unwrap();
    assert!(reason.contains("bigalloc without extent"), "{reason}");
    assert_eq!(volume.superblock().features().unwritable(), ["bigalloc without extent"]);
}
