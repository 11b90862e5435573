//! Power cuts (ARCHITECTURE invariants 5 and 6): some thousands of images of every format. `cargo xtask torture crash --cases N`
//! checks any number.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

use diorite_torture::crash::{Checker, Options, has_e2fsck};
use diorite_torture::formats::{FORMATS, Format};

/// Look at about `images` images of `formats`.
fn torture(formats: impl Fn(&Format) -> bool, images: u64) {
    let formats: Vec<Format> = FORMATS.into_iter().filter(formats).collect();
    let mut checker = Checker::new(Options { formats, ..Options::default() }).unwrap();
    let (mut looked_at, mut case, mut failed) = (0, 0, Vec::new());
    while looked_at < images {
        match checker.run(case) {
            Ok(count) => looked_at += count,
            Err(wrong) => {
                failed.push(format!("{:?}: {}", wrong.class, wrong.what));
                looked_at += 1;
            }
        }
        case += 1;
    }
    assert!(failed.is_empty(), "{} of {case} cases failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn journalled_volumes_keep_their_promises() {
    if !has_e2fsck() {
        return println!("SKIPPED: e2fsck is not installed");
    }
    torture(|format| format.journal, 2200);
}

#[test]
fn volumes_without_a_journal_lose_nothing_promised() {
    if !has_e2fsck() {
        return println!("SKIPPED: e2fsck is not installed");
    }
    torture(|format| !format.journal, 900);
}
