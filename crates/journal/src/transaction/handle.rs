//! Handles on transactions: the only way in which metadata changes.
//!
//! Where it sits: every operation that changes metadata begins a [`Handle`] ([`MetadataStore::begin`]), joins buffers to it
//! ([`Handle::modify`]), and commits it. The handle is a part of the running transaction of [`Transactions`].
//!
//! Interface:
//! - A filesystem takes its own locks before it begins a handle, never after: a commit waits for handles.
//! - `credits` is an upper bound of the metadata blocks that the handle will join. Work without a bound (truncate)
//!   asks [`Handle::has_credits`] between steps and calls [`Handle::restart`] at points where the metadata is
//!   consistent.
//! - A handle that changed something and is dropped without commit shuts the volume down (ARCHITECTURE invariant 9).
//!
//! Locking: a buffer is joined while its content lock is held for writing, and frozen under the same lock; so a
//! change is either in the frozen content or its buffer is on a list again.

use std::sync::Arc;

use super::{AbortLatch, Freed, Join, TransactionId, Transactions};
use crate::buffer::{BlockKind, Buffer, BufferCache, BufferMut};
use crate::{BlockRun, FsBlock, Result};

/// Metadata that changes in transactions.
#[derive(Clone, Debug)]
pub struct MetadataStore {
    /// The blocks.
    pub buffers: Arc<BufferCache>,
    /// Their changes.
    pub transactions: Arc<Transactions>,
    /// Set by the first write that fails.
    pub latch: Arc<AbortLatch>,
    /// Blocks are written in place, without a log.
    pub is_in_place: bool,
    /// Blocks that the filesystem joins to a handle beside those of its operation.
    pub extra_credits: u32,
}

impl MetadataStore {
    /// Begin a handle that joins at most `credits` blocks.
    ///
    /// # Errors
    /// The device failed.
    pub fn begin(&self, credits: u32) -> Result<Handle<'_>> {
        let credits = credits + self.extra_credits;
        let transaction = self.transactions.begin(credits)?;
        let freed = Freed::default();
        Ok(Handle { store: self, transaction, credits, modified: false, ended: false, freed })
    }
}

/// A part of a transaction: one operation's changes.
#[derive(Debug)]
pub struct Handle<'c> {
    store: &'c MetadataStore,
    transaction: TransactionId,
    credits: u32,
    modified: bool,
    ended: bool,
    freed: Freed,
}

impl Handle<'_> {
    /// The transaction that the handle is part of.
    pub fn transaction(&self) -> TransactionId {
        self.transaction
    }

    /// Change a buffer's content.
    pub fn modify<'b>(&mut self, buffer: &'b Arc<Buffer>) -> Result<BufferMut<'b>> {
        self.join(buffer, Join::Changed)
    }

    fn join<'b>(&mut self, buffer: &'b Arc<Buffer>, join: Join) -> Result<BufferMut<'b>> {
        self.store.latch.check()?;
        let content = buffer.write();
        self.store.transactions.join(self.transaction, buffer, join);
        self.modified = true;
        Ok(content)
    }

    /// As [`Handle::modify`], where a part of the content has moved to a block that was created in this handle.
    pub fn modify_moved_from<'b>(&mut self, buffer: &'b Arc<Buffer>) -> Result<BufferMut<'b>> {
        self.store.transactions.note_moved_from(self.transaction, buffer.block());
        self.modify(buffer)
    }

    /// Join a buffer whose content is made when it is completed (descriptors, superblock).
    pub fn touch(&mut self, buffer: &Arc<Buffer>) -> Result<()> {
        self.modify(buffer).map(drop)
    }

    /// A zeroed buffer for a block that becomes metadata now.
    pub fn create(&mut self, block: FsBlock, kind: BlockKind) -> Result<Arc<Buffer>> {
        let buffer = self.store.buffers.create(block, kind)?;
        self.join(&buffer, Join::Created)?;
        Ok(buffer)
    }

    /// The block is metadata no longer.
    pub fn forget(&mut self, block: FsBlock) {
        self.modified = true;
        self.store.transactions.forget(self.transaction, block);
        self.store.buffers.discard(block);
    }

    /// Note freed blocks: they can be allocated again when this transaction is durable.
    pub fn freed(&mut self, run: BlockRun) {
        self.modified = true;
        match self.freed.runs.last_mut() {
            Some(last) if last.start.0 + last.blocks == run.start.0 => last.blocks += run.blocks,
            _ => self.freed.runs.push(run),
        }
    }

    /// Note that a mapping or size is changed; the transaction in which it is.
    pub fn changes_data(&mut self) -> TransactionId {
        self.freed.data = true;
        self.transaction
    }

    /// Note that a name is removed, or given to another inode.
    pub fn freed_name(&mut self) {
        self.freed.names = true;
    }

    /// Record the freed number of an object (an inode); whether the number must not be used again before this transaction is durable. In place,
    /// a name that is still on the disk would lead to the next object with the number.
    pub fn holds_freed(&mut self, number: u32) -> bool {
        if self.store.is_in_place {
            self.freed.numbers.push(number);
        }
        self.store.is_in_place
    }

    /// Whether `credits` more blocks can be joined; they are set aside if so.
    pub fn has_credits(&mut self, credits: u32) -> bool {
        let fits = self.store.transactions.extend(self.transaction, credits);
        if fits {
            self.credits += credits;
        }
        fits
    }

    /// See [`Transactions::orders_name`].
    pub fn orders_name(&mut self, lost: FsBlock, gained: FsBlock) -> bool {
        self.store.transactions.orders_name(self.transaction, lost, gained)
    }

    /// The object with this number was made by this handle.
    pub fn note_new(&mut self, number: u32) {
        if self.store.is_in_place {
            self.store.transactions.note_new(self.transaction, number);
        }
    }

    /// Whether the object with this number was made in this transaction. Only known without a log.
    pub fn is_new(&self, number: u32) -> bool {
        self.store.transactions.is_new(self.transaction, number)
    }

    /// As [`Handle::restart`], after the changes of this handle are durable.
    pub fn restart_durable(&mut self, credits: u32) -> Result<()> {
        self.end();
        self.store.transactions.commit_through(self.transaction)?;
        self.transaction = self.store.transactions.begin(credits + self.store.extra_credits)?;
        (self.credits, self.modified, self.ended) = (credits, false, false);
        Ok(())
    }

    /// End this handle and go on with a new one, possibly in another transaction.
    pub fn restart(&mut self, credits: u32) -> Result<()> {
        self.end();
        let credits = credits + self.store.extra_credits;
        self.transaction = self.store.transactions.begin(credits)?;
        (self.credits, self.modified, self.ended) = (credits, false, false);
        Ok(())
    }

    /// The operation is complete: its changes become durable together, later.
    pub fn commit(mut self) -> Result<TransactionId> {
        self.end();
        self.store.latch.check()?;
        Ok(self.transaction)
    }

    fn end(&mut self) {
        self.ended = true;
        self.store.transactions.end(self.transaction, self.credits, std::mem::take(&mut self.freed));
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.modified {
            self.store.latch.abort("an operation failed after it had changed metadata");
        }
        self.end();
    }
}
