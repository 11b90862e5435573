//! Files whose content is in their inode: read as others, and moved out by the first direct write or whatever needs blocks.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the tree that mke2fs copies")]

mod common;

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

fn shorter(file: &File, model: &mut Vec<u8>) {
    file.set_len(3).unwrap();
    model.truncate(3);
}

fn hole(file: &File, model: &mut Vec<u8>) {
    file.punch_hole(2, 5).unwrap();
    drop(model.splice(2..7, [0; 5]));
}

fn blocks(file: &File, model: &mut Vec<u8>) {
    file.allocate(0, 5000).unwrap();
    model.resize(5000, 0);
}

#[test]
fn the_first_direct_write_moves_a_file_out_of_its_inode() {
    if Command::new("mke2fs").arg("-V").output().is_err() {
        println!("SKIPPED: mke2fs is not installed");
        return;
    }
    let changes: [(&str, Change); 6] = [
        ("direct", direct_write),
        ("after", direct_write_after),
        ("longer", longer),
        ("shorter", shorter),
        ("hole", hole),
        ("blocks", blocks),
    ];
    let directory = tempfile::tempdir().unwrap();
    let (tree, image) = (directory.path().join("tree"), directory.path().join("image"));
    std::fs::create_dir(&tree).unwrap();
    // In the block area alone, and in the attributes as well.
    let files = changes.iter().flat_map(|(name, change)| {
        [12_usize, 100].map(|len| (format!("{name}{len}"), *change, common::pattern(len, len as u64)))
    });
    let files: Vec<_> = files.collect();
    for (name, _, content) in &files {
        std::fs::write(tree.join(name), content).unwrap();
    }
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-O", "inline_data", "-d"])
        .args([&tree, &image])
        .arg("32M")
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let filesystem = Filesystem::open(&image).unwrap();
    let mut models = Vec::new();
    for (name, change, content) in files {
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
