//! The choice of tensors, progress, and the memory of the caller.

use std::ops::ControlFlow;

use diorite::{AlignedBuf, DirectIo};
use diorite_load::{LoadError, TensorFiles};

use crate::common::{content, safetensors, write};

#[test]
fn names_and_patterns_select() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("m.safetensors");
    let names = ["layers.0.q", "layers.0.k", "layers.10.q", "a[1]"];
    // Between the tensors are gaps that are too large to be read with them.
    let tensors: Vec<_> =
        (1..).zip(names).map(|(seed, name)| (name, "U8", &[300_000][..], content(seed, 300_000))).collect();
    write(&path, safetensors(&tensors));
    let files = TensorFiles::open(&[&path], DirectIo::Preferred).expect("opened");
    for (patterns, expected) in [
        (&["layers.0.*"][..], &[0, 1][..]),
        (&["*q", "layers.0.q"], &[0, 2]),
        (&["a[1]"], &[3]),
        (&["layers.1?.[pq]"], &[2]),
        (&[], &[]),
    ] {
        let chosen = files.select(patterns).expect("found");
        assert_eq!(chosen, expected, "{patterns:?}");
        let loaded = files.load(&chosen).expect("loaded");
        assert_eq!(loaded.list.len(), chosen.len());
        for (tensor, number) in loaded.list.iter().zip(&chosen) {
            assert!(tensor.bytes() == tensors[*number].3, "{patterns:?}");
        }
    }
    for wrong in ["layers.2.*", "", "a[1"] {
        let error = files.select(&[wrong]).expect_err(wrong);
        assert!(matches!(&error, LoadError::UnknownName { name, .. } if name == wrong), "{error}");
    }
    let twice = TensorFiles::open(&[&path, &path], DirectIo::Preferred).expect_err("twice").to_string();
    assert!(twice.contains("layers.0.q") && twice.contains("same name"), "{twice}");
}

#[test]
fn a_watch_sees_all_bytes_and_can_end_the_load() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("m.safetensors");
    let data = content(1, 40 << 20);
    write(&path, safetensors(&[("a", "U8", &[40 << 20], data.clone())]));
    let files = TensorFiles::open(&[&path], DirectIo::Preferred).expect("opened");
    let plan = || files.plan(&[0]).and_then(diorite_load::Plan::without_mappings).expect("planned");
    let mut last = (0, 1);
    let memory = AlignedBuf::zeroed(plan().arena_bytes() as usize, 4096);
    let loaded = plan().load_into(Box::new(memory), &mut |done, total| {
        assert!(done >= last.0);
        last = (done, total);
        ControlFlow::Continue(())
    });
    assert!(loaded.expect("loaded").list[0].bytes() == data);
    assert_eq!(last.0, last.1);
    let mut calls = 0;
    let ended = plan().load(&mut |_, _| {
        calls += 1;
        if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(ended, Err(LoadError::Interrupted)));
    let small = AlignedBuf::zeroed(4096, 4096);
    let error =
        plan().load_into(Box::new(small), &mut |_, _| ControlFlow::Continue(())).expect_err("too small");
    assert!(error.to_string().contains("smaller than the plan"));
}

/// Tensors keep their memory without the files.
#[test]
fn tensors_outlive_the_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("m.safetensors");
    write(&path, safetensors(&[("a", "U8", &[9000], content(1, 9000))]));
    for direct in [DirectIo::Off, DirectIo::Preferred] {
        let files = TensorFiles::open(&[&path], direct).expect("opened");
        let tensor = files.load(&[0]).expect("loaded").list.remove(0);
        drop(files);
        assert!(tensor.bytes() == content(1, 9000));
    }
}
