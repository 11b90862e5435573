//! Lists, parts of files, and patterns.

use std::process::{Command, Stdio};

use super::Twins;
use crate::common::text;

/// The order of names, which other tables leave out.
#[test]
fn lists_are_in_the_order_of_ls() {
    let twins = Twins::new();
    let in_order = |line: &str| {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", line])
            .current_dir(twins.0.directory.path())
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        text(&shell.output().expect("a shell").stdout)
    };
    for row in [
        "ls @",
        "ls -A @",
        "ls -r @",
        "ls -1 @",
        "ls -t @/src",
        "ls -tr @/src",
        "ls -S @/src/deep",
        "ls -Sr @/src/deep",
        "ls -F @",
        "ls -AF @/src",
        "ls -R @",
        "ls -d @/src",
        "ls @/src/to-deep",
        "ls -d @/src/to-deep",
        "ls @/a.c",
    ] {
        let wanted = in_order(&row.replace('@', "t"));
        let got = in_order(&format!("{} {}", env!("CARGO_BIN_EXE_diorite"), row.replace('@', "d.img:/t")));
        assert_eq!(got.replace("d.img:/t", "t"), wanted, "{row}");
    }
}

#[test]
fn parts_of_files_and_links_are_printed_as_by_gnu() {
    let twins = Twins::new();
    for row in [
        "head @/lines",
        "head -n 3 @/lines",
        "head -n -3 @/lines",
        "head -n 0 @/lines",
        "head -n -100 @/lines",
        "head -c 10 @/lines",
        "head -c 1K @/src/c.c",
        "head -c -10 @/src/c.c",
        "head -n 1 @/lines @/a.c",
        "head -q -n 1 @/lines @/a.c",
        "head -v -n 1 @/lines",
        "head -n 1 @/missing",
        "head -3 @/lines",
        "head -1 @/lines @/a.c",
        "tail @/lines",
        "tail -n 3 @/lines",
        "tail -n -3 @/lines",
        "tail -n +38 @/lines",
        "tail -n +0 @/lines",
        "tail -n +100 @/lines",
        "tail -n 0 @/lines",
        "tail -n 100 @/lines",
        "tail -c 10 @/lines",
        "tail -c +300 @/lines",
        "tail -c 1K @/src/c.c",
        "tail -1 @/lines",
        "tail -q -n 1 @/lines @/a.c",
        "tail -v -c 3 @/lines",
        "tail @/src/deep/zero",
        "tail -n x @/lines",
        "readlink @/src/to-a @/dangling",
        "readlink @/a.c",
        "readlink -n @/dangling",
        "readlink -z @/dangling",
        "stat -c '[%10s][%05a][%+s][% s][%#a][%#f][%010s][%-010sx][%10F][%.2s][%.9s][%#010f][%5A]' @/a.c",
        "stat -c '[%.3Y][%15.3Y][%-15.3Y][%.0Y][%3h][%-5Ux][%4u]' @/a.c @/src/deep/zero",
        "stat --printf '%6s|%%|%-4a\\n' @/a.c @/b.C",
    ] {
        twins.must_print_the_same(row);
    }
    let real = |row: &str| twins.image(row).1;
    assert_eq!(real("readlink -f @/src/to-deep/../to-a"), ["t/a.c"]);
    assert_eq!(real("readlink -f @/dangling @/src/./deep"), ["t/nowhere", "t/src/deep"]);
    assert_eq!(twins.image("readlink -e @/dangling").0, Some(1));
    assert_eq!(twins.image("readlink -f @/missing/x").0, Some(1));
    twins.0.run("ln -s loop d.img:/t/loop");
    assert_eq!(twins.image("readlink -f @/loop").0, Some(1));
}

/// A pattern in an image stands for the files that fit, as in a shell on the host.
#[test]
fn patterns_are_those_of_a_shell() {
    let twins = Twins::new();
    for pattern in [
        "@/*.c",
        "@/*",
        "@/.h*",
        "@/*/*",
        "@/s*/d*/*",
        "@/[ab].?",
        "@/[!a]*",
        "@/*/deep/big.bin",
        "@/no*thing",
        "@/*/",
        "@/src/*/",
        "@/*.c/",
        "@/[[:lower:]]*",
        "@/[![:lower:]]*",
        "@/[]ab]*",
        "@/*[a-]",
        "@/*[[:punct:]]?",
        "@/[[:alpha:]]*/[[:lower:][:digit:]]*",
    ] {
        let (_, wanted) = twins.host(&format!("ls -d {pattern}"));
        let (status, got) = twins.image(&format!("ls -d '{pattern}'"));
        assert_eq!(got, wanted, "{pattern}");
        assert_eq!(status, Some(i32::from(wanted.is_empty())), "{pattern}");
    }
    // Files and links fit no pattern with a slash at its end: they were removed.
    twins.0.run("mkdir -p d.img:/k/d");
    twins.0.run("cp t/lines d.img:/k/f");
    twins.0.run("ln -s f d.img:/k/l");
    twins.0.run("rm -r d.img:/k/*/");
    assert_eq!(twins.0.run("ls d.img:/k"), "f\nl\n");
    twins.0.run("rm -r d.img:/k");
    // A name with the characters of a pattern is itself.
    twins.0.write("star", b"1");
    twins.0.run("cp star d.img:/*");
    twins.0.run("cp star d.img:/plain");
    twins.0.run("rm d.img:/*");
    assert_eq!(twins.0.run("ls d.img:/"), "lost+found\nplain\nt\n");
    // Commands that change files take them, too.
    twins.image("chmod 444 '@/*.c'");
    twins.image("rm -r '@/s*' '@/e*'");
    assert_eq!(twins.0.run("cat d.img:/t/a.?"), "xxxxxxxxxx");
    twins.0.run("mkdir d.img:/to");
    twins.0.run("mv d.img:/t/*.[cC] d.img:/to");
    assert_eq!(twins.0.run("ls d.img:/to"), "a.c\nb.C\n");
    twins.0.must_be_clean("d.img");
}

/// It showed the allocated space.
#[test]
fn bytes_of_du_are_those_of_the_content() {
    let twins = Twins::new();
    for row in ["du -b @/b.C", "du -b @/src/deep/big.bin @/.hidden/x"] {
        let image = twins.image(row).1;
        assert_eq!(image, twins.host(row).1, "{row}");
    }
}
