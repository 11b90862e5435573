//! Disks with partitions, devices with large sectors, and names of devices.

use super::errors::expect;
use crate::common::{self, Bench, pattern};

/// mkfs of a whole disk silently overwrote an MBR with one partition.
#[test]
fn partition_table_is_not_overwritten_by_accident() {
    let bench = Bench::new();
    let mut disk = vec![0; 16 << 20];
    disk[446 + 4] = 0x83;
    disk[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&(16u32 << 10).to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    bench.write("disk.img", &disk);
    expect(&bench.fail("mkfs disk.img", 1), &["disk.img: not made: there is a partition table", "--force"]);
    expect(
        &bench.fail("diskperf write blocks=1 bs=1m disk.img", 1),
        &["disk.img: there is a partition table", "--force"],
    );
    assert!(bench.read("disk.img") == disk);
    bench.run("mkfs disk.img?partition=1");
    assert_eq!(bench.run("ls disk.img?partition=1"), "lost+found\n");
    // The short form of a partition, with and without a path.
    bench.run("mkfs -F -q disk.img:1");
    bench.run("mkdir disk.img:1:/d");
    for line in ["ls disk.img:1", "ls disk.img?partition=1"] {
        assert_eq!(bench.run(line), "d\nlost+found\n", "{line}");
    }
    for line in ["df disk.img:1", "check disk.img:1", "info disk.img:1", "du disk.img:1", "tree disk.img:1"] {
        bench.run(line);
    }
    bench.fail("ls disk.img:2", 1);
    bench.run("mkfs -F disk.img");
}

/// The protective MBR counted as a partition table, and `mkfs` overwrote the whole disk through its only entry.
#[test]
fn a_disk_whose_gpt_is_damaged_is_left_alone() {
    let bench = Bench::new();
    let mut disk = vec![0; 16 << 20];
    disk[446 + 4] = 0xee;
    disk[446 + 8..446 + 16].copy_from_slice(&[1, 0, 0, 0, 0xff, 0x7f, 0, 0]);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    bench.write("disk.img", &disk);
    expect(&bench.fail("info disk.img", 1), &["disk.img: ", "its GPT is damaged", "repair it with gdisk"]);
    expect(&bench.fail("mkfs -F disk.img?partition=1", 1), &["its GPT is damaged", "repair it with gdisk"]);
    expect(&bench.fail("mkfs disk.img", 1), &["there is a partition table", "--force"]);
    assert!(bench.read("disk.img") == disk);
}

/// The error advised to leave out `--direct`, which was not given.
#[test]
fn a_volume_with_smaller_blocks_than_its_export_is_explained() {
    let bench = Bench::new();
    bench.run("mkfs -t ext2 -b 1024 small.img 8M");
    let server = ["-U", "-", "--filter=blocksize-policy", "file", "small.img", "blocksize-minimum=4096"];
    let server = server.into_iter().chain(["blocksize-error-policy=error", "--run"]);
    for line in ["check", "ls", "rm"] {
        let path = if line == "check" { "" } else { ":/file" };
        let run = format!("{} {line} \"$uri{path}\"", env!("CARGO_BIN_EXE_diorite"));
        let mut command = std::process::Command::new("nbdkit");
        let command = command.current_dir(bench.directory.path()).args(server.clone()).arg(run);
        let Ok(output) = command.output() else { return println!("SKIPPED: no nbdkit") };
        let parts = ["its blocks have 1024 bytes, and the blocks of the device 4096", "smaller blocks"];
        expect(&common::text(&output.stderr), &parts);
    }
}

/// The hint for a disk with partitions always named partition 1.
#[test]
fn partitions_of_a_disk_are_listed_and_the_only_volume_is_used() {
    let bench = Bench::new();
    let mut disk = vec![0; 32 << 20];
    for (index, kind, start, sectors) in
        [(0, 0x0c, 2048u32, 8192u32), (2, 0x83, 16384, 16384), (3, 0x83, 32768, 16384)]
    {
        let at = 446 + 16 * index;
        disk[at + 4] = kind;
        disk[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        disk[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    bench.write("disk.img", &disk);
    let none = [
        "disk.img: cannot open: it is a disk with partitions: 1 (FAT32, 4 MiB), 3 (Linux, 8 MiB), 4",
        "?partition=N",
    ];
    expect(&bench.fail("ls disk.img", 1), &none);
    expect(
        &bench.fail("ls disk.img?partition=2", 1),
        &["no partition 2", "1 (FAT32, 4 MiB), 3 (Linux, 8 MiB)"],
    );
    // The user has chosen a partition. The message lists the other ones, with the syntax of the mount option.
    let neither =
        "neither partition 1 nor another one holds an ext2, ext3 or ext4 volume: 1 (FAT32, 4 MiB), 3 (Linux";
    let serve = "serve nfs --listen 127.0.0.1:0 -o partition=1 disk.img";
    expect(&bench.fail("ls disk.img?partition=1", 1), &["disk.img?partition=1: cannot open: ", neither]);
    expect(&bench.fail(serve, 1), &["disk.img: cannot serve: ", neither]);
    bench.run("mkfs -t ext2 -L here disk.img?partition=3");
    let other = "partition 1 holds no ext2, ext3 or ext4 volume; volumes are on 3 (Linux, 8 MiB) ext2; ";
    expect(&bench.fail("ls disk.img?partition=1", 1), &[other, "; add ?partition=N to the name of the disk"]);
    let said = bench.fail(serve, 1);
    expect(&said, &["disk.img: cannot serve: ", other, "; choose one with -o partition=N"]);
    assert!(!said.contains('?'), "{said}");
    let said = bench.fail("serve nfs --listen 127.0.0.1:0 -o offset=4K disk.img", 1);
    expect(&said, &["no ext2, ext3 or ext4 volume begins at byte 4K", "-o offset=BYTES"]);
    let table = bench.run("info disk.img");
    assert!(table.contains("FAT32") && table.contains("Linux: ext2 \"here\""), "{table}");
    let json = bench.json("info disk.img");
    assert_eq!(json["partitions"].as_array().map(Vec::len), Some(3), "{json}");
    assert_eq!(json["partitions"][1]["label"], "here");
    // The only partition with a volume is used, also for writing, and reported.
    bench.write("file", b"content");
    for line in ["cp file disk.img:/file", "cat disk.img:/file", "check disk.img"] {
        let output = bench.diorite(line.split(' ')).output().expect("the program starts");
        assert!(output.status.success(), "{line}: {}", common::text(&output.stderr));
        assert_eq!(
            common::text(&output.stderr),
            "diorite: disk.img: using ?partition=3, the only volume on this disk\n",
            "{line}"
        );
    }
    assert_eq!(bench.run("cat disk.img?partition=3:/file"), "content");
    bench.run("mkfs -t ext4 disk.img?partition=4");
    let two = [
        "disk.img: cannot open: it is a disk with partitions",
        "3 (Linux, 8 MiB) ext2, 4 (Linux, 8 MiB) ext4",
    ];
    expect(&bench.fail("ls disk.img", 1), &two);
}

/// If the first superblock of one of two volumes was damaged, the other volume was chosen and written.
#[test]
fn damaged_volume_of_a_disk_is_counted() {
    let bench = Bench::new();
    let mut disk = vec![0; 48 << 20];
    for (index, start, sectors) in [(0, 2048u32, 16384u32), (1, 32768, 65536 - 32768)] {
        let at = 446 + 16 * index;
        disk[at + 4] = 0x83;
        disk[at + 8..at + 12].copy_from_slice(&start.to_le_bytes());
        disk[at + 12..at + 16].copy_from_slice(&sectors.to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    bench.write("disk.img", &disk);
    bench.run("mkfs -t ext4 disk.img?partition=1");
    bench.run("mkfs -t ext4 disk.img?partition=2");
    let mut disk = bench.read("disk.img");
    disk[32768 * 512 + 1024..][..1024].fill(0);
    bench.write("disk.img", &disk);
    assert_eq!(bench.run("ls disk.img?partition=2:/"), "lost+found\n");
    bench.write("file", b"content");
    expect(&bench.fail("cp file disk.img:/file", 1), &["a disk with partitions", "?partition=N"]);
}

/// An image with small blocks on a disk with sectors of 4096 bytes could not be used. Direct I/O cannot transfer its blocks, so it is not used,
/// unless the user requires it.
#[test]
fn image_with_small_blocks_is_used_on_a_disk_with_large_sectors() {
    let bench = Bench::new();
    bench.run("mkfs -t ext2 -b 1024 small.img 8M");
    bench.write("file", &pattern(100_000, 1));
    let Some(disk) = bench.loop_device("small.img", 4096) else { return };
    bench.run(&format!("cp file {disk}:/file"));
    let output = bench.diorite(["cat", &format!("{disk}:/file")]).output().expect("the program starts");
    assert!(output.stdout == pattern(100_000, 1), "{}", common::text(&output.stderr));
    assert!(bench.run(&format!("check {disk}")).contains("clean"));
    let parts = ["logical blocks of 4096 bytes", "without --direct"];
    expect(&bench.fail(&format!("cat --direct {disk}:/file"), 1), &parts);
    bench.run(&format!("mkfs -F -t ext2 -b 1024 {disk}"));
    drop(disk);
    bench.must_be_clean("small.img");
}

/// Bindings of a name to itself, to another name or to a missing device were accepted.
#[test]
fn names_are_bound_to_devices_that_are_there() {
    let bench = Bench::new();
    bench.write("disk.img", &[0; 4096]);
    let raw = |line: &str| {
        let bindings = bench.path("bindings");
        bench
            .diorite(line.split(' '))
            .env("DIORITE_RAW_BINDINGS", bindings)
            .output()
            .expect("the program starts")
    };
    assert!(raw("raw raw1 raw:disk.img").status.success());
    for (line, part) in [
        (
            "raw raw3 raw:raw3",
            "diorite: raw3: cannot be bound to raw:raw3: it is the name itself; give the path",
        ),
        (
            "raw raw3 /dev/raw/raw1",
            "diorite: raw3: cannot be bound to /dev/raw/raw1: it is itself a bound name; give",
        ),
        (
            "raw raw3 none.img",
            "diorite: raw3: cannot be bound to none.img: it does not exist; give an existing file",
        ),
    ] {
        let output = raw(line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        expect(&String::from_utf8_lossy(&output.stderr), &[part]);
    }
    let listed = raw("raw");
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 1, "nothing was bound");
}

/// An invalid device name is wrong usage for every command; a missing device is not.
#[test]
fn a_name_that_is_no_name_of_a_device_is_wrong_usage() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "8M");
    for name in ["floppy:a.img", "a.img?partition=x", "a.img?colour=red", "stripe:a.img,", "nbd://host:port/"]
    {
        for line in ["info", "ls", "check", "mkfs -F", "df", "diskperf blocks=1"] {
            let said = bench.fail(&format!("{line} {name}"), 2);
            assert!(said.contains("not a device name"), "{line} {name}: {said}");
        }
    }
    assert!(bench.fail("ls raw:nothing", 1).contains("nothing is bound to the name"));
    bench.fail("ls missing.img", 1);
    bench.fail("info a.img?partition=3", 1);
    bench.must_be_clean("a.img");
}
