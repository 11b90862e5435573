//! The blocks of the journal (jbd2).
//!
//! Where it sits: below replay and commit. Everything that is read from or written to the log is parsed and
//! serialised here. All numbers are big-endian. Source: the kernel's documentation of ext4, "Journal (jbd2)".
//!
//! On disk: journal block 0 holds the journal superblock in its first 1024 bytes. A transaction is any number of
//! descriptor blocks, each followed by the blocks it describes, and revoke blocks, and ends with a commit block.
//! Each of these starts with a header of 12 bytes: magic number, kind, sequence number of the transaction.

mod checksum;
mod features;
mod header;
mod records;
mod superblock;

pub use checksum::TransactionChecksum;
pub use features::{CompatFeatures, IncompatFeatures};
pub use header::{Header, MAGIC, RecordKind};
pub use records::{CommitTime, RecordLayout, Tag, TagFlags};
pub use superblock::JournalSuperblock;
