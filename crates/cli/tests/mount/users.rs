//! Rights of users: permissions, privileges, and mounts by users without rights.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::{NOBODY, Served};
use crate::common::{Bench, is_root, text, tool};

/// Permission bits apply between users. A write by another user clears set-user-ID, which `stat` shows at once.
pub(crate) fn users_are_kept_apart() {
    let Some(served) = Served::new("ext4", "64M", "allow_other") else { return };
    served.open_to_all();
    let as_nobody = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).uid(NOBODY).gid(NOBODY).current_dir(served.at());
        let output = shell.output().expect("a shell");
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    fs::set_permissions(served.at(), fs::Permissions::from_mode(0o1777)).expect("chmod");
    fs::create_dir(served.path("private")).expect("mkdir");
    fs::set_permissions(served.path("private"), fs::Permissions::from_mode(0o700)).expect("chmod");
    fs::write(served.path("private/secret"), "s").expect("write");
    fs::write(served.path("secret"), "s").expect("write");
    fs::set_permissions(served.path("secret"), fs::Permissions::from_mode(0o600)).expect("chmod");
    for forbidden in [
        "cat secret",
        "cat private/secret",
        "ls private",
        "rm -f secret",
        "mv secret stolen",
        "ln secret link",
        "chmod 777 secret",
    ] {
        assert!(!as_nobody(forbidden).0, "{forbidden}");
    }
    assert!(as_nobody("umask 027 && echo own > own && mkdir own.d").0);
    let own = fs::metadata(served.path("own")).expect("stat");
    assert_eq!((own.uid(), own.mode() & 0o7777), (NOBODY, 0o640));
    fs::set_permissions(served.path("own"), fs::Permissions::from_mode(0o6755)).expect("chmod");
    assert!(as_nobody("echo more >> own").0);
    assert_eq!(fs::metadata(served.path("own")).expect("stat").mode() & 0o7777, 0o755);
    assert!(as_nobody("chattr +A own").0);
    assert!(!as_nobody("chattr +j own").0, "all its data would go through the log");
    served.must_end_clean();
}

/// An unprivileged user mounts an image with `fusermount3`. Only that user sees its files, and has all rights unless permissions are
/// checked.
#[test]
fn a_user_without_rights_mounts_an_image() {
    // All users can open `/dev/fuse` in this namespace, as with the system's rules.
    const SCRIPT: &str = r#"
        mount -t tmpfs none /mnt && mknod -m 666 /mnt/fuse c 10 229 && mount --bind /mnt/fuse /dev/fuse
        user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
        chmod 755 . && chown 65534:65534 a.img at
        unmount() { user ./diorite umount at; until user ./diorite info a.img > info; do :; done; }
        user ./diorite mount a.img at
        user sh -ec 'cd at; cp /bin/ls a; cmp a /bin/ls; mkdir d; mv a d; chmod 600 d/a; ln -s d/a s; sync d/a; echo x > x; chown 0 x'
        ! ls at || exit 1
        ! user ./diorite mount a.img at || exit 2
        unmount
        user ./diorite mount -o default_permissions a.img at
        user sh -ec 'cd at; cmp d/a /bin/ls; ! chown 0 d/a || exit 3; ! chmod 777 x || exit 4; rm x'
        unmount
        user ./diorite cat a.img:/d/a | cmp - /bin/ls"#;
    if !is_root("another user's mount") {
        return;
    }
    let _alone = super::alone();
    let bench = Bench::new();
    bench.image("a.img", "ext4", "32M");
    fs::create_dir(bench.path("at")).expect("mkdir");
    let owner =
        "debugfs -w -R 'sif <2> uid 65534' a.img 2> log; cp $DIORITE diorite; chmod 755 diorite; exec 2> log";
    let Some(output) = tool("setpriv", ["--version"]) else { return };
    assert!(output.status.success());
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-exc", &format!("{owner}; {SCRIPT}")]);
    shell.env("DIORITE", env!("CARGO_BIN_EXE_diorite")).current_dir(bench.path("."));
    let status = shell.status().expect("unshare");
    assert!(status.success(), "{}", text(&bench.read("log")));
    bench.must_be_clean("a.img");
}

/// Without `allow_other` permissions are not checked, but a file that no user may execute is no program.
pub(crate) fn the_one_who_mounted_executes_programs_alone() {
    use rustix::fs::{Access, access};
    use rustix::io::Errno;
    let Some(served) = Served::new("ext4", "64M", "") else { return };
    let file = served.path("file");
    fs::write(&file, "#!/bin/sh\n").expect("write");
    for (mode, program) in [(0o644, Err(Errno::ACCESS)), (0o001, Ok(())), (0, Err(Errno::ACCESS))] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("chmod");
        assert_eq!(access(&file, Access::READ_OK | Access::WRITE_OK), Ok(()));
        assert_eq!(access(&file, Access::EXEC_OK), program, "{mode:o}");
        assert_eq!(Command::new(&file).status().is_ok(), program.is_ok(), "{mode:o}");
    }
    assert_eq!(access(served.at(), Access::EXEC_OK), Ok(()));
    served.must_end_clean();
}

/// The group's bits are the mask of the access control list at once, with any kernel.
pub(crate) fn an_access_list_changes_permission_bits() {
    for options in ["", "default_permissions"] {
        let Some(served) = Served::new("ext4", "64M", options) else { return };
        let file = served.path("file");
        fs::write(&file, "x").expect("write");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
        let list = ["-m".as_ref(), "u:1000:rwx".as_ref(), file.as_os_str()];
        let Some(set) = tool("setfacl", list) else { return };
        assert!(set.status.success(), "{}", text(&set.stderr));
        assert_eq!(fs::metadata(&file).expect("stat").mode() & 0o777, 0o670, "with `{options}`");
        served.must_end_clean();
    }
}

/// `copy_file_range` kept set-user-ID and set-group-ID on the program of another user.
pub(crate) fn a_range_that_is_copied_takes_privileges() {
    let Some(served) = Served::new("ext4", "64M", "allow_other") else { return };
    fs::write(served.path("source"), "other content").expect("write");
    fs::write(served.path("program"), "the program").expect("write");
    let permissions = |mode| fs::set_permissions(served.path("program"), fs::Permissions::from_mode(mode));
    permissions(0o6777).expect("chmod");
    let mode = || fs::metadata(served.path("program")).expect("stat").mode() & 0o7777;
    let source = fs::File::open(served.path("source")).expect("open");
    let program = OpenOptions::new().write(true).open(served.path("program")).expect("open");
    let copy = || rustix::fs::copy_file_range(&source, Some(&mut 0), &program, Some(&mut 0), 5);
    assert_eq!((copy(), mode()), (Ok(5), 0o6777), "the superuser's");
    std::thread::scope(|scope| {
        let as_nobody = || {
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(NOBODY)).expect("setuid");
            assert_eq!(copy(), Ok(5));
        };
        scope.spawn(as_nobody).join().expect("copied");
    });
    assert_eq!(mode(), 0o777);
    drop((source, program));
    served.must_end_clean();
}
