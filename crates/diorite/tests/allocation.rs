//! Space that is given to a file, and taken from it, without writing data: allocate, zero, punch.

mod common;

use common::{assert_clean, open_memory, pattern};
use diorite::{Filesystem, FilesystemOptions};
use diorite_device::{Create, FileDevice, OpenOptions};
use diorite_ext_tools::mkfs::{Flavor, MkfsOptions};

/// The volume as a power cut would leave it now, opened again, closed, and judged.
fn assert_clean_after_a_crash(filesystem: &Filesystem) {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("copy.img");
    let device = filesystem.device();
    let capacity = device.geometry().capacity_bytes;
    let copy: std::sync::Arc<dyn diorite::BlockDevice> =
        FileDevice::open(&path, &OpenOptions::read_write().create(Create::NewSized(capacity))).expect("copy");
    let mut memory = diorite::AlignedBuf::zeroed(1 << 20, 4096);
    for at in (0..capacity).step_by(1 << 20) {
        device.read_bytes(at, &mut memory).expect("read");
        copy.write_bytes(at, &memory, diorite_block::BioFlags::NONE).expect("write");
    }
    drop(copy);
    Filesystem::open(&path).expect("replay").close().expect("close");
    assert_clean(&path);
}

/// A file was long in memory and short on the volume; allocating its beginning recorded blocks and no size. After a crash e2fsck said
/// "i_size is 0, should be 40960".
#[test]
fn blocks_never_lie_beyond_the_recorded_size() {
    for flavor in [Flavor::Ext3, Flavor::Ext4] {
        let options = MkfsOptions { flavor, ..MkfsOptions::default() };
        let filesystem = open_memory(32, &options, &FilesystemOptions::new());
        let file = filesystem.create_file("/file").expect("create");
        file.write_all_at(&pattern(1000, 1), 60 << 10).expect("write");
        file.allocate(0, 40 << 10).expect("allocate");
        let other = filesystem.create_file("/other").expect("create");
        other.sync_all().expect("sync");
        assert_clean_after_a_crash(&filesystem);
        let mut memory = vec![1; 62 << 10];
        let got = file.read_at(&mut memory, 0).expect("read");
        assert_eq!(got, (60 << 10) + 1000);
        assert!(
            memory[..60 << 10].iter().all(|byte| *byte == 0) && memory[60 << 10..got] == pattern(1000, 1)
        );
    }
}
