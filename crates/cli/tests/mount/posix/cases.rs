//! The calls, as text (`script.rs`), and the known differences.
//!
//! Root and user 1000 make the calls. Files of `user` belong to user 1000, other files to user 3000 or to root.

use super::script::Group;

/// The files with which most calls begin.
const FILES: &[&str] = &[
    "make f 644 1000",
    "make g 644 0",
    "make p 600 3000",
    "make w 666 0",
    "make v 6755 1000",
    "make x 755 1000",
    "make d/ 755 1000",
    "make d/in 644 1000",
    "make e/ 755 1000",
    "make t/ 1777 3000",
    "make t/own 644 1000",
    "make t/p 666 3000",
    "make r/ 755 3000",
    "make r/f 666 3000",
    "make c/ 700 3000",
    "symlink f s",
    "symlink d sd",
    "symlink none dangling",
    "symlink loop loop",
    "mknod fifo fifo 640",
    "mknod char char 666",
    "mknod sock sock 755",
];

pub(super) const GROUPS: &[Group] = &[
    // Opening, by kind and by right.
    Group {
        files: FILES,
        marks: &[],
        calls: &[
            "open {f,g,p,w,d,e,s,sd,dangling,loop,fifo,char,sock,none,t/p,r/f} {NONBLOCK,WRONLY+NONBLOCK,RDWR+NONBLOCK}",
            "open {f,g,d,s,dangling,loop,fifo,none,none/,f/,d/,f/x,none/x,r/new,t/new,t/p,LONG256} CREATE+WRONLY+NONBLOCK 640",
            "open {f,d,s,dangling,fifo,none,t/new,r/new} CREATE+EXCL+RDWR 6777",
            "open {f,g,w,v,d,s,char,t/p} {TRUNC+WRONLY,TRUNC}",
            "open {f,p,d,s,sd,none,fifo,dangling} {DIRECTORY,NOFOLLOW+NONBLOCK,PATH,PATH+NOFOLLOW,CREATE+DIRECTORY}",
            "open {f,g,w,d} {NOATIME,DIRECT,APPEND+WRONLY,SYNC+WRONLY}",
            "open {f,d,e,r,t,none} {TMPFILE+RDWR,TMPFILE+WRONLY+EXCL,TMPFILE}",
            "access {f,g,p,w,x,d,c,none,c/x} {READ_OK,WRITE_OK,EXEC_OK}",
            "{stat,readlink,statx} {f,s,sd,dangling,loop,none,f/x,f/,s/,c/x,fifo,LONG256,DEEP}",
        ],
    },
    // Names that are made and removed.
    Group {
        files: FILES,
        marks: &[],
        calls: &[
            "mkdir {f,d,new,new/,s,dangling,dangling/,none/x,f/x,r/x,t/x,c/x,.,..,d/.,LONG255,LONG256,DEEP} 1777",
            "symlink f {f,new,new/,dangling,none/x,f/x,r/x,t/x,LONG255,LONG256}",
            "mknod new {fifo,sock,char,file} 6666",
            "mknod {f,r/x,none/x,new/} fifo 644",
            "link {f,g,p,d,s,loop,fifo,char,none,t/p,r/f,c/x} {new,t/new}",
            "link f {f,d,new/,none/x,r/x,LONG256}",
            "unlink {f,g,d,d/,s,sd,sd/,fifo,char,none,f/,f/x,r/f,t/own,t/p,.,..,LONG256}",
            "rmdir {f,d,e,e/,s,sd,sd/,none,t,r,.,..,e/.,e/..,d/in}",
        ],
    },
    // Renaming: kinds of the old and of the new.
    Group {
        files: FILES,
        marks: &[],
        calls: &[
            "rename {f,g,d,e,s,t/p,none} {w,d,e,none,t/p,r/f} {-,NOREPLACE,EXCHANGE,WHITEOUT}",
            "rename {f,d,e} {f,new/,d/x,d/in/x,e/.,.,LONG256,none/x} {-,EXCHANGE}",
            "rename {.,..,d/.,r/f,r,fifo,char} new -",
            "rename f e {NOREPLACE+EXCHANGE,NOREPLACE+WHITEOUT,EXCHANGE+WHITEOUT}",
        ],
    },
    // Owners, permissions and times, by the owner and by another user.
    Group {
        files: FILES,
        marks: &[],
        calls: &[
            "chmod {f,g,v,d,s,sd,t,none,fifo} {0,644,4755,2755,2644,1777}",
            "chown {f,g,v,d,s,none} {-1:-1,1000:-1,-1:1000,-1:2000,-1:77,0:-1,77:77,1000:2000}",
            "{chown,lchown} {v,s,d} {1000:1000,0:0}",
            "chmod v 2644 ; chown v -1:2000",
            "utimes {f,g,w,d,none} {now,omit,5} {now,omit,77}",
            "open {v,w,g} WRONLY ; write more ; fchmod 2711 ; write more",
            "open {f,v} RDWR ; ftruncate {0,3,7,9000}",
            "truncate {f,g,w,v,d,s,none,r/f,fifo/} {0,5}",
        ],
    },
    // Files made in directories with set-group-ID and with default access control lists.
    Group {
        files: &["make d/ 2777 3000", "make l/ 777 3000", "make f 644 1000"],
        marks: &["setacl l default full"],
        calls: &[
            "mkdir {d,l}/new {755,2700}",
            "open {d,l}/new CREATE+EXCL+RDWR {644,2755,4711}",
            "open {d,l} TMPFILE+RDWR 666 ; linkfd new",
            "mknod {d,l}/new {fifo,char} 666",
            "symlink f {d,l}/new",
            "open {d,l}/new CREATE+WRONLY ; rename {d,l}/new {d,l}/other WHITEOUT",
            "chmod {d,l} 2755",
            "rename f {d,l}/f -",
            "link f {d,l}/f",
        ],
    },
    // Files and directories with flags.
    Group {
        files: &[
            "make {i,a} 666 1000",
            "make {id,ad}/ 777 1000",
            "make {id,ad}/in 666 1000",
            "make f 644 1000",
            "setxattr {i,a} user.old 3 -",
        ],
        marks: &["chattr {i,id} 10", "chattr {a,ad} 20"],
        calls: &[
            "open {i,a} {RDONLY,WRONLY,WRONLY+APPEND,WRONLY+TRUNC,WRONLY+APPEND+TRUNC,CREATE+WRONLY,RDONLY+NOATIME}",
            "open a WRONLY+APPEND ; write more ; pwrite 0 more ; setfl {-,APPEND}",
            "open a WRONLY+APPEND ; {ftruncate 0,ftruncate 100,fallocate - 0 100,fallocate PUNCH_HOLE+KEEP_SIZE 0 100,fallocate ZERO_RANGE 0 3}",
            "chmod {i,a,id,ad} 600",
            "{chown,lchown} {i,a} {-1:-1,1000:1000}",
            "utimes {i,a,id,ad} {now,5,omit} {now,5}",
            "{unlink,rmdir} {i,a,id,ad,id/in,ad/in}",
            "rename {i,a,id,ad,id/in,ad/in,f} {new,id/new,ad/new} {-,WHITEOUT}",
            "rename f {i,a} {-,EXCHANGE}",
            "link {i,a,f,id/in} {new,id/new,ad/new}",
            "mkdir {id,ad}/new 755",
            "symlink f {id,ad}/new",
            "open {id,ad} TMPFILE+RDWR 600 ; linkfd {new,id/new,ad/new}",
            "setxattr {i,a,id,ad} {user.new,trusted.new} 3 -",
            "removexattr {i,a} user.old",
            "setacl {i,a,ad} access full",
            "access {i,a,id,ad} WRITE_OK",
            "{chattr,unchattr} {i,a,id,ad} {10,20,40}",
        ],
    },
    // Flags that are set and taken.
    Group {
        files: &["make f 644 1000", "make d/ 755 1000", "make g 644 0", "mknod fifo fifo 666"],
        marks: &[],
        calls: &[
            "chattr {f,d} {1,2,4,8,10,20,40,80,100,200,400,800,1000,2000,8000,10000,20000,40000,100000,200000,800000}",
            "chattr {f,d} {1000000,2000000,4000000,8000000,10000000,20000000,40000000,80000000}",
            "{chattr,unchattr} {g,fifo,none} {40,10}",
            "chattr f 2000000 ; unchattr f 2000000",
        ],
    },
    // Extended attributes: namespaces, sizes, modes, and access control lists.
    Group {
        files: FILES,
        marks: &["setxattr {f,g,d} user.old 10 -", "setxattr f trusted.old 10 -"],
        calls: &[
            "setxattr {f,g,w,d,t,s,fifo,char,none} {user.a,trusted.a,security.a} 5 -",
            "setxattr f {system.a,bogus.a,user.,trusted.,a,user.LONG250,user.LONG251,system.posix_acl_bogus} 5 -",
            "setxattr {f,d} {user.old,user.new} 3 {-,CREATE,REPLACE,CREATE+REPLACE}",
            "setxattr {f,d} user.new {0,1,1000,3900,4100,65536,65537} -",
            "getxattr {f,g,p,none} {user.old,user.none,trusted.old,bogus.a} {0,5,10}",
            "listxattr {f,g,d,s,fifo,none} {0,5,200}",
            "removexattr {f,g,d,s,none} {user.old,user.none,trusted.old,bogus.a,user.}",
            "setacl {f,g,d,s,fifo} {access,default} {minimal,full,without-mask,empty,bad}",
            "setacl {f,d} access full ; chmod {f,d} {777,0} ; getxattr f system.posix_acl_access {0,8,100}",
            "setacl d default full ; removexattr d {system.posix_acl_default,system.posix_acl_access}",
            "setacl {f,x} access full ; open {f,x} {RDONLY,WRONLY}",
        ],
    },
    // Content: sizes, holes, ranges.
    Group {
        files: FILES,
        marks: &[],
        calls: &[
            "open {f,d} RDONLY ; {pread 0 10,pread 7 10,pwrite 0 x,ftruncate 0,fallocate - 0 10,fsync,fdatasync,read 3,write x}",
            "open f WRONLY ; {read 3,pread 0 3,write longer-than-before,pwrite 9000 x} ; size",
            "open f RDWR{,+APPEND,+SYNC} ; write abc ; pwrite 2 def ; read 10 ; size",
            "open f RDWR ; fallocate {-,KEEP_SIZE,ZERO_RANGE,ZERO_RANGE+KEEP_SIZE,PUNCH_HOLE+KEEP_SIZE,PUNCH_HOLE,UNSHARE_RANGE} {0,5000} {0,1,9000} ; size",
            "open f RDWR ; ftruncate {0,1,4096,100000,17592186044415,17592186044416,9223372036854775807} ; size",
            "open f RDWR ; ftruncate 100000 ; pwrite 50000 x ; seek {data,hole} {0,7,49152,50000,60000,99999,100000,100001}",
            "open f RDWR ; seek {set,end} {0,7,100,9223372036854775807} ; read 3",
            "open d DIRECTORY ; seek {set,end,data,hole} {0,5000}",
            "open {fifo,char} RDWR+NONBLOCK ; {seek set 0,ftruncate 0,fallocate - 0 10,fsync,pread 0 1}",
            "open {w,p} {RDWR,TRUNC+WRONLY} ; write y ; size",
        ],
    },
    // Files without a name, and locks.
    Group {
        files: FILES,
        marks: &[],
        calls: &[
            "open {d,t} TMPFILE+RDWR{,+EXCL} 6640 ; write abc ; linkfd {new,f,none/x,r/x,d/x} ; size",
            "open e TMPFILE+RDWR 600 ; linkfd new ; linkfd again ; fchmod 4711",
            "open f {RDONLY,WRONLY,RDWR} ; flock {shared,exclusive} ; open f RDONLY ; flock {shared,exclusive,none}",
            "open {f,d} RDONLY ; lock {shared,exclusive,none}",
            "open f {WRONLY,RDWR} ; lock {shared,exclusive,none}",
            "open {f,w} RDWR ; unlink {f,w} ; size ; write x ; fchmod 600 ; linkfd again",
        ],
    },
    // Directories, listed from any place.
    Group {
        files: &[
            "make many/ 755 1000",
            "make many/{a,b,c,d,e}{1,2,3,4,5,6,7,8} 644 0",
            "make closed/ 700 3000",
        ],
        marks: &[],
        calls: &["{list,seek-each} {many,closed,many/a1,none}"],
    },
];

/// Calls that differ, with the calls after them in a row, and the reason. docs/differences.md has the differences that a program can notice.
pub(super) const EXPECTED: &[(&str, &str)] = &[
    ("rename e d WHITEOUT", "ext4 makes the whiteout before it fails, and the directory has a new time"),
    (
        "open a WRONLY+APPEND ; write more",
        "the kernel keeps times, does not know the flag, and appends to such a file go past its cache",
    ),
    ("open a WRONLY+APPEND ; fallocate", "the kernel changes the time before it asks"),
    (
        "{unlink id,unlink ad,rmdir i,rmdir a,rmdir id/in,rmdir ad/in}",
        "the kernel looks at the kind before it asks, and does not know the flags, which ext4 looks at first",
    ),
    ("access {i,id} WRITE_OK", "the kernel checks permissions without the flags"),
    ("open f RDWR ; seek set 9223372036854775807", "the kernel takes any size for possible"),
    ("open d DIRECTORY ; seek", "the kernel seeks in a directory as in a file of its size"),
];
