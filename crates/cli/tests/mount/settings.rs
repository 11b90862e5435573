//! `tune2fs` and `e2label` on a mounted volume: changes with exit status 0 are kept.

use std::fs;

use super::Served;
use crate::common::{text, tool};

/// Fields of the superblock, as `dumpe2fs -h` names them.
fn field(served: &Served, name: &str) -> String {
    let image = served.bench().path("a.img");
    let output = tool("dumpe2fs", ["-h".as_ref(), image.as_os_str()]).expect("e2fsprogs");
    let output = text(&output.stdout);
    let line =
        output.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {output}"));
    line.split_once(':').expect("a field").1.trim().to_owned()
}

fn source(served: &Served) -> String {
    let output =
        tool("findmnt", ["-no".as_ref(), "SOURCE".as_ref(), served.at().as_os_str()]).expect("util-linux");
    text(&output.stdout).trim().to_owned()
}

/// The loop device had its own cache: such a program overwrote the superblock and blocks beside it with old data.
#[test]
fn the_loop_device_of_a_mount_shows_no_superblock() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    fs::write(served.path("file"), b"content").expect("write");
    let source = source(&served);
    assert!(source.starts_with("/dev/loop"), "{source}");
    for (program, arguments) in
        [("e2label", vec![&source[..], "NEW"]), ("tune2fs", vec!["-c", "33", &source])]
    {
        let output = tool(program, arguments).expect("e2fsprogs");
        assert!(!output.status.success(), "{program}: {}", text(&output.stdout));
    }
    // Others see that the image is in use.
    let used =
        tool("losetup", ["-j".as_ref(), served.bench().path("a.img").as_os_str()]).expect("util-linux");
    assert!(text(&used.stdout).contains(&source), "{}", text(&used.stdout));
    served.must_end_clean();
}

/// The daemon wrote the superblock from memory, and the unmount lost the settings of an administrator.
#[test]
fn settings_of_the_image_that_change_while_it_is_mounted_are_kept() {
    for kind in ["ext2", "ext3", "ext4"] {
        let Some(served) = Served::new(kind, "64M", "") else { return };
        let set = |arguments: &[&str]| {
            let image = served.bench().path("a.img");
            let words = arguments.iter().map(std::ffi::OsStr::new).chain([image.as_os_str()]);
            let output = tool("tune2fs", words).expect("e2fsprogs");
            assert!(output.status.success(), "{kind}: {arguments:?}: {}", text(&output.stderr));
        };
        set(&["-L", "BEFORE"]);
        fs::write(served.path("first"), b"content").expect("write");
        set(&[
            "-L",
            "NEWNAME",
            "-m",
            "7",
            "-c",
            "33",
            "-i",
            "5d",
            "-e",
            "remount-ro",
            "-r",
            "4321",
            "-o",
            "journal_data_writeback",
        ]);
        for index in 0..200 {
            fs::write(served.path(&format!("file{index}")), vec![1; 10_000]).expect("write");
        }
        fs::File::open(served.at()).expect("open").sync_all().expect("sync");
        set(&["-C", "5", "-M", "/somewhere", "-E", "mount_opts=nodelalloc"]);
        fs::remove_file(served.path("first")).expect("remove");
        let served = served.again("");
        let expected = [
            ("Filesystem volume name", "NEWNAME"),
            ("Last mounted on", "/somewhere"),
            ("Reserved block count", "4321"),
            ("Maximum mount count", "33"),
            ("Mount count", "5"),
            ("Errors behavior", "Remount read-only"),
            ("Check interval", "432000 (5 days)"),
            ("Mount options", "nodelalloc"),
        ];
        for (name, value) in expected {
            assert_eq!(field(&served, name), value, "{kind}: {name}");
        }
        assert!(field(&served, "Default mount options").contains("journal_data_writeback"), "{kind}");
        served.must_end_clean();
    }
}
