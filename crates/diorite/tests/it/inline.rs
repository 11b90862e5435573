//! Files whose content is in their inode: read as other files, moved out by the first direct write or change that needs blocks, and changed
//! in the inode by other changes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the tree that mke2fs copies")]

use crate::common;
use std::path::PathBuf;
use std::process::Command;

use common::{aligned_pattern, assert_clean};
use diorite::{DirectIo, ExtentKind, File, Filesystem};

type Change = fn(&File, &mut Vec<u8>);

fn direct_write(file: &File, model: &mut Vec<u8>) {
    let data = aligned_pattern(512, 1);
    file.write_all_at(&data, 0).unwrap();
    model.resize(model.len().max(512), 0);
    model[..512].copy_from_slice(&data);
}

fn direct_write_after(file: &File, model: &mut Vec<u8>) {
    let data = aligned_pattern(4096, 2);
    file.write_all_at(&data, 8192).unwrap();
    model.resize(8192, 0);
    model.extend_from_slice(&data);
}

fn longer(file: &File, model: &mut Vec<u8>) {
    file.set_len(10_000).unwrap();
    model.resize(10_000, 0);
}

fn blocks(file: &File, model: &mut Vec<u8>) {
    file.allocate(0, 5000).unwrap();
    model.resize(5000, 0);
}

/// An image with these files in their inodes; none without mke2fs.
fn image_with(files: &[(String, Vec<u8>)]) -> Option<(tempfile::TempDir, PathBuf)> {
    if Command::new("mke2fs").arg("-V").output().is_err() {
        println!("SKIPPED: mke2fs is not installed");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let (tree, image) = (directory.path().join("tree"), directory.path().join("image"));
    std::fs::create_dir(&tree).unwrap();
    for (name, content) in files {
        std::fs::write(tree.join(name), content).unwrap();
    }
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-m", "0", "-O", "inline_data", "-d"])
        .args([&tree, &image])
        .arg("32M")
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some((directory, image))
}

#[test]
fn the_first_direct_write_moves_a_file_out_of_its_inode() {
    let changes: [(&str, Change); 4] =
        [("direct", direct_write), ("after", direct_write_after), ("longer", longer), ("blocks", blocks)];
    // In the block area alone, and in the attributes as well.
    let files = changes.iter().flat_map(|(name, change)| {
        [12_usize, 100].map(|len| ((format!("{name}{len}"), common::pattern(len, len as u64)), *change))
    });
    let (files, changes): (Vec<_>, Vec<_>) = files.unzip();
    let Some((_directory, image)) = image_with(&files) else { return };
    let filesystem = Filesystem::open(&image).unwrap();
    let mut models = Vec::new();
    for ((name, content), change) in files.into_iter().zip(changes) {
        let path = format!("/{name}");
        let options = filesystem.open_options().read(true).write(true);
        let file = options.direct(DirectIo::Required).open(&path).unwrap();
        assert_eq!(file.extents().unwrap()[0].kind, ExtentKind::Inline, "{path}");
        let mut model = content;
        let mut memory = file.buffer(4096).unwrap();
        let got = file.read_at(&mut memory, 0).unwrap();
        assert!(memory[..got] == model[..], "{path}: read from the inode");
        change(&file, &mut model);
        models.push((path, model));
    }
    let compare = |filesystem: &Filesystem| {
        for (path, model) in &models {
            let file = filesystem.open_file(path).unwrap();
            assert!(file.extents().unwrap().iter().all(|extent| extent.kind != ExtentKind::Inline), "{path}");
            let mut read = vec![0; model.len()];
            file.read_exact_at(&mut read, 0).unwrap();
            assert!(file.size() == model.len() as u64 && read == *model, "{path}");
        }
    };
    compare(&filesystem);
    filesystem.close().unwrap();
    let filesystem = Filesystem::open(&image).unwrap();
    compare(&filesystem);
    filesystem.close().unwrap();
    assert_clean(&image);
}

/// A file in its inode could not be cut or punched on a full volume: it was moved out first.
#[test]
fn content_in_an_inode_becomes_shorter_and_zero_on_a_full_volume() {
    const LEN: usize = 120;
    let files: Vec<_> = ["punched", "cut", "cut-more", "emptied"]
        .iter()
        .map(|name| ((*name).to_owned(), common::pattern(LEN, 9)))
        .collect();
    let Some((_directory, image)) = image_with(&files) else { return };
    let filesystem = Filesystem::open(&image).unwrap();
    let filler = filesystem.create_file("/filler").unwrap();
    let mut at = 0;
    for len in [1 << 20, 4096] {
        while let Ok(written @ 1..) = filler.write_at(&common::pattern(len, 1), at) {
            at += written as u64;
        }
        filesystem.sync().unwrap();
    }
    assert_eq!(filesystem.statfs().blocks_free, 0);
    let open = |path: &str| filesystem.open_options().read(true).write(true).open(path).unwrap();
    let [punched, cut, cut_more, emptied] = ["/punched", "/cut", "/cut-more", "/emptied"].map(open);
    for file in [&punched, &cut, &cut_more, &emptied] {
        assert_eq!(file.extents().unwrap()[0].kind, ExtentKind::Inline);
    }
    let mut content = files[0].1.clone();
    cut.read_at(&mut [0; LEN], 0).unwrap();
    punched.punch_hole(10, 100).unwrap();
    content[10..110].fill(0);
    cut.set_len(70).unwrap();
    cut_more.set_len(20).unwrap();
    emptied.set_len(0).unwrap();
    for round in 0..2 {
        assert!(filesystem.read("/punched").unwrap() == content, "{round}");
        assert!(filesystem.read("/cut").unwrap() == files[1].1[..70], "{round}");
        assert!(filesystem.read("/cut-more").unwrap() == files[2].1[..20], "{round}");
        assert!(filesystem.read("/emptied").unwrap().is_empty(), "{round}");
        filesystem.sync().unwrap();
        filesystem.drop_caches().unwrap();
    }
    // Truncated bytes do not return.
    drop(filler);
    filesystem.remove_file("/filler").unwrap();
    filesystem.sync().unwrap();
    cut.set_len(LEN as u64).unwrap();
    assert!(filesystem.read("/cut").unwrap()[70..] == [0; LEN - 70]);
    drop((punched, cut, cut_more, emptied));
    filesystem.close().unwrap();
    assert_clean(&image);
}
