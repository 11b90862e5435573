//! Files in an image.

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{DirectIo, Filesystem};

use crate::common::{content, load, npy, safetensors};

#[test]
fn files_in_an_image_are_read_where_their_blocks_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("disk.img");
    let data = content(1, 3_000_001);
    {
        let filesystem = Filesystem::create(&image, 32 << 20, &MkfsOptions::new(Flavor::Ext4)).expect("made");
        filesystem
            .write("/m-1.safetensors", safetensors(&[("a", "U8", &[3_000_001], data.clone())]))
            .expect("1");
        filesystem.write("/tiny.npy", npy("'<u2'", false, "(2,)", &[1, 2, 3, 4])).expect("2");
        let index = r#"{"weight_map":{"a":"m-1.safetensors"}}"#;
        filesystem.write("/m.safetensors.index.json", index).expect("index");
        filesystem.close().expect("closed");
    }
    let inside = |name: &str| format!("{}:/{name}", image.display());
    for direct in [DirectIo::Off, DirectIo::Preferred] {
        let loaded = load(&[inside("m.safetensors.index.json"), inside("tiny.npy")], direct).expect("loaded");
        assert!(loaded.list[0].bytes() == data);
        assert_eq!((loaded.list[1].info().name(), loaded.list[1].bytes()), ("tiny", &[1, 2, 3, 4][..]));
        let report = loaded.report;
        assert_eq!(report.mapped_bytes, 0);
        if report.direct_bytes > 0 {
            assert_eq!((report.buffered_bytes, report.copied_bytes), (0, 0));
        }
    }
    let error = load(&[inside("none.npy")], DirectIo::Preferred).expect_err("absent").to_string();
    assert!(error.contains("none.npy"), "{error}");
}
