//! virtio-fs: the test's own virtual machine monitor and guest, which use FUSE over a queue in shared memory.

use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use diorite::Filesystem;
use diorite::mkfs::{Flavor, MkfsOptions};
use diorite_mount::MountOptions;
use diorite_mount::virtiofs::{VirtioFs, VirtioFsStop};
use vhost::vhost_user::{
    Frontend, VhostUserFrontend as _, VhostUserProtocolFeatures, VhostUserVirtioFeatures,
};
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes as _, FileOffset, GuestAddress, GuestMemoryBackend as _, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const FSYNC: u32 = 20;
const SETXATTR: u32 = 21;
const INIT: u32 = 26;
const READDIR: u32 = 28;
const CREATE: u32 = 35;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const COPY_FILE_RANGE: u32 = 47;

const ENOENT: i32 = 2;

/// Where things are in the guest's memory.
const MEMORY: usize = 16 << 20;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x4000;
const REQUEST: u64 = 0x10_000;
const DATA: u64 = 0x20_000;
const REPLY: u64 = 0x80_0000;
const QUEUE_SIZE: u16 = 256;
/// The queue of requests that others may hold up.
const QUEUE: usize = 1;
const NEXT: u16 = 1;
const WRITE_ONLY: u16 = 2;

struct Guest {
    memory: GuestMemoryMmap,
    frontend: Frontend,
    kick: EventFd,
    call: EventFd,
    count: u16,
}

impl Guest {
    fn new(socket: &Path) -> Self {
        let file = std::fs::File::from(
            rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).expect("memory"),
        );
        file.set_len(MEMORY as u64).expect("memory");
        let range = (GuestAddress(0), MEMORY, Some(FileOffset::new(file, 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).expect("memory");
        let mut frontend = Frontend::connect(socket, 2).expect("it listens");
        let (kick, call) = (EventFd::new(0), EventFd::new(EFD_NONBLOCK));
        let (kick, call) = (kick.expect("an event"), call.expect("an event"));
        frontend.set_owner().expect("owner");
        let offered = frontend.get_features().expect("features");
        let protocol = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        assert!(offered & protocol != 0 && offered & 1 << 32 != 0);
        let _ = frontend.get_protocol_features().expect("features");
        frontend.set_features(protocol | 1 << 32).expect("features");
        frontend.set_protocol_features(VhostUserProtocolFeatures::MQ).expect("features");
        assert_eq!(frontend.get_queue_num().expect("a number"), 2);
        let region = memory.find_region(GuestAddress(0)).expect("a region");
        let region = VhostUserMemoryRegionInfo::from_guest_region(region).expect("a region");
        frontend.set_mem_table(&[region]).expect("memory");
        let mut guest = Self { memory, frontend, kick, call, count: 0 };
        guest.start_queue();
        guest
    }

    /// Set up the queue, which is empty.
    fn start_queue(&mut self) {
        let host = self.memory.get_host_address(GuestAddress(0)).expect("an address") as u64;
        self.put(&[0; 0x4000], AVAILABLE);
        self.count = 0;
        let frontend = &mut self.frontend;
        frontend.set_vring_num(QUEUE, QUEUE_SIZE).expect("a queue");
        let config = VringConfigData {
            queue_max_size: QUEUE_SIZE,
            queue_size: QUEUE_SIZE,
            flags: 0,
            desc_table_addr: host,
            used_ring_addr: host + USED,
            avail_ring_addr: host + AVAILABLE,
            log_addr: None,
        };
        frontend.set_vring_addr(QUEUE, &config).expect("a queue");
        frontend.set_vring_base(QUEUE, 0).expect("a queue");
        frontend.set_vring_call(QUEUE, &self.call).expect("a queue");
        frontend.set_vring_kick(QUEUE, &self.kick).expect("a queue");
        frontend.set_vring_enable(QUEUE, true).expect("a queue");
    }

    /// Stop the queue, as a machine does that is reset: how many requests were taken from it.
    fn stop_queue(&mut self) -> u16 {
        self.frontend.set_vring_enable(QUEUE, false).expect("a queue");
        self.frontend.get_vring_base(QUEUE).expect("a queue") as u16
    }

    /// Wait for an answer.
    fn wait_for_call(&self) {
        let start = Instant::now();
        while self.call.read().is_err() {
            assert!(start.elapsed() < Duration::from_secs(30), "no answer");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Wait until the server has taken notice of the queue.
    fn wait_until_seen(&self) {
        let start = Instant::now();
        let info = format!("/proc/self/fdinfo/{}", self.kick.as_raw_fd());
        let count = || {
            let info = std::fs::read_to_string(&info).expect("procfs");
            let count = info.lines().find_map(|line| line.strip_prefix("eventfd-count:")).expect("a line");
            u64::from_str_radix(count.trim(), 16).expect("a number")
        };
        while count() > 0 {
            assert!(start.elapsed() < Duration::from_secs(30), "the queue is not looked at");
            std::thread::yield_now();
        }
    }

    /// Requests that were answered since the queue was set up.
    fn used(&self) -> u16 {
        let mut used = [0; 2];
        self.memory.read_slice(&mut used, GuestAddress(USED + 2)).expect("memory");
        u16::from_le_bytes(used)
    }

    fn whole_memory(&self) -> Vec<u8> {
        let mut bytes = vec![0; MEMORY];
        self.memory.read_slice(&mut bytes, GuestAddress(0)).expect("memory");
        bytes
    }

    /// Offer so many requests for new files at once.
    fn offer_creations(&mut self, count: u16) {
        let heads: Vec<u16> = (0..count).map(|number| number * 4).collect();
        for head in &heads {
            let bytes = request(CREATE, 1, &creation(&format!("file{head}")), 0);
            let (at, reply) = (REQUEST + u64::from(*head) * 64, REPLY + u64::from(*head) * 512);
            self.put(&bytes, at);
            self.put_chain(
                *head,
                &[(at, bytes.len(), 0), (reply, 16, WRITE_ONLY), (reply + 16, 256, WRITE_ONLY)],
            );
        }
        self.offer(&heads);
    }

    fn put(&self, bytes: &[u8], at: u64) {
        self.memory.write_slice(bytes, GuestAddress(at)).expect("memory");
    }

    /// Put descriptors into the table, from `first` on.
    fn put_chain(&self, first: u16, descriptors: &[(u64, usize, u16)]) {
        for (index, (address, len, flags)) in (first..).zip(descriptors) {
            let is_last = usize::from(index - first) + 1 == descriptors.len();
            let flags = if is_last { *flags } else { flags | NEXT };
            let mut bytes = address.to_le_bytes().to_vec();
            bytes.extend((*len as u32).to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend((index + 1).to_le_bytes());
            self.put(&bytes, u64::from(index) * 16);
        }
    }

    /// Offer chains that begin with these descriptors.
    fn offer(&mut self, heads: &[u16]) {
        for head in heads {
            let slot = u64::from(self.count % QUEUE_SIZE);
            self.put(&head.to_le_bytes(), AVAILABLE + 4 + slot * 2);
            self.count += 1;
        }
        self.put(&self.count.to_le_bytes(), AVAILABLE + 2);
        self.kick.write(1).expect("an event");
    }

    /// Put descriptors into the queue, each with address, length and flags; so many bytes of those that can be written were.
    fn submit(&mut self, descriptors: &[(u64, usize, u16)]) -> usize {
        self.put_chain(0, descriptors);
        let slot = u64::from(self.count % QUEUE_SIZE);
        self.offer(&[0]);
        self.wait_for_call();
        assert_eq!(self.used(), self.count);
        let mut len = [0; 4];
        self.memory.read_slice(&mut len, GuestAddress(USED + 4 + slot * 8 + 4)).expect("memory");
        u32::from_le_bytes(len) as usize
    }

    /// A request: `None` where it has no reply, else its error or what came after the head of the reply.
    fn ask(
        &mut self,
        opcode: u32,
        node: u64,
        arguments: &[u8],
        data: &[u8],
        space: usize,
    ) -> Option<Result<Vec<u8>, i32>> {
        self.put(&request(opcode, node, arguments, data.len()), REQUEST);
        self.put(data, DATA);
        // In pieces as a kernel has them: head, arguments, pages.
        let mut descriptors = vec![(REQUEST, 40, 0)];
        if !arguments.is_empty() {
            descriptors.push((REQUEST + 40, arguments.len(), 0));
        }
        for at in (0..data.len()).step_by(4096) {
            descriptors.push((DATA + at as u64, (data.len() - at).min(4096), 0));
        }
        if space > 0 {
            descriptors.push((REPLY, 16, WRITE_ONLY));
            descriptors.push((REPLY + 16, space, WRITE_ONLY));
        }
        let written = self.submit(&descriptors);
        if written == 0 {
            return None;
        }
        let mut reply = vec![0; written];
        self.memory.read_slice(&mut reply, GuestAddress(REPLY)).expect("memory");
        let number = |at: usize| i32::from_ne_bytes([reply[at], reply[at + 1], reply[at + 2], reply[at + 3]]);
        assert_eq!(number(0), written as i32);
        Some(if number(4) == 0 { Ok(reply.split_off(16)) } else { Err(-number(4)) })
    }

    fn init(&mut self) {
        self.init_with(u32::MAX);
    }

    fn init_with(&mut self, flags: u32) {
        let arguments = [7_u32, 37, 1 << 20, flags].map(u32::to_ne_bytes).concat();
        let agreed = self.ask(INIT, 0, &arguments, &[], 256).expect("a reply").expect("it agrees");
        assert_eq!(u32::from_ne_bytes([agreed[0], agreed[1], agreed[2], agreed[3]]), 7);
    }

    /// Node and handle of a new file.
    fn create(&mut self, name: &str) -> (u64, u64) {
        let made = self.ask(CREATE, 1, &creation(name), &[], 256).expect("a reply").expect("it is made");
        let number = |at: usize| u64::from_ne_bytes(made[at..at + 8].try_into().expect("eight bytes"));
        (number(0), number(128))
    }

    fn read(&mut self, (node, handle): (u64, u64), offset: u64, len: usize) -> Result<Vec<u8>, i32> {
        self.ask(READ, node, &transfer(handle, offset, len), &[], len).expect("a reply")
    }

    fn write(&mut self, (node, handle): (u64, u64), offset: u64, data: &[u8]) -> Result<Vec<u8>, i32> {
        self.ask(WRITE, node, &transfer(handle, offset, data.len()), data, 64).expect("a reply")
    }
}

/// A request but for its data.
fn request(opcode: u32, node: u64, arguments: &[u8], data_len: usize) -> Vec<u8> {
    let len = 40 + arguments.len() + data_len;
    let mut bytes = [len as u32, opcode].map(u32::to_ne_bytes).concat();
    bytes.extend([7_u64, node].map(u64::to_ne_bytes).concat());
    bytes.extend([0_u32, 0, 4711, 0].map(u32::to_ne_bytes).concat());
    bytes.extend(arguments);
    bytes
}

/// The arguments of a creation.
fn creation(name: &str) -> Vec<u8> {
    let mut arguments = [0o2_u32 | 0o100, 0o100_644, 0, 0].map(u32::to_ne_bytes).concat();
    arguments.extend(name.as_bytes());
    arguments.push(0);
    arguments
}

/// The structure of a read or write.
fn transfer(handle: u64, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = [handle, offset].map(u64::to_ne_bytes).concat();
    bytes.extend([len as u32, 0, 0, 0, 0, 0].map(u32::to_ne_bytes).concat());
    bytes
}

struct Server {
    directory: tempfile::TempDir,
    stop: VirtioFsStop,
    thread: JoinHandle<()>,
}

impl Server {
    fn new() -> Self {
        Self::filled(|_| {})
    }

    /// Of a volume that has something in it.
    fn filled(fill: impl FnOnce(&Filesystem)) -> Self {
        Self::with(&MountOptions::default(), fill)
    }

    fn with(options: &MountOptions, fill: impl FnOnce(&Filesystem)) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let image = directory.path().join("a.img");
        let made = Filesystem::create(&image, 64 << 20, &MkfsOptions::new(Flavor::Ext4)).expect("mkfs");
        fill(&made);
        made.close().expect("close");
        let socket = directory.path().join("socket");
        let server = VirtioFs::new(image.to_str().expect("text"), &socket, options);
        let server = server.expect("it listens");
        let stop = server.stop();
        let thread = std::thread::spawn(move || server.serve().expect("it ends in order"));
        Self { directory, stop, thread }
    }

    fn guest(&self) -> Guest {
        Guest::new(&self.directory.path().join("socket"))
    }

    /// End it: the volume.
    fn end(self) -> (Filesystem, tempfile::TempDir) {
        self.stop.stop();
        self.thread.join().expect("it does not panic");
        assert!(!self.directory.path().join("socket").exists());
        (Filesystem::open(self.directory.path().join("a.img")).expect("open"), self.directory)
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// A guest writes and reads; another one after it finds what the first had made durable or not, and the first one's handles are gone.
#[test]
fn guests_use_the_volume_one_after_the_other() {
    let server = Server::new();
    let mut guest = server.guest();
    guest.init();
    let absent = guest.ask(LOOKUP, 1, b"file\0", &[], 256).expect("a reply");
    assert!(absent == Err(ENOENT) || absent.is_ok_and(|entry| entry[..8] == [0; 8]));
    let file = guest.create("file");
    let data = pattern(300_000);
    guest.write(file, 0, &data).expect("it is written");
    assert_eq!(guest.read(file, 0, 1 << 20), Ok(data.clone()));
    assert_eq!(guest.read(file, 4096, 5000), Ok(data[4096..9096].to_vec()));
    guest.ask(FSYNC, file.0, &[0; 16], &[], 64).expect("a reply").expect_err("there is no handle 0");
    assert_eq!(guest.ask(FORGET, file.0, &1_u64.to_ne_bytes(), &[], 0), None);
    let status = diorite_mount::status::ask(&server.directory.path().join("a.img")).expect("it answers");
    assert!(status.directory.starts_with("virtiofs "), "{}", status.directory);
    assert_eq!(status.tasks.iter().map(|task| task.write.bytes).sum::<u64>(), data.len() as u64);
    // It starts anew without a word: nothing of before is open.
    guest.init();
    assert!(guest.read(file, 0, 10).is_err());
    guest.ask(DESTROY, 0, &[], &[], 64).expect("a reply").expect("it ends");
    drop(guest);

    let mut guest = server.guest();
    guest.init();
    let other = guest.create("other");
    guest.write(other, 0, b"by another guest").expect("it is written");
    drop(guest);
    let (filesystem, _directory) = server.end();
    assert_eq!(filesystem.read("/file").expect("read"), data);
    assert_eq!(filesystem.read("/other").expect("read"), b"by another guest");
}

/// All requests of a machine that had gone were still carried out, some of them after what it had open was closed. On a fast device all may
/// have ended before its end is noticed: five machines are tried.
#[test]
fn requests_of_a_machine_end_with_it() {
    const REQUESTS: u16 = 60;
    let some_never_began = (0..5).any(|_| {
        let made = made_by_a_machine_that_goes(REQUESTS);
        assert!(made > 0);
        made < usize::from(REQUESTS)
    });
    assert!(some_never_began);
}

/// A machine asks for so many files and goes: how many were made.
fn made_by_a_machine_that_goes(requests: u16) -> usize {
    // So that each takes some time.
    let server = Server::with(&MountOptions { dir_sync: true, ..MountOptions::default() }, |_| {});
    let mut guest = server.guest();
    guest.init();
    guest.offer_creations(requests);
    // Until some were taken.
    guest.wait_for_call();
    drop(guest);
    server.guest().init();
    let (filesystem, _directory) = server.end();
    let names = filesystem.read_dir("/").expect("the root");
    names.filter(|name| name.as_ref().is_ok_and(|name| name.file_name() != "lost+found")).count()
}

/// A machine that is reset stops its queue and has its memory for other things: answers to requests that were taken before were written there
/// afterwards, and into the queue of its next start.
#[test]
fn a_queue_that_was_stopped_is_not_written_any_more() {
    const LEN: usize = 24 << 20;
    let server = Server::filled(|filesystem| filesystem.write("/source", pattern(LEN)).expect("space"));
    let mut guest = server.guest();
    guest.init();
    let number = |bytes: &[u8]| u64::from_ne_bytes(bytes[..8].try_into().expect("eight bytes"));
    let source = guest.ask(LOOKUP, 1, b"source\0", &[], 256).expect("a reply").expect("it is there");
    let source = number(&source);
    let opened = guest.ask(OPEN, source, &[0; 8], &[], 64).expect("a reply").expect("it is opened");
    let (copy, to) = guest.create("copy");
    // It takes some time.
    let arguments = [number(&opened), 0, copy, to, 0, LEN as u64, 0].map(u64::to_ne_bytes).concat();
    let bytes = request(COPY_FILE_RANGE, source, &arguments, 0);
    guest.put(&bytes, REQUEST);
    guest.put_chain(0, &[(REQUEST, bytes.len(), 0), (REPLY, 256, WRITE_ONLY)]);
    guest.offer(&[0]);
    let (image, start) = (server.directory.path().join("a.img"), Instant::now());
    while diorite_mount::status::ask(&image).expect("it answers").in_flight.is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(30) && guest.used() < guest.count,
            "it is not under way"
        );
    }
    let taken = guest.stop_queue();
    let stopped = guest.whole_memory();
    assert_eq!(guest.used(), taken, "all that were taken are answered");
    std::thread::sleep(Duration::from_millis(500));
    assert!(guest.whole_memory() == stopped, "the memory is the machine's");
    let _ = guest.call.read();
    guest.start_queue();
    guest.init();
    guest.create("after");
    drop(guest);
    let (filesystem, _directory) = server.end();
    assert_eq!(filesystem.read("/after").expect("it was made"), b"");
}

/// After a queue that was not in order none was served any more, until another machine came.
#[test]
fn a_machine_that_starts_anew_is_served_after_its_queue_was_not_in_order() {
    let server = Server::new();
    let mut guest = server.guest();
    guest.init();
    // More requests than the queue has places.
    guest.put(&(guest.count + QUEUE_SIZE + 1).to_le_bytes(), AVAILABLE + 2);
    guest.kick.write(1).expect("an event");
    guest.wait_until_seen();
    guest.stop_queue();
    guest.start_queue();
    guest.init();
    let file = guest.create("file");
    guest.write(file, 0, b"content").expect("it is written");
    drop(guest);
    let (filesystem, _directory) = server.end();
    assert_eq!(filesystem.read("/file").expect("read"), b"content");
}

/// Whatever a guest puts into its queue, the server goes on.
#[test]
fn hostile_requests_get_no_answer_or_an_error() {
    let server = Server::filled(|filesystem| {
        filesystem.create_dir("/many").expect("space");
        for index in 0..5000 {
            filesystem.create_file(format!("/many/{index:0>250}")).expect("space");
        }
    });
    let mut guest = server.guest();
    guest.init();
    let many = guest.ask(LOOKUP, 1, b"many\0", &[], 256).expect("a reply").expect("it is there");
    let many = u64::from_ne_bytes(many[..8].try_into().expect("eight bytes"));
    let beyond = MEMORY as u64;
    for descriptors in [
        vec![(beyond, 40, 0), (REPLY, 256, WRITE_ONLY)],
        vec![(REQUEST, 40, 0), (beyond - 8, 256, WRITE_ONLY)],
        vec![(REQUEST, 39, 0), (REPLY, 256, WRITE_ONLY)],
        vec![(REQUEST, MEMORY - REQUEST as usize, 0)],
        vec![(REPLY, 256, WRITE_ONLY)],
        vec![(u64::MAX - 3, 40, 0)],
        // A loop.
        (0..QUEUE_SIZE).map(|_| (REQUEST, 40, NEXT)).collect(),
    ] {
        guest.put(&[0xff; 4096], REQUEST);
        assert_eq!(guest.submit(&descriptors), 0, "{:?}", descriptors[0]);
    }
    // It counted to the end, and lists grew in memory to the size that was said.
    let began = Instant::now();
    assert_eq!(guest.ask(BATCH_FORGET, 0, &[u32::MAX, 0].map(u32::to_ne_bytes).concat(), &[], 0), None);
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    let mut list = transfer(0, 0, 0);
    list[16..20].copy_from_slice(&u32::MAX.to_ne_bytes());
    let space = 3 << 20;
    let listed = guest.ask(READDIR, many, &list, &[], space).expect("a reply").expect("a list");
    assert!((900 << 10..=1 << 20).contains(&listed.len()), "{}", listed.len());
    let file = guest.create("file");
    guest.write(file, 0, b"content").expect("it is written");
    // No space for what is asked for.
    assert_eq!(guest.ask(READ, file.0, &transfer(file.1, 0, 100), &[], 3), None);
    assert!(guest.read(file, 0, 2 << 20).is_err());
    assert_eq!(guest.read(file, 0, 100), Ok(b"content".to_vec()));
    drop(guest);
    let (filesystem, _directory) = server.end();
    assert_eq!(filesystem.read("/file").expect("read"), b"content");
}

/// A guest from before Linux 5.14 sends a shorter request for an attribute. Eight bytes of the name were taken for the rest of a longer one, so
/// that `AAAAAAAAsecurity.capability`, which its kernel lets any user set, became `security.capability`.
#[test]
fn names_of_attributes_are_whole_for_older_guests() {
    const SETXATTR_EXT: u32 = 1 << 29;
    let server = Server::new();
    for (flags, long) in [(u32::MAX, true), (!SETXATTR_EXT, false)] {
        let mut guest = server.guest();
        guest.init_with(flags);
        let file = guest.create(if long { "new" } else { "old" });
        let mut request = [5_u32, 0].map(u32::to_ne_bytes).concat();
        if long {
            request.extend([0; 8]);
        }
        request.extend(b"user.AAAA.note\0value");
        guest.ask(SETXATTR, file.0, &request, &[], 64).expect("a reply").expect("it is set");
        guest.ask(DESTROY, 0, &[], &[], 64).expect("a reply").expect("it ends");
    }
    let (filesystem, _directory) = server.end();
    for path in ["/new", "/old"] {
        assert_eq!(filesystem.xattr_names(path).expect("names"), [b"user.AAAA.note".to_vec()], "{path}");
        assert_eq!(filesystem.xattr(path, b"user.AAAA.note").expect("there"), b"value", "{path}");
    }
}

/// Nothing is sent to a guest unasked. For a day it did not know that a write had taken set-user-ID, and executed what another user had written
/// with the rights of the owner.
#[test]
fn a_guest_does_not_remember_permission_bits_that_a_write_takes() {
    const MODE: u32 = 1;
    const KILL_SUIDGID: u32 = 4;
    let server = Server::new();
    let mut guest = server.guest();
    guest.init();
    let (node, handle) = guest.create("program");
    let number = |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight"));
    // Seconds for which attributes are valid, and permission bits.
    let known = |guest: &mut Guest| {
        let entry = guest.ask(LOOKUP, 1, b"program\0", &[], 256).expect("a reply").expect("it is there");
        (number(&entry, 24), number(&entry, 100) as u32 & 0o7777)
    };
    assert!(known(&mut guest).0 > 0);
    let mut changes = [0; 88];
    changes[..4].copy_from_slice(&MODE.to_ne_bytes());
    changes[68..72].copy_from_slice(&0o104_755_u32.to_ne_bytes());
    let changed = guest.ask(SETATTR, node, &changes, &[], 128).expect("a reply").expect("it is set");
    assert_eq!((number(&changed, 0), known(&mut guest)), (0, (0, 0o4755)));
    let mut write = transfer(handle, 0, 7);
    write[20..24].copy_from_slice(&KILL_SUIDGID.to_ne_bytes());
    guest.ask(WRITE, node, &write, b"content", 64).expect("a reply").expect("it is written");
    let (valid, mode) = known(&mut guest);
    assert!(valid > 0 && mode == 0o755, "{valid} s, {mode:o}");
    drop(guest);
    server.end();
}

/// A guest made files that no user owns.
#[test]
fn a_guest_cannot_name_an_owner_that_is_none() {
    const UID: u32 = 2;
    const GID: u32 = 4;
    let server = Server::new();
    let mut guest = server.guest();
    guest.init();
    let (node, _) = guest.create("file");
    for flag in [UID, GID] {
        let mut changes = [0; 88];
        changes[..4].copy_from_slice(&flag.to_ne_bytes());
        changes[76..84].fill(0xff);
        assert_eq!(guest.ask(SETATTR, node, &changes, &[], 128).expect("a reply"), Err(22));
    }
    drop(guest);
    server.end();
}
