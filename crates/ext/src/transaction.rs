//! Transactions of metadata: those of [`diorite_journal::transaction`].

pub(crate) use diorite_journal::transaction::{
    AbortLatch, CommitStore, Freed, Handle, HomeWriter, MetadataStore, ReleaseFreed, TransactionId,
    Transactions,
};
