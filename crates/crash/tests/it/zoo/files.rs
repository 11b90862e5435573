//! Content of single files: missing syncs, and updates in place.

use diorite_crash::{Effect, Fault, Report};

use super::{Program, Right, Wrong, both, content, opened, test, write_synced};

const OLD: &[u8] = b"old settings";
const NEW: &[u8] = b"new settings";

/// A check that a file has the old or the new content, and the new one after an acknowledgement.
fn old_or_new(volume: &diorite::Filesystem, acknowledged: bool) -> diorite_crash::Result {
    match content(volume, "/settings")?.as_deref() {
        Some(found) if found == NEW => Ok(()),
        Some(found) if found == OLD && !acknowledged => Ok(()),
        Some(b"") => Err("the settings are empty".into()),
        found => Err(format!("the settings are {found:?}").into()),
    }
}

fn prepared(program: Program) -> diorite_crash::CrashTest {
    test(program).prepared(|volume| Ok(volume.write("/settings", OLD)?))
}

#[test]
fn no_sync_before_the_rename() {
    let run = |program| -> Report {
        prepared(program).filesystem(
            |volume, _| {
                let file = opened(volume, "/settings.new")?;
                file.write_all_at(NEW, 0)?;
                if program == Right {
                    file.sync_all()?;
                }
                drop(file);
                Ok(volume.rename("/settings.new", "/settings")?)
            },
            |volume, lines| old_or_new(volume, !lines.is_empty()),
        )
    };
    both(run, "the settings are empty");
}

#[test]
fn no_sync_before_the_acknowledgement() {
    let run = |program| -> Report {
        prepared(program).filesystem(
            |volume, power| {
                let file = opened(volume, "/settings")?;
                file.write_all_at(NEW, 0)?;
                if program == Right {
                    file.sync_data()?;
                }
                power.acknowledge("saved");
                Ok(())
            },
            |volume, lines| old_or_new(volume, !lines.is_empty()),
        )
    };
    both(run, "following `saved`");
}

#[test]
fn sync_of_the_wrong_file() {
    let run = |program| -> Report {
        prepared(program).filesystem(
            |volume, power| {
                let (file, other) = (opened(volume, "/settings")?, opened(volume, "/other")?);
                file.write_all_at(NEW, 0)?;
                if program == Right {
                    file.sync_all()?;
                } else {
                    other.sync_all()?;
                }
                power.acknowledge("saved");
                Ok(())
            },
            |volume, lines| old_or_new(volume, !lines.is_empty()),
        )
    };
    both(run, "following `saved`");
}

#[test]
fn truncate_then_write() {
    let run = |program| -> Report {
        prepared(program).filesystem(
            |volume, _| {
                let path = if program == Wrong { "/settings" } else { "/settings.new" };
                write_synced(volume, path, NEW)?;
                if program == Right {
                    volume.rename(path, "/settings")?;
                }
                Ok(())
            },
            |volume, lines| old_or_new(volume, !lines.is_empty()),
        )
    };
    both(run, "the settings are empty");
}

/// The sync fails once, and the program goes on as if the data were safe.
#[test]
fn a_failed_sync_taken_for_success() {
    let run = |program| -> Report {
        prepared(program).filesystem(
            |volume, power| {
                let file = opened(volume, "/settings")?;
                file.write_all_at(NEW, 0)?;
                power.fail(Fault::on(diorite_block::Op::Write, Effect::Error(5)));
                let mut synced = file.sync_all();
                if program == Right {
                    // Diorite keeps pages dirty after a failed writeback.
                    synced = synced.or_else(|_| file.sync_all());
                }
                if program == Wrong || synced.is_ok() {
                    power.acknowledge("saved");
                }
                Ok(())
            },
            |volume, lines| old_or_new(volume, !lines.is_empty()),
        )
    };
    both(run, "following `saved`");
}

const PAGE: usize = 4096;

fn page(version: u8) -> Vec<u8> {
    vec![version; PAGE]
}

/// A page that is all of one version.
fn whole(found: &[u8]) -> diorite_crash::Result {
    if found.iter().all(|byte| *byte == found[0]) { Ok(()) } else { Err("the page is torn".into()) }
}

/// A page is overwritten in place; the corrected program writes it to a journal first, and restores it from there.
#[test]
fn page_update_in_place() {
    let run = |program| -> Report {
        test(program).prepared(|volume| Ok(volume.write("/pages", page(1))?)).filesystem(
            |volume, _| {
                if program == Right {
                    let mut copy = page(2);
                    copy.extend(super::sum(&copy).to_le_bytes());
                    write_synced(volume, "/journal", &copy)?;
                    super::sync_directory(volume, "/")?;
                }
                let file = opened(volume, "/pages")?;
                file.write_all_at(&page(2), 0)?;
                Ok(file.sync_all()?)
            },
            |volume, _| {
                let journal = content(volume, "/journal")?.filter(|copy| {
                    copy.len() == PAGE + 8 && super::sum(&copy[..PAGE]).to_le_bytes() == copy[PAGE..]
                });
                match journal {
                    Some(copy) => whole(&copy[..PAGE]),
                    None => whole(&volume.read("/pages")?),
                }
            },
        )
    };
    both(run, "the page is torn");
}

/// A file gets its size first, and the data is trusted by the size.
#[test]
fn size_before_data() {
    let run = |program| -> Report {
        test(program).filesystem(
            |volume, _| {
                let file = opened(volume, "/data")?;
                if program == Wrong {
                    file.set_len(PAGE as u64)?;
                }
                file.write_all_at(&page(5), 0)?;
                Ok(file.sync_all()?)
            },
            |volume, _| match content(volume, "/data")? {
                Some(found) if !found.is_empty() && found != page(5) => Err("the data is zeros".into()),
                _ => Ok(()),
            },
        )
    };
    both(run, "the data is zeros");
}

/// The end of a file is written and synced before the hole in front of it is filled.
#[test]
fn a_hole_filled_late() {
    let run = |program| -> Report {
        test(program).filesystem(
            |volume, _| {
                let file = opened(volume, "/movie")?;
                let end = 2 * PAGE as u64;
                if program == Wrong {
                    file.write_all_at(b"index", end)?;
                    file.sync_all()?;
                }
                file.write_all_at(&[3; 2 * PAGE], 0)?;
                file.sync_all()?;
                if program == Right {
                    file.write_all_at(b"index", end)?;
                    file.sync_all()?;
                }
                Ok(())
            },
            |volume, _| match content(volume, "/movie")? {
                Some(found) if found.ends_with(b"index") && found[..2 * PAGE] != [3; 2 * PAGE] => {
                    Err("the index is there, and the frames are not".into())
                }
                _ => Ok(()),
            },
        )
    };
    both(run, "the frames are not");
}

/// Data is copied within a file, and the original is punched out before the copy is durable.
#[test]
fn a_hole_punched_before_the_copy_is_durable() {
    let run = |program| -> Report {
        test(program).prepared(|volume| Ok(volume.write("/data", page(9))?)).filesystem(
            |volume, _| {
                let file = opened(volume, "/data")?;
                file.write_all_at(&page(9), PAGE as u64)?;
                if program == Right {
                    file.sync_all()?;
                }
                Ok(file.punch_hole(0, PAGE as u64)?)
            },
            |volume, _| {
                let found = volume.read("/data")?;
                if found.chunks(PAGE).any(|part| part == page(9)) {
                    Ok(())
                } else {
                    Err("both copies are lost".into())
                }
            },
        )
    };
    both(run, "both copies are lost");
}
