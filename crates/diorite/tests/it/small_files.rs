//! Many small files: files that are read together are needed soon, and never stale.

use crate::common;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Image, Random, assert_clean, assert_device_clean, memory_volume, pattern};
use diorite::{AlignedBuf, DirectIo, DirectQueue, Filesystem, FilesystemOptions, InodeNumber};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

fn small_blocks() -> MkfsOptions {
    MkfsOptions { flavor: Flavor::Ext4, block_size: Some(1024), ..MkfsOptions::default() }
}

/// File `number`: its size depends on the number, all its bytes are `mark`.
fn content(number: usize, mark: u8) -> Vec<u8> {
    vec![mark; 100 + number * 517 % 6000]
}

fn fill(filesystem: &Filesystem, files: usize) {
    filesystem.create_dir("/d").expect("directory");
    for number in 0..files {
        let file = filesystem.create_file(format!("/d/file-{number}")).expect("create");
        file.write_at(&content(number, number as u8), 0).expect("write");
    }
    filesystem.sync().expect("sync");
}

/// Inodes in the order of their numbers take few reads of the table, and a single inode takes one window.
#[test]
fn inode_tables_are_read_in_windows() {
    const FILES: usize = 1500;
    let device = memory_volume(64, &small_blocks());
    fill(&FilesystemOptions::new().open_device(device.clone()).expect("open"), FILES);

    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
    let mut inodes: Vec<InodeNumber> =
        filesystem.read_dir("/d").expect("list").map(|entry| entry.expect("entry").inode).collect();
    inodes.sort_unstable();
    let before = device.counters().snapshot();
    for inode in &inodes {
        filesystem.node(*inode).expect("an inode");
    }
    let reads = device.counters().snapshot().since(before).reads;
    assert!(reads <= 6, "{reads} reads for the inodes of {FILES} files");
    drop(filesystem);

    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
    let before = device.counters().snapshot();
    let picks = [1100, 300, 900, 100, 1300];
    for pick in picks {
        filesystem.node(inodes[pick]).expect("an inode");
    }
    let picked = device.counters().snapshot().since(before);
    assert_eq!(picked.reads, picks.len() as u64);
    assert_eq!(picked.read_bytes, picks.len() as u64 * (64 << 10), "no more for one inode than ever");
}

/// The blocks of a directory are read once, together; a look-up in a large one reads what it needs and no more.
#[test]
fn listing_reads_a_directory_once_and_a_look_up_little_of_it() {
    const FILES: usize = 1500;
    let device = memory_volume(64, &small_blocks());
    fill(&FilesystemOptions::new().open_device(device.clone()).expect("open"), FILES);

    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
    let directory = filesystem.resolve("/d").expect("directory");
    let size = directory.attributes().expect("attributes").size;
    assert!(size > 30 << 10, "many blocks");
    let before = device.counters().snapshot();
    assert_eq!(filesystem.read_dir("/d").expect("list").count(), FILES);
    let listed = device.counters().snapshot().since(before);
    assert!(listed.read_bytes <= size + 8192, "{} bytes for {size}", listed.read_bytes);
    drop((directory, filesystem));

    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
    filesystem.metadata("/d").expect("directory");
    let before = device.counters().snapshot();
    filesystem.metadata("/d/file-700").expect("file");
    let found = device.counters().snapshot().since(before);
    assert!(found.reads <= 5, "root, leaf, inode, and where they are: {} reads", found.reads);
}

/// ARCHITECTURE invariant 2: while the small files of a directory are read side by side, others write, cut and remove them.
/// Each read sees one state of its file, whole.
#[test]
fn reads_of_neighbours_see_whole_states_while_others_change_them() {
    const FILES: usize = 96;
    const LEN: usize = 8192;
    let image = Image::new(64, &small_blocks());
    let filesystem = FilesystemOptions::new().open(&image.path).expect("open");
    fill(&filesystem, FILES);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2_u64 {
            let (filesystem, stop) = (&filesystem, &stop);
            scope.spawn(move || {
                let mut random = Random(writer + 1);
                while !stop.load(Ordering::Relaxed) {
                    let path = format!("/d/file-{}", random.below(FILES as u64));
                    change(filesystem, &path, random.below(4), random.below(200) as u8 + 1);
                }
            });
        }
        for round in 0..60 {
            read_all(&filesystem, FILES, LEN, round);
        }
        stop.store(true, Ordering::Relaxed);
    });
    filesystem.close().expect("close");
    assert_clean(&image.path);
}

/// Write a file whole in one direct or cached call, cut it to nothing, or remove it and make it again.
fn change(filesystem: &Filesystem, path: &str, what: u64, mark: u8) {
    let options = filesystem.open_options().read(true).write(true).create(true);
    let mut memory = AlignedBuf::zeroed(4096, 4096);
    memory.fill(mark);
    match what {
        0 => {
            let file = options.direct(DirectIo::Required).open(path).expect("open");
            file.write_at(&memory, 0).expect("direct write");
        }
        1 => {
            options.open(path).expect("open").write_at(&memory, 0).expect("cached write");
        }
        2 => options.open(path).expect("open").set_len(0).expect("cut"),
        // The other one may have removed it.
        _ => drop(filesystem.remove_file(path)),
    }
}

/// Read the files side by side. The first 4096 bytes of each are written in one call only: one mark, or what it was filled with.
fn read_all(filesystem: &Filesystem, files: usize, len: usize, round: usize) {
    let options = filesystem.open_options().read(true).direct(DirectIo::Required);
    let mut queue = DirectQueue::new(files as u32);
    for number in 0..files {
        let Ok(file) = options.open(format!("/d/file-{number}")) else { continue };
        let memory = AlignedBuf::zeroed(len, 4096);
        queue.read(&file, 0, memory, len, number as u64).expect("submit");
    }
    while let Some(finished) = queue.next_finished().expect("reap") {
        let got = finished.result.expect("read");
        let start = &finished.memory[..got.min(content(finished.tag as usize, 0).len()).min(4096)];
        let first = start.first().copied();
        let torn = start.iter().position(|byte| Some(*byte) != first);
        assert_eq!(torn, None, "round {round}: file {} of {got} bytes", finished.tag);
        assert!(finished.memory[got..].iter().all(|byte| *byte == 0), "nothing after the end is shown");
    }
}

/// Every small file was a transfer of its own: 10,000 of them for a tree of 10,000 files.
#[test]
fn small_files_are_written_back_together() {
    const FILES: u64 = 1000;
    for flavor in [Flavor::Ext2, Flavor::Ext4] {
        let device = memory_volume(64, &MkfsOptions { flavor, ..MkfsOptions::default() });
        let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
        filesystem.create_dir("/d").expect("directory");
        let data = |n: u64| pattern(100 + (n as usize * 37) % 9000, n);
        for n in 0..FILES {
            let file = filesystem.create_file(format!("/d/{n}")).expect("create");
            file.write_all_at(&data(n), 0).expect("write");
        }
        let before = device.counters().snapshot();
        filesystem.sync().expect("sync");
        let writes = device.counters().snapshot().since(before).writes;
        assert!(writes < FILES / 5, "{flavor:?}: {writes} writes for {FILES} files");
        filesystem.close().expect("close");
        assert_device_clean(&device);
        let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
        for n in 0..FILES {
            let file = filesystem.open_file(format!("/d/{n}")).expect("open");
            let mut read = vec![0; file.size() as usize];
            file.read_exact_at(&mut read, 0).expect("read");
            assert!(read == data(n), "{flavor:?}: file {n}");
        }
    }
}
