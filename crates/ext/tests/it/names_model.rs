//! Random operations on names from several threads, against the simplest model; then e2fsck.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read and write image files")]

use crate::names_support;
use std::collections::BTreeMap;
use std::sync::Arc;

use diorite_ext::{Error, FileKind, Inode, Owner, RenameMode, Volume};
use names_support::{Image, have, list, root, spec};

/// A directory as the model has it: names and what they are.
#[derive(Debug, Default)]
struct Model {
    names: BTreeMap<Vec<u8>, Node>,
}

#[derive(Debug)]
enum Node {
    File(u32),
    Directory(u32, Model),
}

impl Node {
    fn number(&self) -> u32 {
        match self {
            Self::File(number) | Self::Directory(number, _) => *number,
        }
    }
}

/// One thread's work in its own directory, whose model it keeps.
fn work(volume: &Volume, directory: &Arc<Inode>, seed: u64, steps: u32) -> Model {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut model = Model::default();
    let sub = volume.names.create(directory, b"sub", &spec(FileKind::Directory)).unwrap();
    model.names.insert(b"sub".to_vec(), Node::Directory(sub.number().0, Model::default()));
    let owner = Owner { uid: 0, gid: 0 };
    for _ in 0..steps {
        let n = random.u32(..200);
        let name = format!("name-{n}-{}", "z".repeat((n * 7 % 120) as usize)).into_bytes();
        let other = format!("name-{}", random.u32(..200)).into_bytes();
        let known = model.names.get(&name).map(Node::number);
        match random.u32(..10) {
            0..4 => {
                let kind = if random.bool() { FileKind::Regular } else { FileKind::Directory };
                match volume.names.create(directory, &name, &spec(kind)) {
                    Ok(inode) => {
                        assert!(known.is_none());
                        let number = inode.number().0;
                        let node = match kind {
                            FileKind::Directory => Node::Directory(number, Model::default()),
                            _ => Node::File(number),
                        };
                        model.names.insert(name, node);
                    }
                    Err(Error::Exists) => assert!(known.is_some()),
                    Err(error) => panic!("{error}"),
                }
            }
            4 => match volume.names.symlink(directory, &name, &vec![b't'; random.usize(1..200)], owner) {
                Ok(inode) => {
                    assert!(known.is_none());
                    model.names.insert(name, Node::File(inode.number().0));
                }
                Err(Error::Exists) => assert!(known.is_some()),
                Err(error) => panic!("{error}"),
            },
            5 | 6 => match (volume.names.unlink(directory, &name), model.names.get(&name)) {
                (Ok(inode), Some(Node::File(number))) => {
                    assert_eq!(inode.number().0, *number);
                    model.names.remove(&name);
                }
                (Err(Error::IsADirectory), Some(Node::Directory(..))) | (Err(Error::NotFound), None) => {}
                (result, node) => panic!("unlink {result:?} of {node:?}"),
            },
            7 => match (volume.names.remove_directory(directory, &name), model.names.get(&name)) {
                (Ok(()), Some(Node::Directory(_, inside))) => {
                    assert!(inside.names.is_empty());
                    model.names.remove(&name);
                }
                (Err(Error::NotADirectory), Some(Node::File(_))) | (Err(Error::NotFound), None) => {}
                (result, node) => panic!("rmdir {result:?} of {node:?}"),
            },
            8 => rename(volume, directory, &mut model, &name, &other),
            _ => match (volume.names.lookup(directory, &name), known) {
                (Ok(inode), Some(number)) => assert_eq!(inode.number().0, number),
                (Err(Error::NotFound), None) => {}
                (result, known) => panic!("lookup {result:?}, known {known:?}"),
            },
        }
    }
    model
}

fn rename(volume: &Volume, directory: &Arc<Inode>, model: &mut Model, from: &[u8], to: &[u8]) {
    let result = volume.names.rename(directory, from, directory, to, RenameMode::Replace);
    let (source, target) = (model.names.get(from), model.names.get(to));
    match (result, source, target) {
        (Err(Error::NotFound), None, _)
        | (Err(Error::NotADirectory), Some(Node::Directory(..)), Some(Node::File(_)))
        | (Err(Error::IsADirectory), Some(Node::File(_)), Some(Node::Directory(..))) => {}
        (Ok(lost), Some(_), target) => {
            if from != to {
                assert_eq!(lost.map(|inode| inode.number().0), target.map(Node::number));
                let node = model.names.remove(from).unwrap();
                model.names.insert(to.to_vec(), node);
            }
        }
        (result, source, target) => panic!("rename {result:?} of {source:?} to {target:?}"),
    }
}

fn compare(volume: &Volume, directory: &Inode, model: &Model) {
    let listed = list(volume, directory, 50);
    let want: BTreeMap<_, _> = model.names.iter().map(|(name, node)| (name.clone(), node.number())).collect();
    let got: BTreeMap<_, _> = listed.into_iter().map(|(name, inode)| (name, inode.0)).collect();
    assert_eq!(got, want);
}

fn threads(arguments: &str) {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let image = Image::new(arguments, "64M");
    let mut models = Vec::new();
    for round in 0..2_u64 {
        let volume = image.open();
        let top = root(&volume);
        let workers: Vec<_> = (0..4_u64)
            .map(|n| {
                let name = format!("worker-{round}-{n}").into_bytes();
                let directory = volume.names.create(&top, &name, &spec(FileKind::Directory)).unwrap();
                let volume = volume.clone();
                std::thread::spawn(move || (name, work(&volume, &directory, round * 100 + n, 1_500)))
            })
            .collect();
        models.extend(workers.into_iter().map(|worker| worker.join().unwrap()));
        volume.close().unwrap();
        drop(volume);
        image.check();
        let volume = image.open();
        for (name, model) in &models {
            let directory = volume.names.lookup(&root(&volume), name).unwrap();
            compare(&volume, &directory, model);
        }
        volume.close().unwrap();
    }
}

#[test]
fn names_behave_as_a_map_on_ext2() {
    threads("-t ext2 -b 1024 -N 20000");
    threads("-t ext2 -b 4096 -O ^dir_index -N 20000");
}

#[test]
fn names_behave_as_a_map_on_ext4() {
    threads("-t ext4 -b 1024 -N 20000");
    threads("-t ext3 -N 20000");
    threads("-t ext4 -O ^has_journal,inline_data -b 4096 -N 20000");
}

/// Directories are moved in and out of each other by several threads at once: no thread waits for ever, and the tree stays a tree.
#[test]
fn renames_of_directories_across_threads_keep_a_tree() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    let image = Image::new("-t ext2 -b 1024 -N 4000", "16M");
    let volume = image.open();
    let top = root(&volume);
    let directories: Arc<Vec<_>> = Arc::new(
        (0..8)
            .map(|n| {
                volume.names.create(&top, format!("d{n}").as_bytes(), &spec(FileKind::Directory)).unwrap()
            })
            .collect(),
    );
    let all: Arc<Vec<_>> = Arc::new(directories.iter().cloned().chain([top]).collect());
    let workers: Vec<_> = (0..4)
        .map(|seed| {
            let (volume, all) = (volume.clone(), all.clone());
            std::thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                let mut moved = 0;
                for _ in 0..6_000 {
                    let from = &all[random.usize(..all.len())];
                    let to = &all[random.usize(..all.len())];
                    let name = format!("d{}", random.u32(..8)).into_bytes();
                    let mode =
                        if random.u32(..4) == 0 { RenameMode::Exchange } else { RenameMode::NoReplace };
                    let other = format!("d{}", random.u32(..8)).into_bytes();
                    let new = if mode == RenameMode::Exchange { &other } else { &name };
                    match volume.names.rename(from, &name, to, new, mode) {
                        Ok(_) => moved += 1,
                        Err(Error::NotFound | Error::Exists | Error::InvalidArgument(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    if random.u32(..8) == 0 {
                        let file = format!("f{}", random.u32(..50)).into_bytes();
                        let _ = volume.names.create(to, &file, &spec(FileKind::Regular));
                        let _ = volume.names.unlink(from, &file);
                    }
                }
                moved
            })
        })
        .collect();
    let moved: u32 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
    assert!(moved > 100, "{moved}");
    volume.close().unwrap();
    drop(volume);
    image.check();
}

#[test]
fn names_come_once_to_listers_while_others_make_and_remove() {
    if !have(&["mke2fs", "e2fsck"]) {
        return;
    }
    for arguments in ["-t ext2 -b 1024 -O dir_index -N 20000", "-t ext2 -b 1024 -O ^dir_index -N 20000"] {
        let image = Image::new(arguments, "32M");
        let volume = image.open();
        let top = root(&volume);
        let directory = volume.names.create(&top, b"busy", &spec(FileKind::Directory)).unwrap();
        for n in 0..300 {
            volume.names.create(&directory, format!("stay{n}").as_bytes(), &spec(FileKind::Regular)).unwrap();
        }
        let writer = {
            let (volume, directory) = (volume.clone(), directory.clone());
            std::thread::spawn(move || {
                for n in 0..4_000_u32 {
                    volume
                        .names
                        .create(&directory, format!("go{n}").as_bytes(), &spec(FileKind::Regular))
                        .unwrap();
                    if n >= 500 {
                        volume.names.unlink(&directory, format!("go{}", n - 500).as_bytes()).unwrap();
                    }
                }
            })
        };
        let mut rounds = 0;
        while rounds < 3 || !writer.is_finished() {
            rounds += 1;
            let names = list(&volume, &directory, 17);
            let stayed = names.keys().filter(|name| name.starts_with(b"stay")).count();
            assert_eq!(stayed, 300, "{arguments}");
        }
        writer.join().unwrap();
        volume.close().unwrap();
        drop(volume);
        image.check();
    }
}
