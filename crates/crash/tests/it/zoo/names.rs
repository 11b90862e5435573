//! Names: creation, renames and removals.

use diorite_crash::Report;

use super::{Right, Wrong, both, content, sync_directory, test, write_synced};

#[test]
fn no_sync_of_the_directory_after_a_rename() {
    let run = |program| -> Report {
        test(program).filesystem(
            |volume, power| {
                write_synced(volume, "/message.new", b"hello")?;
                volume.rename("/message.new", "/message")?;
                if program == Right {
                    sync_directory(volume, "/")?;
                }
                power.acknowledge("delivered");
                Ok(())
            },
            |volume, lines| match content(volume, "/message")? {
                None if lines.contains("delivered") => Err("a delivered message is lost".into()),
                _ => Ok(()),
            },
        )
    };
    both(run, "a delivered message is lost");
}

#[test]
fn no_sync_of_the_directory_after_a_removal() {
    let run = |program| -> Report {
        test(program).prepared(|volume| Ok(volume.write("/key", "secret")?)).filesystem(
            |volume, power| {
                volume.remove_file("/key")?;
                if program == Right {
                    sync_directory(volume, "/")?;
                }
                power.acknowledge("removed");
                Ok(())
            },
            |volume, lines| match content(volume, "/key")? {
                Some(_) if lines.contains("removed") => Err("a removed key is back".into()),
                _ => Ok(()),
            },
        )
    };
    both(run, "a removed key is back");
}

#[test]
fn a_new_directory_that_is_not_synced() {
    let run = |program| -> Report {
        test(program).filesystem(
            |volume, power| {
                volume.create_dir("/table")?;
                if program == Right {
                    sync_directory(volume, "/")?;
                }
                power.acknowledge("created");
                Ok(())
            },
            |volume, lines| {
                if lines.contains("created") && !volume.exists("/table")? {
                    return Err("a created table is lost".into());
                }
                Ok(())
            },
        )
    };
    both(run, "a created table is lost");
}

/// Between the removal and the rename there is no file.
#[test]
fn removal_before_the_rename() {
    let run = |program| -> Report {
        test(program).prepared(|volume| Ok(volume.write("/state", "1")?)).filesystem(
            |volume, _| {
                write_synced(volume, "/state.new", b"2")?;
                if program == Wrong {
                    volume.remove_file("/state")?;
                }
                Ok(volume.rename("/state.new", "/state")?)
            },
            |volume, _| match content(volume, "/state")?.as_deref() {
                Some(b"1" | b"2") => Ok(()),
                found => Err(format!("the state is {found:?}").into()),
            },
        )
    };
    both(run, "the state is None");
}

/// A directory gets its name before its files are durable.
#[test]
fn rename_of_a_directory_with_unsynced_files() {
    let run = |program| -> Report {
        test(program).filesystem(
            |volume, _| {
                volume.create_dir("/version.new")?;
                for name in ["/version.new/a", "/version.new/b"] {
                    if program == Wrong {
                        volume.write(name, "content")?;
                    } else {
                        write_synced(volume, name, b"content")?;
                    }
                }
                if program == Right {
                    sync_directory(volume, "/version.new")?;
                }
                Ok(volume.rename("/version.new", "/version")?)
            },
            |volume, _| {
                if !volume.exists("/version")? {
                    return Ok(());
                }
                for name in ["/version/a", "/version/b"] {
                    if content(volume, name)?.as_deref() != Some(b"content") {
                        return Err("the version is not complete".into());
                    }
                }
                Ok(())
            },
        )
    };
    both(run, "the version is not complete");
}

/// The journal of an update is removed before the updated file is durable.
#[test]
fn the_journal_is_removed_too_early() {
    let run = |program| -> Report {
        let prepared = |volume: &diorite::Filesystem| {
            volume.write("/a", "1")?;
            Ok(volume.write("/b", "1")?)
        };
        test(program).prepared(prepared).filesystem(
            |volume, _| {
                write_synced(volume, "/journal", b"2")?;
                sync_directory(volume, "/")?;
                for path in ["/a", "/b"] {
                    let file = super::opened(volume, path)?;
                    file.write_all_at(b"2", 0)?;
                    if program == Right {
                        file.sync_all()?;
                    }
                }
                Ok(volume.remove_file("/journal")?)
            },
            |volume, _| {
                let has_journal = content(volume, "/journal")?.is_some_and(|journal| journal == b"2");
                if !has_journal && volume.read("/a")? != volume.read("/b")? {
                    return Err("half of the update is lost".into());
                }
                Ok(())
            },
        )
    };
    both(run, "half of the update is lost");
}

/// Two files must change together; each is replaced safely, and the pair is not.
#[test]
fn two_files_without_a_journal() {
    let run = |program| -> Report {
        let prepared = |volume: &diorite::Filesystem| {
            volume.create_dir("/1")?;
            volume.write("/1/from", "10")?;
            volume.write("/1/to", "0")?;
            Ok(volume.symlink("1", "/current")?)
        };
        test(program).prepared(prepared).filesystem(
            |volume, _| {
                if program == Wrong {
                    for (name, balance) in [("from", "0"), ("to", "10")] {
                        write_synced(volume, &format!("/1/{name}.new"), balance.as_bytes())?;
                        volume.rename(format!("/1/{name}.new"), format!("/1/{name}"))?;
                        sync_directory(volume, "/1")?;
                    }
                    return Ok(());
                }
                volume.create_dir("/2")?;
                write_synced(volume, "/2/from", b"0")?;
                write_synced(volume, "/2/to", b"10")?;
                sync_directory(volume, "/2")?;
                volume.symlink("2", "/current.new")?;
                Ok(volume.rename("/current.new", "/current")?)
            },
            |volume, _| {
                let balance = |name: &str| -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
                    Ok(volume.read_to_string(format!("/current/{name}"))?.parse()?)
                };
                match balance("from")? + balance("to")? {
                    10 => Ok(()),
                    total => Err(format!("the balances are {total} together").into()),
                }
            },
        )
    };
    both(run, "the balances are 0 together");
}
