//! Listings of directories that change between the calls of one listing.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::Served;

/// A listing that is read in pieces.
struct Listing {
    directory: fs::File,
    names: Vec<String>,
}

impl Listing {
    fn begin(path: &std::path::Path) -> Self {
        Self { directory: fs::File::open(path).expect("open"), names: Vec::new() }
    }

    /// Take the entries of one system call. Returns whether there were any.
    fn take(&mut self) -> bool {
        let mut memory = [const { std::mem::MaybeUninit::uninit() }; 4096];
        let (mut entries, before) = (rustix::fs::RawDir::new(&self.directory, &mut memory), self.names.len());
        while let Some(entry) = entries.next() {
            self.names.push(entry.expect("entry").file_name().to_str().expect("text").to_owned());
            if entries.is_buffer_empty() {
                break;
            }
        }
        self.names.len() > before
    }

    fn end(mut self) -> Vec<String> {
        while self.take() {}
        self.names.retain(|name| name != "." && name != "..");
        self.names.sort();
        self.names
    }
}

/// The kernel filled its cache with a listing from before a change, and used it for a later one: removed names, and no new ones. `..` of a
/// moved directory was stale, too.
pub(crate) fn a_listing_that_begins_after_a_change_shows_it() {
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    for (nth, count) in [50, 3000].into_iter().enumerate() {
        let path = served.path(&format!("directory-{nth}"));
        fs::create_dir(&path).expect("mkdir");
        (0..count)
            .for_each(|nth| drop(fs::File::create(path.join(format!("file-{nth:05}"))).expect("create")));
        let in_order = {
            let mut listing = Listing::begin(&path);
            while listing.take() {}
            listing.names
        };
        // The kernel's cache is out of date: the next listing begins a new one.
        fs::write(path.join("new"), "").expect("create");
        fs::remove_file(path.join("new")).expect("remove");

        let mut earlier = Listing::begin(&path);
        while earlier.names.len() < count * 9 / 10 && earlier.take() {}
        let removed: Vec<_> =
            in_order[count / 2..].iter().filter(|name| name.starts_with("file")).take(20).collect();
        for name in &removed {
            fs::remove_file(path.join(name)).expect("remove");
        }
        (0..200).for_each(|nth| drop(fs::File::create(path.join(format!("new-{nth}"))).expect("create")));
        let mut expected: Vec<_> = in_order.iter().filter(|name| !removed.contains(name)).cloned().collect();
        expected.retain(|name| name != "." && name != "..");
        expected.extend((0..200).map(|nth| format!("new-{nth}")));
        expected.sort();

        let mut later = Listing::begin(&path);
        later.take();
        earlier.end();
        assert!(later.end() == expected, "a listing in between, of {count} names");
        for turn in 0..3 {
            assert!(Listing::begin(&path).end() == expected, "listing {turn} after it, of {count} names");
        }
    }
    let [from, to] = ["from", "to"].map(|name| served.path(name));
    fs::create_dir_all(from.join("moved")).and_then(|()| fs::create_dir(&to)).expect("mkdir");
    let parent_of = |path: &std::path::Path| {
        let directory = fs::File::open(path).expect("open");
        let mut memory = [const { std::mem::MaybeUninit::uninit() }; 4096];
        let mut entries = rustix::fs::RawDir::new(&directory, &mut memory);
        loop {
            let entry = entries.next().expect("it has one").expect("entry");
            if entry.file_name() == c".." {
                break entry.ino();
            }
        }
    };
    for _ in 0..2 {
        assert_eq!(Listing::begin(&from.join("moved")).end().len(), 0);
    }
    fs::rename(from.join("moved"), to.join("moved")).expect("rename");
    assert_eq!(parent_of(&to.join("moved")), fs::metadata(&to).expect("stat").ino());
    served.must_end_clean();
}
