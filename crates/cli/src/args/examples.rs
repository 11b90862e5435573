//! Examples of all commands, for their help and their manual pages. A test runs each line.

use clap::Command;
use clap_mangen::roff::{Roff, roman};

/// Lines of a shell, by command; the first ones are of the program itself. A line that begins with `diorite xattr get` is also of the page of
/// `xattr get`.
const EXAMPLES: [(&str, &[&str]); 48] = [
    (
        "",
        &[
            "diorite mkfs new.img 1G                 # make a filesystem in a new image",
            "diorite cp -r photos new.img:/          # copy a directory into it",
            "diorite ls -l new.img:/photos           # list it",
            "diorite cp new.img:/photos/a.jpg .      # copy a file out",
        ],
    ),
    (
        "mkfs",
        &[
            "diorite mkfs -L data new.img 1G",
            "diorite mkfs -d rootfs/ --size fit --slack 10% root.img",
            "diorite mkfs -d rootfs/ --owner root:root owned.img 64M",
            "tar -C rootfs -c . | diorite mkfs -t ext3 -d - tar.img 64M",
        ],
    ),
    ("info", &["diorite info disk.img", "diorite info disk.img --json"]),
    ("check", &["diorite check disk.img", "diorite check --json disk.img > report.json"]),
    ("trim", &["diorite trim disk.img", "diorite trim disk.img --json"]),
    ("extents", &["diorite extents disk.img:/data/big.bin", "diorite extents disk.img:/etc/hosts --json"]),
    (
        "ls",
        &[
            "diorite ls -l disk.img:/photos",
            "diorite ls -lhS 'disk.img:/photos/*.jpg'",
            "diorite ls -R --color=always disk.img:/etc",
        ],
    ),
    ("tree", &["diorite tree disk.img:/home", "diorite tree -d -L 2 disk.img"]),
    ("stat", &["diorite stat disk.img:/etc/hosts", "diorite stat -c '%n %s %a' 'disk.img:/etc/*'"]),
    (
        "find",
        &[
            "diorite find disk.img:/etc -name '*.conf' -mtime -7",
            "diorite find disk.img:/ -type f -size +1M -ls",
            "diorite find disk.img:/home --exclude .cache -perm /6000",
            "diorite find disk.img:/photos -regex '.*[ab][.]jpg' -printf '%s %P\\n'",
        ],
    ),
    ("cat", &["diorite cat disk.img:/etc/fstab", "diorite cat 'disk.img:/etc/*.conf' | wc -l"]),
    (
        "head",
        &[
            "diorite head disk.img:/log/app.log",
            "diorite head -1 disk.img:/log/app.log",
            "diorite head -q -n 3 'disk.img:/log/*.log'",
            "diorite head -c 1K disk.img:/data/big.bin > start.bin",
        ],
    ),
    (
        "tail",
        &[
            "diorite tail disk.img:/log/app.log",
            "diorite tail -1 disk.img:/log/app.log",
            "diorite tail -q -n +3 'disk.img:/log/*.log'",
        ],
    ),
    (
        "cp",
        &[
            "diorite cp -r photos disk.img:/backup",
            "diorite cp -r --verify photos copy",
            "diorite cp -a -u -v --exclude /old/ disk.img:/photos other.img:/",
            "echo hello | diorite cp - disk.img:/etc/motd",
        ],
    ),
    (
        "sync",
        &[
            "diorite sync -n -v --delete photos/ disk.img:/photos",
            "diorite sync --delete --exclude '*.tmp' --exclude /cache/ photos/ disk.img:/photos",
            "diorite sync disk.img:/photos/ copy",
        ],
    ),
    (
        "diff",
        &[
            "diorite diff photos disk.img:/photos",
            "diorite diff --only-content --exclude '*.tmp' photos disk.img:/photos",
        ],
    ),
    (
        "edit",
        &[
            "diorite edit disk.img:/etc/fstab",
            "diorite edit --editor 'sed -i s/ext3/ext4/' disk.img:/etc/fstab",
        ],
    ),
    (
        "shell",
        &[
            "diorite shell disk.img",
            "diorite shell disk.img:/etc -c 'ls -l; head -n 1 hosts'",
            "echo 'cp /etc/hosts host:hosts' | diorite shell disk.img",
        ],
    ),
    (
        "tar",
        &[
            "diorite tar -c -z -f etc.tar.gz disk.img:/etc",
            "diorite tar -x -f etc.tar.gz -C other.img:/",
            "diorite tar -c -f home.tar -C disk.img:/home ann bob",
            "diorite tar -t -v -f home.tar",
        ],
    ),
    (
        "hash",
        &[
            "diorite hash disk.img:/etc/hosts",
            "diorite hash -r -a sha512 disk.img:/photos > SHA512SUMS",
            "diorite hash --quiet -c SHA512SUMS",
        ],
    ),
    (
        "mv",
        &[
            "diorite mv disk.img:/photos/a.jpg disk.img:/photos/first.jpg",
            "diorite mv -n 'disk.img:/photos/*.jpg' disk.img:/backup",
        ],
    ),
    (
        "rm",
        &[
            "diorite rm disk.img:/etc/hosts",
            "diorite rm -r disk.img:/home/bob",
            "diorite rm -f 'disk.img:/log/*.old'",
        ],
    ),
    ("rmdir", &["diorite rmdir disk.img:/backup", "diorite rmdir -p disk.img:/srv/www"]),
    ("mkdir", &["diorite mkdir disk.img:/new", "diorite mkdir -p -m 700 disk.img:/home/eve/.ssh"]),
    (
        "ln",
        &[
            "diorite ln disk.img:/etc/hosts disk.img:/etc/hosts.old",
            "diorite ln -s hosts disk.img:/etc/names",
            "diorite ln -s -r disk.img:/photos disk.img:/home/ann/photos",
        ],
    ),
    ("readlink", &["diorite readlink disk.img:/bin/sh", "diorite readlink -f disk.img:/bin/sh"]),
    (
        "chmod",
        &[
            "diorite chmod 640 disk.img:/etc/fstab",
            "diorite chmod -R go=u,a+X disk.img:/photos",
            "diorite chmod --reference disk.img:/etc/hosts disk.img:/etc/fstab",
        ],
    ),
    (
        "chown",
        &[
            "diorite chown 1000:1000 disk.img:/home/ann",
            "diorite chown -R root: disk.img:/etc",
            "diorite chown --reference disk.img:/home/ann disk.img:/home/ann/notes",
        ],
    ),
    (
        "touch",
        &[
            "diorite touch disk.img:/etc/motd",
            "diorite touch -d '2001-05-01 12:00' disk.img:/etc/hosts",
            "diorite touch -d 'yesterday 12:00' disk.img:/etc/motd",
        ],
    ),
    (
        "truncate",
        &["diorite truncate -s 10M disk.img:/data/new.bin", "diorite truncate -s +4K disk.img:/data/big.bin"],
    ),
    (
        "xattr",
        &[
            "diorite xattr set user.comment 'the first one' disk.img:/photos/a.jpg",
            "diorite xattr list disk.img:/photos/a.jpg",
            "diorite xattr get user.comment disk.img:/photos/a.jpg",
            "diorite xattr remove user.comment disk.img:/photos/a.jpg",
        ],
    ),
    ("df", &["diorite df disk.img", "diorite df -i -T disk.img other.img"]),
    ("du", &["diorite du -s disk.img:/photos", "diorite du -c -d 1 disk.img:/"]),
    (
        "mount",
        &["diorite mount disk.img mnt", "diorite umount mnt", "diorite mount -o ro,noatime disk.img mnt"],
    ),
    ("umount", &["diorite umount mnt"]),
    (
        "serve",
        &[
            "diorite serve nfs --listen 127.0.0.1:0 disk.img",
            "diorite serve virtiofs --socket vol.sock -r disk.img",
        ],
    ),
    ("top", &["diorite top --once -i 0.1 mnt", "diorite top --once -i 0.1 --sort latency --json mnt"]),
    ("status", &["diorite status mnt", "diorite status mnt > status.json"]),
    ("bonnie", &["diorite bonnie -d . -s 8 --fast", "diorite bonnie -d disk.img:/ -s 8 --fast --o_direct"]),
    (
        "diskperf",
        &[
            "diorite diskperf blocks=64 direct depth=4 sim:fc-array",
            "diorite diskperf blocks=64 bs=64k nocopy disk.img",
            "diorite diskperf blocks=16 bs=64k direct depth=4 disk.img:/data/big.bin",
        ],
    ),
    (
        "raw",
        &[
            "diorite raw raw1 disk.img",
            "diorite ls raw:raw1:/etc",
            "diorite raw",
            "diorite raw --unbind raw1",
        ],
    ),
    (
        "job",
        &[
            "diorite job --on . random.fio",
            "diorite job --on disk.img random.fio",
            "diorite job --on sim:sata-2009 random.fio",
        ],
    ),
    (
        "crash",
        &[
            "diorite crash --check true -- sh -c 'echo new > note; sync note'",
            "diorite crash --check 'test -s note' -- sh -c 'echo new > note' || echo wrong",
            "diorite crash replay crash.case --image state.img",
        ],
    ),
    (
        "advise",
        &[
            "diorite advise -- tar -cf photos.tar photos",
            "diorite advise --record photos.trace -- tar -cf photos.tar photos",
            "diorite advise --no-probe --html photos.html photos.trace",
        ],
    ),
    (
        "uncached",
        &[
            "diorite uncached -- tar -cf photos.tar photos",
            "diorite uncached --keep '*.conf' -- cp -r photos copy",
            "diorite uncached --json -- cp photos/a.jpg copy.jpg 2> summary.json",
        ],
    ),
    (
        "repro",
        &["diorite repro --amount 10 boundary", "diorite repro boundary --amount 2 --report boundary.html"],
    ),
    ("completions", &["diorite completions bash > diorite.bash", "diorite completions zsh > _diorite"]),
    ("man", &["diorite man cp > diorite-cp.1", "diorite man --output man"]),
];

/// The examples of a command; its name has the names of the commands above it, without the program.
fn examples_of(name: &str) -> Vec<&'static str> {
    let top = name.split(' ').next().unwrap_or_default();
    let own = EXAMPLES.iter().filter(|(command, _)| *command == top).flat_map(|(_, lines)| *lines);
    own.copied().filter(|line| top == name || line.contains(&format!("diorite {name} "))).collect()
}

/// The name of a command below the program's.
pub(crate) fn below(parent: &str, command: &Command) -> String {
    format!("{parent} {}", command.get_name()).trim_start().to_owned()
}

/// The same declarations, with examples in the help of each command.
pub(super) fn added_to(command: Command, name: &str) -> Command {
    let examples = examples_of(name);
    let command = command.mut_subcommands(|inner| {
        let name = below(name, &inner);
        added_to(inner, &name)
    });
    if examples.is_empty() {
        return command;
    }
    let text = format!("Examples:\n  {}", examples.join("\n  "));
    let after = |known: Option<&clap::builder::StyledStr>| match known {
        Some(known) => format!("{known}\n\n{text}"),
        None => text.clone(),
    };
    let (short, long) =
        (after(command.get_after_help()), command.get_after_long_help().map(|known| after(Some(known))));
    let command = command.after_help(short);
    match long {
        Some(long) => command.after_long_help(long),
        None => command,
    }
}

/// The examples of a command as a section of its manual page; empty without examples.
pub(crate) fn manual_section(name: &str) -> String {
    let examples = examples_of(name);
    if examples.is_empty() {
        return String::new();
    }
    let mut section = Roff::new();
    section.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in examples {
        section.text([roman(line)]);
    }
    section.control("fi", []);
    section.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &mut Command, name: &str) {
        let examples = examples_of(name);
        assert!((1..=4).contains(&examples.len()), "{name}: {examples:?}");
        assert!(examples.len() >= 2 || name.contains(' ') || name == "umount", "{name}: {examples:?}");
        let help = command.render_long_help().to_string();
        for line in examples {
            assert!(help.contains(line), "{name} --help: no {line} in\n{help}");
        }
        for inner in command.get_subcommands_mut().filter(|inner| inner.get_name() != "help") {
            let name = below(name, inner);
            check(inner, &name);
        }
    }

    /// The test `examples` runs the examples of the manual pages.
    #[test]
    fn help_of_each_command_has_its_examples() {
        check(&mut crate::args::command(), "");
    }
}
