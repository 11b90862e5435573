//! The list of an archive: names, the long lines of GNU tar, or JSON.

use diorite::FileKind;
use diorite_copy::{ListedEntry, Meta};
use serde_json::{Value, json};

use crate::entry::{kind_name, mode_of};
use crate::failure::Result;
use crate::output::{Output, json_name, json_time, local_time};

/// The columns of owner and size in GNU tar, until an entry needs more.
const OWNER_AND_SIZE: usize = 19;

/// A list in progress.
pub(super) struct List {
    is_long: bool,
    width: usize,
    /// The entries, with `--json`.
    entries: Option<Vec<Value>>,
}

impl List {
    pub(super) fn new(is_long: bool, json: bool) -> Self {
        Self { is_long, width: OWNER_AND_SIZE, entries: json.then(Vec::new) }
    }

    /// Show an entry.
    pub(super) fn add(&mut self, entry: &ListedEntry, output: &mut Output) -> Result<()> {
        if let Some(entries) = &mut self.entries {
            entries.push(json_of(entry));
            return Ok(());
        }
        if self.is_long {
            let line = self.long(entry);
            output.text(&line)?;
        }
        output.name(&entry.name)?;
        if self.is_long && !entry.target.is_empty() {
            output.text(if entry.is_hard_link { " link to " } else { " -> " })?;
            output.name(&entry.target)?;
        }
        output.line("")
    }

    /// The columns before the name.
    fn long(&mut self, entry: &ListedEntry) -> String {
        let Some(meta) = &entry.meta else {
            return format!("?--------- {:>width$} {:16} ", "?", "?", width = self.width);
        };
        let mut mode = mode_of(meta.kind, meta.permissions);
        if entry.is_hard_link {
            mode.replace_range(..1, "h");
        }
        let named = |name: &Option<Vec<u8>>, id: u32| {
            let name = name.as_deref().map(String::from_utf8_lossy);
            name.map_or_else(|| id.to_string(), |name| crate::failure::visible(&name))
        };
        let owner = format!("{}/{}", named(&entry.user, meta.uid), named(&entry.group, meta.gid));
        let size = size_of(meta);
        self.width = self.width.max(owner.chars().count() + 1 + size.len());
        let size_width = self.width - owner.chars().count() - 1;
        let time = local_time(meta.modified, "%Y-%m-%d %H:%M");
        format!("{mode} {owner} {size:>size_width$} {time} ")
    }

    pub(super) fn json(self) -> Value {
        json!({ "command": "tar", "entries": self.entries })
    }
}

fn size_of(meta: &Meta) -> String {
    match meta.kind {
        FileKind::CharacterDevice | FileKind::BlockDevice => format!("{},{}", meta.device.0, meta.device.1),
        _ => meta.size.to_string(),
    }
}

fn json_of(entry: &ListedEntry) -> Value {
    let mut value = json!({ "name": json_name(&entry.name) });
    if let Some(meta) = &entry.meta {
        value["kind"] = if entry.is_hard_link { "hard link".into() } else { kind_name(meta.kind).into() };
        value["permissions"] = format!("{:04o}", meta.permissions).into();
        value["uid"] = meta.uid.into();
        value["gid"] = meta.gid.into();
        value["size"] = meta.size.into();
        value["modified"] = json_time(meta.modified);
        if matches!(meta.kind, FileKind::CharacterDevice | FileKind::BlockDevice) {
            value["device"] = json!([meta.device.0, meta.device.1]);
        }
    }
    let names = [("user", &entry.user), ("group", &entry.group)];
    for (key, name) in names {
        if let Some(name) = name {
            value[key] = json_name(name);
        }
    }
    if !entry.target.is_empty() {
        value["target"] = json_name(&entry.target);
    }
    value
}
