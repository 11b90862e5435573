//! Commands that change files.

use super::Twins;
use crate::common::{Bench, is_root};

#[test]
fn changes_are_those_of_gnu() {
    if !is_root("owners of files") {
        return;
    }
    let twins = Twins::new();
    let time = "-d '2002-03-04 05:06:07'";
    for row in [
        "chmod 640 @/b.C",
        "chmod u+x,g-w,o=r @/a.c @/src/c.c",
        "chmod -x @/a.c",
        "chmod +t,g+s @/empty",
        "chmod 755 @/src",
        "chmod 00755 @/src",
        "chmod -R go=u,a+X @/src",
        "chmod 600 @/src/to-a",
        "chmod a=rw @/missing",
        "chmod 999 @/a.c",
        "chown 5 @/a.c",
        "chown 6:7 @/src/to-a",
        "chown -h 8:9 @/src/to-a",
        "chown :11 @/b.C",
        "chown root: @/b.C",
        "chown -R --from=12 13:14 @/src",
        "chown nosuchuser @/a.c",
        "chmod --reference=@/a.c @/b.C",
        "chmod --reference=@/missing @/b.C",
        "chmod -R --reference @/b.C @/empty @/src/deep",
        "chown --reference=@/src/c.c @/a.c @/b.C",
        "touch -d '1 Jan 2001' @/b.C",
        "touch -d '2024-01-02 03:04 UTC' @/b.C",
        "touch -d '2024/01/02 03:04:05' @/b.C",
        "touch -d 'yesterday 12:00' @/b.C",
        &format!("touch {time} @/a.c @/new"),
        &format!("touch -c {time} @/not-new"),
        &format!("touch -h {time} @/src/to-a"),
        &format!("touch -m {time} @/src/c.c"),
        "touch -t 200304050607.08 @/lines",
        "touch -t 0405060708 @/lines",
        "touch -r @/a.c @/b.C",
        "touch -d '2001-09-09 01:46:40.5' @/b.C",
        "touch @/missing/x",
        "touch -d nonsense @/a.c",
        "truncate -s 100 @/a.c; touch -d 2001-01-01 @/a.c",
        "truncate -s +1K @/b.C; touch -d 2001-01-01 @/b.C",
        "truncate -s -500 @/b.C; touch -d 2001-01-01 @/b.C",
        "truncate -s '<50' @/a.c; touch -d 2001-01-01 @/a.c",
        "truncate -s '%4096' @/a.c; touch -d 2001-01-01 @/a.c",
        "truncate -c -s 5 @/never",
        "truncate -r @/lines @/src/c.c; touch -d 2001-01-01 @/src/c.c",
        "truncate -s x @/a.c",
        "rmdir @/src",
        "rmdir --ignore-fail-on-non-empty @/src",
        "mkdir -p @/p/q/r; rmdir -p @/p/q/r; touch -d 2001-01-01 @",
        "rmdir @/a.c",
        "find @ -name '*.bin' -delete; touch -d 2001-01-01 @/src/deep",
    ] {
        twins.must_do_the_same(row);
    }
    // The message was "cannot search".
    let said = twins.0.fail("find d.img:/t/src -maxdepth 0 -delete", 1);
    assert!(said.contains("d.img:/t/src: cannot remove: directory not empty"), "{said}");
    let deleted = |twins: &Twins| twins.image("find @ -delete").0;
    assert_eq!((deleted(&twins), twins.image("stat @").0), (Some(0), Some(1)));
    twins.0.must_be_clean("d.img");
}

#[test]
fn copies_moves_and_links_are_those_of_gnu() {
    if !is_root("owners of files") {
        return;
    }
    let twins = Twins::new();
    for row in [
        // GNU cp adds the bit of a new directory's parent.
        "chmod g-s @/src",
        "cp -a @/src @/copy",
        "cp -a @/src @/copy",
        "cp -a -T @/src @/copy",
        "cp -a -v -f @/a.c @/b.C",
        "cp -a -n @/lines @/b.C",
        "chmod u-s @/b.C; cp -a -u @/lines @/b.C; cp -a -u @/a.c @/lines",
        "cp -a -t @/empty @/a.c @/lines",
        "cp -a -t @/missing @/a.c",
        "cp -a -T @/a.c @/empty",
        "cp -a @/a.c @/lines @/b.C",
        "cp -a -L @/src/to-a @/followed",
        "cp -a -P @/src/to-a @/link",
        "cp -a -x @/src/deep @/deep",
        "cp @/src @/not-recursive",
        "cp -P @/src @/not-recursive",
        "cp -p -P @/src/to-a @/link-1",
        "cp -p -d @/dangling @/link-2",
        "cp -r --preserve=all -d @/src @/preserved",
        "cp -a -l @/src @/hard",
        "cp -a -l @/src @/hard",
        "cp -p -l @/a.c @/src/hard-a",
        "cp -a --parents @/src/deep/zero @/src/to-a @/empty",
        "cp -a --parents @/src/deep @/missing",
        "mv -v @/copy @/moved; touch -d 2001-01-01 @",
        "mv -n @/followed @/lines",
        "mv -f @/followed @/lines",
        "mv @/link @/deep @/empty",
        "mv @/moved @/moved/inside",
        "mv @/missing @/x",
        "mkdir -m 2750 @/m; mkdir -v -m u=rwx,go= @/m/n; mkdir @/m; mkdir -p @/m; mkdir @/no/parent",
        "ln @/a.c @/m/hard; ln -s a.c @/m/soft; ln -s x @/m/soft; ln -s -f x @/m/soft",
        "ln -s n @/m/to-n; ln -s -f -n other @/m/to-n",
        "ln -s -r @/src/c.c @/m/relative",
        "ln @/missing @/m/y",
        "rm -v @/m/hard; rm @/m; rm -d @/m/n; rm -f @/missing; rm @/missing; rm -r @/m; rm -rf @/deep @/missing",
    ] {
        twins.must_do_the_same(row);
    }
    twins.0.must_be_clean("d.img");
}

#[test]
fn attributes_are_those_of_setfattr() {
    let bench = Bench::new();
    bench.run("mkfs -q d.img 16M");
    bench.write("a", b"");
    bench.run("cp a d.img:/a");
    bench.run("xattr set user.text words d.img:/a");
    bench.run("xattr set user.bytes 0x00ff d.img:/a");
    bench.run("xattr set security.selinux system_u:object_r:etc_t:s0 d.img:/a");
    let listed = "d.img:/a: security.selinux=system_u:object_r:etc_t:s0\nd.img:/a: user.bytes=0x00ff\nd.img:/a: user.text=words\n";
    assert_eq!(bench.run("xattr list d.img:/*a"), listed);
    assert_eq!(bench.run("xattr get user.text d.img:/a"), "words");
    if let Some(said) = bench.debugfs("d.img", "ea_get /a user.bytes -x") {
        assert!(said.contains("00 ff") || said.contains("00ff"), "{said}");
    }
    bench.run("xattr remove user.bytes d.img:/a");
    bench.fail("xattr get user.bytes d.img:/a", 1);
    bench.fail("xattr set user.x 0x1 d.img:/a", 2);
    let why = bench.fail("xattr set nospace x d.img:/a", 1);
    assert!(why.contains("d.img:/a: cannot set the attribute nospace"), "{why}");
    bench.must_be_clean("d.img");
}

/// The nearest time that the inode can hold was set, with exit status 0.
#[test]
fn times_that_an_inode_cannot_hold_are_errors() {
    let bench = Bench::new();
    for (inode_bytes, time, year) in
        [(256, "@99999999999", 2446), (128, "@4294967296", 2038), (256, "@-9999999999", 1901)]
    {
        bench.run(&format!("mkfs -q -F -I {inode_bytes} d.img 16M"));
        bench.run("touch -d @5 d.img:/f");
        for name in ["f", "new"] {
            let said = bench.fail(&format!("touch -d {time} d.img:/{name}"), 1);
            assert!(said.contains(&format!("d.img:/{name}: cannot set the times")), "{said}");
            assert!(said.contains(&year.to_string()), "{said}");
        }
        assert_eq!(bench.run("stat -c %Y d.img:/f"), "5\n");
        assert_eq!(bench.run("ls d.img:/"), "f\nlost+found\n");
    }
}
