//! Searches, compared with GNU find.

use super::Twins;
use crate::common::is_root;

#[test]
fn searches_find_what_find_finds() {
    if !is_root("owners of files") {
        return;
    }
    let twins = Twins::new();
    for row in [
        "find @",
        "find @ -name '*.c'",
        "find @ -iname '*.c'",
        "find @ -name '.*'",
        r"find @ -name 'we*\[name]\*'",
        "find @ -path '*/src/*'",
        "find @ -ipath '*/SRC/*'",
        "find @ -lname '*a.c'",
        "find @ -type f",
        "find @ -type d,l",
        "find @ -xtype f",
        "find @ -xtype d,l",
        "find @ -iname '[[:lower:]]*'",
        "find @ -iname '[![:lower:]]*'",
        "find @ -iname '[!a[:upper:]]*'",
        "find @ -iname '[L-W]*'",
        "find @ -size 1",
        "find @ -size +1",
        "find @ -size -2",
        "find @ -size +1M",
        "find @ -size 10c",
        "find @ -size -1k",
        "find @ -type f -size 0",
        "find @ -empty",
        "find @ -links 2",
        "find @ -links +1 -type f",
        "find @ -samefile @/a.c",
        "find @ -user 12",
        "find @ -uid 12 -gid +30",
        "find @ -group root -type l",
        "find @ -nouser",
        "find @ -user root -nogroup",
        "find @ -perm 600",
        "find @ -perm -u+s",
        "find @ -perm /6000",
        "find @ -perm -0 -type f",
        "find @ -mtime +1",
        "find @ -mtime 3",
        "find @ -mtime -2",
        "find @ -mmin +30 -mmin -60",
        "find @ -newer @/src/c.c",
        "find @ ! -newer @/b.C",
        "find @ -newermt '2001-02-03 04:05:05' -type f",
        "find @ -not -newermt 2001-02-04",
        "find @ -maxdepth 1",
        "find @ -mindepth 2 -type f",
        "find @ -maxdepth 0",
        "find @ -maxdepth 2 -depth",
        "find @ -name src -prune -o -print",
        "find @ -name src -prune -o -type f",
        r"find @ \( -name '*.c' -o -name '*.C' \) -size +1 -print",
        "find @ -type f , -type d -name deep -print",
        "find @ -false -o -name a.c -a -true",
        "find @ -name a.c -quit",
        r"find @ -type f -print0 | tr '\0' '\n'",
        "find @/a.c @/src/c.c -size +0",
        "find @/src/to-deep",
        "find @/missing",
        "find @ -name '[[:lower:]]*'",
        "find @ -name '[![:lower:]]*'",
        "find @ -name '*[[:upper:][:digit:]]*'",
        "find @ -name '[[:space:]a-c]*'",
        "find @ -name '[]ab]*'",
        "find @ -name '*[a-]*'",
        "find @ -name '*[[:nosuch:]]*'",
        "find @ -name '*[z-a]*'",
        "find @ -name '*[a'",
        r"find @ -name '*[\[*]*'",
        "find @ -regex '.*/src/.*'",
        r"find @ -regex '.*/\(a\|b\)\.[cC]'",
        "find @ -regex 'a.c'",
        "find @ -iregex '.*[.]C'",
        "find @ -regextype posix-extended -regex '.*/(src|empty)(/[a-z]+)?'",
        r"find @ -regextype posix-basic -regex '.*/[a-z]\{3\}'",
        "find @ -daystart -mtime 3",
        "find @ -daystart -mtime -1",
        r"find @ ! -type d -printf '%p %s %m %#m %M %u %G %n %y %Y %l %%\n'",
        r"find @ -mindepth 1 -printf '%P|%f|%d|%H|%h\n'",
        r"find @ -name a.c -printf '%TY-%Tm-%Td %TT %T+ %t %Tc %TD %Ta %Tj\n'",
        r"find @ -name a.c -printf '[%10f][%-10f][%.2f][%08s][%-6m]\101\n'",
        r"find @ -type f -name '*[.]*' -printf '%p [%5d] [%-4d] [%04d] [%+d] [%.3d] [%+6s] [%07m]\n'",
        r"find @/src/deep -type f -printf '%p %S\n'",
        r"find @ -type f -printf 'x\cy'",
        "find @ -ls -quit | wc -l",
        "find @ -nosuch",
        "find @ -type q",
        "find @ -size x",
        "find @ -mtime",
        r"find @ \(",
        "find @ -name a.c -o",
    ] {
        twins.must_print_the_same(row);
    }
}

#[test]
fn words_of_fd_work_in_a_search() {
    let twins = Twins::new();
    let found = |row: &str| twins.image(row).1;
    assert_eq!(found("find @ -e c"), ["t/a.c", "t/b.C", "t/src/c.c"]);
    assert_eq!(found("find @ --extension C --exclude src"), ["t/a.c", "t/b.C"]);
    assert_eq!(found("find @ --changed-within 1h -e c"), ["t/src/c.c"]);
    assert_eq!(found("find @ --changed-before 2d -type f -e c -size 1"), ["t/a.c", "t/b.C"]);
    assert_eq!(found("find @ --max-depth 1 --type dir"), ["t", "t/.hidden", "t/empty", "t/src"]);
    let files = twins.0.json("find d.img:/t -name a.c");
    assert_eq!(files["files"][0]["path"], "/t/a.c");
    // A word that cannot exist says why.
    let why = twins.0.fail("find d.img:/t -exec cat {} ;", 2);
    assert!(why.contains("cannot open files in an image"), "{why}");
}
