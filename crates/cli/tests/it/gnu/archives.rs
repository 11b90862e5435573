//! Archives, compared with GNU tar.

use std::os::unix::net::UnixListener;

use super::{STATE, Twins};
use crate::common::{is_root, text, tool};

/// Names select entries of an archive and everything below them.
#[test]
fn members_of_an_archive_are_those_of_tar() {
    let twins = Twins::new();
    if tool("tar", ["--version"]).is_none() {
        return;
    }
    twins.shell("tar -cf a.tar t");
    let program = env!("CARGO_BIN_EXE_diorite");
    for names in
        ["", "t/a.c", "t/src/deep t/lines", "t/src/", "t", "t/missing", "t/src/c t/a.c", "missing t/lines"]
    {
        // GNU tar ends with status 2, where the usage is right.
        let wanted = twins.shell(&format!("tar --quoting-style=literal -tf a.tar {names}"));
        let got = twins.shell(&format!("{program} tar -tf a.tar {names}"));
        assert_eq!((got.0.map(|it| it != 0), got.1), (wanted.0.map(|it| it != 0), wanted.1), "{names}");
        twins.shell("rm -rf w g; mkdir w g");
        let wanted = twins.shell(&format!("tar --quoting-style=literal -xvf a.tar -C w {names}"));
        let got = twins.shell(&format!("{program} tar -xpvf a.tar -C g {names}"));
        assert_eq!((got.0.map(|it| it != 0), got.1), (wanted.0.map(|it| it != 0), wanted.1), "{names}");
        let state = |at: &str| twins.shell(&format!("cd {at}; {}", STATE.replace('@', ".")));
        assert_eq!(state("g"), state("w"), "{names}");
    }
    let why = twins.0.fail("tar -tf a.tar nosuch", 1);
    assert!(why.contains("a.tar: `nosuch`: not found in the archive"), "{why}");
    // `-c` prints the names that the archive has. If the archive goes to standard output, they go to standard error.
    let (_, listed) = twins.shell(&format!("{program} tar -tf a.tar"));
    twins.image("tar -cf b.tar -C d.img:/ t");
    let verbose = twins.shell(&format!("{program} tar -cvf b.tar -C d.img:/ t | sed 's,/$,,'")).1;
    assert_eq!(verbose, listed.iter().map(|name| name.trim_end_matches('/')).collect::<Vec<_>>());
}

#[test]
fn long_lists_are_those_of_tar() {
    if !is_root("owners and devices") || tool("tar", ["--version"]).is_none() {
        return;
    }
    let twins = Twins::new();
    let program = env!("CARGO_BIN_EXE_diorite");
    twins.shell(
        "mknod t/null c 1 3; mkfifo t/pipe; truncate -s 5M t/hole; touch -d '2001-02-03 04:05:06.5' t/hole",
    );
    for options in [
        "",
        "--format=pax -S",
        "--format=gnu -S --owner=a-name-of-many-letters:77 --group=another-long-name:88",
    ] {
        twins.shell(&format!("tar {options} -cf a.tar t"));
        let wanted = twins.shell("tar --quoting-style=literal -tvf a.tar");
        assert_eq!(twins.shell(&format!("{program} tar -tvf a.tar")), wanted, "{options}");
    }
    let listed = twins.0.json("tar -t -f a.tar t/src t/null");
    let entries = listed["entries"].as_array().expect("entries");
    let named = |name: &str| entries.iter().find(|entry| entry["name"] == name).expect("an entry");
    assert_eq!(named("t/src/")["kind"], "directory");
    assert_eq!(
        (&named("t/src/to-a")["target"], &named("t/null")["device"][1]),
        (&"../a.c".into(), &3.into())
    );
    assert_eq!(named("t/src/c.c")["user"], "a-name-of-many-letters");
    // A name that is not there is an error beside the list.
    let output =
        twins.0.diorite(["tar", "-t", "-f", "a.tar", "--json", "t/a.c", "nosuch"]).output().expect("starts");
    assert_eq!(output.status.code(), Some(1));
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&object["entries"][0]["size"], &object["error"]["object"]), (&10.into(), &"a.tar".into()));
}

#[test]
fn archives_can_be_compressed() {
    let twins = Twins::new();
    if tool("tar", ["--version"]).is_none() || tool("gzip", ["--version"]).is_none() {
        return;
    }
    let program = env!("CARGO_BIN_EXE_diorite");
    twins.0.run("tar -c -f plain.tar -C d.img:/ t");
    twins.0.run("tar -czf z.tgz -C d.img:/ t");
    twins.shell(&format!("{program} tar -cz -C d.img:/ t > stream.tgz"));
    for archive in ["z.tgz", "stream.tgz"] {
        assert_eq!(twins.shell(&format!("gzip -dc {archive} | cmp - plain.tar")).0, Some(0), "{archive}");
        let wanted = twins.shell(&format!("tar --quoting-style=literal -tzf {archive}"));
        assert_eq!(twins.shell(&format!("{program} tar -tzf {archive}")), wanted);
    }
    twins.shell("mkdir out");
    twins.0.run("tar -xzf z.tgz -C out");
    twins.0.run("diff d.img:/t out/t");
}

/// A socket was a failure, with exit status 1.
#[test]
fn sockets_are_left_out_of_archives() {
    let twins = Twins::new();
    if tool("tar", ["--version"]).is_none() {
        return;
    }
    let Ok(_socket) = UnixListener::bind(twins.0.path("t/socket")) else {
        return println!("SKIPPED: the path of the temporary directory is too long for a socket");
    };
    twins.0.run("cp -a t/socket d.img:/t/socket");
    assert_eq!(twins.host("tar -cf gnu.tar @ @/socket").0, Some(0));
    let wanted = twins.shell("tar --quoting-style=literal -tf gnu.tar");
    for from in ["t", "d.img:/t"] {
        let output = twins
            .0
            .diorite(["tar", "-c", "-f", "a.tar", from, &format!("{from}/socket")])
            .output()
            .expect("starts");
        let said = text(&output.stderr);
        assert!(output.status.success() && said.matches("it is a socket").count() == 2, "{said}");
        assert_eq!(twins.shell("tar --quoting-style=literal -tf a.tar"), wanted);
    }
}
