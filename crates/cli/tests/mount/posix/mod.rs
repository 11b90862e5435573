//! Calls on two filesystems, whose results must be equal, except for differences with a reason.
//!
//! - `calls`: a table in code, of sequences of calls
//! - `cases`: a table in text, of calls by root and by another user; each begins with the same files
//! - `script`: executes a line of that text

mod calls;
mod cases;
mod script;

use std::path::Path;

pub(crate) use script::User;

/// The results of all calls on a filesystem: name and what it gave.
pub(crate) type Rows = Vec<(String, String)>;

/// The rows of all calls by these users.
pub(crate) fn posix_calls(root: &Path, users: &[User]) -> Rows {
    let mut rows = calls::rows(root);
    for user in users {
        for (index, group) in cases::GROUPS.iter().enumerate() {
            script::run(&root.join(format!("{}-{index}", user.name)), group, user, &mut rows);
        }
    }
    rows
}

/// How `ours` differ from `theirs` without a known reason.
pub(crate) fn differences(theirs: &Rows, ours: &Rows) -> Vec<String> {
    assert_eq!(theirs.len(), ours.len());
    let needs = [
        (super::has_kernel(6, 2, "FUSE has no O_TMPFILE"), "TMPFILE"),
        (super::has_kernel(6, 6, "FUSE has no times of creation"), "statx"),
    ];
    let is_tried = |row: &str| !needs.iter().any(|(has, part)| !has && row.contains(part));
    let expected: Vec<_> = cases::EXPECTED.iter().flat_map(|(call, _)| script::expanded(call)).collect();
    let is_expected = |row: &str| {
        let call = row.split_once(": ").map_or(row, |(_, call)| call);
        expected
            .iter()
            .any(|line| call.strip_prefix(line).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)))
    };
    let differ = |(theirs, ours): (&(String, String), &(String, String))| {
        (theirs != ours && is_tried(&theirs.0) && !is_expected(&theirs.0))
            .then(|| format!("{}:\n  the kernel: {}\n  here:       {}", theirs.0, theirs.1, ours.1))
    };
    theirs.iter().zip(ours).filter_map(differ).collect()
}
