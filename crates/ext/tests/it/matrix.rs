//! A matrix of images: each made by mke2fs, filled by the kernel and read by Diorite, then filled by Diorite and read by the kernel and
//! debugfs; e2fsck and our own check find no problem. The tests compare everything that a program can see: kind,
//! mode, owner, links, size, blocks, times, devices, targets, attributes, content, and where each file's blocks are, holes and
//! unwritten ranges too.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]
#![allow(clippy::disallowed_methods, reason = "tests read and write image files")]

use crate::common;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use common::{Bench, Mount, entries_of, have, pattern, read_file, run, shell, write_blocks};
use diorite_ext::{
    Error, FileBlock, FileKind, Inode, InodeNumber, MappingKind, NodeSpec, Owner, RenameMode, SetAttributes,
    SetTime, Timestamp, Volume, XattrMode,
};

/// Arguments of mke2fs, and the size of the image.
const RECIPES: [(&str, &str); 32] = [
    ("-t ext2 -b 1024 -I 128", "16M"),
    ("-t ext2 -b 2048 -O ^filetype", "16M"),
    ("-t ext2 -b 4096 -O ^dir_index,^sparse_super,^resize_inode", "32M"),
    ("-t ext3 -b 1024", "16M"),
    ("-t ext3 -b 4096 -I 128 -J size=4", "32M"),
    ("-t ext3 -b 2048 -I 1024", "32M"),
    ("-t ext4 -b 1024", "32M"),
    ("-t ext4 -b 1024 -I 512 -O ^metadata_csum,uninit_bg", "32M"),
    ("-t ext4 -b 2048 -O ^64bit,^flex_bg -J size=4", "32M"),
    ("-t ext4 -b 4096", "64M"),
    ("-t ext4 -b 4096 -I 128 -O ^extra_isize", "32M"),
    ("-t ext4 -b 4096 -O ^has_journal", "32M"),
    ("-t ext4 -b 4096 -O ^extent,^64bit", "32M"),
    ("-t ext4 -b 4096 -O metadata_csum_seed,orphan_file", "32M"),
    ("-t ext4 -b 1024 -O ^resize_inode,meta_bg", "32M"),
    ("-t ext4 -b 4096 -O sparse_super2,large_dir", "32M"),
    ("-t ext4 -b 4096 -O inline_data", "32M"),
    ("-t ext4 -b 1024 -I 256 -O inline_data,^metadata_csum", "16M"),
    ("-t ext4 -b 4096 -O ea_inode -I 1024", "32M"),
    ("-t ext4 -b 4096 -O bigalloc -C 32768", "64M"),
    ("-t ext4 -b 1024 -O bigalloc,inline_data,ea_inode -C 4096", "64M"),
    ("-t ext4 -b 4096 -O quota,project", "32M"),
    ("-t ext4 -b 4096 -O fast_commit", "32M"),
    ("-t ext4 -b 4096 -O encrypt,stable_inodes", "32M"),
    ("-t ext4 -b 1024 -O casefold,verity", "32M"),
    ("-t ext4 -b 65536 -N 6000", "64M"),
    ("-t ext4 -b 16384", "64M"),
    ("-t ext3 -b 16384 -I 128 -J size=16", "64M"),
    ("-t ext2 -b 65536 -N 6000 -O dir_index", "64M"),
    ("-t ext4 -b 8192 -O ^has_journal", "64M"),
    ("-t ext4 -b 32768 -N 6000 -O ^metadata_csum,uninit_bg", "64M"),
    ("-t ext4 -b 1024 -O sparse_super2,orphan_file,ea_inode,large_dir,^flex_bg,^huge_file,^dir_nlink", "32M"),
];

/// Recipes as above for every hash of indexed directories: its name, and `s_flags`, 1 for signed and 2 for unsigned characters.
const HASHES: [(&str, &str, &str, u32); 7] = [
    ("-t ext4 -b 1024", "16M", "legacy", 1),
    ("-t ext4 -b 1024", "16M", "legacy", 2),
    ("-t ext3 -b 1024", "16M", "half_md4", 1),
    ("-t ext4 -b 2048", "16M", "half_md4", 2),
    ("-t ext4 -b 4096", "32M", "tea", 1),
    ("-t ext2 -b 1024 -O dir_index", "16M", "tea", 2),
    ("-t ext4 -b 16384", "64M", "half_md4", 2),
];

/// The files that the kernel makes, if the format supports them, and `MANY` more names in a directory.
const FILL: &str = r"
    mkdir d d/sub many; for i in 1 59 60 61 150 1000 1024 4096 5000 70000 300000; do head -c $i /dev/urandom > d/f$i; done
    for i in $(seq 300); do echo $i > many/a-name-that-takes-some-space-in-its-directory-$i; done
    for i in $(seq $MANY); do : > many/ein-Näme-beyond-ÅSCII-÷-$i; done
    ln d/f1000 d/sub/linked; ln -s f1000 d/short; ln -s $(head -c 300 /dev/zero | tr '\0' x) d/long; : > empty
    ln -s $(head -c 59 /dev/zero | tr '\0' y) d/l59; ln -s $(head -c 60 /dev/zero | tr '\0' z) d/l60
    mkfifo pipe; mknod null c 1 3; mknod disk b 259 70000; chown 1234:70000 d/f61; chmod 4751 d/f61; chmod 1777 d/sub
    dd if=/dev/urandom of=sparse bs=1024 count=3 seek=9 conv=notrunc status=none
    dd if=/dev/urandom of=sparse bs=1024 count=40 seek=3000 conv=notrunc status=none; truncate -s 5000000 sparse
    fallocate -l 200000 unwritten 2> /dev/null || echo x > unwritten
    dd if=/dev/urandom of=unwritten bs=4096 count=3 seek=10 conv=notrunc status=none
    fallocate -p -o 65536 -l 65536 d/f300000 2> /dev/null || true; truncate -s 40000 d/f70000
    rm many/*7; mv many/a-name-that-takes-some-space-in-its-directory-12 d/moved; rmdir d/sub 2> /dev/null || true
    touch -d '1970-01-01 00:00:01.25 UTC' d/f1; touch -d '2037-12-31 12:00:00.123456789 UTC' d/f59
    touch -d '1955-03-04 05:06:07.5 UTC' d/f60; sync";

/// Mappings with blocks: first block, number, block on the volume, whether unwritten. `None`: the content is in the inode.
type Map = Option<Vec<(u64, u64, u64, bool)>>;

/// The properties of a file that a program sees.
#[derive(Clone, Debug, PartialEq)]
struct Node {
    kind: FileKind,
    permissions: u32,
    owner: (u32, u32),
    links: u64,
    size: u64,
    sectors: u64,
    /// Last access, modification, change: seconds and nanoseconds.
    times: [(i64, u32); 3],
    device: (u32, u32),
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    map: Map,
}

type Tree = BTreeMap<String, Node>;

fn kernel_xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 65536];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let names = names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 65536];
            let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            (name.to_vec(), value[..length].to_vec())
        })
        .collect()
}

/// Where the kernel says that files' blocks are, by path.
fn kernel_maps(root: &Path) -> BTreeMap<String, Map> {
    let said = shell(root, "find . -type f -exec filefrag -v {} +");
    let mut maps = BTreeMap::new();
    let mut path = String::new();
    for line in said.lines() {
        if let Some(rest) = line.strip_prefix("File size of ./") {
            rest.split(" is ").next().unwrap().clone_into(&mut path);
            maps.insert(path.clone(), Some(Vec::new()));
            continue;
        }
        let numbers: Vec<u64> = line
            .split([':', '.', ' '])
            .filter(|word| !word.is_empty())
            .map_while(|word| word.parse().ok())
            .take(6)
            .collect();
        let [_, start, end, block, _, blocks] = numbers[..] else { continue };
        assert_eq!(end - start + 1, blocks, "{line}");
        let flags = line.rsplit(':').next().unwrap();
        let map = maps.get_mut(&path).unwrap();
        if flags.contains("inline") {
            *map = None;
        } else {
            join(map.as_mut().unwrap(), (start, blocks, block, flags.contains("unwritten")));
        }
    }
    maps
}

fn join(map: &mut Vec<(u64, u64, u64, bool)>, next: (u64, u64, u64, bool)) {
    match map.last_mut() {
        Some((start, blocks, block, unwritten))
            if *start + *blocks == next.0 && *block + *blocks == next.2 && *unwritten == next.3 =>
        {
            *blocks += next.1;
        }
        _ => map.push(next),
    }
}

fn kernel_tree(root: &Path) -> Tree {
    fn walk(directory: &Path, path: &str, tree: &mut Tree) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{path}{}", entry.file_name().to_string_lossy());
            let (place, seen) = (entry.path(), entry.metadata().unwrap());
            let kind = FileKind::from_mode(seen.mode() as u16).unwrap();
            let content = match kind {
                FileKind::Regular => std::fs::read(&place).unwrap(),
                FileKind::Symlink => std::fs::read_link(&place).unwrap().as_os_str().as_bytes().to_vec(),
                _ => Vec::new(),
            };
            let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharacterDevice);
            let (major, minor) = (rustix::fs::major(seen.rdev()), rustix::fs::minor(seen.rdev()));
            let node = Node {
                kind,
                permissions: seen.mode() & 0o7777,
                owner: (seen.uid(), seen.gid()),
                links: seen.nlink(),
                size: seen.size(),
                sectors: seen.blocks(),
                times: [
                    (seen.atime(), seen.atime_nsec() as u32),
                    (seen.mtime(), seen.mtime_nsec() as u32),
                    (seen.ctime(), seen.ctime_nsec() as u32),
                ],
                device: if is_device { (major, minor) } else { (0, 0) },
                content,
                xattrs: kernel_xattrs(&place),
                map: None,
            };
            tree.insert(path.clone(), node);
            if kind == FileKind::Directory {
                walk(&place, &format!("{path}/"), tree);
            }
        }
    }
    let mut tree = Tree::new();
    walk(root, "", &mut tree);
    for (path, map) in kernel_maps(root) {
        let node = tree.get_mut(&path).unwrap();
        if map.is_none() {
            // The kernel counts content in the inode as blocks, for tar.
            node.sectors -= node.size.div_ceil(512);
        }
        node.map = map;
    }
    tree
}

fn map_of(volume: &Volume, inode: &Inode) -> Map {
    let mut map = Vec::new();
    let mut at = 0;
    while at < volume.files.max_size(inode) / volume.block_size().bytes() {
        let mapping = volume.files.map(inode, FileBlock(at), u64::MAX - at).unwrap();
        match mapping.kind {
            MappingKind::Mapped(block) => join(&mut map, (at, mapping.blocks, block.0, false)),
            MappingKind::Unwritten(block) => join(&mut map, (at, mapping.blocks, block.0, true)),
            MappingKind::Hole => {}
            MappingKind::Inline => return None,
        }
        at += mapping.blocks;
    }
    Some(map)
}

fn our_tree(volume: &Volume) -> Tree {
    fn walk(volume: &Volume, directory: &Inode, path: &str, tree: &mut Tree) {
        for (name, number) in entries_of(volume, directory) {
            let path = format!("{path}{}", String::from_utf8_lossy(&name));
            let inode =
                volume.names.lookup(directory, &name).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert_eq!(inode.number(), number, "{path}");
            let seen = inode.attributes();
            let content = match inode.kind() {
                FileKind::Regular => read_file(volume, &inode),
                FileKind::Symlink => volume.names.read_link(&inode).unwrap(),
                _ => Vec::new(),
            };
            let names = volume.xattrs.names(&inode).unwrap();
            let value = |name: Vec<u8>| (name.clone(), volume.xattrs.get(&inode, &name).unwrap());
            let time = |time: Timestamp| (time.seconds, time.nanoseconds);
            let node = Node {
                kind: inode.kind(),
                permissions: u32::from(seen.permissions),
                owner: (seen.owner.uid, seen.owner.gid),
                links: u64::from(seen.links),
                size: seen.size,
                sectors: seen.sectors,
                times: [time(seen.accessed), time(seen.modified), time(seen.changed)],
                device: seen.device,
                content,
                xattrs: names.into_iter().map(value).collect(),
                map: if inode.kind() == FileKind::Regular { map_of(volume, &inode) } else { None },
            };
            tree.insert(path.clone(), node);
            if inode.kind() == FileKind::Directory {
                walk(volume, &inode, &format!("{path}/"), tree);
            }
        }
    }
    let mut tree = Tree::new();
    walk(volume, &volume.inodes.get(InodeNumber::ROOT).unwrap(), "", &mut tree);
    tree
}

fn assert_same(ours: &Tree, theirs: &Tree, recipe: &str) {
    let paths: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    for path in paths {
        let (a, b) = (ours.get(path), theirs.get(path));
        if a != b {
            let brief = |node: Option<&Node>| {
                node.map(|node| Node {
                    content: node.content.iter().copied().take(16).collect(),
                    ..node.clone()
                })
            };
            panic!("{recipe}: {path}: here {:?}, the kernel {:?}", brief(a), brief(b));
        }
    }
}

/// Attributes from small to large; a volume that has no space for one says so.
fn kernel_attributes(root: &Path, recipe: &str) {
    let large = if recipe.contains("ea_inode") { 20_000 } else { 600 };
    for (name, key, size) in [
        ("d/f1", "user.small", 5),
        ("d/f1", "trusted.more", 90),
        ("d", "user.of-a-directory", 200),
        ("sparse", "user.large", large),
    ] {
        let value = pattern(size as u64, size);
        rustix::fs::setxattr(root.join(name), key, &value, rustix::fs::XattrFlags::empty()).unwrap();
    }
}

fn spec(kind: FileKind) -> NodeSpec {
    NodeSpec { kind, permissions: 0o640, umask: 0, owner: Owner { uid: 7, gid: 70_001 }, device: (0, 0) }
}

fn at(volume: &Volume, path: &str) -> Arc<Inode> {
    let root = volume.inodes.get(InodeNumber::ROOT).unwrap();
    let names = path.split('/').filter(|name| !name.is_empty());
    names.fold(root, |directory, name| volume.names.lookup(&directory, name.as_bytes()).unwrap())
}

/// Make, change and remove files of all kinds beside what is there.
fn fill_here(volume: &Volume, recipe: &str) {
    let root = at(volume, "");
    let block = volume.block_size().bytes();
    let ours = volume.names.create(&root, b"ours", &spec(FileKind::Directory)).unwrap();
    // More than one block of names.
    let names = 250.max(block / 32);
    for index in 0..names {
        let name = format!("one-of-many-names-thät-fill-the-directory-{index}");
        volume.names.create(&ours, name.as_bytes(), &spec(FileKind::Regular)).unwrap();
    }
    for index in (0..names).step_by(3) {
        let name = format!("one-of-many-names-thät-fill-the-directory-{index}");
        volume.names.unlink(&ours, name.as_bytes()).unwrap();
    }
    let data = volume.names.create(&ours, b"data", &spec(FileKind::Regular)).unwrap();
    volume.files.make_not_inline(&data).unwrap();
    for (start, blocks) in [(0, 20), (25, 3), (40, 1), (39, 1)] {
        let content = pattern(start + 5, (blocks * block) as usize);
        write_blocks(volume, &data, start, &content, Some((start + blocks) * block - 100)).unwrap();
    }
    let unwritten = volume.names.create(&ours, b"unwritten", &spec(FileKind::Regular)).unwrap();
    volume.files.make_not_inline(&unwritten).unwrap();
    if volume.files.allocate_unwritten(&unwritten, FileBlock(2), 40, Some(42 * block)).is_ok() {
        write_blocks(volume, &unwritten, 9, &pattern(1, 2 * block as usize), None).unwrap();
    }
    volume.files.punch(&data, FileBlock(3), 4).unwrap();
    volume.set_xattr(&data, b"user.here", b"a value", XattrMode::Set).unwrap();
    let large = if recipe.contains("ea_inode") { 20_000 } else { 500 };
    volume.set_xattr(&ours, b"user.large", &pattern(9, large), XattrMode::Create).unwrap();
    let times = SetAttributes {
        permissions: Some(0o4711),
        accessed: Some(SetTime::To(Timestamp { seconds: 1_000_000_000, nanoseconds: 987_654_321 })),
        modified: Some(SetTime::To(Timestamp { seconds: -5, nanoseconds: 1 })),
        ..SetAttributes::default()
    };
    volume.set_attributes(&data, &times).unwrap();
    let device = NodeSpec { device: (259, 70_000), ..spec(FileKind::BlockDevice) };
    volume.names.create(&ours, b"device", &device).unwrap();
    for device in [(4096, 0), (0, 1 << 20)] {
        let too_large = NodeSpec { device, ..spec(FileKind::CharacterDevice) };
        let error = volume.names.create(&ours, b"too large", &too_large).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{device:?}: {error}");
    }
    volume.names.create(&ours, b"pipe", &spec(FileKind::Fifo)).unwrap();
    volume.names.symlink(&ours, b"short", b"data", Owner::default()).unwrap();
    volume.names.symlink(&ours, b"long", &[b'q'; 200], Owner::default()).unwrap();
    volume.names.link(&data, &root, b"linked").unwrap();
    let many = at(volume, "many");
    volume
        .names
        .rename(
            &many,
            b"a-name-that-takes-some-space-in-its-directory-1",
            &ours,
            b"moved",
            RenameMode::Replace,
        )
        .unwrap();
    volume.names.unlink(&at(volume, "d"), b"f5000").unwrap();
    volume.files.punch(&at(volume, "d/f300000"), FileBlock(1), 2).unwrap();
    volume.files.truncate(&at(volume, "d/f70000"), block).unwrap();
}

/// Compare what the kernel, or without it the host, has made; fill here; compare again. `change` is done to the image that
/// `mke2fs` has made.
fn run_recipe(recipe: &str, size: &str, change: &dyn Fn(&Path)) {
    let bench = Bench::new();
    let block_size: u64 = recipe.split("-b ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let image = bench.image(recipe, size);
    change(&image);
    let fill = format!("MANY={}\n{FILL}", 100.max(block_size / 40));
    let (image, theirs) = if let Some(mount) = Mount::new(&bench, &image, ",noatime") {
        shell(&mount.at, &fill);
        kernel_attributes(&mount.at, recipe);
        shell(&mount.at, "sync");
        (image, Some(kernel_tree(&mount.at)))
    } else {
        // The kernel has no pages of that size, or not the feature; mke2fs and debugfs have.
        println!("{recipe}: not mounted by this kernel, so mke2fs, e2fsck and debugfs take its part");
        let source = bench.path("source");
        std::fs::create_dir(&source).unwrap();
        shell(&source, &fill);
        let image = bench.image(&format!("{recipe} -d {}", source.display()), size);
        change(&image);
        // mke2fs makes no indices and counts quota before it fills, and e2fsck counts before it has repaired all.
        for _ in 0..2 {
            run("e2fsck", &["-fyD", &image.to_string_lossy()]);
        }
        (image, None)
    };
    let (device, volume) = bench.open(&image);
    assert_eq!(volume.read_only_reason(), None, "{recipe}");
    bench.check(&device);
    match &theirs {
        Some(theirs) => assert_same(&our_tree(&volume), theirs, recipe),
        None => assert_contents(&our_tree(&volume), &bench.path("source"), recipe),
    }
    fill_here(&volume, recipe);
    volume.close().unwrap();
    bench.check(&device);
    device.save(&image);
    let (_, again) = bench.open(&image);
    let ours = our_tree(&again);
    let said = bench.debugfs(&device, "stat ours/data");
    assert!(said.contains("Mode:  04711"), "{recipe}: {said}");
    let dumped = bench.path("dumped");
    bench.debugfs(&device, &format!("dump ours/data {}", dumped.display()));
    assert!(
        std::fs::read(&dumped).unwrap() == ours["ours/data"].content,
        "{recipe}: debugfs reads other bytes"
    );
    if theirs.is_some() {
        let Some(mount) = Mount::new(&bench, &image, ",noatime") else { return };
        assert_same(&ours, &kernel_tree(&mount.at), recipe);
        shell(
            &mount.at,
            "rm -r ours many; dd if=/dev/zero of=d/f1000 bs=5000 count=10 conv=fsync status=none",
        );
        drop(mount);
        let (code, output) = run("e2fsck", &["-fn", &image.to_string_lossy()]);
        assert_eq!(code, 0, "{recipe}: {output}");
    }
}

/// Content and modes are those of a directory of the host.
fn assert_contents(ours: &Tree, source: &Path, recipe: &str) {
    for (path, node) in ours.iter().filter(|(path, _)| *path != "lost+found") {
        let seen = std::fs::symlink_metadata(source.join(path)).unwrap();
        assert_eq!(
            (node.permissions, node.owner),
            (seen.mode() & 0o7777, (seen.uid(), seen.gid())),
            "{recipe}: {path}"
        );
        if node.kind == FileKind::Regular {
            assert!(node.content == std::fs::read(source.join(path)).unwrap(), "{recipe}: {path}");
        }
    }
    assert!(ours.len() > 250, "{recipe}");
}

fn run_part(part: usize) {
    if !have(&["mke2fs", "e2fsck", "debugfs", "filefrag"]) {
        return;
    }
    for (recipe, size) in RECIPES.iter().skip(part).step_by(2) {
        run_recipe(recipe, size, &|_| {});
    }
}

#[test]
fn kernel_and_library_see_the_same_with_every_hash() {
    if !have(&["mke2fs", "e2fsck", "debugfs", "filefrag", "tune2fs"]) {
        return;
    }
    for (recipe, size, hash, flags) in HASHES {
        run_recipe(recipe, size, &|image| {
            let image = image.to_string_lossy();
            let (code, output) = run("tune2fs", &["-E", &format!("hash_alg={hash}"), &image]);
            assert_eq!(code, 0, "{recipe}: {output}");
            let said = run("debugfs", &["-w", "-R", &format!("ssv flags {flags}"), &image]).1;
            let seen = run("dumpe2fs", &["-h", &image]).1;
            let wanted = if flags == 2 { "unsigned_directory_hash" } else { "signed_directory_hash" };
            assert!(seen.split_whitespace().any(|word| word == wanted), "{recipe}: {said} {seen}");
            assert!(seen.contains(hash), "{recipe}: {seen}");
        });
    }
}

#[test]
fn kernel_and_library_see_the_same_on_even_recipes() {
    run_part(0);
}

#[test]
fn kernel_and_library_see_the_same_on_odd_recipes() {
    run_part(1);
}
