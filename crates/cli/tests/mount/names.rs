//! Names after a change that failed.

use std::collections::BTreeSet;
use std::fs;
use std::io;

use rustix::io::Errno;

use super::{Served, has_kernel, on_breakable};

type Change = fn(&Served) -> io::Result<()>;

const CHANGES: [(&str, Change); 5] = [
    ("create", |served| fs::File::create_new(served.path("new")).map(drop)),
    ("mkdir", |served| fs::create_dir(served.path("new"))),
    ("unlink", |served| fs::remove_file(served.path("file"))),
    ("rmdir", |served| fs::remove_dir(served.path("directory"))),
    ("rename", |served| fs::rename(served.path("file"), served.path("new"))),
];

/// A synchronous change of names failed in its write, and was made nevertheless. The kernel cached the opposite for a day: a listed name
/// did not exist, and an existing one was not listed.
pub(crate) fn names_are_those_of_the_volume_after_a_late_failure() {
    if !has_kernel(6, 16, "the kernel cannot be told to look up all names again") {
        return;
    }
    for (what, change) in CHANGES {
        let Some(served) = on_breakable("dirsync,commit=300") else { return };
        fs::write(served.path("file"), b"x").expect("write");
        fs::create_dir(served.path("directory")).expect("mkdir");
        fs::symlink_metadata(served.path("new")).expect_err("the kernel knows that it is not there");
        fs::write(served.bench().path("broken"), "").expect("create");
        let error = change(&served).expect_err("it cannot be written");
        assert_eq!(Errno::from_io_error(&error), Some(Errno::IO), "{what}");
        // Before the listing, which shows the true names.
        let found = || -> BTreeSet<_> {
            let names = ["file", "directory", "new"].into_iter();
            names.filter(|name| fs::symlink_metadata(served.path(name)).is_ok()).map(str::to_owned).collect()
        };
        let found = found();
        let listed: BTreeSet<_> = fs::read_dir(served.at())
            .expect("list")
            .map(|entry| entry.expect("entry").file_name().into_string().expect("text"))
            .filter(|name| name != "lost+found")
            .collect();
        assert_eq!(found, listed, "{what}");
        fs::remove_file(served.bench().path("broken")).expect("remove");
        served.end_with_log();
    }
}
