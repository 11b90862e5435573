//! The handle of a volume's operation: that of [`diorite_journal::transaction`], with the volume that it changes.
//!
//! Interface: inode locks are taken before [`Core::begin`], never after.

use std::ops::{Deref, DerefMut};

use super::Core;
use crate::transaction::{self, TransactionId};
use crate::{Error, FsBlock, Result};

/// A part of a transaction: one operation's changes.
#[derive(Debug)]
pub(crate) struct Handle<'c> {
    core: &'c Core,
    joined: transaction::Handle<'c>,
    /// Blocks of the file itself that become extent nodes on a full volume: see [`crate::Files::punch`].
    pub(crate) spare: Vec<FsBlock>,
}

impl<'c> Handle<'c> {
    /// [`Core::begin`] calls this.
    pub(super) fn begin(core: &'c Core, credits: u32) -> Result<Self> {
        Ok(Self { core, joined: core.store.begin(credits)?, spare: Vec::new() })
    }

    /// The volume that it changes.
    pub(crate) fn core(&self) -> &'c Core {
        self.core
    }

    /// The operation is complete: its changes become durable together, later.
    pub(crate) fn commit(self) -> Result<TransactionId> {
        Ok(self.joined.commit()?)
    }
}

impl<'c> Deref for Handle<'c> {
    type Target = transaction::Handle<'c>;
    fn deref(&self) -> &Self::Target {
        &self.joined
    }
}

impl DerefMut for Handle<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.joined
    }
}

/// End an operation's handle: its changes are consistent even if the operation fails.
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
