//! The options of a mount, as `-o` has them.

use std::time::Duration;

use diorite::front_end::{ContentTimes, UnknownScheduler};
use diorite::{Access, DataMode, Filesystem, FilesystemOptions, SchedulerKind};
use rustix::mount::MountFlags;

use super::ext4_options::{Effect, effect_of};
use crate::operations::{AccessTimes, LiveSettings, Settings};

/// Memory for the page cache: small, for content is in the kernel's.
const CACHE_BYTES: usize = 12 << 20;
/// Memory for metadata, and the least where the page cache is smaller than usual; it takes two and a half times this.
const METADATA_CACHE_BYTES: usize = 16 << 20;
const METADATA_CACHE_BYTES_MIN: usize = 1 << 20;
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);
/// Whether requests come over `io_uring` (FUSE, Linux 6.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoUring {
    /// If the kernel offers it.
    #[default]
    Auto,
    /// Only so.
    On,
    /// Never.
    Off,
}

/// Options of a mount.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent options, each named")]
pub struct MountOptions {
    /// Nothing is changed.
    pub read_only: bool,
    /// The kernel caches no content: all I/O goes to the device.
    pub direct: bool,
    /// Changes are durable when their calls return.
    pub sync: bool,
    /// Changes of names are durable when their calls return.
    pub dir_sync: bool,
    /// The reads that record an access time.
    pub access_times: AccessTimes,
    /// No read of a directory records an access time.
    pub no_directory_times: bool,
    /// Times alone wait in memory for another change of their inode (`lazytime`).
    pub lazy_time: bool,
    /// Other users than the mounting user have access.
    pub allow_other: bool,
    /// Permission bits and access control lists hold for the mounting user, too. For other users they always hold.
    pub default_permissions: bool,
    /// Mounts of it can be idmapped (Linux 6.12), with permission checks.
    pub idmap: bool,
    /// Set-user-ID has no effect.
    pub no_suid: bool,
    /// Device nodes are not opened.
    pub no_dev: bool,
    /// No program is run.
    pub no_exec: bool,
    /// Symbolic links are not followed.
    pub no_symlinks: bool,
    /// The journal is replayed in memory only (`norecovery`); the volume is read-only.
    pub no_recovery: bool,
    /// All files are owned by this user.
    pub uid: Option<u32>,
    /// All files are of this group.
    pub gid: Option<u32>,
    /// Permission bits that are cleared in every file.
    pub umask: u16,
    /// Age at which changes become durable by themselves; `None`: 5 seconds.
    pub commit: Option<Duration>,
    /// The data mode of the journal; `None`: the volume's default.
    pub data_mode: Option<DataMode>,
    /// Memory for the page cache; `None`: 12 MiB. With less than that, metadata takes less in proportion.
    pub cache_bytes: Option<usize>,
    /// Whether requests come over `io_uring`.
    pub io_uring: IoUring,
    /// Idle CPUs halt between requests, also where it costs much to start them again (virtual machines with few CPUs).
    pub no_idle_polling: bool,
    /// The I/O scheduler.
    pub scheduler: Option<SchedulerKind>,
    /// The partition of the image.
    pub partition: Option<u32>,
    /// The offset of the volume in the image, as in `IMAGE?offset=`.
    pub offset: Option<String>,
    /// Options of the kernel's ext4 that were accepted and have no effect, with what holds instead.
    pub ignored: Vec<String>,
    /// The source in the list of mounts. The mount is of the plain type `fuse.diorite` then.
    pub source_name: Option<String>,
}

impl MountOptions {
    /// Take over options in the form of `-o`: words with commas between them; `\\,` is a comma of a value. Options of `mount(8)` and `fstab(5)`
    /// for other programs are accepted. Options of ext4 without an effect are noted in [`Self::ignored`].
    ///
    /// # Errors
    /// An unknown word, or an invalid value, with the reason.
    ///
    /// ```
    /// use diorite_mount::MountOptions;
    ///
    /// let mut options = MountOptions::default();
    /// options.set("ro,noatime,uid=1000")?;
    /// assert!(options.read_only && options.uid == Some(1000));
    /// assert!(options.set("uid=me").is_err());
    /// # Ok::<(), String>(())
    /// ```
    pub fn set(&mut self, words: &str) -> Result<(), String> {
        option_words(words).iter().try_for_each(|word| self.set_word(word))?;
        self.read_only |= self.no_recovery;
        Ok(())
    }

    pub(crate) fn set_word(&mut self, word: &str) -> Result<(), String> {
        match effect_of(word) {
            Some(Effect::AlwaysSo) => return Ok(()),
            Some(Effect::Ignored(instead)) => {
                let note = format!("-o {word}: no effect: {instead}");
                if !self.ignored.contains(&note) {
                    self.ignored.push(note);
                }
                return Ok(());
            }
            Some(Effect::Rejected(why)) => return Err(format!("{word}: not supported: {why}")),
            None => {}
        }
        match word.split_once('=') {
            Some((name, value)) => self.set_value(name, value),
            None => self.set_switch(word),
        }
    }

    fn set_switch(&mut self, word: &str) -> Result<(), String> {
        match word {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "direct" => self.direct = true,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dir_sync = true,
            "nodirsync" => self.dir_sync = false,
            "noatime" => self.access_times = AccessTimes::Never,
            "relatime" | "atime" => self.access_times = AccessTimes::Relative,
            "strictatime" => self.access_times = AccessTimes::Strict,
            "diratime" => self.no_directory_times = false,
            "nodiratime" => self.no_directory_times = true,
            "lazytime" => self.lazy_time = true,
            "nolazytime" => self.lazy_time = false,
            "allow_other" => self.allow_other = true,
            "default_permissions" => self.default_permissions = true,
            "idmap" => (self.idmap, self.default_permissions) = (true, true),
            "suid" => self.no_suid = false,
            "nosuid" => self.no_suid = true,
            "dev" => self.no_dev = false,
            "nodev" => self.no_dev = true,
            "exec" => self.no_exec = false,
            "noexec" => self.no_exec = true,
            "symfollow" => self.no_symlinks = false,
            "nosymfollow" => self.no_symlinks = true,
            "norecovery" | "noload" => self.no_recovery = true,
            "defaults" | "auto" | "noauto" | "user" | "nouser" | "users" | "owner" | "group" | "nofail"
            | "_netdev" => {}
            word if word.starts_with("x-") || word.starts_with("X-") => {}
            _ => {
                let unknown = no_such_option(word);
                let is_unknown = self.clone().set_value(word, "").is_err_and(|error| error == unknown);
                let value_needed = || format!("{word}: a value is needed, as in {word}=...");
                return Err(if is_unknown { unknown } else { value_needed() });
            }
        }
        Ok(())
    }

    fn set_value(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wrong = |what: &str| format!("{name}={value}: {what}");
        let number = || value.parse::<u32>().map_err(|_| wrong("a number from 0 to 4294967295 is needed"));
        let id = || match number()? {
            u32::MAX => Err(wrong("no user and no group has this number")),
            id => Ok(id),
        };
        match name {
            "uid" => self.uid = Some(id()?),
            "gid" => self.gid = Some(id()?),
            "umask" => {
                let bits = u16::from_str_radix(value, 8).ok().filter(|bits| *bits <= 0o777);
                self.umask = bits.ok_or_else(|| wrong("an octal number up to 777 is needed"))?;
            }
            "commit" => {
                // As in the kernel: 0 is the usual one.
                let seconds = u64::from(number()?);
                let interval = Some(Duration::from_secs(seconds));
                self.commit = interval.filter(|interval| seconds > 0 && *interval != COMMIT_INTERVAL);
            }
            "cache" => {
                let size = bytes(value).ok_or_else(|| wrong("a size is needed, such as 64M"))?;
                self.cache_bytes = Some(size).filter(|size| *size != CACHE_BYTES);
            }
            "io_uring" => {
                self.io_uring = match value {
                    "auto" => IoUring::Auto,
                    "on" => IoUring::On,
                    "off" => IoUring::Off,
                    _ => return Err(wrong("auto, on or off is needed")),
                };
            }
            "idle_polling" => {
                self.no_idle_polling = match value {
                    "auto" => false,
                    "off" => true,
                    _ => return Err(wrong("auto or off is needed")),
                };
            }
            "scheduler" => {
                let kind = value.parse().map_err(|error: UnknownScheduler| wrong(&error.to_string()))?;
                self.scheduler = Some(kind);
            }
            "partition" if self.offset.is_some() => return Err(wrong("there is an offset already")),
            "partition" => self.partition = Some(number()?),
            "offset" if self.partition.is_some() => return Err(wrong("there is a partition already")),
            "offset" => self.offset = Some(value.to_owned()),
            "fsname" if value.is_empty() => return Err(wrong("a name is needed")),
            "fsname" => self.source_name = Some(value.to_owned()),
            "errors" if value != "remount-ro" => {
                return Err(wrong("continue, remount-ro or panic is needed"));
            }
            "data" => {
                self.data_mode = Some(match value {
                    "ordered" => DataMode::Ordered,
                    "writeback" => DataMode::Writeback,
                    "journal" => DataMode::Journal,
                    _ => return Err(wrong("ordered, writeback or journal is needed")),
                });
            }
            "subtype" | "max_read" | "blksize" | "errors" => {}
            name if name.starts_with("x-") || name.starts_with("X-") => {}
            name if !value.is_empty() && self.clone().set_switch(name).is_ok() => {
                return Err(wrong("this option has no value"));
            }
            _ => return Err(no_such_option(name)),
        }
        Ok(())
    }

    /// The first option that was set and applies only to a mount by this host's kernel.
    pub fn kernel_mount_option(&self) -> Option<&'static str> {
        let chosen = [
            (self.allow_other, "allow_other"),
            (self.idmap, "idmap"),
            (self.default_permissions, "default_permissions"),
            (self.no_suid, "nosuid"),
            (self.no_dev, "nodev"),
            (self.no_exec, "noexec"),
            (self.no_symlinks, "nosymfollow"),
            (self.io_uring != IoUring::Auto, "io_uring"),
            (self.no_idle_polling, "idle_polling"),
            (self.source_name.is_some(), "fsname"),
        ];
        chosen.into_iter().find_map(|(is_chosen, name)| is_chosen.then_some(name))
    }

    /// Whether the kernel caches writes.
    pub(crate) fn write_back(&self) -> bool {
        !self.read_only && !self.direct && !self.sync
    }

    /// Whether the kernel checks permissions.
    pub(crate) fn checks_permissions(&self) -> bool {
        self.default_permissions || self.allow_other
    }

    /// The target with partition or offset.
    pub(crate) fn target(&self, target: &str) -> String {
        match (self.partition, &self.offset) {
            (Some(partition), _) => format!("{target}?partition={partition}"),
            (None, Some(offset)) => format!("{target}?offset={offset}"),
            (None, None) => target.to_owned(),
        }
    }

    /// For the kernel, which may keep the times of its cache.
    pub(crate) fn filesystem(&self) -> FilesystemOptions {
        let times = if self.write_back() { ContentTimes::ByCaller } else { ContentTimes::ByWrite };
        self.served_filesystem().content_times(times)
    }

    /// For clients that write through.
    pub(crate) fn served_filesystem(&self) -> FilesystemOptions {
        let cache_bytes = self.cache_bytes.unwrap_or(CACHE_BYTES);
        // As much less than usual as the page cache has.
        let metadata_bytes =
            METADATA_CACHE_BYTES / 1024 * (cache_bytes.min(CACHE_BYTES) / (CACHE_BYTES / 1024));
        let options = Filesystem::options()
            .access(if self.read_only { Access::ReadOnly } else { Access::ReadWrite })
            .cache_bytes(cache_bytes)
            .metadata_cache_bytes(metadata_bytes.max(METADATA_CACHE_BYTES_MIN))
            .commit_interval(self.commit.unwrap_or(COMMIT_INTERVAL));
        let options = match self.data_mode {
            Some(mode) => options.data_mode(mode),
            None => options,
        };
        match self.scheduler {
            Some(kind) => options.scheduler(kind),
            None => options,
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings { live: self.live(), uid: self.uid, gid: self.gid, umask: self.umask }
    }

    pub(crate) fn live(&self) -> LiveSettings {
        LiveSettings {
            access_times: if self.read_only { AccessTimes::Never } else { self.access_times },
            no_directory_times: self.no_directory_times,
            lazy_times: self.lazy_time,
            sync: self.sync,
            dir_sync: self.dir_sync,
        }
    }

    /// For the kernel.
    pub(crate) fn flags(&self, is_read_only: bool) -> MountFlags {
        let all = [
            (is_read_only, MountFlags::RDONLY),
            (self.sync, MountFlags::SYNCHRONOUS),
            (self.dir_sync, MountFlags::DIRSYNC),
            (self.access_times == AccessTimes::Never, MountFlags::NOATIME),
            (self.access_times == AccessTimes::Relative, MountFlags::RELATIME),
            (self.access_times == AccessTimes::Strict, MountFlags::STRICTATIME),
            (self.no_directory_times, MountFlags::NODIRATIME),
            (self.lazy_time, MountFlags::LAZYTIME),
            (self.no_suid, MountFlags::NOSUID),
            (self.no_dev, MountFlags::NODEV),
            (self.no_exec, MountFlags::NOEXEC),
            (self.no_symlinks, MountFlags::NOSYMFOLLOW),
        ];
        all.into_iter()
            .filter(|(is_set, _)| *is_set)
            .fold(MountFlags::empty(), |flags, (_, flag)| flags | flag)
    }
}

fn no_such_option(name: &str) -> String {
    format!("{name}: no such option of a mount")
}

/// The words of `-o`, separated by commas. A backslash escapes a comma or a backslash.
pub fn option_words(words: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    let mut letters = words.chars();
    while let Some(letter) = letters.next() {
        let last = all.len() - 1;
        match letter {
            ',' => all.push(String::new()),
            '\\' => match letters.next() {
                Some(escaped @ (',' | '\\')) => all[last].push(escaped),
                other => all[last].extend(std::iter::once('\\').chain(other)),
            },
            _ => all[last].push(letter),
        }
    }
    all.retain(|word| !word.is_empty());
    all
}

/// A size with a unit: `64M`.
fn bytes(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_mount_has_them() {
        let mut options = MountOptions::default();
        options
            .set("rw,nosuid,strictatime,commit=30,cache=8M,partition=2,x-systemd.automount")
            .expect("known");
        assert_eq!((options.commit, options.cache_bytes), (Some(Duration::from_secs(30)), Some(8 << 20)));
        assert_eq!(options.target("disk.img"), "disk.img?partition=2");
        assert!(options.flags(true).contains(MountFlags::RDONLY | MountFlags::NOSUID));
        options.set(r"fsname=a\,b\\c\d,ro").expect("known");
        assert_eq!(options.source_name.as_deref(), Some(r"a,b\c\d"));
        for wrong in [
            "umask=9",
            "cache=x",
            "what",
            "what=1",
            "commit=soon",
            "io_uring=1",
            "idle_polling=on",
            "uid",
            "uid=4294967295",
            "data=none",
            "errors=never",
            "grpid",
            "sb=8193",
            "fsname=",
            "rw=1",
        ] {
            assert!(options.set(wrong).is_err(), "{wrong}");
        }
    }

    /// Every option of ext4's documentation is known: it has its meaning, or is logged, or is rejected with the reason.
    #[test]
    fn options_of_ext4_are_accepted_or_the_error_says_why_not() {
        let documented = "ro journal_checksum nojournal_checksum journal_async_commit journal_path=/x journal_dev=8 norecovery noload \
            data=journal data=ordered data=writeback commit=5 barrier=0 barrier=1 barrier nobarrier inode_readahead_blks=32 bsddf minixdf \
            debug abort errors=remount-ro errors=continue errors=panic data_err=ignore data_err=abort grpid bsdgroups nogrpid sysvgroups \
            resgid=1 resuid=1 sb=8193 quota noquota grpquota usrquota prjquota usrjquota=aquota.user grpjquota= jqfmt=vfsv0 delalloc \
            nodelalloc max_batch_time=0 min_batch_time=0 journal_ioprio=3 auto_da_alloc noauto_da_alloc auto_da_alloc=0 noinit_itable \
            init_itable=10 discard nodiscard nouid32 block_validity noblock_validity dioread_lock dioread_nolock max_dir_size_kb=1 i_version \
            dax dax=always dax=never dax=inode nombcache no_prefetch_block_bitmaps mb_optimize_scan=1 user_xattr nouser_xattr acl noacl \
            stripe=4 lazytime nolazytime bh nobh mblk_io_submit nomblk_io_submit debug_want_extra_isize=32 inlinecrypt \
            test_dummy_encryption oldalloc orlov nocheck warn_on_error nowarn_on_error nosymfollow symfollow iversion noiversion silent loud \
            mand nomand";
        for word in documented.split_whitespace() {
            let mut options = MountOptions::default();
            if let Err(said) = options.set(word) {
                assert!(said.contains(": not supported: "), "{said}");
            }
        }
        let mut options = MountOptions::default();
        options.set("noload,rw,discard,errors=continue,nosymfollow,barrier").expect("accepted");
        assert!(options.read_only && options.flags(true).contains(MountFlags::NOSYMFOLLOW));
        assert!(
            options.ignored.len() == 2 && options.ignored[0].starts_with("-o discard: no effect: "),
            "{:?}",
            options.ignored
        );
    }
}
