//! The behaviour that every device must have.

use std::path::Path;
use std::sync::Arc;

use diorite_block::{
    Bio, BioFlags, BioMemory, BlockDevice, IoErrorKind, IoOwner, IoQueue, Op, Piece, QueuedIo, QueuedMemory,
    Sector,
};
use diorite_device::{AlignedBuf, RegisteredBuffers};

type Device = Arc<dyn BlockDevice>;

/// All of it, on a writable device of at least 4 MiB whose content does not matter.
pub(crate) fn run<D: BlockDevice + 'static>(device: Arc<D>) {
    let device: Device = device;
    reads_see_writes(&device);
    vectored_segments(&device);
    many_bios_of_one_call(&device);
    registered_memory(&device);
    misaligned(&device);
    out_of_range(&device);
    errors_do_not_stop_the_rest(&device);
    durable_writes(&device);
    discard_and_zeroes(&device);
    counters_count(&device);
    from_several_threads(&device);
    queue_moves_data(&device);
    queue_depth_is_a_limit(&device);
    queue_reports_errors(&device);
    queue_keeps_order_of_flushes(&device);
    queue_drop_waits(&device);
    queue_goes_from_thread_to_thread(&device);
}

fn block(device: &Device) -> usize {
    device.geometry().logical_block_size as usize
}

fn buffer(device: &Device, len: usize) -> AlignedBuf {
    AlignedBuf::zeroed(len, device.geometry().memory_alignment.max(512) as usize)
}

/// Bytes that differ by place and by `seed`.
fn fill(memory: &mut [u8], seed: u64) {
    for (index, chunk) in memory.chunks_mut(8).enumerate() {
        let value = (index as u64 ^ seed << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
    }
}

fn pattern(device: &Device, len: usize, seed: u64) -> AlignedBuf {
    let mut memory = buffer(device, len);
    fill(&mut memory, seed);
    memory
}

fn read(device: &Device, offset: u64, len: usize) -> AlignedBuf {
    let mut memory = buffer(device, len);
    device.read_bytes(offset, &mut memory).unwrap();
    memory
}

fn reads_see_writes(device: &Device) {
    let block = block(device);
    for (seed, blocks) in [1, 2, 7, 64].into_iter().enumerate() {
        let data = pattern(device, blocks * block, seed as u64);
        for offset in [0, block as u64, 1 << 20, device.geometry().capacity_bytes - data.len() as u64] {
            device.write_bytes(offset, &data, BioFlags::SYNC).unwrap();
            assert!(read(device, offset, data.len())[..] == data[..], "{blocks} blocks at {offset}");
        }
    }
    let large = pattern(device, 3 << 20, 99);
    device.write_bytes(block as u64, &large, BioFlags::SYNC).unwrap();
    assert!(read(device, block as u64, large.len())[..] == large[..]);
}

/// Segments that are neither in order nor adjacent in memory.
fn vectored_segments(device: &Device) {
    let count = usize::from(device.geometry().max_segments.min(16)) / 2 * 2;
    let len = block(device);
    let data = pattern(device, count * len, 5);
    let mut order: Vec<_> = data.chunks(len).map(std::io::IoSlice::new).collect();
    order.reverse();
    let mut bio = Bio::write(Sector(0), &[], BioFlags::SYNC);
    bio.memory = BioMemory::Write(order);
    device.execute(&mut [bio]).unwrap();
    let back = read(device, 0, data.len());
    assert!(back.chunks(len).rev().eq(data.chunks(len)));

    let mut scattered = buffer(device, 2 * count * len);
    let every_other = scattered.chunks_mut(len).step_by(2).map(std::io::IoSliceMut::new).collect();
    let mut bio = Bio::read(Sector(0), &mut []);
    bio.memory = BioMemory::Read(every_other);
    device.execute(&mut [bio]).unwrap();
    assert!(scattered.chunks(len).step_by(2).eq(back.chunks(len)));
    assert!(scattered.chunks(len).skip(1).step_by(2).all(|gap| gap.iter().all(|byte| *byte == 0)));
}

/// More bios than any ring has entries.
fn many_bios_of_one_call(device: &Device) {
    let (len, count) = (block(device), 700.min((3 << 20) / block(device)));
    let data = pattern(device, count * len, 6);
    let sector = |index: usize| Sector::containing((index * len) as u64);
    let mut bios: Vec<_> =
        data.chunks(len).enumerate().map(|(i, part)| Bio::write(sector(i), part, BioFlags::SYNC)).collect();
    device.execute(&mut bios).unwrap();
    let mut back = buffer(device, data.len());
    let mut bios: Vec<_> =
        back.chunks_mut(len).enumerate().map(|(i, part)| Bio::read(sector(i), part)).rev().collect();
    device.execute(&mut bios).unwrap();
    drop(bios);
    assert!(back[..] == data[..]);
    device.execute(&mut []).unwrap();
}

/// Memory of a pool comes and goes; what lies at an old address is not mistaken for what was there.
fn registered_memory(device: &Device) {
    let len = 64 << 10;
    for round in 0..3_u64 {
        let pool = RegisteredBuffers::new(len, 4).unwrap();
        for index in 0..4_u64 {
            let mut data = pool.take();
            fill(&mut data, round << 8 | index);
            let offset = index * len as u64;
            device.write_bytes(offset, &data, BioFlags::SYNC).unwrap();
            let mut back = pool.take();
            device.read_bytes(offset, &mut back).unwrap();
            assert!(back[..] == data[..], "round {round}, buffer {index}");
            assert!(read(device, offset, len)[..] == data[..], "round {round}, buffer {index}, plain memory");
        }
    }
    let segments = usize::from(device.geometry().max_segments.min(8));
    let mut arena = AlignedBuf::registered(4 << 20, 4096).unwrap();
    let parts = arena.chunks_mut(8192).step_by(3).take(segments).map(std::io::IoSliceMut::new).collect();
    let mut bio = Bio::read(Sector(0), &mut []);
    bio.memory = BioMemory::Read(parts);
    device.execute(&mut [bio]).unwrap();
    let plain = read(device, 0, segments * 8192);
    assert!(arena.chunks(8192).step_by(3).take(segments).eq(plain.chunks(8192)));
}

/// The error names what is wrong, what was given and what is needed.
fn misaligned(device: &Device) {
    let geometry = device.geometry().clone();
    let block = block(device);
    let mut memory = buffer(device, 2 * block);
    if block > 512 {
        let error = device.read_bytes(512, &mut memory[..block]).unwrap_err();
        let needed = block as u32;
        assert!(
            matches!(error.kind, IoErrorKind::Misaligned { what: "offset", given: 512, needed: n } if n == needed),
            "{error}"
        );
    }
    let error = device.read_bytes(0, &mut memory[..block - 1]).unwrap_err();
    assert!(matches!(error.kind, IoErrorKind::Misaligned { what: "length", .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&(block - 1).to_string()) && text.contains(&block.to_string()), "{text}");
    if geometry.memory_alignment > 1 {
        let error = device.read_bytes(0, &mut memory[1..=block]).unwrap_err();
        assert!(matches!(error.kind, IoErrorKind::Misaligned { what: "memory address", .. }), "{error}");
        assert_eq!(error.kind.errno(), 22);
    }
}

fn out_of_range(device: &Device) {
    let capacity = device.geometry().capacity_bytes;
    let data = pattern(device, 2 * block(device), 1);
    let last = capacity - block(device) as u64;
    for offset in [last, capacity, capacity + (1 << 30), 1 << 62] {
        let error = device.write_bytes(offset, &data, BioFlags::SYNC).unwrap_err();
        assert!(matches!(error.kind, IoErrorKind::OutOfRange { capacity: c } if c == capacity), "{error}");
    }
    assert_eq!(device.geometry().capacity_bytes, capacity, "growth is refused");
}

/// The first error is reported, after the others have ended.
fn errors_do_not_stop_the_rest(device: &Device) {
    let len = block(device);
    let data = pattern(device, len, 77);
    let beyond = Sector::containing(device.geometry().capacity_bytes);
    let mut bios = [
        Bio::write(Sector(0), &data, BioFlags::SYNC),
        Bio::write(beyond, &data, BioFlags::SYNC),
        Bio::write(Sector::containing(len as u64), &data, BioFlags::SYNC),
    ];
    let error = device.execute(&mut bios).unwrap_err();
    assert_eq!((error.sector, error.op, error.len), (beyond, Op::Write, len as u64));
}

fn durable_writes(device: &Device) {
    let len = block(device);
    let data = pattern(device, 4 * len, 8);
    let at = |index: usize| Sector::containing((index * len) as u64);
    let flags = BioFlags::SYNC | BioFlags::FUA | BioFlags::PREFLUSH;
    device.execute(&mut [Bio::write(at(0), &data[..len], flags)]).unwrap();
    let mut bios: Vec<_> = (1..4).map(|i| Bio::write(at(i), &data[i * len..(i + 1) * len], flags)).collect();
    bios.push(Bio::flush());
    device.execute(&mut bios).unwrap();
    device.flush().unwrap();
    assert!(read(device, 0, 4 * len)[..] == data[..]);
}

fn discard_and_zeroes(device: &Device) {
    let len = block(device);
    let data = pattern(device, 1 << 20, 9);
    device.write_bytes(0, &data, BioFlags::SYNC).unwrap();
    let zeroed = (3 * len as u64, 64 * len as u64);
    let mut bio = [Bio::without_memory(Op::WriteZeroes, Sector::containing(zeroed.0), zeroed.1)];
    device.execute(&mut bio).unwrap();
    let back = read(device, 0, 1 << 20);
    let (from, to) = (zeroed.0 as usize, (zeroed.0 + zeroed.1) as usize);
    assert!(back[from..to].iter().all(|byte| *byte == 0));
    assert!(back[..from] == data[..from] && back[to..] == data[to..]);
    if device.geometry().discard {
        let mut bio = [Bio::without_memory(Op::Discard, Sector(0), 512 << 10)];
        device.execute(&mut bio).unwrap();
        let back = read(device, 512 << 10, 512 << 10);
        assert!(back[..] == data[512 << 10..], "what was not discarded stays");
    }
}

fn counters_count(device: &Device) {
    let data = pattern(device, 8 * block(device), 3);
    let before = device.counters().snapshot();
    device.write_bytes(0, &data, BioFlags::SYNC).unwrap();
    read(device, 0, data.len());
    device.execute(&mut [Bio::flush()]).unwrap();
    let during = device.counters().snapshot().since(before);
    assert_eq!((during.writes, during.write_bytes), (1, data.len() as u64));
    assert_eq!((during.reads, during.read_bytes), (1, data.len() as u64));
    assert_eq!((during.flushes, during.discards), (1, 0));
}

fn from_several_threads(device: &Device) {
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                let mut data = pattern(device, 64 << 10, thread);
                for round in 0..20 {
                    fill(&mut data, thread << 16 | round);
                    let offset = thread * (1 << 20) + round * data.len() as u64 % (1 << 19);
                    device.write_bytes(offset, &data, BioFlags::SYNC).unwrap();
                    assert!(
                        read(device, offset, data.len())[..] == data[..],
                        "thread {thread} round {round}"
                    );
                }
            });
        }
    });
}

fn transfer(op: Op, offset: u64, memory: AlignedBuf, tag: u64) -> QueuedIo {
    let piece = Piece { sector: Sector::containing(offset), memory: 0..memory.len() };
    QueuedIo {
        op,
        pieces: vec![piece],
        memory: QueuedMemory::Owned(Box::new(memory)),
        flags: BioFlags::SYNC,
        owner: IoOwner::current(),
        tag,
    }
}

fn memory_of(io: QueuedIo) -> AlignedBuf {
    *io.memory.into_owned().expect("it is given back").downcast().expect("the type that was submitted")
}

fn queue_moves_data(device: &Device) {
    let (len, count) = (16 << 10, 100_u64);
    let mut queue = Arc::clone(device).open_queue(8).unwrap();
    for op in [Op::Write, Op::Read] {
        let (mut next, mut ended, mut done) = (0, vec![false; count as usize], Vec::new());
        while next < count || queue.in_flight() > 0 {
            while next < count && queue.in_flight() < queue.depth() {
                let memory = if op == Op::Write { pattern(device, len, next) } else { buffer(device, len) };
                queue.submit(transfer(op, next * len as u64, memory, next)).unwrap();
                next += 1;
            }
            assert!(queue.reap(1, &mut done).unwrap() >= 1);
            for completed in done.drain(..) {
                completed.result.unwrap();
                let tag = completed.io.tag;
                assert!(!std::mem::replace(&mut ended[tag as usize], true), "{tag} ended twice");
                assert_eq!(completed.io.pieces[0].sector, Sector::containing(tag * len as u64));
                assert!(memory_of(completed.io)[..] == pattern(device, len, tag)[..], "{op} {tag}");
            }
        }
        assert!(ended.into_iter().all(|ended| ended));
    }
    pieces_complete_as_one(device, &mut *queue);
}

fn pieces_complete_as_one(device: &Device, queue: &mut dyn IoQueue) {
    let len = block(device);
    let mut io = transfer(Op::Write, 0, pattern(device, 40 * len, 4), 1);
    let place = |index: usize| Sector::containing(((39 - index) * 2 * len) as u64);
    io.pieces = (0..40).map(|i| Piece { sector: place(i), memory: i * len..(i + 1) * len }).collect();
    io.flags = BioFlags::SYNC | BioFlags::FUA | BioFlags::PREFLUSH;
    let mut done = Vec::new();
    queue.submit(io).unwrap();
    assert_eq!(queue.reap(1, &mut done).unwrap(), 1);
    let completed = done.pop().unwrap();
    completed.result.unwrap();
    let data = memory_of(completed.io);
    for index in 0..40 {
        let back = read(device, place(index).to_bytes(), len);
        assert!(back[..] == data[index * len..(index + 1) * len], "piece {index}");
    }
}

fn queue_depth_is_a_limit(device: &Device) {
    let mut queue = Arc::clone(device).open_queue(2).unwrap();
    let len = block(device);
    for tag in 0..2 {
        queue.submit(transfer(Op::Read, 0, buffer(device, len), tag)).unwrap();
    }
    let refused = queue.submit(transfer(Op::Read, 0, buffer(device, len), 2)).unwrap_err();
    assert_eq!((refused.tag, refused.memory.into_owned().is_some()), (2, true));
    queue.issue().unwrap();
    let mut done = Vec::new();
    let reaped = queue.reap(100, &mut done).unwrap();
    assert_eq!((reaped, done.len(), queue.in_flight()), (2, 2, 0));
    assert_eq!(queue.reap(1, &mut done).unwrap(), 0, "nothing in flight is not waited for");
}

fn queue_reports_errors(device: &Device) {
    let mut queue = Arc::clone(device).open_queue(8).unwrap();
    let (len, capacity) = (block(device), device.geometry().capacity_bytes);
    queue.submit(transfer(Op::Read, 0, buffer(device, len), 0)).unwrap();
    queue.submit(transfer(Op::Read, capacity, buffer(device, len), 1)).unwrap();
    queue.submit(transfer(Op::Write, 0, buffer(device, len - 1), 2)).unwrap();
    let mut done = Vec::new();
    assert_eq!(queue.reap(3, &mut done).unwrap(), 3);
    done.sort_by_key(|completed| completed.io.tag);
    let mut results = done
        .into_iter()
        .map(|completed| (completed.result, matches!(completed.io.memory, QueuedMemory::Owned(_))));
    assert!(matches!(results.next(), Some((Ok(()), true))));
    let kind =
        |result: Option<(Result<(), diorite_block::IoError>, bool)>| result.unwrap().0.unwrap_err().kind;
    assert!(matches!(kind(results.next()), IoErrorKind::OutOfRange { .. }));
    assert!(matches!(kind(results.next()), IoErrorKind::Misaligned { what: "length", .. }));
}

fn queue_keeps_order_of_flushes(device: &Device) {
    let mut queue = Arc::clone(device).open_queue(4).unwrap();
    let flush = QueuedIo {
        op: Op::Flush,
        pieces: Vec::new(),
        memory: QueuedMemory::None,
        flags: BioFlags::SYNC,
        owner: IoOwner::current(),
        tag: 5,
    };
    queue.submit(transfer(Op::Write, 0, pattern(device, block(device), 1), 4)).unwrap();
    queue.submit(flush).unwrap();
    let mut done = Vec::new();
    queue.reap(2, &mut done).unwrap();
    let mut tags: Vec<_> = done.iter().map(|completed| completed.io.tag).collect();
    tags.sort_unstable();
    assert_eq!(tags, [4, 5]);
    assert!(done.into_iter().all(|completed| completed.result.is_ok()));
}

fn queue_drop_waits(device: &Device) {
    let (len, count) = (64 << 10, 16_u64);
    let mut queue = Arc::clone(device).open_queue(16).unwrap();
    for tag in 0..count {
        queue.submit(transfer(Op::Write, tag * len as u64, pattern(device, len, 1000 + tag), tag)).unwrap();
    }
    drop(queue);
    for tag in 0..count {
        assert!(read(device, tag * len as u64, len)[..] == pattern(device, len, 1000 + tag)[..], "{tag}");
    }
}

/// Submitted in one thread, reaped in another.
fn queue_goes_from_thread_to_thread(device: &Device) {
    let len = 64 << 10;
    let mut queue = Arc::clone(device).open_queue(8).unwrap();
    for tag in 0..8 {
        queue.submit(transfer(Op::Read, tag * len as u64, buffer(device, len), tag)).unwrap();
    }
    queue.issue().unwrap();
    let reaped = std::thread::scope(|scope| {
        let reaper = scope.spawn(move || {
            let mut done = Vec::new();
            queue.reap(8, &mut done).unwrap()
        });
        reaper.join().unwrap()
    });
    assert_eq!(reaped, 8);
}

/// Writes of all kinds are refused; reads work.
pub(crate) fn read_only<D: BlockDevice + 'static>(device: Arc<D>) {
    let device: Device = device;
    let mut memory = buffer(&device, block(&device));
    device.read_bytes(0, &mut memory).unwrap();
    let len = memory.len() as u64;
    let mut refused = [
        Bio::write(Sector(0), &memory, BioFlags::SYNC),
        Bio::without_memory(Op::Discard, Sector(0), len),
        Bio::without_memory(Op::WriteZeroes, Sector(0), len),
    ];
    for bio in &mut refused {
        let error = device.execute(std::slice::from_mut(bio)).unwrap_err();
        assert!(matches!(error.kind, IoErrorKind::ReadOnly), "{error}");
    }
    let mut queue = Arc::clone(&device).open_queue(1).unwrap();
    queue.submit(transfer(Op::Write, 0, buffer(&device, block(&device)), 0)).unwrap();
    let mut done = Vec::new();
    queue.reap(1, &mut done).unwrap();
    assert!(matches!(done.pop().unwrap().result.unwrap_err().kind, IoErrorKind::ReadOnly));
}

/// The image is truncated while it is open: an error, not a wait for ever and not invented data.
pub(crate) fn truncated_underneath<D: BlockDevice + 'static>(device: Arc<D>, path: &Path) {
    let device: Device = device;
    super::make_file(path, (1 << 20) + 700);
    let mut memory = buffer(&device, 64 << 10);
    device.read_bytes((1 << 20) - (64 << 10), &mut memory).unwrap();
    let error = device.read_bytes(1 << 20, &mut memory).unwrap_err();
    assert!(matches!(error.kind, IoErrorKind::Short { done: 700 }), "{error}");
    let error = device.read_bytes(2 << 20, &mut memory).unwrap_err();
    assert!(matches!(error.kind, IoErrorKind::Short { done: 0 }), "{error}");
    let mut queue = Arc::clone(&device).open_queue(1).unwrap();
    queue.submit(transfer(Op::Read, 1 << 20, memory, 0)).unwrap();
    let mut done = Vec::new();
    queue.reap(1, &mut done).unwrap();
    let error = done.pop().unwrap().result.unwrap_err();
    assert!(matches!(error.kind, IoErrorKind::Short { done: 700 }), "{error}");
}
