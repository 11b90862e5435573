//! Options that change while a volume is mounted.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::Errno;

use super::Served;
use crate::common::text;

fn accessed(served: &Served) -> (i64, i64) {
    fs::read(served.path("file")).expect("read");
    let stat = fs::metadata(served.path("file")).expect("stat");
    (stat.atime(), stat.atime_nsec())
}

fn refused(done: std::io::Result<()>) -> Option<Errno> {
    done.err().and_then(|error| Errno::from_io_error(&error))
}

/// `mount -o remount` reached only the kernel: the daemon recorded access times as before, and names were not durable.
#[test]
fn options_change_while_it_is_mounted() {
    let Some(served) = Served::new("ext4", "64M", "noatime,commit=300") else { return };
    let bench = served.bench();
    fs::write(served.path("file"), b"x").expect("write");
    let before = accessed(&served);
    assert_eq!(accessed(&served), before);
    bench.run("mount -o remount,strictatime at");
    let after = accessed(&served);
    assert!(after > before, "{after:?}");

    let open = fs::File::options().write(true).open(served.path("file")).expect("open");
    let said = bench.fail("mount -o remount,ro at", 1);
    assert!(said.contains("files are open for writing"), "{said}");
    drop(open);
    bench.run("mount -r -o remount at");
    assert_eq!(refused(fs::write(served.path("file"), b"y")), Some(Errno::ROFS));
    assert_eq!(accessed(&served), accessed(&served), "no access time of a read-only mount");
    bench.run("mount -o remount,rw at");
    fs::write(served.path("file"), b"y").expect("write");

    // The arguments with which `mount(8)` calls a helper.
    let mut helper = Command::new(env!("CARGO_BIN_EXE_diorite"));
    helper.arg0("mount.fuseblk.diorite").current_dir(bench.directory.path());
    helper.args(["/dev/loop0", "at", "-o", "rw,remount,dirsync,noatime,user_id=0,group_id=0,blksize=4096"]);
    let output = helper.output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let before = accessed(&served);
    assert_eq!(accessed(&served), before);
    for (words, said) in [("cache=1M", "cache=1M: cannot be changed"), ("bogus", "bogus: no such option")] {
        let error = bench.fail(&format!("mount -o remount,{words} at"), 1);
        assert!(error.contains(said), "{error}");
    }
    fs::create_dir(served.path("durable")).expect("mkdir");
    for other in [".", "at/durable"] {
        let said = bench.fail(&format!("mount -o remount,ro {other}"), 1);
        assert!(said.contains("no volume is mounted on it"), "{said}");
    }

    let served = served.kill_and_again();
    assert!(served.path("durable").is_dir());
    let served = served.again("ro");
    let said = served.bench().fail("mount -o remount,rw at", 1);
    assert!(said.contains("rw: the volume is read-only until it is mounted again"), "{said}");
    served.must_end_clean();
}
