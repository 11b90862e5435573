//! Handles on transactions: the only way in which metadata changes.
//!
//! Where it sits: every operation that changes metadata begins a [`Handle`], joins buffers to it
//! ([`Handle::modify`]), and commits it. The handle is a part of the running transaction of [`super::Transactions`].
//!
//! Interface:
//! - Inode locks are taken before [`Core::begin`], never after: a commit waits for handles.
//! - `credits` is an upper bound of the metadata blocks that the handle will join. Work without a bound (truncate)
//!   asks [`Handle::has_credits`] between steps and calls [`Handle::restart`] at points where the metadata is
//!   consistent.
//! - A handle that changed something and is dropped without commit shuts the volume down (ARCHITECTURE invariant 9).
//!
//! Locking: a buffer is joined while its content lock is held for writing, and frozen under the same lock; so a
//! change is either in the frozen content or its buffer is on a list again.

use std::sync::Arc;

use super::{Freed, Join, TransactionId};
use crate::buffer::{BlockKind, Buffer, BufferMut};
use crate::inode::{InodeChange, InodeState};
use crate::volume::Core;
use crate::{BlockRun, Error, FsBlock, Inode, InodeNumber, Result};

/// A part of a transaction: one operation's changes.
#[derive(Debug)]
pub(crate) struct Handle<'c> {
    core: &'c Core,
    transaction: TransactionId,
    credits: u32,
    modified: bool,
    ended: bool,
    freed: Freed,
    /// Blocks of the file itself that become extent nodes on a full volume: see [`crate::Files::punch`].
    pub(crate) spare: Vec<FsBlock>,
}

impl<'c> Handle<'c> {
    /// [`Core::begin`] calls this.
    pub(crate) fn begin(core: &'c Core, credits: u32) -> Result<Self> {
        let credits = credits + core.quota_credits();
        let transaction = core.transactions.begin(credits)?;
        let (freed, spare) = (Freed::default(), Vec::new());
        Ok(Self { core, transaction, credits, modified: false, ended: false, freed, spare })
    }

    /// The volume that it changes.
    pub(crate) fn core(&self) -> &'c Core {
        self.core
    }

    /// Change an inode in this handle.
    pub(crate) fn on<'a>(&'a mut self, inode: &'a Inode, state: &'a mut InodeState) -> InodeChange<'a, 'c> {
        InodeChange { handle: self, inode, state }
    }

    /// The transaction that the handle is part of.
    pub(crate) fn transaction(&self) -> TransactionId {
        self.transaction
    }

    /// Change a buffer's content.
    pub(crate) fn modify<'b>(&mut self, buffer: &'b Arc<Buffer>) -> Result<BufferMut<'b>> {
        self.join(buffer, Join::Changed)
    }

    fn join<'b>(&mut self, buffer: &'b Arc<Buffer>, join: Join) -> Result<BufferMut<'b>> {
        self.core.latch.check()?;
        let content = buffer.write();
        self.core.transactions.join(self.transaction, buffer, join);
        self.modified = true;
        Ok(content)
    }

    /// As [`Handle::modify`], where a part of the content has moved to a block that was created in this handle.
    pub(crate) fn modify_moved_from<'b>(&mut self, buffer: &'b Arc<Buffer>) -> Result<BufferMut<'b>> {
        self.core.transactions.note_moved_from(self.transaction, buffer.block());
        self.modify(buffer)
    }

    /// Join a buffer whose content is made when it is completed (descriptors, superblock).
    pub(crate) fn touch(&mut self, buffer: &Arc<Buffer>) -> Result<()> {
        self.modify(buffer).map(drop)
    }

    /// A zeroed buffer for a block that becomes metadata now.
    pub(crate) fn create(&mut self, block: FsBlock, kind: BlockKind) -> Result<Arc<Buffer>> {
        let buffer = self.core.buffers.create(block, kind)?;
        self.join(&buffer, Join::Created)?;
        Ok(buffer)
    }

    /// The block is metadata no longer.
    pub(crate) fn forget(&mut self, block: FsBlock) {
        self.modified = true;
        self.core.transactions.forget(self.transaction, block);
        self.core.buffers.discard(block);
    }

    /// Note freed blocks: they can be allocated again when this transaction is durable.
    pub(crate) fn freed(&mut self, run: BlockRun) {
        self.modified = true;
        match self.freed.runs.last_mut() {
            Some(last) if last.start.0 + last.blocks == run.start.0 => last.blocks += run.blocks,
            _ => self.freed.runs.push(run),
        }
    }

    /// Note that a mapping or size is changed; the transaction in which it is.
    pub(crate) fn changes_data(&mut self) -> TransactionId {
        self.freed.data = true;
        self.transaction
    }

    /// Note that a name is removed, or given to another inode.
    pub(crate) fn freed_name(&mut self) {
        self.freed.names = true;
    }

    /// Note a freed inode; whether its number must not be used again before this transaction is durable. Without a journal a name
    /// that is still on the disk would lead to the new inode.
    pub(crate) fn holds_freed_inode(&mut self, inode: InodeNumber) -> bool {
        let holds = !self.core.has_journal();
        if holds {
            self.freed.inodes.push(inode);
        }
        holds
    }

    /// Whether `credits` more blocks can be joined; they are set aside if so.
    pub(crate) fn has_credits(&mut self, credits: u32) -> bool {
        let fits = self.core.transactions.extend(self.transaction, credits);
        if fits {
            self.credits += credits;
        }
        fits
    }

    /// See [`crate::transaction::Transactions::orders_name`].
    pub(crate) fn orders_name(&mut self, lost: FsBlock, gained: FsBlock) -> bool {
        self.core.transactions.orders_name(self.transaction, lost, gained)
    }

    /// The inode was made by this handle.
    pub(crate) fn note_new_inode(&mut self, inode: InodeNumber) {
        if !self.core.has_journal() {
            self.core.transactions.note_new_inode(self.transaction, inode);
        }
    }

    /// Whether the inode was made in this transaction. Known only without a journal.
    pub(crate) fn is_new_inode(&self, inode: InodeNumber) -> bool {
        self.core.transactions.is_new_inode(self.transaction, inode)
    }

    /// As [`Handle::restart`], when what this handle did is durable.
    pub(crate) fn restart_durable(&mut self, credits: u32) -> Result<()> {
        self.end();
        self.core.transactions.commit_through(self.transaction)?;
        self.transaction = self.core.transactions.begin(credits + self.core.quota_credits())?;
        (self.credits, self.modified, self.ended) = (credits, false, false);
        Ok(())
    }

    /// End this handle and go on with a new one, possibly in another transaction.
    pub(crate) fn restart(&mut self, credits: u32) -> Result<()> {
        self.end();
        let credits = credits + self.core.quota_credits();
        self.transaction = self.core.transactions.begin(credits)?;
        (self.credits, self.modified, self.ended) = (credits, false, false);
        Ok(())
    }

    /// The operation is complete: its changes become durable together, later.
    pub(crate) fn commit(mut self) -> Result<TransactionId> {
        self.end();
        self.core.latch.check()?;
        Ok(self.transaction)
    }

    fn end(&mut self) {
        self.ended = true;
        self.core.transactions.end(self.transaction, self.credits, std::mem::take(&mut self.freed));
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if self.modified {
            self.core.latch.abort("an operation failed after it had changed metadata");
        }
        self.end();
    }
}

/// End an operation's handle: what it changed is sound also when it ends with an error of the request.
pub(crate) fn finish<R>(handle: Handle<'_>, result: Result<R>) -> Result<R> {
    match result {
        // The handle shuts the volume down if it changed something.
        Err(error @ (Error::Io(_) | Error::Aborted)) => Err(error),
        result => {
            handle.commit()?;
            result
        }
    }
}
