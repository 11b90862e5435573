//! The command shell with scripts, and edit with an editor that is a program.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

use std::io::Write as _;
use std::process::Stdio;

use crate::common::{Bench, text};

fn run(bench: &Bench, commands: &str) -> (Option<i32>, String, String) {
    let output = bench.diorite(["shell", "d.img", "-c", commands]).output().expect("the program starts");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_script_works_in_one_open_image() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    bench.write("from host", b"content\n");
    let script = "mkdir -p a/b; cd a/b; pwd; cp 'host:from host' c; cat c; touch d; ls; find -name c; cd ..; ls -d b; stat -c %s b/c";
    let (status, said, errors) = run(&bench, script);
    assert_eq!((status, &*errors), (Some(0), ""), "{said}");
    assert_eq!(said, "/a/b\ncontent\nc\nd\nd.img:/a/b/c\nd.img:/a/b\n8\n");
    // Out of the image, and the name that a command has printed.
    let (status, ..) = run(&bench, "cp d.img:/a/b/c host:back");
    assert_eq!((status, bench.read("back")), (Some(0), b"content\n".to_vec()));
    // A failure ends the script.
    let (status, said, errors) = run(&bench, "pwd\ncat /missing\npwd");
    assert_eq!((status, &*said), (Some(1), "/\n"));
    assert!(errors.contains("/missing"), "{errors}");
    let (status, _, errors) = run(&bench, "mount x y");
    assert_eq!(status, Some(1), "{errors}");
    assert!(errors.contains("run it outside"), "{errors}");
    for command in ["cat host:", "cp /a/b/c host:"] {
        let (status, _, errors) = run(&bench, command);
        assert!(status == Some(2) && errors.contains("a path of the host is missing"), "{command}: {errors}");
    }
    assert_eq!(run(&bench, "cd /a/b/c").0, Some(1));
    assert_eq!(run(&bench, "exit; cat /missing").0, Some(0));
    bench.must_be_clean("d.img");
}

/// `rm 'a?'` removed other files, and operators of other shells became names.
#[test]
fn quotes_protect_patterns_and_operators_are_refused() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    let names = |bench: &Bench| bench.run("ls d.img:/");
    assert_eq!(run(&bench, "touch ab ac 'a?' 'x;y' 'p|q'").0, Some(0));
    let all = "a?\nab\nac\nlost+found\np|q\nx;y\n";
    assert_eq!(names(&bench), all);
    assert_eq!(run(&bench, "rm 'b?'").0, Some(1));
    assert_eq!(run(&bench, "rm 'a?'").0, Some(0));
    for quoted in ["'a?'", "a\\?", "\"a?\"", "'a'?", "'d.img:/a?'"] {
        assert_eq!(run(&bench, &format!("rm {quoted}")).0, Some(1), "{quoted}");
        assert_eq!(run(&bench, &format!("touch n; rm {quoted} n")).0, Some(1), "{quoted}");
    }
    assert_eq!(names(&bench), all.replace("a?\n", ""));
    for line in [
        "ls | cat",
        "ls > f",
        "ls >f",
        "cat < f",
        "touch a && touch b",
        "touch a || touch b",
        "ls &",
        "ls; touch f&",
    ] {
        let (status, _, errors) = run(&bench, line);
        assert!(status == Some(2) && errors.contains("not supported in this shell"), "{line}: {errors}");
    }
    assert_eq!(names(&bench), all.replace("a?\n", ""));
    assert_eq!(run(&bench, "rm a?; find -name 'x*'; rm 'x;y' p\\|q").1, "d.img:/x;y\n");
    assert_eq!(names(&bench), "lost+found\n");
    for (line, status) in [("exit 7; cat /missing", 7), ("exit 0", 0), ("exit x", 2), ("exit 300", 2)] {
        assert_eq!(run(&bench, line).0, Some(status), "{line}");
    }
}

/// Names of `-C` were looked up in the current directory, and a mistyped command was answered with the usage of the program.
#[test]
fn names_are_in_the_directory_of_tar_and_commands_are_those_of_the_shell() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    let script = "mkdir a b; touch a/f a/x1 a/x2; cd b; tar -c -f host:a.tar -C /a f x?; tar -c -f host:b.tar -C ../a 'x?'";
    assert_eq!(run(&bench, script).0, Some(1), "`x?` in quotes is no pattern");
    assert_eq!(run(&bench, "tar -t -f host:a.tar").1, "f\nx1\nx2\n");
    for (words, listed) in [
        ("-C a f", "f\n"),
        ("-C a .", "./\n./f\n./x1\n./x2\n"),
        ("-C a host:h", "h\n"),
        ("-C a d.img:/a/f", "a/f\n"),
    ] {
        bench.write("h", b"");
        assert_eq!(
            run(&bench, &format!("tar -c -f host:c.tar {words}; tar -t -f host:c.tar")).1,
            listed,
            "{words}"
        );
    }
    for (line, hint) in [("lss", "did you mean `ls`?"), ("nosuch -x", "`help` lists the commands")] {
        let (status, _, errors) = run(&bench, line);
        assert!(
            status == Some(2) && errors.contains("not a command of this shell") && errors.contains(hint),
            "{errors}"
        );
        assert!(!errors.contains("diorite help") && !errors.contains("Usage: diorite <COMMAND>"), "{errors}");
    }
    assert_eq!(run(&bench, "ls --nosuch").0, Some(2));
}

/// The path rules of the shell held for all words but the archive, which was a file of the host.
#[test]
fn archives_are_files_of_the_host() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    assert_eq!(
        run(&bench, "touch f; tar -c -f host:a.tar /f; rm f; tar -x -f host:a.tar -C /; ls f").1,
        "d.img:/f\n"
    );
    for command in ["tar -c -f b.tar /f", "tar -t -f a.tar", "tar -x -f /a.tar -C /"] {
        let (status, _, errors) = run(&bench, command);
        assert!(status == Some(2) && errors.contains("write -f host:"), "{command}: {errors}");
    }
    let said = bench.fail("tar -t -f d.img:/a.tar", 2);
    assert!(said.contains("archives are files of the host"), "{said}");
    assert_eq!(bench.names(), ["a.tar", "d.img"]);
}

#[test]
fn lines_of_standard_input_are_a_script() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    let mut child = bench
        .diorite(["shell", "d.img:/lost+found"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(b"# a comment\n\npwd\nmkdir '/a b'\ncd \"/a b\"\npwd\n").expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(text(&output.stdout), "/lost+found\n/a b\n");
    assert!(output.status.success());
}

#[test]
fn an_editor_changes_a_file_or_leaves_it() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    bench.write("f", b"one\n");
    bench.run("cp f d.img:/f");
    bench.run("chmod 640 d.img:/f");
    bench.run("xattr set user.kept yes d.img:/f");
    let edit = |editor: &str| {
        let output =
            bench.diorite(["edit", "--editor", editor, "d.img:/f"]).output().expect("the program starts");
        (output.status.code(), text(&output.stderr))
    };
    assert_eq!(edit("sed -i s/one/two/"), (Some(0), String::new()));
    assert_eq!(bench.run("cat d.img:/f"), "two\n");
    assert_eq!(bench.run("stat -c %a d.img:/f"), "640\n");
    assert_eq!(bench.run("xattr get user.kept d.img:/f"), "yes");
    let (status, said) = edit("true");
    assert!(status == Some(0) && said.contains("not changed"), "{said}");
    let (status, said) = edit("false");
    assert!(status == Some(1) && said.contains("the editor `false` failed"), "{said}");
    assert_eq!(bench.run("ls d.img:/"), "f\nlost+found\n");
    bench.must_be_clean("d.img");
}

/// The text was deleted with the temporary directory.
#[test]
fn edited_text_that_cannot_be_saved_is_kept() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 2M");
    bench.write("f", b"one\n");
    bench.run("cp f d.img:/f");
    bench.run("ln d.img:/f d.img:/g");
    bench.run("cp f d.img:/single");
    let edit = |editor: &str, path: &str| {
        let path = format!("d.img:{path}");
        let mut command = bench.diorite(["edit", "--editor", editor, &path]);
        let output = command.env("TMPDIR", bench.directory.path()).output().expect("the program starts");
        (output.status.code(), text(&output.stderr))
    };
    // Before the editor starts.
    for path in ["/missing/f", "/f/below", "/new/"] {
        let (status, said) = edit("touch started; true", path);
        assert!(status == Some(1) && said.contains(path), "{said}");
    }
    assert_eq!(bench.names(), ["d.img", "f"]);
    // No space, for a file with several names, with one and with none yet.
    for path in ["/f", "/single", "/new"] {
        let (status, said) = edit("head -c 3000000 /dev/zero >", path);
        assert_eq!(status, Some(1), "{said}");
        let kept = said.lines().find_map(|line| line.split_once("is kept in ")).expect("its path").1;
        let kept = std::path::Path::new(kept);
        assert_eq!(kept.metadata().expect("the text").len(), 3_000_000);
        std::fs::remove_dir_all(kept.parent().expect("its directory")).expect("it is there");
    }
    assert_eq!(bench.run("cat d.img:/f d.img:/g d.img:/single"), "one\none\none\n");
    assert_eq!(bench.run("ls d.img:/"), "f\ng\nlost+found\nsingle\n");
    // An editor that fails after a change.
    let (status, said) = edit("sed -i s/one/two/ $1; false", "/f");
    assert!(status == Some(1) && said.contains("is kept in"), "{said}");
    bench.must_be_clean("d.img");
}

/// The edited name became another file.
#[test]
fn edit_keeps_the_names_of_a_file() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    bench.write("f", b"a longer text\n");
    bench.run("cp f d.img:/f");
    bench.run("ln d.img:/f d.img:/g");
    for (editor, content) in
        [("sed -i s/longer//", "a  text\n"), ("sed -i s/text/very/g\\;s/a/much/", "much  very\n")]
    {
        let output = bench.diorite(["edit", "--editor", editor, "d.img:/f"]).output().expect("it starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(bench.run("cat d.img:/f d.img:/g"), content.repeat(2));
    }
    assert_eq!(bench.run("stat -c %h d.img:/g"), "2\n");
    bench.must_be_clean("d.img");
}
