//! Logical volumes made by LVM2's tools: the bytes of an extent are at the place that the tools report.
//!
//! The tools work without the kernel's driver. Needs root and loop devices; skipped (and counted) without.
#![allow(clippy::disallowed_methods, clippy::print_stderr, reason = "images of other tools")]

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use diorite::front_end::open_target;
use diorite_arrays::array_of;
use diorite_block::BioFlags;
use diorite_device::{AlignedBuf, OpenError, OpenOptions};

const DEVICE_BYTES: u64 = 64 << 20;
const EXTENT: u64 = 4 << 20;

/// The image files on loop devices; detached when dropped.
struct Loops(Vec<String>);

impl Loops {
    fn of(images: &[std::path::PathBuf]) -> Option<Self> {
        let mut loops = Self(Vec::new());
        for image in images {
            let output = Command::new("losetup").args(["-f", "--show"]).arg(image).output().ok()?;
            output.status.success().then_some(())?;
            loops.0.push(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        Some(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            let _ = Command::new("losetup").args(["-d", device]).status();
        }
    }
}

/// A command of LVM2 on these devices only.
fn lvm(loops: &Loops, command: &str) -> Result<String, String> {
    let list = loops.0.iter().map(|device| format!("\"a|^{device}$|\"")).collect::<Vec<_>>().join(",");
    let config = format!(
        "devices{{use_devicesfile=0 filter=[{list},\"r|.*|\"]}} backup{{backup=0 archive=0}} global{{use_lvmpolld=0}}"
    );
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .args(["--driverloaded", "n", "--config", &config])
        .env("DM_DISABLE_UDEV", "1")
        .env("LVM_SUPPRESS_FD_WARNINGS", "1")
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("{command}: {text}{}", String::from_utf8_lossy(&output.stderr)))
    }
}

fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64 / 8)
        .flat_map(|at| (offset + 8 * at).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect()
}

/// The report of `lvs` and `pvs`: image and byte of each piece of a volume, in order.
fn places(loops: &Loops, volume: &str) -> Vec<(usize, u64, u64)> {
    let report =
        "lvs --noheadings --units b --nosuffix --separator ; -o seg_type,stripe_size,seg_pe_ranges vgt/";
    let segments = lvm(loops, &format!("{report}{volume}")).expect("a report");
    let mut pieces = Vec::new();
    for line in segments.lines().filter(|line| !line.trim().is_empty()) {
        let fields: Vec<_> = line.trim().split(';').collect();
        let chunk: u64 = fields[1].parse().expect("a number");
        let areas: Vec<(usize, u64, u64)> = fields[2]
            .split_whitespace()
            .map(|range| {
                let (device, extents) = range.split_once(':').expect("a device");
                let (first, last) = extents.split_once('-').expect("a range");
                let index = loops.0.iter().position(|known| known == device).expect("ours");
                let (first, last): (u64, u64) = (first.parse().expect("first"), last.parse().expect("last"));
                (index, (1 << 20) + first * EXTENT, (last + 1 - first) * EXTENT)
            })
            .collect();
        let len = areas[0].2;
        let step = if chunk == 0 { len } else { chunk };
        for row in (0..len).step_by(step as usize) {
            pieces.extend(areas.iter().map(|(index, start, _)| (*index, start + row, step)));
        }
    }
    pieces
}

/// A volume `org` with the snapshot `snap`, which LVM2's tools make only with the kernel's driver; they check what is restored here.
fn add_snapshot(loops: &Loops, directory: &Path) {
    for name in ["org", "snap"] {
        lvm(loops, &format!("lvcreate -q -an -Zn -Wn -y -n {name} -l 1 vgt")).expect("LVM2's tools");
    }
    let backup = directory.join("backup");
    let backup = backup.to_str().expect("a name");
    lvm(loops, &format!("vgcfgbackup -q -f {backup} vgt")).expect("a backup");
    let text = std::fs::read_to_string(backup).expect("the metadata");
    let link = "logical_volumes {\nsnapshot0 {\nid = \"snapsh-ot00-aaaa-aaaa-aaaa-aaaa-aaaaaa\"\nstatus = [\"READ\", \"WRITE\"]\n\
                flags = []\nsegment_count = 1\nsegment1 {\nstart_extent = 0\nextent_count = 1\ntype = \"snapshot\"\n\
                chunk_size = 8\norigin = \"org\"\ncow_store = \"snap\"\n}\n}\n";
    let text = text.replacen("logical_volumes {", link, 1);
    std::fs::write(backup, text).expect("written");
    lvm(loops, &format!("vgcfgrestore -q -f {backup} vgt")).expect("a snapshot");
}

#[test]
fn extents_are_where_lvm2_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let images: Vec<_> = ["a", "b", "c"].iter().map(|name| directory.path().join(name)).collect();
    for image in &images {
        std::fs::File::create_new(image).and_then(|file| file.set_len(DEVICE_BYTES)).expect("an image");
    }
    let Some(loops) = Loops::of(&images) else {
        eprintln!("SKIPPED: no loop devices");
        return;
    };
    if Command::new("pvcreate").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no pvcreate (apt-get install lvm2)");
        return;
    }
    let all = loops.0.join(" ");
    for command in [
        format!("pvcreate -q {all}"),
        format!("vgcreate -q vgt {all}"),
        "lvcreate -q -an -Zn -Wn -y -n lin -l 20 vgt".to_owned(),
        "lvcreate -q -an -Zn -Wn -y -n str -i 2 -I 64k -l 12 vgt".to_owned(),
        // Its second segment is elsewhere.
        "lvextend -q -y -l +3 vgt/lin".to_owned(),
        "lvcreate -q -an -Zn -Wn -y -n ro -pr -l 1 vgt".to_owned(),
    ] {
        lvm(&loops, &command).expect("LVM2's tools");
    }
    add_snapshot(&loops, directory.path());
    let targets: Vec<_> = images.iter().map(|image| image.to_str().expect("a name")).collect();
    // The order of the devices does not matter.
    let spec = |volume: &str| format!("lvm:{},{},{}?volume={volume}", targets[2], targets[0], targets[1]);
    let expected: Vec<_> = ["lin", "str"].iter().map(|volume| (*volume, places(&loops, volume))).collect();
    drop(loops);
    for (volume, pieces) in expected {
        let device = open_target(&spec(volume), &OpenOptions::read_write()).expect("a volume");
        let len: u64 = pieces.iter().map(|(_, _, len)| len).sum();
        assert_eq!(device.geometry().capacity_bytes, len, "{volume}");
        let mut memory = AlignedBuf::zeroed(len as usize, 4096);
        memory.copy_from_slice(&pattern(0, len as usize));
        device.write_bytes(0, &memory, BioFlags::SYNC).expect("written");
        device.flush().expect("durable");
        memory.fill(0);
        device.read_bytes(0, &mut memory).expect("read");
        assert!(memory[..] == pattern(0, len as usize), "{volume}");
        drop(device);
        let mut offset = 0;
        for (image, start, len) in pieces {
            let mut bytes = vec![0; len as usize];
            let file = std::fs::File::open(&images[image]).expect("an image");
            file.read_exact_at(&mut bytes, start).expect("bytes");
            assert!(
                bytes == pattern(offset, len as usize),
                "{volume}: byte {offset} is not at {start} of {image}"
            );
            offset += len;
        }
    }
    origin_of_a_snapshot_is_only_read(&spec("org"), &spec("snap"));
    what_is_wrong_is_said(&targets, &spec("ro"));
}

/// It was written without a copy of the old blocks, which the snapshot lost.
fn origin_of_a_snapshot_is_only_read(origin: &str, snapshot: &str) {
    let error = |spec: &str| open_target(spec, &OpenOptions::read_write()).expect_err(spec);
    let refused = error(origin);
    assert!(matches!(refused, OpenError::ReadOnly { .. }), "{refused}");
    assert!(refused.to_string().contains("org is the origin of the snapshot snap"), "{refused}");
    let device = open_target(origin, &OpenOptions::read_only()).expect("a volume");
    assert_eq!(device.geometry().capacity_bytes, EXTENT);
    drop(device);
    let refused = error(snapshot).to_string();
    assert!(refused.contains("snap is a snapshot, which is not supported"), "{refused}");
}

/// Missing devices, unknown volumes, read-only ones, and devices that are no part.
fn what_is_wrong_is_said(targets: &[&str], read_only: &str) {
    let error = |spec: &str| open_target(spec, &OpenOptions::read_write()).expect_err(spec).to_string();
    assert!(error(&format!("lvm:{}?volume=str", targets[0])).contains("name it too"));
    let some = error(&format!("lvm:{}", targets.join(",")));
    assert!(some.contains("lin, org, ro, str:") && some.contains("?volume=NAME"), "{some}");
    assert!(error(&format!("lvm:{}?volume=none", targets.join(","))).contains("there is no volume none"));
    assert!(error("lvm:/dev/zero").contains("/dev/zero"));
    let marked = error(read_only);
    assert!(marked.contains("ro is marked read-only") && marked.contains("lvchange"), "{marked}");
    let device = open_target(read_only, &OpenOptions::read_only()).expect("a volume");
    assert!(device.geometry().read_only);
    drop(device);
    let member = open_target(targets[0], &OpenOptions::read_only()).expect("a device");
    let what = array_of(&*member).expect("a physical volume");
    assert!(what.contains("group vgt") && what.contains("lvm:"), "{what}");
    drop(member);
    assert!(error(&format!("{}?offset=1M", targets[0])).contains("cannot open a part for writing"));
    // Damage is found.
    let file = std::fs::File::options().write(true).open(Path::new(targets[0])).expect("an image");
    file.write_all_at(b"damage", 4096 + 512 + 100).expect("written");
    file.write_all_at(&vec![7; 64 << 10], 8192).expect("written");
    assert!(error(&format!("lvm:{}?volume=lin", targets[0])).contains("checksum"));
}
