//! The use of an image: all operations. Any result is accepted if the operation ends.

use std::path::PathBuf;
use std::sync::Arc;

use diorite::check::{CheckOptions, check_replayed};
use diorite::{
    Access, BlockDevice, DirectIo, File, FileKind, Filesystem, FilesystemOptions, RenameMode, WalkEntry,
    XattrMode,
};

use super::{Outcome, Random, device_of};

/// Entries that a walk looks at: more than the image has.
const MAX_ENTRIES: usize = 2000;
/// Bytes that are read at the beginning of a file.
const HEAD: usize = 1 << 20;

/// Read, check, write, check and read again. An error says what did not hold.
pub(super) fn exercise(bytes: &[u8], random: &mut Random) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    let device = device_of(bytes);
    let before = device.counters().snapshot();
    look(&device, &mut outcome, 0)?;
    check(&device, &mut outcome);
    let done = device.counters().snapshot().since(before);
    if done.writes > 0 || done.discards > 0 {
        return Err(format!("an image opened read-only was written: {done:?}"));
    }
    change(&device, &mut outcome, random);
    check(&device, &mut outcome);
    let before = device.counters().snapshot();
    look(&device, &mut outcome, 0)?;
    if device.counters().snapshot().since(before).writes > 0 {
        return Err("an image opened read-only was written".to_owned());
    }
    Ok(outcome)
}

fn options(access: Access) -> FilesystemOptions {
    Filesystem::options().access(access).cache_bytes(1 << 20).metadata_cache_bytes(1 << 20)
}

fn note<T, E>(outcome: &mut Outcome, result: Result<T, E>) -> Option<T> {
    if let Ok(value) = result {
        outcome.answers += 1;
        Some(value)
    } else {
        outcome.errors += 1;
        None
    }
}

fn check(device: &Arc<dyn BlockDevice>, outcome: &mut Outcome) {
    let report = check_replayed(device, &CheckOptions::default(), &mut |_| {});
    if let Some(report) = note(outcome, report) {
        outcome.problems += report.problem_count;
    }
}

/// Everything that can be reached.
fn entries(filesystem: &Filesystem, outcome: &mut Outcome) -> Result<Vec<WalkEntry>, String> {
    let mut found = Vec::new();
    for (steps, entry) in filesystem.walk("/").enumerate() {
        if steps > MAX_ENTRIES {
            return Err(format!("a walk without end, at {:?}", found.last()));
        }
        found.extend(note(outcome, entry));
    }
    Ok(found)
}

fn look(device: &Arc<dyn BlockDevice>, outcome: &mut Outcome, which: usize) -> Result<(), String> {
    let Some(filesystem) = note(outcome, options(Access::ReadOnly).open_device(Arc::clone(device))) else {
        return Ok(());
    };
    outcome.opened[which] = true;
    filesystem.statfs();
    for entry in entries(&filesystem, outcome)? {
        let path = &entry.path;
        let size = note(outcome, entry.metadata().map(|attributes| attributes.size)).unwrap_or(0);
        for name in note(outcome, filesystem.xattr_names(path)).unwrap_or_default() {
            note(outcome, filesystem.xattr(path, &name));
        }
        match entry.kind {
            FileKind::Symlink => {
                note(outcome, filesystem.read_link(path));
                note(outcome, filesystem.metadata(path));
            }
            FileKind::Regular => {
                for direct in [DirectIo::Off, DirectIo::Preferred] {
                    let file = filesystem.open_options().read(true).direct(direct).open(path);
                    if let Some(file) = note(outcome, file) {
                        read(&file, size, outcome);
                    }
                }
            }
            _ => {}
        }
    }
    note(outcome, filesystem.close());
    Ok(())
}

fn read(file: &File, size: u64, outcome: &mut Outcome) {
    let mut memory = file.buffer(HEAD).expect("memory");
    note(outcome, file.read_at(&mut memory, 0));
    note(outcome, file.read_at(&mut memory[..65_536], size.saturating_sub(50_000) / 4096 * 4096));
    let mut at = 0;
    for _ in 0..100 {
        let Some(data) = note(outcome, file.seek_data(at)) else { break };
        let Some(hole) = note(outcome, file.seek_hole(data)) else { break };
        if hole <= data {
            break;
        }
        at = hole;
    }
    note(outcome, file.extents());
}

fn change(device: &Arc<dyn BlockDevice>, outcome: &mut Outcome, random: &mut Random) {
    let Some(filesystem) = note(outcome, options(Access::ReadWrite).open_device(Arc::clone(device))) else {
        return;
    };
    outcome.opened[1] = true;
    let mut names: Vec<PathBuf> =
        filesystem.walk("/").take(MAX_ENTRIES).flatten().map(|entry| entry.path).collect();
    for n in 0..10 {
        let path = PathBuf::from(format!("/new-{n}"));
        let made =
            if n % 3 == 0 { filesystem.create_dir(&path) } else { filesystem.create_file(&path).map(drop) };
        note(outcome, made);
        names.push(path);
    }
    for _ in 0..60 {
        let (path, other) = (&names[random.index(names.len())], &names[random.index(names.len())]);
        step(&filesystem, path, other, outcome, random);
    }
    note(outcome, filesystem.sync());
    note(outcome, filesystem.drop_caches());
    let kept = names.first().and_then(|path| filesystem.open_file(path).ok());
    for path in names.iter().take(30) {
        note(outcome, filesystem.metadata(path));
    }
    drop(kept);
    note(outcome, filesystem.close());
}

fn step(
    filesystem: &Filesystem,
    path: &PathBuf,
    other: &PathBuf,
    outcome: &mut Outcome,
    random: &mut Random,
) {
    let reach = 1 << (10 + random.below(20));
    let offset = random.below(reach) & !4095;
    match random.below(11) {
        0 => drop(note(outcome, filesystem.remove_file(path))),
        1 => drop(note(outcome, filesystem.remove_dir(path))),
        2 => drop(note(outcome, filesystem.rename(path, other))),
        3 => drop(note(outcome, filesystem.rename_with(path, other, RenameMode::Exchange))),
        4 => drop(note(outcome, filesystem.set_xattr(path, b"user.new", &[1; 700], XattrMode::Set))),
        5 => drop(note(outcome, filesystem.remove_xattr(path, b"user.one"))),
        6 => drop(note(outcome, filesystem.hard_link(path, other.with_extension("link")))),
        7 => drop(note(outcome, filesystem.create_file(other.join("below")))),
        _ => write(filesystem, path, offset, outcome, random),
    }
}

fn write(filesystem: &Filesystem, path: &PathBuf, offset: u64, outcome: &mut Outcome, random: &mut Random) {
    let direct = if random.one_in(2) { DirectIo::Preferred } else { DirectIo::Off };
    let file = filesystem.open_options().read(true).write(true).direct(direct).open(path);
    let Some(file) = note(outcome, file) else { return };
    let len = 1 << (12 + random.below(6));
    let data = file.buffer(len).expect("memory");
    match random.below(6) {
        0 => drop(note(outcome, file.set_len(offset))),
        1 => drop(note(outcome, file.punch_hole(offset / 2, 100_000))),
        2 => drop(note(outcome, file.allocate(offset, 100_000))),
        3 => drop(note(outcome, file.append(&data))),
        _ => drop(note(outcome, file.write_all_at(&data, offset))),
    }
    if random.one_in(3) {
        note(outcome, file.sync_all());
    }
}
