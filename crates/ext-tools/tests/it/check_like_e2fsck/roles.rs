//! Inodes that the superblock names: those of the volume itself, and orphans.

use diorite_ext_tools::check::ProblemKind;

use super::image::{Image, our_check, run};
use crate::common::has_e2fsprogs;

/// Damage to what the volume keeps for itself, by debugfs commands, and the class of problem; none where e2fsck finds no fault.
/// `FILE` is the number of the file `/f`.
const ROLES: &[(&str, Option<ProblemKind>)] = &[
    ("sif /f flags 0x80800", Some(ProblemKind::Inode)),
    ("ssv orphan_file_inum FILE", Some(ProblemKind::Superblock)),
    ("ssv orphan_file_inum FILE\nunlink /f", Some(ProblemKind::Superblock)),
    ("ssv orphan_file_inum 2000", None),
    ("ssv usr_quota_inum FILE", Some(ProblemKind::Superblock)),
    ("ssv grp_quota_inum FILE", Some(ProblemKind::Superblock)),
    ("ssv prj_quota_inum FILE\nunlink /f", Some(ProblemKind::Superblock)),
    ("ssv usr_quota_inum 2", Some(ProblemKind::Superblock)),
    ("ssv usr_quota_inum 2000", None),
    ("ssv usr_quota_inum 3", None),
    ("sif <7> flags 0x80000", Some(ProblemKind::Resize)),
    ("sif <7> flags 0x10", None),
    ("sif <7> size 5", Some(ProblemKind::Resize)),
    ("sif <7> size 0x7000000000", Some(ProblemKind::Resize)),
    ("sif <7> links_count 4", None),
    ("sif <1> mode 0100644", Some(ProblemKind::Inode)),
    ("sif <1> links_count 4", Some(ProblemKind::Inode)),
    ("sif <1> uid 5", Some(ProblemKind::Inode)),
    ("sif <1> gid 5", Some(ProblemKind::Inode)),
    ("sif <1> size 5", None),
    ("ssv r_blocks_count 10000", Some(ProblemKind::Superblock)),
    ("ssv r_blocks_count 5121", Some(ProblemKind::Superblock)),
    ("ssv r_blocks_count 5120", None),
    ("ssv last_orphan FILE", None),
    ("ssv last_orphan FILE\nsif /f links_count 2", Some(ProblemKind::LinkCount)),
    ("ssv last_orphan FILE\nunlink /f", Some(ProblemKind::Connectivity)),
    ("ssv last_orphan 11", None),
];

#[test]
fn special_inodes_and_their_numbers_in_the_superblock_are_judged_as_e2fsck_judges_them() {
    if !has_e2fsprogs() {
        return;
    }
    let recipe = ["-t", "ext4", "-b", "1024", "-O", "^orphan_file,^quota"];
    let Some(image) = Image::new(&recipe) else { return };
    let source = image.scratch.path().join("tree/a/small");
    image.debugfs(&format!("write {} f\n", source.display()));
    let said = image.ask("stat /f");
    let file = said.split_whitespace().nth(1).unwrap();
    let mut failures = Vec::new();
    for (commands, due) in ROLES {
        let copy = image.copy();
        copy.debugfs(&format!("{}\n", commands.replace("FILE", file)));
        let (code, output) = run("e2fsck", &["-fn"], &copy.path());
        let report = our_check(&copy.path());
        let ours: Vec<String> = report.problems.iter().take(4).map(ToString::to_string).collect();
        let agreed = (code == Some(0)) == report.is_clean() && report.is_clean() == due.is_none();
        if !agreed || due.is_some_and(|kind| !report.has(kind)) {
            failures.push(format!("{commands:?}: {due:?}, e2fsck {code:?}, ours {ours:?}\n{output}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// What a crash may leave of files that were open or being cut, by debugfs commands: `N` is the file's inode, `ROOT` the links of the root
/// directory before `/gone` was made. Whether it is damage.
const ORPHANS: &[(&str, &str, bool)] = &[
    ("a removed directory", "unlink /gone\nsif <N> links_count 0\nsif <2> links_count ROOT\n", false),
    (
        "a removed directory, cut",
        "unlink /gone\nsif <N> links_count 0\nsif <2> links_count ROOT\nsif <N> size 0\n",
        false,
    ),
    ("a removed directory with a name", "sif <N> links_count 0\nsif <2> links_count ROOT\n", true),
    ("a removed file", "unlink /a/large\nsif <N> links_count 0\n", false),
    ("a removed file, cut", "unlink /a/large\nsif <N> links_count 0\nsif <N> size 0\n", false),
    ("a file with a name", "sif <N> links_count 0\n#/a/large\n", true),
    ("a file that is being cut", "sif <N> size 1\n#/a/sparse\n", false),
    ("the root directory", "#/\n", true),
    ("a removed link, cut", "unlink /a/slow\nsif <N> links_count 0\nsif <N> size 0\n", false),
];

/// Removed directories that were open, and files that were being cut, were reported as damage; names of removed files were not.
#[test]
fn orphans_are_judged_as_e2fsck_judges_them() {
    if !has_e2fsprogs() {
        return;
    }
    let Some(image) = Image::new(&["-t", "ext4", "-b", "1024", "-O", "^orphan_file"]) else { return };
    let links = |image: &Image, path: &str| {
        let said = image.ask(&format!("stat {path}"));
        said.split("Links:").nth(1).unwrap().split_whitespace().next().unwrap().to_owned()
    };
    let root = links(&image, "/");
    image.debugfs("mkdir /gone\n");
    let mut failures = Vec::new();
    for (what, commands, is_damage) in ORPHANS {
        let copy = image.copy();
        let path = commands.split(['\n', ' ', '#']).find(|word| word.starts_with('/')).unwrap_or("/gone");
        let said = copy.ask(&format!("stat {path}"));
        let number = said.split_whitespace().nth(1).unwrap();
        let commands = commands.replace('N', number).replace("ROOT", &root);
        copy.debugfs(&format!("{commands}ssv last_orphan {number}\n"));
        let report = our_check(&copy.path());
        let (_, output) = run("e2fsck", &["-fy"], &copy.path());
        let ours: Vec<String> = report.problems.iter().take(4).map(ToString::to_string).collect();
        if !output.contains("orphan") {
            failures.push(format!("{what}: no orphan for e2fsck: {output}"));
        }
        let is_fixed = output.lines().any(|line| {
            (line.contains("? yes") && !line.contains("Optimize?"))
                || line.starts_with("Illegal orphaned inode")
        });
        if is_fixed != *is_damage || report.is_clean() == *is_damage {
            failures.push(format!("{what}: ours {ours:?}\n{output}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
