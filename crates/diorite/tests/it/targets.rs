//! The grammar of targets: windows, joined devices, exports.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step is a failed test; images are made as files"
)]

use std::fmt::Debug;
use std::path::PathBuf;

use diorite::front_end::open_target;
use diorite_block::BioFlags;
use diorite_device::OpenOptions;
use diorite_device::{Create, OpenError};
use tempfile::TempDir;

use crate::nbd_server::Server;

fn image(bytes: u64) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    (directory, path)
}

fn message(result: Result<impl Debug, OpenError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn names_are_understood_or_explained() {
    let (directory, path) = image(1 << 20);
    let spec = path.to_str().unwrap();
    let read = OpenOptions::read_only();
    let capacity = |spec: &str| open_target(spec, &read).unwrap().geometry().capacity_bytes;
    assert_eq!(capacity(spec), 1 << 20);
    assert_eq!(capacity(&format!("raw:{spec}")), 1 << 20);
    assert_eq!(capacity(&format!("{spec}?offset=64K")), (1 << 20) - (64 << 10));
    let error = |spec: &str| message(open_target(spec, &read));
    assert!(error(&format!("{spec}?offset=2M")).contains("past its"));
    assert!(error(&format!("{spec}?partition=1")).contains("no usable partition table"));
    assert!(error(&format!("{spec}?colour=red")).contains("?partition=N"));
    assert!(error("floppy:disk").contains("raw:PATH"));
    assert!(error("").contains("empty"));
    assert!(error("raw:raw77").contains("diorite raw raw77 DEVICE"));
    assert!(error("/no/such?partition=1").contains("/no/such: cannot open"));

    let odd = directory.path().join("is it?partition=1");
    std::fs::File::create(&odd).unwrap().set_len(2 << 20).unwrap();
    assert_eq!(capacity(odd.to_str().unwrap()), 2 << 20, "a path that exists is taken as it stands");
    assert_eq!(capacity(&format!("{}?offset=1M", odd.display())), 1 << 20);
}

/// mkfs on a window must not resize the whole image.
#[test]
fn size_of_a_window_is_never_changed() {
    let (_directory, path) = image(4 << 20);
    let spec = format!("{}?offset=1M", path.display());
    let create = |bytes| OpenOptions::read_write().create(Create::Sized(bytes));
    open_target(&spec, &create(1 << 20)).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 << 20);
    assert!(matches!(open_target(&spec, &create(4 << 20)), Err(OpenError::CannotGrow { .. })));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 4 << 20);
}

#[test]
fn several_devices_open_as_one() {
    let (_first, a) = image(1 << 20);
    let (_second, b) = image(2 << 20);
    let (a, b, read) = (a.display(), b.display(), OpenOptions::read_only());
    let capacity = |spec: String| open_target(&spec, &read).unwrap().geometry().capacity_bytes;
    assert_eq!(capacity(format!("stripe:{a},{b}")), 2 << 20);
    assert_eq!(capacity(format!("stripe:{a},{b}?offset=512K?chunk=128K")), 2 << 20);
    assert_eq!(capacity(format!("linear:{a},raw:{b}")), 3 << 20);
    // Of the whole, then of the second, then of both.
    assert_eq!(capacity(format!("linear:{a},{b}?offset=512K")), (3 << 20) - (512 << 10));
    assert_eq!(capacity(format!("stripe:{a},{b}?offset=512K&chunk=128K")), (2 << 20) - (512 << 10));
    assert_eq!(capacity(format!("linear:{a},{b}?offset=1536K?")), (1 << 20) + (512 << 10));
    assert_eq!(capacity(format!("linear:{a},{b}?offset=1536K?offset=1M")), 512 << 10);
    let error = |spec: String| message(open_target(&spec, &read));
    assert!(error(format!("stripe:{a},{b}?chunk=1000")).contains("not a multiple"));
    assert!(error(format!("stripe:{a},{b}?chunk=much")).contains("such as 64K"));
    assert!(error(format!("linear:{a},{b}?chunk=64K")).contains("belongs to stripe"));
    assert!(error(format!("stripe:{a},,{b}")).contains("commas"));
    assert!(error(format!("stripe:{a},{b}?chunk=64K&colour=red")).contains("?colour is not known"));
    let both = error(format!("linear:{a}?offset=4K,{b}?offset=4K"));
    assert!(both.contains("write ?offset=4K? for that device, ??offset=4K for the whole"), "{both}");
    assert!(error(format!("stripe:{a},/no/such")).contains("/no/such: cannot open"));
    // For reading it was opened.
    assert!(error(format!("stripe:{a},{b},{a}")).contains("is named twice"));
}

#[test]
fn partitions_and_offsets_of_an_export() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let Some(server) = Server::nbdkit(&socket, &["memory", "8M"]) else { return };
    let device = open_target(&format!("{}?offset=1M", server.uri()), &OpenOptions::read_write()).unwrap();
    assert_eq!(device.geometry().capacity_bytes, 7 << 20);
    device.write_bytes(0, &[9; 512], BioFlags::SYNC).unwrap();
    let whole = open_target(&server.uri(), &OpenOptions::read_only()).unwrap();
    let mut back = [0; 512];
    whole.read_bytes(1 << 20, &mut back).unwrap();
    assert_eq!(back, [9; 512]);
}
