//! Records in place: counters, slots and attributes.

use diorite::XattrMode;
use diorite_crash::Report;

use super::{Right, Wrong, both, opened, sum, sync_directory, test};

/// Bytes of a slot: several sectors.
const SLOT: usize = 4096;

fn slot(version: u64) -> Vec<u8> {
    let mut bytes = vec![version as u8; SLOT];
    bytes[..8].copy_from_slice(&version.to_le_bytes());
    let checksum = sum(&bytes[..SLOT - 8]);
    bytes[SLOT - 8..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// The version of a slot with a right checksum.
fn version(found: &[u8]) -> Option<u64> {
    let version = u64::from_le_bytes(found.get(..8)?.try_into().ok()?);
    let checksum = u64::from_le_bytes(found.get(SLOT - 8..SLOT)?.try_into().ok()?);
    (checksum == sum(&found[..SLOT - 8])).then_some(version)
}

/// The only copy is overwritten; the corrected program has two slots, and writes the older one.
#[test]
fn one_slot_for_the_state() {
    let run = |program| -> Report {
        let prepared =
            |volume: &diorite::Filesystem| Ok(volume.write("/state", [slot(1), slot(0)].concat())?);
        test(program).prepared(prepared).filesystem(
            |volume, power| {
                let file = opened(volume, "/state")?;
                for version in 2..5 {
                    let at = if program == Wrong { 0 } else { (version + 1) % 2 * SLOT as u64 };
                    file.write_all_at(&slot(version), at)?;
                    file.sync_data()?;
                    power.acknowledge(version.to_string());
                }
                Ok(())
            },
            |volume, lines| {
                let found = volume.read("/state")?;
                let newest = found.chunks(SLOT).filter_map(version).max().unwrap_or(0);
                let promised = lines.lines().last().map_or(1, |line| line.parse().unwrap_or(0));
                if newest < promised {
                    Err(format!("version {newest} is left, not {promised}").into())
                } else {
                    Ok(())
                }
            },
        )
    };
    both(run, "version 0 is left, not 1");
}

/// Both slots are written before one sync: a power cut can damage both.
#[test]
fn both_slots_in_one_sync() {
    let run = |program| -> Report {
        let prepared =
            |volume: &diorite::Filesystem| Ok(volume.write("/state", [slot(1), slot(1)].concat())?);
        test(program).prepared(prepared).filesystem(
            |volume, _| {
                let file = opened(volume, "/state")?;
                for at in [0, SLOT as u64] {
                    file.write_all_at(&slot(2), at)?;
                    if program == Right {
                        file.sync_data()?;
                    }
                }
                Ok(file.sync_data()?)
            },
            |volume, _| {
                let found = volume.read("/state")?;
                if found.chunks(SLOT).any(|slot| version(slot).is_some()) {
                    Ok(())
                } else {
                    Err("both slots are damaged".into())
                }
            },
        )
    };
    both(run, "both slots are damaged");
}

/// A state in an extended attribute is durable only with the inode.
#[test]
fn an_attribute_that_is_not_synced() {
    let run = |program| -> Report {
        test(program).prepared(|volume| Ok(volume.write("/object", "data")?)).filesystem(
            |volume, power| {
                volume.set_xattr("/object", b"user.state", b"done", XattrMode::Set)?;
                if program == Right {
                    volume.resolve("/object")?.sync()?;
                }
                power.acknowledge("done");
                Ok(())
            },
            |volume, lines| {
                if lines.contains("done") && volume.xattr("/object", b"user.state").is_err() {
                    return Err("the attribute is lost".into());
                }
                Ok(())
            },
        )
    };
    both(run, "the attribute is lost");
}

/// A second name is the backup, and the first one is removed before the second is durable in its directory.
#[test]
fn a_backup_by_copy_that_is_not_synced() {
    let run = |program| -> Report {
        test(program).prepared(|volume| Ok(volume.write("/mail", "text")?)).filesystem(
            |volume, _| {
                volume.copy("/mail", "/archive")?;
                if program == Right {
                    volume.resolve("/archive")?.sync()?;
                    opened(volume, "/archive")?.sync_all()?;
                    sync_directory(volume, "/")?;
                }
                Ok(volume.remove_file("/mail")?)
            },
            |volume, _| {
                for path in ["/mail", "/archive"] {
                    if super::content(volume, path)?.is_some_and(|text| text == b"text") {
                        return Ok(());
                    }
                }
                Err("the mail is in neither place".into())
            },
        )
    };
    both(run, "the mail is in neither place");
}
