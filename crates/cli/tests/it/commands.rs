//! Every command on images of every type, verified by e2fsck and debugfs.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use crate::common;

use common::{Bench, Mounted, pattern, text, tool};

const TYPES: [&str; 3] = ["ext2", "ext3", "ext4"];

#[test]
fn names_are_made_moved_linked_and_removed() {
    for kind in TYPES {
        let bench = Bench::new();
        bench.image("a.img", kind, "32M");
        bench.write("file", b"hello\n");
        bench.run("mkdir -p a.img:/one/two/three");
        bench.run("cp file a.img:/one/");
        assert_eq!(bench.run("cat a.img:/one/file"), "hello\n");
        bench.run("mv a.img:/one/file a.img:/one/two");
        bench.run("ln a.img:/one/two/file a.img:/again");
        bench.run("ln -s one/two/file a.img:/link");
        assert_eq!(bench.run("ls a.img"), "again\nlink\nlost+found\none\n");
        assert_eq!(bench.run("cat a.img:/link"), "hello\n");
        let stat = bench.json("stat a.img:/again");
        assert_eq!(
            (stat["files"][0]["links"].as_u64(), stat["files"][0]["size"].as_u64()),
            (Some(2), Some(6))
        );
        let tree = bench.run("tree a.img:/one");
        assert!(tree.contains("└── two/") && tree.contains("2 directories, 1 files"), "{tree}");
        bench.must_be_clean("a.img");
        bench.run("rm -r a.img:/one");
        bench.run("rm a.img:/again a.img:/link");
        assert_eq!(bench.run("ls a.img:/"), "lost+found\n");
        bench.must_be_clean("a.img");
    }
}

/// Absolute paths contain the `:/` that ends the name of an image.
#[test]
fn several_devices_are_an_image() {
    let bench = Bench::new();
    for name in ["a", "b"] {
        bench.write(name, &vec![0; 16 << 20]);
    }
    let absolute = |name: &str| bench.path(name).display().to_string();
    for joined in ["stripe", "linear"] {
        let image = format!("{joined}:{},raw:{}", absolute("a"), absolute("b"));
        bench.write("file", joined.as_bytes());
        bench.run(&format!("mkfs --force -t ext4 {image}"));
        bench.run(&format!("cp file {image}:/"));
        bench.run(&format!("mv {image}:/file {image}:/with,comma"));
        assert_eq!(bench.run(&format!("cat {image}:/with,comma")), joined);
        bench.run(&format!("check {image}"));
    }
    let missing = format!("stripe:{},{}", absolute("a"), absolute("missing"));
    assert!(bench.fail(&format!("mkfs -t ext4 {missing} 1G"), 1).contains("missing"));
    assert!(!bench.path("missing").exists());
}

/// `-h` means readable sizes, as in ls, df and du of coreutils.
#[test]
fn sizes_are_easy_to_read_where_h_asks_for_it() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "32M");
    bench.write("file", &[1; 1536]);
    bench.run("cp file a.img:/");
    assert!(bench.run("ls -l a.img:/file").contains(" 1536 "));
    assert!(bench.run("ls -lh a.img:/file").contains(" 1.5K "));
    for command in ["df", "du"] {
        let (plain, human) =
            (bench.run(&format!("{command} a.img")), bench.run(&format!("{command} -h a.img")));
        assert!(plain == human && human.contains('M') | human.contains('K'), "{human}");
        assert!(bench.run(&format!("{command} --help")).contains("Usage: "));
    }
}

#[test]
fn images_of_mke2fs_are_read_and_written() {
    for kind in TYPES {
        let bench = Bench::new();
        let image = bench.path("a.img");
        std::fs::File::options()
            .create(true)
            .append(true)
            .open(&image)
            .and_then(|file| file.set_len(64 << 20))
            .expect("an empty image");
        let arguments = ["-q", "-F", "-t", kind, "-b", "4096"].map(std::ffi::OsStr::new);
        let Some(made) = tool("mke2fs", arguments.into_iter().chain([image.as_os_str()])) else { return };
        assert!(made.status.success());
        let data = pattern(5_000_001, 1);
        bench.write("data", &data);
        bench.run("cp data a.img:/data");
        bench.run("cp a.img:/data back");
        assert_eq!(bench.read("back"), data, "{kind}");
        bench.must_be_clean("a.img");
        if let Some(answer) =
            bench.debugfs("a.img", &format!("dump /data {}", bench.path("dumped").display()))
        {
            assert_eq!(bench.read("dumped"), data, "{kind}: {answer}");
        }
        if let Some(mounted) = Mounted::new(&image, "ro") {
            assert_eq!(bench.read(mounted.at.path().join("data").to_str().expect("text")), data, "{kind}");
        }
    }
}

#[test]
fn listing_shows_what_debugfs_shows() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "32M");
    bench.write("file", &pattern(123_456, 2));
    bench.run("cp file a.img:/file");
    bench.run("mkdir -m 1777 a.img:/tmp");
    let long = bench.run("ls -lai a.img");
    let file = long.lines().find(|line| line.ends_with(" file")).expect("the file");
    assert!(file.contains(" 123456 ") && file.contains(" -rw"), "{long}");
    assert!(long.lines().any(|line| line.contains("drwxrwxrwt") && line.ends_with(" tmp")), "{long}");
    let stat = bench.json("stat a.img:/file");
    let inode = stat["files"][0]["inode"].as_u64().expect("a number");
    if let Some(answer) = bench.debugfs("a.img", "stat /file") {
        assert!(answer.contains(&format!("Inode: {inode} ")) && answer.contains("Size: 123456"), "{answer}");
    }
    let extents = bench.json("extents a.img:/file");
    let first = extents["extents"][0]["device_offset"].as_u64().expect("a place");
    let block_size = bench.json("info a.img")["block_size"].as_u64().expect("a size");
    if let Some(answer) = bench.debugfs("a.img", "bmap /file 0") {
        assert_eq!(answer.trim().parse::<u64>().ok(), Some(first / block_size));
    }
}

#[test]
fn sums_and_free_space_follow_the_files() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "32M");
    let free = |bench: &Bench| {
        let df = bench.json("df a.img");
        df["images"][0]["blocks_free"].as_u64().expect("a number")
            * df["images"][0]["block_size"].as_u64().expect("a number")
    };
    let before = free(&bench);
    bench.write("file", &pattern(1 << 20, 3));
    bench.run("mkdir a.img:/dir");
    bench.run("cp file a.img:/dir/one");
    bench.run("ln a.img:/dir/one a.img:/dir/two");
    let used = before - free(&bench);
    assert!((1 << 20..(1 << 20) + (64 << 10)).contains(&used), "{used}");
    let du = bench.json("du -s a.img:/dir");
    let bytes = du["totals"][0]["bytes"].as_u64().expect("a number");
    assert!((1 << 20..(1 << 20) + (64 << 10)).contains(&bytes), "hard links count once: {bytes}");
    assert_eq!(bench.json("du -s --apparent-size a.img:/dir/one")["totals"][0]["bytes"], 1 << 20);
    let both = bench.json("du -s --apparent-size a.img:/dir/one a.img:/dir/two");
    assert_eq!(both["totals"][1]["bytes"], 0, "counted with the first: {both}");
    bench.run("rm -r a.img:/dir");
    assert_eq!(free(&bench), before);
}

#[test]
fn changes_are_reported_as_one_object() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    assert_eq!(bench.json("mkdir a.img:/one a.img:/two")["made"], serde_json::json!(["/one", "/two"]));
    let link = bench.json("ln -s one a.img:/link");
    assert_eq!((link["kind"].as_str(), link["target"].as_str()), (Some("symbolic"), Some("one")));
    let moved = bench.json("mv a.img:/two a.img:/one");
    assert_eq!(moved["moved"], serde_json::json!([{ "from": "/two", "to": "/one/two" }]));
    let removed = bench.json("rm -r a.img:/one a.img:/link");
    assert_eq!((removed["files"].as_u64(), removed["directories"].as_u64()), (Some(1), Some(2)));
}

/// Missing files do not hide the others.
#[test]
fn one_missing_name_does_not_hide_the_others() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    for line in ["ls -d", "stat", "du"] {
        let line = format!("{line} a.img:/none a.img:/lost+found --json");
        let output = bench.diorite(line.split(' ')).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(common::text(&output.stdout).contains("/lost+found"), "{line}");
        assert!(common::text(&output.stderr).contains("a.img:/none: "), "{line}");
    }
    let output = bench.diorite(["df", "none.img", "a.img"]).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(common::text(&output.stdout).contains("a.img"));
}

/// A damaged inode hid its whole directory. It is reported, and the other names are listed. A listing of names needs no inode.
#[test]
fn one_damaged_inode_does_not_hide_its_neighbours() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    for name in ["a", "b", "c"] {
        bench.write("file", name.as_bytes());
        bench.run(&format!("cp file a.img:/{name}"));
    }
    let image = bench.path("a.img");
    let Some(cleared) =
        tool("debugfs", ["-w".as_ref(), "-R".as_ref(), "clri /b".as_ref(), image.as_os_str()])
    else {
        return;
    };
    assert!(cleared.status.success());
    let run = |words: &[&str]| bench.diorite(words).output().expect("the program starts");
    for words in [&["ls", "-R", "a.img"][..], &["tree", "a.img"]] {
        let shown = run(words);
        assert!(shown.status.success(), "{words:?}: {shown:?}");
        assert!(["a", "b", "c"].iter().all(|name| text(&shown.stdout).contains(name)), "{shown:?}");
    }
    for words in [&["ls", "-l", "a.img"][..], &["ls", "--json", "a.img"]] {
        let output = run(words);
        let (reported, shown) = (text(&output.stderr), text(&output.stdout));
        assert_eq!(output.status.code(), Some(1), "{words:?}: {reported}");
        assert!(
            reported.starts_with("diorite: a.img:/b: cannot look up: ") && reported.lines().count() == 1,
            "{reported}"
        );
        assert!(["a", "c"].iter().all(|name| shown.contains(name)), "{words:?}: {shown}");
    }
    let output = run(&["cp", "-r", "a.img:/", "out"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!((bench.read("out/a"), bench.read("out/c")), (b"a".to_vec(), b"c".to_vec()));
}

/// The volume's count of written bytes continues the kernel's count.
#[test]
fn what_was_written_so_far_is_counted() {
    for kind in TYPES {
        let bench = Bench::new();
        bench.image("a.img", kind, "32M");
        let written = || bench.json("info a.img")["written_kib"].as_u64().expect("a number");
        bench.write("file", &pattern(4 << 20, 1));
        let start = written();
        bench.run("cp file a.img:/file");
        let once = written();
        assert!((4096..8192).contains(&(once - start)), "{kind}: {start} KiB, then {once}");
        bench.run("cp file a.img:/again");
        assert!((4096..8192).contains(&(written() - once)), "{kind}: {once} KiB, then {}", written());
        if let Some(answer) = bench.debugfs("a.img", "stats -h") {
            assert!(answer.lines().any(|line| line.starts_with("Lifetime writes:")), "{answer}");
        }
        bench.must_be_clean("a.img");
    }
}

/// The second file replaced the first one silently.
#[test]
fn two_sources_with_one_name_do_not_replace_each_other() {
    let bench = Bench::new();
    bench.run("mkfs -t ext4 a.img 16M");
    bench.run("mkdir a.img:/A a.img:/B a.img:/moved a.img:/copied a.img:/A/tree a.img:/B/tree");
    for (name, content) in [("A/x", "one"), ("B/x", "two"), ("A/tree/x", "three"), ("B/tree/x", "four")] {
        bench.write("x", content.as_bytes());
        bench.run(&format!("cp x a.img:/{name}"));
    }
    for line in ["cp a.img:/A/x a.img:/B/x a.img:/copied", "cp -r a.img:/A/tree a.img:/B/tree a.img:/copied"]
    {
        let said = bench.fail(line, 1);
        assert!(said.contains("a.img:/B/") && said.contains("another source was just copied to"), "{said}");
    }
    assert_eq!(bench.run("cat a.img:/copied/x a.img:/copied/tree/x"), "onethree");
    let said = bench.fail("mv a.img:/A/x a.img:/B/x a.img:/moved", 1);
    assert!(said.contains("a.img:/B/x: not moved"), "{said}");
    assert_eq!(bench.run("cat a.img:/moved/x a.img:/B/x"), "onetwo");
    bench.run("ln a.img:/B/x a.img:/B/same");
    let said = bench.fail("cp a.img:/B/x a.img:/B/same", 1);
    assert!(said.contains("the same file"), "{said}");
    // Files from before the command are replaced.
    bench.run("cp a.img:/B/x a.img:/copied");
    bench.run("mv a.img:/B/x a.img:/moved");
    assert_eq!(bench.run("cat a.img:/copied/x a.img:/moved/x"), "twotwo");
    bench.must_be_clean("a.img");
}

#[test]
fn check_finds_what_is_wrong_and_says_where() {
    let bench = Bench::new();
    for kind in TYPES {
        bench.image("a.img", kind, "16M");
        bench.write("file", &pattern(100_000, 6));
        bench.run("cp file a.img:/file");
        assert_eq!(bench.json("check a.img")["clean"], true);
        let inode = bench.json("stat a.img:/file")["files"][0]["inode"].clone();
        let image = bench.path("a.img");
        let arguments = ["-w", "-R", "sif /file links_count 7"].map(std::ffi::OsStr::new);
        if tool("debugfs", arguments.into_iter().chain([image.as_os_str()])).is_none() {
            return;
        }
        let output = bench.diorite(["check", "a.img"]).output().expect("the program starts");
        let text = common::text(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("inode {inode}: ")), "{kind}: {text}");
        std::fs::remove_file(image).expect("the image");
    }
}

#[test]
fn completions_and_pages_know_every_command() {
    let bench = Bench::new();
    let script = bench.run("completions bash");
    bench.run("man --output pages");
    let pages = std::fs::read_dir(bench.path("pages")).expect("pages").count();
    let help = bench.run("help");
    for command in [
        "mkfs", "info", "check", "extents", "ls", "tree", "stat", "cat", "cp", "mv", "rm", "mkdir", "ln",
        "df", "du", "bonnie",
    ] {
        assert!(script.contains(command) && help.contains(command), "{command}");
        assert!(bench.path(&format!("pages/diorite-{command}.1")).exists(), "{command}");
    }
    assert!(pages > 14);
    // `help COMMAND` has no page of its own. Half of all pages were such pages.
    let of_help = bench.path("pages").read_dir().expect("pages").filter_map(Result::ok);
    let of_help = of_help.filter(|page| page.file_name().to_string_lossy().contains("-help"));
    assert_eq!(of_help.count(), 0);
    assert!(bench.run("man cp").contains(".TH"));
}

/// `du` and `ls -d` showed `/dir`, which names a directory of the host.
#[test]
fn names_that_are_shown_can_be_pasted() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    bench.run("mkdir -p a.img:/dir/sub");
    bench.write("file", b"x");
    bench.run("cp file a.img:/dir/file");
    for line in
        ["du -a a.img:/dir", "du -s a.img:/dir", "du a.img", "ls -d a.img:/dir", "ls -l a.img:/dir/file"]
    {
        for shown in bench.run(line).lines() {
            let name = shown.split([' ', '\t']).next_back().unwrap_or_default();
            assert!(name.starts_with("a.img:/"), "{line}: {shown}");
            bench.run(&format!("stat {name}"));
        }
    }
}

/// `-f` removed LINK first. If the new link failed, or both names were one file, the file was lost.
#[test]
fn link_takes_the_place_of_another_only_when_it_can_be_made() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    bench.write("file", b"content");
    bench.run("cp file a.img:/one");
    bench.run("cp file a.img:/two");
    bench.run("ln -f a.img:/one a.img:/one");
    bench.fail("ln -f a.img:/missing a.img:/two", 1);
    assert_eq!(bench.run("ls a.img:/"), "lost+found\none\ntwo\n");
    bench.run("ln -f a.img:/one a.img:/two");
    bench.run("ln -f a.img:/one a.img:/two");
    let inode = |name: &str| bench.json(&format!("stat a.img:/{name}"))["files"][0]["inode"].clone();
    assert_eq!(inode("one"), inode("two"));
    bench.run("ln -sf elsewhere a.img:/two");
    assert_eq!(bench.run("ls -a a.img:/"), "lost+found\none\ntwo\n");
    assert_eq!(bench.json("stat a.img:/two")["files"][0]["target"], "elsewhere");
    bench.must_be_clean("a.img");
}

/// `rm -r dir/.` removed the content of the directory before it failed on `.`.
#[test]
fn directory_without_its_own_name_is_not_removed() {
    let bench = Bench::new();
    bench.image("a.img", "ext2", "8M");
    bench.run("mkdir -p a.img:/d/e");
    for (path, why) in [("/d/.", "own name"), ("/d/e/..", "own name"), ("/d/./", "own name"), ("//", "root")]
    {
        let error = bench.fail(&format!("rm -r a.img:{path}"), 1);
        assert!(error.contains("cannot remove") && error.contains(why), "{error}");
    }
    assert_eq!(bench.run("ls a.img:/d"), "e\n");
}

/// `rm -r` of a link to the root with a trailing slash removed the whole volume before it failed.
#[test]
fn a_tree_that_a_link_leads_to_is_not_removed() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "8M");
    bench.write("x", b"content");
    bench.run("mkdir a.img:/d");
    bench.run("cp x a.img:/d/file");
    for (name, target) in [("root", "/"), ("link", "d"), ("far", "link")] {
        bench.run(&format!("ln -s {target} a.img:/{name}"));
        for slash in ["/", "//"] {
            for line in ["rm -r", "rm -rf", "rm -d"] {
                let said = bench.fail(&format!("{line} a.img:/{name}{slash}"), 1);
                assert!(said.contains("it is a symbolic link; leave out the slash"), "{said}");
            }
        }
    }
    for root in ["/", "//", "/root/", "/d/.."] {
        bench.fail(&format!("rm -rf a.img:{root}"), 1);
    }
    assert_eq!(bench.run("cat a.img:/d/file"), "content");
    bench.run("rm -r a.img:/root a.img:/link a.img:/far a.img:/d/");
    assert_eq!(bench.run("ls a.img:/"), "lost+found\n");
    bench.must_be_clean("a.img");
}

/// A member of a mirror of two, as MD's superblocks of version 1.2 say, with a volume in it.
fn member_of_mirror(volume: &[u8], role: u16) -> Vec<u8> {
    const DATA: usize = 1 << 20;
    let sectors = (volume.len() as u64 / 512).to_le_bytes();
    let mut superblock = vec![0; 264];
    let mut put = |at: usize, value: &[u8]| superblock[at..at + value.len()].copy_from_slice(value);
    put(0, &0xa92b_4efc_u32.to_le_bytes());
    put(4, &[1]);
    put(16, b"array of the tstany:test");
    put(72, &[1]);
    put(80, &sectors);
    put(92, &[2]);
    put(128, &(DATA as u64 / 512).to_le_bytes());
    put(136, &sectors);
    put(144, &[8]);
    put(160, &role.to_le_bytes());
    put(200, &[7]);
    put(208, &[0xff; 8]);
    put(220, &[4]);
    put(256, &[0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff]);
    let words =
        superblock.chunks(4).map(|word| u64::from(u32::from_le_bytes(word.try_into().expect("four"))));
    let sum: u64 = words.sum();
    superblock[216..220].copy_from_slice(&(((sum & 0xffff_ffff) + (sum >> 32)) as u32).to_le_bytes());
    let mut member = vec![0; DATA];
    member[4096..4096 + 264].copy_from_slice(&superblock);
    member.extend(volume);
    member
}

/// `info` did not report that a volume is read-only because its array is incomplete.
#[test]
fn a_volume_on_an_incomplete_mirror_is_shown_as_read_only() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "8M");
    for role in 0..2 {
        bench.write(&format!("{role}.img"), &member_of_mirror(&bench.read("a.img"), role));
    }
    let why = "1 of 2 members are present and up to date; number 1 (from 0 on) is missing; name all members";
    let shown = bench.run("info md:0.img");
    assert!(shown.lines().any(|line| line.starts_with("Read only") && line.contains(why)), "{shown}");
    assert_eq!(bench.json("info md:0.img")["array_read_only_reason"], why);
    assert!(bench.fail("mkdir md:0.img:/d", 1).contains(why));
    assert!(!bench.run("info md:0.img,1.img").contains("Read only"));
    bench.run("mkdir md:0.img,1.img:/d");
}

/// `mv` onto another name of the same file reported success and kept the old name.
#[test]
fn a_name_that_is_moved_onto_another_of_its_file_is_gone() {
    let bench = Bench::new();
    bench.image("a.img", "ext4", "16M");
    bench.write("x", b"content");
    bench.run("cp x a.img:/one");
    bench.run("mkdir a.img:/d");
    for two in ["/two", "/d/one"] {
        bench.run(&format!("ln a.img:/one a.img:{two}"));
        bench.run("mv -n a.img:/one a.img:/one");
        let said = bench.fail("mv a.img:/one a.img:/d/../one", 1);
        assert!(said.contains("a.img:/one: not moved: it is the same file as /d/../one"), "{said}");
        bench.run(&format!("mv -n a.img:/one a.img:{two}"));
        let to = if two == "/two" { two } else { "/d" };
        let moved = bench.json(&format!("mv a.img:/one a.img:{to}"));
        assert_eq!(moved["moved"][0]["to"], two, "{moved}");
        let said = bench.fail("stat a.img:/one", 1);
        assert!(said.contains("/one"), "{said}");
        assert_eq!(bench.run(&format!("cat a.img:{two}")), "content");
        bench.run(&format!("mv a.img:{two} a.img:/one"));
        assert_eq!(bench.json("stat a.img:/one")["files"][0]["links"], 1);
    }
    bench.must_be_clean("a.img");
}

/// `mv` to another spelling of the name failed because the name exists.
#[test]
fn names_are_spelled_anew_where_case_is_ignored() {
    use diorite::{Filesystem, SetAttributes};
    const IGNORES_CASE: u32 = 0x4000_0000;
    let bench = Bench::new();
    bench.run("mkfs -t ext4 -O casefold a.img 16M");
    bench.run("mkdir a.img:/d");
    let filesystem = Filesystem::open(bench.path("a.img")).expect("open");
    let flags = Some(IGNORES_CASE | filesystem.metadata("/d").expect("the directory").flags);
    let directory = filesystem.resolve("/d").expect("the directory");
    directory.set_attributes(&SetAttributes { flags, ..SetAttributes::default() }).expect("it is empty");
    drop(directory);
    filesystem.close().expect("close");
    bench.write("x", b"content");
    bench.run("cp x a.img:/d/name");
    bench.run("mkdir a.img:/d/sub a.img:/d/sub/below");
    assert_eq!(bench.run("cat a.img:/d/NAME"), "content");
    bench.run("mv a.img:/d/name a.img:/d/NAME");
    bench.run("mv a.img:/d/sub a.img:/d/Sub");
    assert_eq!(bench.run("ls a.img:/d"), "NAME\nSub\n");
    assert_eq!(bench.run("cat a.img:/d/name"), "content");
    assert_eq!(bench.run("ls a.img:/d/Sub"), "below\n");
    bench.must_be_clean("a.img");
}

/// The commands in README.md for people with an image.
#[test]
fn the_commands_of_the_readme_work() {
    let bench = Bench::new();
    bench.image("disk.img", "ext4", "64M");
    bench.run("mkdir disk.img:/photos");
    bench.write("a.raw", b"raw");
    bench.run("cp a.raw disk.img:/photos/");
    let readme = include_str!("../../../../README.md");
    let (_, block) = readme.split_once("```sh\n").expect("a block of commands");
    let (block, _) = block.split_once("```").expect("its end");
    let commands: Vec<_> = block.lines().filter_map(|line| line.strip_prefix("diorite ")).collect();
    assert_eq!(commands.len(), block.lines().count(), "{block}");
    for command in commands {
        let (command, _) = command.split_once('#').unwrap_or((command, ""));
        bench.run(command.trim_end());
    }
    assert_eq!(std::fs::read(bench.path("photos/a.raw")).expect("the copy"), b"raw");
}

/// One bad name in the root hid all other names.
#[test]
fn a_bad_name_hides_no_others() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path("tree/sub")).expect("directories");
    for name in ["XXXbad", "plain", "zzz", "sub/in"] {
        bench.write(&format!("tree/{name}"), name.as_bytes());
    }
    let (tree, image) = (bench.path("tree"), bench.path("a.img"));
    let words: Vec<&std::ffi::OsStr> =
        ["-q", "-t", "ext4", "-O", "^metadata_csum,^dir_index", "-d"].map(std::ffi::OsStr::new).to_vec();
    let all = words.into_iter().chain([tree.as_os_str(), image.as_os_str(), "16M".as_ref()]);
    if tool("mke2fs", all).is_none() {
        return;
    }
    let mut bytes = bench.read("a.img");
    let at = bytes.windows(8).position(|found| found == b"\x06\x01XXXbad").expect("the name");
    bytes[at + 2..at + 8].copy_from_slice(b"../bad");
    bench.write("a.img", &bytes);
    for command in ["ls", "ls -lR", "tree", "tree --json", "du -a", "cp -r"] {
        let (line, shown) = match command {
            "cp -r" => ("cp -r a.img:/ out".to_owned(), Vec::new()),
            _ => (format!("{command} a.img:/"), vec!["plain", "zzz", "sub"]),
        };
        let output = bench.diorite(line.split(' ')).output().expect("the program starts");
        let (listed, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{command}: {said}");
        assert!(said.contains("a name has a NUL or a slash"), "{command}: {said}");
        assert!(shown.iter().all(|name| listed.contains(name)), "{command}: {listed}");
    }
    assert_eq!(bench.read("out/sub/in"), b"sub/in");
    assert!(bench.path("out/zzz").exists() && !bench.path("bad").exists());
    assert_eq!(bench.run("cat a.img:/plain"), "plain");
}
