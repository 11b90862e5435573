//! The digest of the content of a tree.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use diorite::{FileKind, Timestamp};
use sha2::{Digest as _, Sha256};

use crate::memory::MemoryTree;
use crate::memory::arena::{Content, Node, NodeId};
use crate::tree::{ReadFile, data_ranges};
use crate::{Error, Watch};

/// Size of a read.
const CHUNK_BYTES: usize = 1 << 20;

/// A hash of fields, each with its length.
struct Fields {
    hasher: Sha256,
    memory: Vec<u8>,
}

impl Fields {
    fn number(&mut self, number: u64) {
        self.hasher.update(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.hasher.update(bytes);
    }

    /// Everything but the name, the data and access times: a read of a source changes those.
    fn node(&mut self, node: &Node) {
        let meta = &node.meta;
        let size = if meta.kind == FileKind::Regular { meta.size } else { 0 };
        let numbers = [
            meta.kind as u64,
            u64::from(meta.permissions),
            u64::from(meta.uid),
            u64::from(meta.gid),
            u64::from(meta.device.0),
            u64::from(meta.device.1),
            meta.modified.seconds as u64,
            u64::from(meta.modified.nanoseconds),
            u64::from(node.flags.bits()),
            size,
            node.attributes.len() as u64,
        ];
        for number in numbers {
            self.number(number);
        }
        for (name, value) in &node.attributes {
            self.bytes(name);
            self.bytes(value);
        }
        if let Content::Link(target) = &node.content {
            self.bytes(target);
        }
    }

    /// The data ranges of a file.
    fn data(&mut self, file: &dyn ReadFile, size: u64, watch: &dyn Watch) -> Result<(), Error> {
        for range in data_ranges(file, size) {
            let Range { start: mut offset, end } = range?;
            self.number(offset);
            while offset < end {
                if watch.is_cancelled() {
                    return Err(Error::Interrupted);
                }
                let len = (end - offset).min(CHUNK_BYTES as u64) as usize;
                let count = file.read_at(&mut self.memory[..len], offset)?;
                self.hasher.update(&self.memory[..count]);
                offset += count as u64;
                if count < len {
                    // It was cut meanwhile.
                    return Ok(());
                }
            }
            self.number(end);
        }
        Ok(())
    }
}

impl MemoryTree {
    /// 16 bytes that are equal for equal names, attributes, extended attributes, targets of links and data, and differ otherwise
    /// (the first half of a SHA-256). Reads all data.
    ///
    /// # Errors
    /// Data cannot be read, or `watch` is cancelled.
    pub fn digest(&self, watch: &dyn Watch) -> Result<[u8; 16], Error> {
        let mut fields = Fields { hasher: Sha256::new(), memory: vec![0; CHUNK_BYTES] };
        let mut numbers = std::collections::HashMap::new();
        for (path, id) in self.in_order() {
            fields.bytes(path.as_os_str().as_encoded_bytes());
            // Another name of a file.
            let count = numbers.len() as u64;
            let number = *numbers.entry(id).or_insert(count);
            fields.number(number);
            if number < count {
                continue;
            }
            fields.node(&self.state.borrow().arena[id]);
            if let Some(file) = self.open_node(id)? {
                let size = self.state.borrow().arena[id].meta.size;
                fields.data(&*file, size, watch)?;
            }
        }
        let digest = fields.hasher.finalize();
        Ok(std::array::from_fn(|index| digest[index]))
    }

    /// The newest modification time of all files; `None` without any.
    pub fn newest(&self) -> Option<Timestamp> {
        let arena = &self.state.borrow().arena;
        let described =
            arena.all(NodeId::ROOT).into_iter().filter(|id| *id != NodeId::ROOT || !arena[*id].is_implied);
        described.map(|id| arena[id].meta.modified).max()
    }

    /// All names with their files: parents before their entries, in the order of names.
    fn in_order(&self) -> Vec<(PathBuf, NodeId)> {
        let arena = &self.state.borrow().arena;
        let (mut found, mut waiting) = (Vec::new(), vec![(PathBuf::from("/"), NodeId::ROOT)]);
        while let Some((path, id)) = waiting.pop() {
            let entries = arena.entries(id).into_iter().flatten().rev();
            waiting.extend(entries.map(|(name, id)| (path.join(OsStr::from_bytes(name)), *id)));
            found.push((path, id));
        }
        found
    }
}
