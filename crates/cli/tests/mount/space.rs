//! Full volumes, free space and reserved blocks.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{NOBODY, Served};
use crate::common::{pattern, text};

/// With a write-back cache in the kernel a full disk is met late: the write or the sync says so, never neither.
pub(crate) fn a_full_volume_is_reported_to_the_write_or_the_sync() {
    let Some(served) = Served::new("ext4", "32M", "") else { return };
    let mut file = fs::File::create(served.path("large")).expect("create");
    let written = file.write_all(&vec![7; 48 << 20]).and_then(|()| file.sync_all());
    assert_eq!(written.expect_err("there is no space").raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
    let direct =
        rustix::fs::open(served.path("direct"), OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT, Mode::RUSR);
    let zero_range = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    assert_eq!(rustix::fs::fallocate(&file, zero_range, 0, 1 << 30), Err(Errno::NOSPC));
    drop((file, direct.expect("open")));
    fs::remove_file(served.path("large")).expect("remove");
    fs::write(served.path("small"), pattern(1 << 20, 2)).expect("there is space again");
    served.must_end_clean();
}

/// `fstrim` makes holes in the image where the volume is free; `diorite trim` does the same without a mount. Other users may not.
#[test]
fn free_space_is_trimmed() {
    let Some(served) = Served::new("ext4", "256M", "allow_other") else { return };
    let allocated =
        |served: &Served| fs::metadata(served.bench().path("a.img")).expect("stat").blocks() * 512;
    fs::write(served.path("large"), vec![7; 100 << 20]).expect("write");
    fs::write(served.path("kept"), pattern(1 << 20, 1)).expect("write");
    rustix::fs::syncfs(fs::File::open(served.at()).expect("open")).expect("syncfs");
    let free = |served: &Served| {
        let volume = rustix::fs::statvfs(served.at()).expect("statvfs");
        volume.f_bfree * volume.f_frsize
    };
    let wanted = free(&served) + (100 << 20);
    fs::remove_file(served.path("large")).expect("remove");
    // The kernel forgets the file by a request of its own, for which nothing waits.
    let start = Instant::now();
    while free(&served) < wanted {
        assert!(start.elapsed() < Duration::from_secs(60), "a removed file keeps its blocks");
        std::thread::sleep(Duration::from_millis(1));
    }
    rustix::fs::syncfs(fs::File::open(served.at()).expect("open")).expect("syncfs");
    let before = allocated(&served);
    served.open_to_all();
    let mut fstrim = Command::new("fstrim");
    fstrim.arg(served.at());
    let refused = Command::new("fstrim").arg(served.at()).uid(NOBODY).gid(NOBODY).output().expect("fstrim");
    assert!(text(&refused.stderr).contains("not permitted"), "{}", text(&refused.stderr));
    let output = fstrim.arg("-v").output().expect("fstrim");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(allocated(&served) + (90 << 20) < before, "{before} before, {} after", allocated(&served));
    let served = served.again("");
    assert_eq!(fs::read(served.path("kept")).expect("read"), pattern(1 << 20, 1));
    let bench = served.bench();
    bench.image("b.img", "ext4", "64M");
    let said = bench.run("trim b.img");
    assert!(said.contains("of free space discarded"), "{said}");
    bench.must_be_clean("b.img");
    served.must_end_clean();
}

/// The last blocks are for the superuser and for whom `tune2fs` names: by each caller's right, in one mount, cached and direct.
#[test]
fn reserved_blocks_are_for_those_who_may_use_them() {
    let Some(served) = Served::new("ext4", "64M", "allow_other") else { return };
    served.open_to_all();
    fs::set_permissions(served.at(), fs::Permissions::from_mode(0o777)).expect("chmod");
    let fill = |name: &str, user: u32, flags: &str| {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", &format!("of={name}"), "bs=64k", flags]).current_dir(served.at());
        let output = dd.uid(user).gid(user).output().expect("dd");
        assert!(text(&output.stderr).contains("No space left"), "{}", text(&output.stderr));
    };
    let available = || {
        let space = rustix::fs::statvfs(served.at()).expect("statfs");
        (space.f_bavail, space.f_bfree)
    };
    let reserved = available().1 - available().0;
    assert!(reserved > 500);
    for flags in ["oflag=direct", "conv=fsync"] {
        fill("nobodys", NOBODY, flags);
        let left = available().1;
        assert!(
            (reserved..reserved + 32).contains(&left),
            "{flags}: {left} blocks are left, {reserved} reserved"
        );
        fill("roots", 0, flags);
        assert!(available().1 < 32, "{flags}: {} blocks are left", available().1);
        fs::remove_file(served.path("roots")).expect("remove");
        fs::remove_file(served.path("nobodys")).expect("remove");
    }
    // Directories are made of blocks, too.
    fill("nobodys", NOBODY, "oflag=direct");
    let script = "i=0; while mkdir d$i 2>/dev/null && [ $i -lt 1000 ]; do i=$((i+1)); done; [ $i -lt 1000 ]";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).uid(NOBODY).gid(NOBODY).current_dir(served.at());
    assert!(shell.status().expect("a shell").success(), "directories of others take what is reserved");
    assert!(available().1 >= reserved);
    fs::create_dir(served.path("roots")).expect("mkdir by root");
    served.must_end_clean();
}
