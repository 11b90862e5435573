//! A listing that a client reads in parts while names change, compared with the directory at its beginning.

use std::collections::BTreeSet;
use std::time::Duration;

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{FileKind, Filesystem, InodeNumber, NodeSpec, Owner, RenameMode};
use diorite_mount::operations::{Caller, Listed, Operations, Settings};
use tempfile::TempDir;

const FILES: u32 = 3000;
const PART: usize = 400;
const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 0 };

type Names = BTreeSet<String>;

/// A volume with a directory of many files.
struct Volume {
    operations: Operations,
    directory: InodeNumber,
    _place: TempDir,
}

impl Volume {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let image = place.path().join("a.img");
        let filesystem = Filesystem::create(&image, 64 << 20, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
        let operations = Operations::new(filesystem, Settings::default());
        let new = NodeSpec {
            kind: FileKind::Directory,
            permissions: 0o755,
            umask: 0,
            owner: Owner::default(),
            device: (0, 0),
        };
        let made = operations.create(InodeNumber::ROOT, b"directory", &new).expect("mkdir");
        let volume = Self { directory: made.node.number(), operations, _place: place };
        (0..FILES).for_each(|nth| volume.create(&format!("file-{nth:06}")));
        volume
    }

    fn create(&self, name: &str) {
        let new = NodeSpec {
            kind: FileKind::Regular,
            permissions: 0o644,
            umask: 0,
            owner: Owner::default(),
            device: (0, 0),
        };
        self.operations.create(self.directory, name.as_bytes(), &new).expect("create");
    }

    /// A part from `cursor` on, and where the next one begins: `None` if none was refused, which is the end.
    fn part(&self, cursor: u64, len: usize) -> (Vec<String>, Option<u64>) {
        let (mut names, mut next, mut is_full) = (Vec::new(), cursor, false);
        let listed = self.operations.read_directory(self.directory, cursor, Listed::Names, &mut |entry| {
            is_full = names.len() == len;
            if !is_full {
                names.push(String::from_utf8(entry.name.clone()).expect("text"));
                next = entry.next_cursor;
            }
            !is_full
        });
        listed.expect("a part");
        (names, is_full.then_some(next))
    }

    /// All names, in parts of `len`; `between` runs after each part.
    fn list(&self, len: usize, mut between: impl FnMut(usize)) -> Names {
        let (mut all, mut cursor) = (Names::new(), 0);
        for nth in 0.. {
            let (names, next) = self.part(cursor, len);
            for name in names {
                assert!(all.insert(name.clone()), "{name} is listed twice");
            }
            let Some(next) = next else { break };
            cursor = next;
            between(nth);
        }
        assert!(all.remove(".") && all.remove(".."), "the dots");
        all
    }
}

/// Until the part that follows the last one is made.
fn wait() {
    std::thread::sleep(Duration::from_millis(20));
}

fn expected() -> Names {
    (0..FILES).map(|nth| format!("file-{nth:06}")).collect()
}

#[test]
fn every_name_is_listed_once_however_large_the_parts_are() {
    let volume = Volume::new();
    for len in [1, 7, 100, 5000] {
        // The first parts are made by then.
        let between = |nth| {
            if nth < 20 {
                wait();
            }
        };
        assert_eq!(volume.list(len, between), expected(), "parts of {len}");
        // Parts that change their size from one to the next.
        let (mut all, mut cursor) = (Names::new(), 0);
        for nth in 0_usize.. {
            let (names, next) = volume.part(cursor, 1 + (nth * 37 + len) % 300);
            let before = all.len();
            let count = names.len();
            all.extend(names);
            assert_eq!(all.len(), before + count, "a name is listed twice");
            let Some(next) = next else { break };
            cursor = next;
            between(nth);
        }
        assert_eq!(all.len(), FILES as usize + 2);
    }
    volume.operations.close().expect("close");
}

/// Cached parts of one listing are not shown to a listing that begins after a change.
#[test]
fn a_listing_shows_what_was_done_before_it_began() {
    let volume = Volume::new();
    let (operations, directory) = (&volume.operations, volume.directory);
    let mut expected = expected();
    let second_part = || {
        let (_, next) = volume.part(0, PART);
        let (names, _) = volume.part(next.expect("more"), PART);
        // The client starts again, and takes the first part only: the second one is being made.
        volume.part(0, PART);
        wait();
        names
    };

    let victim = second_part()[PART / 2].clone();
    operations.unlink(directory, victim.as_bytes()).expect("unlink");
    expected.remove(&victim);
    assert_eq!(volume.list(PART, |_| ()), expected, "after a name was removed");

    let victim = second_part()[PART / 2].clone();
    let renamed = format!("renamed-{victim}");
    let (from, to) = ((directory, victim.as_bytes()), (directory, renamed.as_bytes()));
    operations.rename(from, to, RenameMode::Replace).expect("rename");
    expected.remove(&victim);
    expected.insert(renamed);
    assert_eq!(volume.list(PART, |_| ()), expected, "after a name was changed");

    second_part();
    for nth in 0..200 {
        volume.create(&format!("new-{nth}"));
        expected.insert(format!("new-{nth}"));
    }
    assert_eq!(volume.list(PART, |_| ()), expected, "after names were made");

    second_part();
    let file = operations.lookup(directory, b"new-0").expect("look-up").node.number();
    operations.link(file, directory, b"linked").expect("link");
    operations.symlink(directory, b"symlink", b"target", &ROOT).expect("symlink");
    expected.extend(["linked".to_owned(), "symlink".to_owned()]);
    assert_eq!(volume.list(PART, |_| ()), expected, "after links were made");
    volume.operations.close().expect("close");
}

/// Names that are there all the time are listed once, whatever happens to others meanwhile.
#[test]
fn several_listings_at_a_time_beside_changes_each_have_all_names_that_stay() {
    let volume = Volume::new();
    std::thread::scope(|scope| {
        let listings: Vec<_> = (0..6)
            .map(|nth| {
                let volume = &volume;
                scope.spawn(move || {
                    for round in 0..5 {
                        let listed = volume.list(50 + 61 * nth + round, |_| ());
                        let missing: Vec<_> = expected().difference(&listed).cloned().collect();
                        assert!(missing.is_empty(), "not listed: {missing:?}");
                    }
                })
            })
            .collect();
        let mut nth = 0;
        while !listings.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let name = format!("comes-and-goes-{nth}");
            volume.create(&name);
            volume.operations.unlink(volume.directory, name.as_bytes()).expect("unlink");
            nth += 1;
        }
    });
    volume.operations.close().expect("close");
}

/// A volume is closed while a part is being made that no request will take.
#[test]
fn a_listing_that_is_not_ended_does_not_keep_a_volume_open() {
    let volume = Volume::new();
    for _ in 0..20 {
        volume.part(0, 10);
        volume.part(0, PART);
    }
    volume.operations.close().expect("close");
}
