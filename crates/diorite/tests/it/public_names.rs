//! The names that the root of the library exports. A new one is a decision about the interface, so this list must be changed for it.

const NAMES: &[&str] = &[
    "Access",
    "AlignedBuf",
    "AlignedPart",
    "Alignment",
    "AsyncQueue",
    "AsyncReader",
    "AsyncWriter",
    "Attributes",
    "BlockDevice",
    "Creates",
    "DataMode",
    "DirEntry",
    "DirectIo",
    "DirectQueue",
    "DirectReader",
    "DirectWriter",
    "Driver",
    "Error",
    "ErrorKind",
    "Existing",
    "Extent",
    "ExtentKind",
    "File",
    "FileKind",
    "Filesystem",
    "FilesystemOptions",
    "Finished",
    "FoundContent",
    "HostCache",
    "HostFile",
    "InodeNumber",
    "IoCounts",
    "IoFlags",
    "NodeRef",
    "NodeSpec",
    "OpenOptions",
    "Owner",
    "QuotaLimits",
    "RawFile",
    "ReadDir",
    "RegisteredBuf",
    "RegisteredBuffers",
    "RenameMode",
    "Result",
    "SchedulerKind",
    "Sector",
    "SetAttributes",
    "SetTime",
    "SpaceUse",
    "StackError",
    "Stats",
    "SubmitError",
    "Timestamp",
    "Transfer",
    "TransferMemory",
    "Unaligned",
    "Walk",
    "WalkEntry",
    "XattrMode",
    "check",
    "front_end",
    "mkfs",
    "mkfs_on",
    "resize",
];

#[test]
fn the_root_exports_only_these_names() {
    let source = include_str!("../../src/lib.rs");
    let mut names: Vec<&str> = Vec::new();
    for statement in source.split_inclusive(';').filter_map(|text| text.rsplit_once("\npub ")) {
        let statement = statement.1.trim_end_matches(';');
        let list = match statement.split_once('{') {
            Some((_, list)) => list.trim_end_matches('}'),
            None => statement.rsplit([':', ' ']).next().unwrap_or(statement),
        };
        names.extend(list.split(',').map(str::trim).filter(|name| !name.is_empty()));
    }
    names.sort_unstable();
    assert_eq!(names, NAMES);
}
