//! NFS as clients see it, by another project's implementation of the messages.

use crate::nfs_bench as nfs;

use std::io::Write as _;

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite_mount::nfs::Squash;
use nfs::{Client, NFS, Server, Whole, read_record};
use nfs3_types::nfs3::*;
use nfs3_types::xdr_codec::{Opaque, Pack, Void};

const GETATTR: u32 = 1;
const SETATTR: u32 = 2;
const LOOKUP: u32 = 3;
const ACCESS: u32 = 4;
const READLINK: u32 = 5;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const SYMLINK: u32 = 10;
const MKNOD: u32 = 11;
const REMOVE: u32 = 12;
const RMDIR: u32 = 13;
const RENAME: u32 = 14;
const LINK: u32 = 15;
const READDIR: u32 = 16;
const READDIRPLUS: u32 = 17;
const FSSTAT: u32 = 18;
const FSINFO: u32 = 19;
const PATHCONF: u32 = 20;
const COMMIT: u32 = 21;

fn at<'a>(dir: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 { dir: dir.clone(), name: name.as_bytes().into() }
}

fn mode(mode: u32) -> sattr3 {
    sattr3 { mode: set_mode3::Some(mode), ..sattr3::default() }
}

fn handle(made: post_op_fh3) -> nfs_fh3 {
    made.unwrap()
}

fn create(client: &mut Client, dir: &nfs_fh3, name: &str, permissions: u32) -> nfs_fh3 {
    let how = createhow3::GUARDED(mode(permissions));
    handle(client.ok::<CREATE3resok>(CREATE, &CREATE3args { where_: at(dir, name), how }).obj)
}

fn write(client: &mut Client, file: &nfs_fh3, offset: u64, data: &[u8], stable: stable_how) -> WRITE3resok {
    let data = Opaque::borrowed(data);
    let count = data.len() as u32;
    client.ok(WRITE, &WRITE3args { file: file.clone(), offset, count, stable, data })
}

fn read(client: &mut Client, file: &nfs_fh3, offset: u64, count: u32) -> (Vec<u8>, bool) {
    let read: READ3resok<'static> = client.ok(READ, &READ3args { file: file.clone(), offset, count });
    assert_eq!(read.count as usize, read.data.len());
    (read.data.into_owned(), read.eof)
}

fn attributes(client: &mut Client, of: &nfs_fh3) -> fattr3 {
    client.ok::<GETATTR3resok>(GETATTR, &GETATTR3args { object: of.clone() }).obj_attributes
}

/// Requests are counted by connection, until the server ends.
#[test]
fn a_server_says_what_its_clients_do() {
    let server = Server::new(Squash::default());
    let (writer, reader) = (&mut server.client(0), &mut server.client(0));
    let root = writer.mount("/");
    let file = create(writer, &root, "file", 0o644);
    write(writer, &file, 0, &[7; 10_000], stable_how::FILE_SYNC);
    read(reader, &file, 0, 4000);
    let status = server.status();
    assert!(status.directory.starts_with("nfs 127.0.0.1:"), "{}", status.directory);
    let moved: Vec<_> = status.tasks.iter().map(|task| (task.write.bytes, task.read.bytes)).collect();
    assert_eq!(moved, [(10_000, 0), (0, 4000)], "{:?}", status.tasks);
    assert!(status.tasks.iter().all(|task| task.command.starts_with("127.0.0.1:")), "{:?}", status.tasks);
    server.must_end_clean();
}

/// `mount -t nfs host: DIR` names no path, which is the whole volume, as `/` is.
#[test]
fn an_empty_path_is_the_root() {
    let server = Server::new(Squash::default());
    let client = &mut server.client(0);
    let root = client.mount("/");
    for path in ["", ".", "//", "/."] {
        assert_eq!(client.mount(path).data, root.data, "{path:?}");
    }
    server.must_end_clean();
}

/// Every procedure once, and what it did is seen by others.
#[test]
fn every_procedure_does_what_it_says() {
    let server = Server::new(Squash::default());
    let client = &mut server.client(0);
    let root = client.mount("/");
    client.call::<Void>(NFS, 0, &Void);
    let file = create(client, &root, "file", 0o640);
    let data: Vec<u8> = (0..300_001_u32).map(|index| (index % 251) as u8).collect();
    let written = write(client, &file, 5, &data, stable_how::UNSTABLE);
    assert_eq!((written.count, written.committed), (300_001, stable_how::UNSTABLE));
    let committed: COMMIT3resok = client.ok(COMMIT, &COMMIT3args { file: file.clone(), offset: 0, count: 0 });
    assert_eq!(committed.verf, written.verf);
    assert_eq!(write(client, &file, 0, b"head!", stable_how::FILE_SYNC).committed, stable_how::FILE_SYNC);
    assert_eq!(read(client, &file, 0, 10).0, [b"head!", &data[..5]].concat());
    assert_eq!(read(client, &file, 5, 1 << 20), (data.clone(), true));
    assert_eq!(read(client, &file, 1 << 30, 10), (Vec::new(), true));
    let now = attributes(client, &file);
    assert_eq!((now.mode, now.size, now.nlink, now.type_), (0o640, 300_006, 1, ftype3::NF3REG));

    let new_attributes = sattr3 { size: set_size3::Some(3), ..mode(0o600) };
    let set = SETATTR3args { object: file.clone(), new_attributes, guard: sattrguard3::None };
    client.ok::<SETATTR3resok>(SETATTR, &set);
    assert_eq!((read(client, &file, 0, 10).0, attributes(client, &file).mode), (b"hea".to_vec(), 0o600));
    let guard = sattrguard3::Some(nfstime3 { seconds: 1, nseconds: 1 });
    assert_eq!(
        client.fail::<SETATTR3resok>(SETATTR, &SETATTR3args { guard, ..set }),
        nfsstat3::NFS3ERR_NOT_SYNC
    );

    let directory = MKDIR3args { where_: at(&root, "directory"), attributes: mode(0o750) };
    let directory = handle(client.ok::<MKDIR3resok>(MKDIR, &directory).obj);
    assert_eq!(attributes(client, &directory).mode, 0o750);
    let symlink = symlinkdata3 { symlink_attributes: sattr3::default(), symlink_data: b"../file"[..].into() };
    let symlink = SYMLINK3args { where_: at(&directory, "symlink"), symlink };
    let symlink = handle(client.ok::<SYMLINK3resok>(SYMLINK, &symlink).obj);
    let target: READLINK3resok<'static> = client.ok(READLINK, &READLINK3args { symlink });
    assert_eq!(target.data.as_ref(), b"../file");
    let what = mknoddata3::NF3FIFO(mode(0o622));
    let fifo = client.ok::<MKNOD3resok>(MKNOD, &MKNOD3args { where_: at(&directory, "fifo"), what }).obj;
    assert_eq!(attributes(client, &handle(fifo)).type_, ftype3::NF3FIFO);
    client.ok::<LINK3resok>(LINK, &LINK3args { file: file.clone(), link: at(&directory, "link") });
    let renamed = RENAME3args { from: at(&directory, "link"), to: at(&root, "renamed") };
    client.ok::<RENAME3resok>(RENAME, &renamed);
    let found: LOOKUP3resok = client.ok(LOOKUP, &LOOKUP3args { what: at(&root, "renamed") });
    assert_eq!((found.object, found.obj_attributes.unwrap().nlink), (file.clone(), 2));
    let parent: LOOKUP3resok = client.ok(LOOKUP, &LOOKUP3args { what: at(&directory, "..") });
    assert_eq!(parent.object, root);

    let full = client.fail::<RMDIR3resok>(RMDIR, &RMDIR3args { object: at(&root, "directory") });
    assert_eq!(full, nfsstat3::NFS3ERR_NOTEMPTY);
    for name in ["fifo", "symlink"] {
        client.ok::<REMOVE3resok>(REMOVE, &REMOVE3args { object: at(&directory, name) });
    }
    client.ok::<RMDIR3resok>(RMDIR, &RMDIR3args { object: at(&root, "directory") });
    let space: FSSTAT3resok = client.ok(FSSTAT, &FSSTAT3args { fsroot: root.clone() });
    assert!(space.fbytes < space.tbytes && space.tbytes <= 64 << 20);
    let limits: FSINFO3resok = client.ok(FSINFO, &FSINFO3args { fsroot: root.clone() });
    assert_eq!((limits.rtmax, limits.wtmax), (1 << 20, 1 << 20));
    let names: PATHCONF3resok = client.ok(PATHCONF, &PATHCONF3args { object: root });
    assert_eq!((names.name_max, names.case_preserving), (255, true));
    server.must_end_clean();
}

/// A client forgets what it asked for once it has the reply (RFC 1813, 1.5): names and attributes are durable before it is sent.
#[test]
fn what_is_acknowledged_outlives_the_server() {
    let server = Server::new(Squash::default());
    let client = &mut server.client(0);
    let root = client.mount("/");
    let file = create(client, &root, "file", 0o644);
    assert!(server.killed().metadata("/file").is_ok());
    let new_attributes = sattr3 { size: set_size3::Some(3), ..mode(0o600) };
    let set = SETATTR3args { object: file.clone(), new_attributes, guard: sattrguard3::None };
    client.ok::<SETATTR3resok>(SETATTR, &set);
    let there = server.killed().metadata("/file").expect("the file");
    assert_eq!((there.size, there.permissions), (3, 0o600));
    let made = MKDIR3args { where_: at(&root, "directory"), attributes: mode(0o750) };
    client.ok::<MKDIR3resok>(MKDIR, &made);
    assert!(server.killed().metadata("/directory").is_ok());
    let symlink = symlinkdata3 { symlink_attributes: sattr3::default(), symlink_data: b"file"[..].into() };
    client.ok::<SYMLINK3resok>(SYMLINK, &SYMLINK3args { where_: at(&root, "symlink"), symlink });
    assert_eq!(server.killed().metadata("/symlink").expect("the link and its file").size, 3);
    client.ok::<LINK3resok>(LINK, &LINK3args { file, link: at(&root, "link") });
    assert_eq!(server.killed().metadata("/link").expect("the link").links, 2);
    client.ok::<RENAME3resok>(RENAME, &RENAME3args { from: at(&root, "link"), to: at(&root, "renamed") });
    let after = server.killed();
    assert!(after.metadata("/renamed").is_ok() && after.metadata("/link").is_err());
    drop(after);
    client.ok::<REMOVE3resok>(REMOVE, &REMOVE3args { object: at(&root, "renamed") });
    assert!(server.killed().metadata("/renamed").is_err());
    client.ok::<RMDIR3resok>(RMDIR, &RMDIR3args { object: at(&root, "directory") });
    assert!(server.killed().metadata("/directory").is_err());
    server.must_end_clean();
}

/// A directory is listed whole in pieces of any size, also while what was listed is removed.
#[test]
fn directories_are_listed_in_pieces() {
    let server = Server::new(Squash::default());
    let client = &mut server.client(0);
    let root = client.mount("");
    let expected: Vec<String> = (0..200).map(|index| format!("name-{index:03}")).collect();
    for name in &expected {
        create(client, &root, name, 0o644);
    }
    let (mut cookie, mut names, mut pieces) = (0, Vec::new(), 0);
    loop {
        let dir = root.clone();
        let cookieverf = cookieverf3::default();
        let arguments = READDIRPLUS3args { dir, cookie, cookieverf, dircount: 1000, maxcount: 4096 };
        let piece: READDIRPLUS3resok<'static> = client.ok(READDIRPLUS, &arguments);
        pieces += 1;
        for entry in piece.reply.entries.0 {
            cookie = entry.cookie;
            let name = String::from_utf8(entry.name.0.to_vec()).expect("text");
            if name.starts_with("name") {
                let object = entry.name_handle.unwrap();
                assert_eq!(attributes(client, &object).fileid, entry.fileid);
                client.ok::<REMOVE3resok>(REMOVE, &REMOVE3args { object: at(&root, &name) });
            }
            names.push(name);
        }
        if piece.reply.eof {
            break;
        }
    }
    names.sort();
    assert!(pieces > 5);
    let dots = [".", "..", "lost+found"].map(str::to_owned);
    assert_eq!(names.iter().filter(|name| dots.contains(*name)).count(), 3);
    names.retain(|name| !dots.contains(name));
    assert_eq!(names, expected);
    let arguments =
        |count| READDIR3args { dir: root.clone(), cookie: 0, cookieverf: cookieverf3::default(), count };
    let left: READDIR3resok<'static> = client.ok(READDIR, &arguments(4096));
    assert_eq!((left.reply.entries.0.len(), left.reply.eof), (3, true));
    assert_eq!(client.fail::<READDIR3resok<'static>>(READDIR, &arguments(20)), nfsstat3::NFS3ERR_TOOSMALL);
    server.must_end_clean();
}

/// A list was as long as the client said, up to 4 GiB in memory.
#[test]
fn a_piece_of_a_list_has_a_largest_size() {
    let server = Server::filled(Squash::default(), |filesystem| {
        for index in 0..4500 {
            filesystem.create_file(format!("/{index:0>250}")).expect("space");
        }
    });
    let client = &mut server.client(0);
    let (dir, cookieverf) = (client.mount("/"), cookieverf3::default());
    let arguments = READDIR3args { dir: dir.clone(), cookie: 0, cookieverf, count: u32::MAX };
    let piece: READDIR3resok<'static> = client.ok(READDIR, &arguments);
    let bytes: usize = piece.reply.entries.0.iter().map(|entry| entry.name.0.len() + 24).sum();
    assert!(!piece.reply.eof && (900 << 10..=1 << 20).contains(&bytes), "{bytes}");
    let (dircount, maxcount) = (u32::MAX, u32::MAX);
    let arguments = READDIRPLUS3args { dir, cookie: 0, cookieverf, dircount, maxcount };
    let piece: READDIRPLUS3resok<'static> = client.ok(READDIRPLUS, &arguments);
    let entries = piece.reply.entries.0.len();
    assert!(!piece.reply.eof && (2000..4000).contains(&entries), "{entries}");
    server.must_end_clean();
}

/// A new file has the permission bits that the kernel would give it. Otherwise a program could run with the rights of a group that its maker is not in.
#[test]
fn what_is_made_has_no_rights_of_a_foreign_group() {
    const GROUP: u32 = 500;
    let server = Server::new(Squash::default());
    let (root, alice) = (&mut server.client(0), &mut server.client(1000));
    let top = root.mount("/");
    let directory = |client: &mut Client, dir: &nfs_fh3, name: &str, permissions: u32| {
        let arguments = MKDIR3args { where_: at(dir, name), attributes: mode(permissions) };
        handle(client.ok::<MKDIR3resok>(MKDIR, &arguments).obj)
    };
    let shared = directory(root, &top, "shared", 0o6777);
    assert_eq!(attributes(root, &shared).mode, 0o777, "a directory has it from the one above");
    let new_attributes = sattr3 { gid: set_gid3::Some(GROUP), ..mode(0o2777) };
    let set = SETATTR3args { object: shared.clone(), new_attributes, guard: sattrguard3::None };
    root.ok::<SETATTR3resok>(SETATTR, &set);
    let below = directory(alice, &shared, "below", 0o755);
    let made = attributes(alice, &below);
    assert_eq!((made.mode, made.gid), (0o2755, GROUP));
    // Without the right of its group to execute it, the bit means something else.
    for (name, asked, given) in [("program", 0o6755, 0o4755), ("lock", 0o2745, 0o2745)] {
        let file = create(alice, &shared, name, asked);
        let made = attributes(alice, &file);
        assert_eq!((made.mode, made.gid), (given, GROUP), "{name}");
    }
    let by_root = create(root, &shared, "by-root", 0o2755);
    assert_eq!(attributes(root, &by_root).mode, 0o2755);
    let own = directory(root, &top, "own", 0o777);
    let file = create(alice, &own, "program", 0o2755);
    assert_eq!(attributes(alice, &file).mode, 0o2755, "of her own group");
    server.must_end_clean();
}

/// A handle is good after the server was started again, and only for the file that it was given for. What was written unstably then has
/// another verifier.
#[test]
fn handles_outlive_the_server_and_not_the_file() {
    let server = Server::new(Squash::default());
    let client = &mut server.client(0);
    let root = client.mount("/");
    let file = create(client, &root, "file", 0o644);
    let before = write(client, &file, 0, b"content", stable_how::UNSTABLE).verf;
    let server = server.again();
    let client = &mut server.client(0);
    assert_eq!(read(client, &file, 0, 100).0, b"content");
    let after: COMMIT3resok = client.ok(COMMIT, &COMMIT3args { file: file.clone(), offset: 0, count: 0 });
    assert_ne!(after.verf, before);
    client.ok::<REMOVE3resok>(REMOVE, &REMOVE3args { object: at(&root, "file") });
    let other = create(client, &root, "other", 0o644);
    // The inode is in use again.
    assert_eq!(other.data.as_ref()[16..20], file.data.as_ref()[16..20]);
    assert_eq!(
        client.fail::<GETATTR3resok>(GETATTR, &GETATTR3args { object: file }),
        nfsstat3::NFS3ERR_STALE
    );
    let object = nfs_fh3 { data: Opaque::owned(vec![7; 24]) };
    assert_eq!(client.fail::<GETATTR3resok>(GETATTR, &GETATTR3args { object }), nfsstat3::NFS3ERR_STALE);
    let object = nfs_fh3 { data: Opaque::owned(vec![7; 3]) };
    assert_eq!(client.fail::<GETATTR3resok>(GETATTR, &GETATTR3args { object }), nfsstat3::NFS3ERR_BADHANDLE);
    server.must_end_clean();
}

/// A write that was checked on one file was made to another, if that got the inode number meanwhile.
#[test]
fn a_write_to_a_removed_file_never_reaches_another() {
    const ROUNDS: usize = 300;
    let server = Server::new(Squash::default());
    let (client, writer) = (&mut server.client(0), &mut server.client(0));
    let root = client.mount("/");
    for round in 0..ROUNDS {
        let victim = create(client, &root, "victim", 0o644);
        let data = Opaque::owned(vec![7; 512]);
        let stable = stable_how::UNSTABLE;
        let old = WRITE3args { file: victim, offset: 0, count: 512, stable, data };
        let other = std::thread::scope(|scope| {
            scope.spawn(|| while writer.result::<WRITE3resok>(WRITE, &old).is_ok() {});
            client.ok::<REMOVE3resok>(REMOVE, &REMOVE3args { object: at(&root, "victim") });
            create(client, &root, "other", 0o644)
        });
        assert_eq!(attributes(client, &other).size, 0, "round {round}");
        client.ok::<REMOVE3resok>(REMOVE, &REMOVE3args { object: at(&root, "other") });
    }
    server.must_end_clean();
}

/// A file that lost both of its names at once stayed open here, with its space.
#[test]
fn a_file_goes_with_its_names_also_where_they_go_at_once() {
    let server = Server::new(Squash::default());
    let (client, other) = (&mut server.client(0), &mut server.client(0));
    let root = client.mount("/");
    let free =
        |client: &mut Client| client.ok::<FSSTAT3resok>(FSSTAT, &FSSTAT3args { fsroot: root.clone() }).ffiles;
    let before = free(client);
    for _ in 0..100 {
        let file = create(client, &root, "one", 0o644);
        write(client, &file, 0, &[7; 512], stable_how::UNSTABLE);
        client.ok::<LINK3resok>(LINK, &LINK3args { file, link: at(&root, "two") });
        std::thread::scope(|scope| {
            scope.spawn(|| other.ok::<REMOVE3resok>(REMOVE, &REMOVE3args { object: at(&root, "two") }));
            client.ok::<REMOVE3resok>(REMOVE, &REMOVE3args { object: at(&root, "one") });
        });
    }
    assert_eq!(free(client), before);
    server.must_end_clean();
}

/// A file that was to have a group that its maker is not in was refused, and made.
#[test]
fn what_is_refused_is_not_made() {
    let server = Server::new(Squash::default());
    let (client, user) = (&mut server.client(0), &mut server.client(1000));
    let root = client.mount("/");
    let directory = MKDIR3args { where_: at(&root, "all"), attributes: mode(0o777) };
    let all = handle(client.ok::<MKDIR3resok>(MKDIR, &directory).obj);
    let attributes = || sattr3 { gid: set_gid3::Some(4242), ..mode(0o644) };
    let file = CREATE3args { where_: at(&all, "file"), how: createhow3::UNCHECKED(attributes()) };
    assert_eq!(user.fail::<CREATE3resok>(CREATE, &file), nfsstat3::NFS3ERR_PERM);
    let below = MKDIR3args { where_: at(&all, "below"), attributes: attributes() };
    assert_eq!(user.fail::<MKDIR3resok>(MKDIR, &below), nfsstat3::NFS3ERR_PERM);
    for name in ["file", "below"] {
        let what = at(&all, name);
        assert_eq!(
            user.fail::<LOOKUP3resok>(LOOKUP, &LOOKUP3args { what }),
            nfsstat3::NFS3ERR_NOENT,
            "{name}"
        );
    }
    server.must_end_clean();
}

/// Calls whose replies were lost with the connection failed when they were sent again, although they had been carried out.
#[test]
fn calls_that_are_sent_again_have_their_replies_again() {
    let server = Server::new(Squash::default());
    let client = &mut server.client(0);
    let root = client.mount("/");
    let guarded = || CREATE3args { where_: at(&root, "file"), how: createhow3::GUARDED(mode(0o644)) };
    let made = handle(client.ok::<CREATE3resok>(CREATE, &guarded()).obj);
    client.reconnect();
    assert_eq!(handle(client.ok::<CREATE3resok>(CREATE, &guarded()).obj), made);
    assert_eq!(client.fail::<CREATE3resok>(CREATE, &guarded()), nfsstat3::NFS3ERR_EXIST, "another call");
    let remove = REMOVE3args { object: at(&root, "file") };
    client.ok::<REMOVE3resok>(REMOVE, &remove);
    let other = &mut server.client(0);
    let newer = create(other, &root, "file", 0o644);
    client.reconnect();
    client.ok::<REMOVE3resok>(REMOVE, &remove);
    attributes(other, &newer);
    client.ok::<REMOVE3resok>(REMOVE, &remove);
    assert_eq!(client.fail::<REMOVE3resok>(REMOVE, &remove), nfsstat3::NFS3ERR_NOENT);
    server.must_end_clean();
}

/// A creation that is sent again, because its reply was lost, finds its file; another one does not.
#[test]
fn an_exclusive_creation_happens_once() {
    let server = Server::new(Squash::default());
    let client = &mut server.client(0);
    let root = client.mount("/");
    let arguments = |verifier| CREATE3args {
        where_: at(&root, "file"),
        how: createhow3::EXCLUSIVE(createverf3(verifier)),
    };
    let first = handle(client.ok::<CREATE3resok>(CREATE, &arguments([0xff; 8])).obj);
    let again = handle(client.ok::<CREATE3resok>(CREATE, &arguments([0xff; 8])).obj);
    assert_eq!(first, again);
    assert_eq!(client.fail::<CREATE3resok>(CREATE, &arguments([1; 8])), nfsstat3::NFS3ERR_EXIST);
    let how = createhow3::UNCHECKED(sattr3 { size: set_size3::Some(0), ..mode(0o644) });
    let there = client.ok::<CREATE3resok>(CREATE, &CREATE3args { where_: at(&root, "file"), how }).obj;
    assert_eq!(handle(there), first);
    server.must_end_clean();
}

/// Permissions hold for the users that clients name.
#[test]
fn users_are_kept_apart() {
    let server = Server::new(Squash { root: true, ..Squash::default() });
    let root = &mut server.client(0);
    let top = root.mount("/");
    // Only the superuser may write into the root directory, and a squashed one is not that.
    let how = createhow3::GUARDED(mode(0o644));
    let refused = root.fail::<CREATE3resok>(CREATE, &CREATE3args { where_: at(&top, "x"), how });
    assert_eq!(refused, nfsstat3::NFS3ERR_ACCES);
    let server = server.again();
    let (alice, bob, root) = (&mut server.client(1000), &mut server.client(2000), &mut server.client(0));
    let shared = MKDIR3args { where_: at(&top, "shared"), attributes: mode(0o1777) };
    let shared = handle(root.ok::<MKDIR3resok>(MKDIR, &shared).obj);
    let file = create(alice, &shared, "file", 0o600);
    write(alice, &file, 0, b"secret", stable_how::DATA_SYNC);
    assert_eq!(attributes(bob, &file).uid, 1000);
    let arguments = READ3args { file: file.clone(), offset: 0, count: 10 };
    assert_eq!(bob.fail::<READ3resok<'static>>(READ, &arguments), nfsstat3::NFS3ERR_ACCES);
    let data = Opaque::borrowed(b"x");
    let arguments =
        WRITE3args { file: file.clone(), offset: 0, count: 1, stable: stable_how::UNSTABLE, data };
    assert_eq!(bob.fail::<WRITE3resok>(WRITE, &arguments), nfsstat3::NFS3ERR_ACCES);
    let access = ACCESS3args { object: file.clone(), access: 0x3f };
    assert_eq!(bob.ok::<ACCESS3resok>(ACCESS, &access).access, 0);
    assert_eq!(
        alice.ok::<ACCESS3resok>(ACCESS, &access).access,
        ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND
    );
    let set =
        |new_attributes| SETATTR3args { object: file.clone(), new_attributes, guard: sattrguard3::None };
    let give_away = sattr3 { uid: set_uid3::Some(2000), ..sattr3::default() };
    let cut = sattr3 { size: set_size3::Some(0), ..sattr3::default() };
    for changes in [mode(0o666), cut, give_away.clone()] {
        let status = bob.fail::<SETATTR3resok>(SETATTR, &set(changes));
        assert!(matches!(status, nfsstat3::NFS3ERR_PERM | nfsstat3::NFS3ERR_ACCES), "{status}");
    }
    let status = alice.fail::<SETATTR3resok>(SETATTR, &set(give_away.clone()));
    assert_eq!(status, nfsstat3::NFS3ERR_PERM);
    let status = bob.fail::<REMOVE3resok>(REMOVE, &REMOVE3args { object: at(&shared, "file") });
    assert_eq!(status, nfsstat3::NFS3ERR_PERM);
    let rename = RENAME3args { from: at(&shared, "file"), to: at(&shared, "mine") };
    assert_eq!(bob.fail::<RENAME3resok>(RENAME, &rename), nfsstat3::NFS3ERR_PERM);
    alice.ok::<SETATTR3resok>(SETATTR, &set(mode(0o644)));
    assert_eq!(read(bob, &file, 0, 10).0, b"secret");
    root.ok::<SETATTR3resok>(SETATTR, &set(give_away));
    bob.ok::<REMOVE3resok>(REMOVE, &REMOVE3args { object: at(&shared, "file") });
    server.must_end_clean();
}

/// Whatever comes by a connection, the server goes on; what is not understood gets an error, or the end of its connection.
#[test]
fn hostile_messages_change_nothing() {
    let server = Server::new(Squash::default());
    let client = &mut server.client(0);
    let root = client.mount("/");
    for name in ["", ".", "..", "a/b", "nul\0", &"x".repeat(256)] {
        let how = createhow3::GUARDED(mode(0o644));
        client.fail::<CREATE3resok>(CREATE, &CREATE3args { where_: at(&root, name), how });
        client.fail::<REMOVE3resok>(REMOVE, &REMOVE3args { object: at(&root, name) });
    }
    let mut random = 1_u64;
    for round in 0..300_u32 {
        let mut record: Vec<u8> =
            [round, 0, 2, NFS, 3, round % 24, 0, 0, 0, 0].into_iter().flat_map(u32::to_be_bytes).collect();
        // A handle that is good, and then anything.
        if round % 3 > 0 {
            record.extend(24_u32.to_be_bytes());
            record.extend(root.data.as_ref());
        }
        for _ in 0..round % 97 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            record.push(if round % 2 == 0 { 0 } else { (random >> 56) as u8 });
        }
        let mut stream = server.stream();
        stream.write_all(&(record.len() as u32 | 1 << 31).to_be_bytes()).expect("it listens");
        stream.write_all(&record).expect("it reads");
        assert!(read_record(&mut stream).len() >= 12);
    }
    let mut stream = server.stream();
    stream.write_all(&[0x7f, 0xff, 0xff, 0xff, 1, 2, 3]).expect("it listens");
    assert_eq!(std::io::Read::read(&mut stream, &mut [0; 10]).ok().unwrap_or(0), 0, "it ends");
    let failed: Whole<GETATTR3resok, Void> = client.call(NFS, GETATTR, &GETATTR3args { object: root });
    failed.unwrap();
    server.must_end_clean();
}

/// A client that asks for much and reads nothing kept every thread of the server busy, so that no other was answered, and the server did not end.
#[test]
fn a_client_that_takes_no_replies_keeps_no_other_waiting() {
    let server = Server::new(Squash::default());
    let client = &mut server.client(0);
    let root = client.mount("/");
    let file = create(client, &root, "large", 0o644);
    write(client, &file, 0, &vec![7; 1 << 20], stable_how::FILE_SYNC);
    let mut read: Vec<u8> = [1, 0, 2, NFS, 3, READ, 0, 0, 0, 0, file.data.as_ref().len() as u32]
        .into_iter()
        .flat_map(u32::to_be_bytes)
        .collect();
    read.extend(file.data.as_ref());
    read.extend([0, 0, 1 << 20].into_iter().flat_map(u32::to_be_bytes));
    let head = (read.len() as u32 | 1 << 31).to_be_bytes();
    let stalled: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = server.stream();
            stream.set_write_timeout(Some(std::time::Duration::from_secs(1))).expect("a timeout");
            // The server stops reading from it at some point.
            while stream.write_all(&head).and_then(|()| stream.write_all(&read)).is_ok() {}
            stream
        })
        .collect();
    let began = std::time::Instant::now();
    let (content, is_end) = self::read(client, &file, 0, 100);
    assert!((content.len(), is_end) == (100, false));
    server.must_end_clean();
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    drop(stalled);
}

/// A read that was short because the file ended there said that this is the end, with the size of a file that had grown meanwhile.
#[test]
fn the_end_of_a_file_is_that_of_the_attributes_beside_it() {
    let server = Server::new(Squash::default());
    let (writer, reader) = (&mut server.client(0), &mut server.client(0));
    let root = writer.mount("/");
    let file = create(writer, &root, "file", 0o644);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (file, is_over) = (&file, &is_over);
        scope.spawn(move || {
            for nth in 0.. {
                if is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
                write(writer, file, nth * 100, &[1; 100], stable_how::UNSTABLE);
            }
        });
        let start = std::time::Instant::now();
        while start.elapsed() < std::time::Duration::from_secs(2) {
            let offset = attributes(reader, file).size.saturating_sub(150);
            let read = READ3args { file: file.clone(), offset, count: 1000 };
            let read: READ3resok<'static> = reader.ok(READ, &read);
            let size = read.file_attributes.unwrap().size;
            let is_end = offset + u64::from(read.count) >= size;
            is_over.store(read.eof != is_end, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(read.eof, is_end, "{} bytes at {offset} of {size}", read.count);
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    server.must_end_clean();
}

/// The largest size was that of ext4 with blocks of 4 KiB for every volume, and clients made files that the server refused, or refused them.
#[test]
fn the_largest_size_of_a_file_is_that_of_the_volume() {
    for (flavor, block_size) in [(Flavor::Ext2, 1024), (Flavor::Ext4, 1024), (Flavor::Ext4, 4096)] {
        let mut largest = 0;
        let options = MkfsOptions { block_size: Some(block_size), ..MkfsOptions::new(flavor) };
        let server = Server::made(&options, |volume| {
            let file = volume.create_file("/file").expect("create");
            largest = file.max_size();
        });
        let client = &mut server.client(0);
        let root = client.mount("/");
        let limits: FSINFO3resok = client.ok(FSINFO, &FSINFO3args { fsroot: root });
        assert_eq!(limits.maxfilesize, largest, "{flavor:?} with blocks of {block_size} bytes");
    }
}

fn len_of(packed: &impl Pack) -> usize {
    let mut bytes = Vec::new();
    packed.pack(&mut bytes).expect("it fits");
    bytes.len()
}

/// Replies were longer than the client said, by the attributes of the directory, and by the lengths of names.
#[test]
fn lists_have_the_sizes_that_clients_give() {
    let server = Server::filled(Squash::default(), |filesystem| {
        for len in (1..250).step_by(7) {
            filesystem.create_file(format!("/{len:0>len$}")).expect("space");
        }
    });
    let client = &mut server.client(0);
    let (dir, cookieverf) = (client.mount("/"), cookieverf3::default());
    let mut listed = 0;
    for count in (0..1200).step_by(12).chain([3000, 5000]) {
        let arguments = READDIR3args { dir: dir.clone(), cookie: 0, cookieverf, count };
        match client.result::<READDIR3resok<'static>>(READDIR, &arguments) {
            Ok(piece) => assert!(len_of(&piece) <= count as usize, "{count}"),
            Err(status) => assert_eq!(status, nfsstat3::NFS3ERR_TOOSMALL, "{count}"),
        }
        for (dircount, maxcount) in [(count, 8192), (8192, count), (count, count)] {
            let arguments = READDIRPLUS3args { dir: dir.clone(), cookie: 0, cookieverf, dircount, maxcount };
            let piece = match client.result::<READDIRPLUS3resok<'static>>(READDIRPLUS, &arguments) {
                Ok(piece) => piece,
                Err(status) => {
                    assert_eq!(status, nfsstat3::NFS3ERR_TOOSMALL, "{dircount} {maxcount}");
                    continue;
                }
            };
            assert!(len_of(&piece) <= maxcount as usize, "{maxcount}");
            let entries = &piece.reply.entries.0;
            let names = entries.iter().map(|entry| 8 + 4 + entry.name.0.len().next_multiple_of(4) + 8);
            assert!(names.sum::<usize>() <= dircount as usize, "{dircount}");
            listed = listed.max(entries.len());
        }
    }
    assert!(listed > 20, "{listed}");
    server.must_end_clean();
}

/// It was stored: an owner that no user can have, and that `chown` takes for none.
#[test]
fn what_is_no_user_and_no_group_owns_nothing() {
    let server = Server::new(Squash::default());
    let client = &mut server.client(0);
    let root = client.mount("/");
    let file = create(client, &root, "file", 0o644);
    let changes = [
        sattr3 { uid: set_uid3::Some(u32::MAX), ..sattr3::default() },
        sattr3 { gid: set_gid3::Some(u32::MAX), ..sattr3::default() },
    ];
    for attributes in changes {
        let set = |object: &nfs_fh3| SETATTR3args {
            object: object.clone(),
            new_attributes: attributes.clone(),
            guard: sattrguard3::None,
        };
        let status = [
            client.fail::<SETATTR3resok>(SETATTR, &set(&file)),
            client.fail::<SETATTR3resok>(SETATTR, &set(&root)),
            client.fail::<CREATE3resok>(
                CREATE,
                &CREATE3args { where_: at(&root, "new"), how: createhow3::UNCHECKED(attributes.clone()) },
            ),
            client.fail::<MKDIR3resok>(
                MKDIR,
                &MKDIR3args { where_: at(&root, "new"), attributes: attributes.clone() },
            ),
        ];
        assert_eq!(status, [nfsstat3::NFS3ERR_INVAL; 4]);
        let absent = client.fail::<LOOKUP3resok>(LOOKUP, &LOOKUP3args { what: at(&root, "new") });
        assert_eq!(absent, nfsstat3::NFS3ERR_NOENT);
    }
    assert_eq!((attributes(client, &file).uid, attributes(client, &root).gid), (0, 0));
    let all = MKDIR3args { where_: at(&root, "all"), attributes: mode(0o777) };
    let all = handle(client.ok::<MKDIR3resok>(MKDIR, &all).obj);
    let made = create(&mut server.client(u32::MAX), &all, "made", 0o644);
    let made = attributes(client, &made);
    assert_eq!((made.uid, made.gid), (65_534, 65_534), "the anonymous user");
    server.must_end_clean();
}

/// Calls that a host begins and does not complete shut out all others, for a minute.
#[test]
fn a_host_with_many_connections_shuts_out_no_other() {
    let server = Server::new(Squash::default());
    let earlier = &mut server.client_of([127, 0, 0, 2]);
    let root = earlier.mount("/");
    let half_open: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = server.stream();
            // One that was ended takes no more.
            let _ = stream.write_all(&[0x80, 0, 0]);
            stream
        })
        .collect();
    create(&mut server.client_of([127, 0, 0, 3]), &root, "file", 0o644);
    create(&mut server.client(0), &root, "another", 0o644);
    assert_eq!(attributes(earlier, &root).nlink, 3);
    drop(half_open);
    server.must_end_clean();
}

/// Sizes and offsets of any value are carried out, or are an error, and the server goes on.
#[test]
fn sizes_and_offsets_have_any_value() {
    let server = Server::new(Squash::default());
    let client = &mut server.client(0);
    let root = client.mount("/");
    let file = create(client, &root, "file", 0o644);
    for offset in [0, 1 << 31, (1 << 44) - 1, i64::MAX as u64, u64::MAX - 1, u64::MAX] {
        for count in [0, 1, 1 << 20, u32::MAX] {
            let read = READ3args { file: file.clone(), offset, count };
            if let Ok(read) = client.result::<READ3resok<'static>>(READ, &read) {
                assert!(read.data.len() <= count as usize && read.count as usize == read.data.len());
            }
            let _ = client.result::<COMMIT3resok>(COMMIT, &COMMIT3args { file: file.clone(), offset, count });
            // As much as the call has is written, at most.
            let data = Opaque::borrowed(b"abcd");
            let stable = stable_how::FILE_SYNC;
            let write = WRITE3args { file: file.clone(), offset, count, stable, data };
            match client.result::<WRITE3resok>(WRITE, &write) {
                Ok(written) => assert!(written.count <= count.min(4), "{}", written.count),
                Err(status) => assert!(count > 4 || offset > 1 << 43, "{offset} {count}: {status}"),
            }
        }
        let new_attributes = sattr3 { size: set_size3::Some(offset), ..sattr3::default() };
        let set = SETATTR3args { object: file.clone(), new_attributes, guard: sattrguard3::None };
        let _ = client.result::<SETATTR3resok>(SETATTR, &set);
    }
    assert_eq!(attributes(client, &file).nlink, 1);
    server.must_end_clean();
}
