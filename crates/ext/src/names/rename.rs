//! Renaming.
//!
//! Locking: the volume's rename lock first whenever two directories take part: then no other rename changes which
//! directory is in which, and the ancestors of a directory stay the same. All directories that change (the two, and
//! those that move or are replaced) are locked together.

use std::sync::Arc;

use super::create::ADD_NAME_CREDITS;
use super::{Locked, Names, check_name, check_new_name, finish, is_directory};
use crate::base::Handle;
use crate::directory::{EntryLocation, kind_code};
use crate::inode::{ALLOCATE_INODE_CREDITS, InodeState};
use crate::xattr::CHANGE_CREDITS;
use crate::{
    Corrupt, Error, FileBlock, FileKind, FsBlock, Inode, InodeNumber, NodeSpec, Owner, RenameMode, Result,
};

/// Directories above another that are followed before their chain is called a loop.
const DEPTH_MAX: usize = 1 << 16;

/// A rename that was asked for.
struct Rename<'a> {
    from: &'a Inode,
    from_name: &'a [u8],
    to: &'a Inode,
    to_name: &'a [u8],
    mode: RenameMode,
}

/// The inodes of the two names.
struct Ends {
    source: Arc<Inode>,
    target: Option<Arc<Inode>>,
}

impl Names {
    /// Rename with all POSIX rules. Returns the inode that lost its name by replacement, if any.
    pub fn rename(
        &self,
        from: &Arc<Inode>,
        from_name: &[u8],
        to: &Arc<Inode>,
        to_name: &[u8],
        mode: RenameMode,
    ) -> Result<Option<Arc<Inode>>> {
        self.core.check_writable()?;
        check_name(from_name)?;
        for name in [from_name, to_name] {
            if name == b"." || name == b".." {
                return Err(Error::InvalidArgument("the names `.` and `..` cannot be renamed"));
            }
        }
        check_new_name(to_name)?;
        let rename = Rename { from, from_name, to, to_name, mode };
        let across = from.number() != to.number();
        let _topology = across.then(|| self.rename_lock.lock());
        loop {
            let Some(ends) = self.rename_ends(&rename)? else { return Ok(None) };
            if across {
                self.check_not_into_itself(&rename, &ends)?;
            }
            let target = ends.target.as_deref();
            let mut locked = Locked::new([&**from, &**to, &*ends.source].into_iter().chain(target));
            // Between the look and the locks the names may have changed.
            if !self.ends_still_hold(&rename, &ends, &mut locked)? {
                continue;
            }
            self.check_rename(&rename, &ends, &mut locked)?;
            if let RenameMode::Whiteout(owner) = mode {
                let (owner, project) = locked.state(from).owner_within(owner);
                self.quotas.check_new(owner, project)?;
                self.quotas.prepare(owner, project)?;
            }
            let credits = 2 * ADD_NAME_CREDITS + ALLOCATE_INODE_CREDITS + CHANGE_CREDITS + 8;
            let mut handle = self.core.begin(credits)?;
            let mut whiteout = None;
            let result = match (mode, &ends.target) {
                (RenameMode::Exchange, Some(target)) => {
                    self.exchange(&mut handle, &rename, &ends.source, target, &mut locked)
                }
                _ => self.move_name(&mut handle, &rename, &ends, &mut locked, &mut whiteout),
            };
            let result = finish(handle, result);
            drop(locked);
            // One that was made in vain has no name.
            whiteout.iter().try_for_each(|whiteout| self.lifecycle.release_if_unused(whiteout))?;
            result?;
            return match ends.target {
                Some(target) if mode != RenameMode::Exchange => {
                    self.lifecycle.release_if_unused(&target)?;
                    Ok(Some(target))
                }
                _ => Ok(None),
            };
        }
    }

    /// The current inodes of the names; `None` if they are the same inode, which leaves nothing to do.
    fn rename_ends(&self, rename: &Rename<'_>) -> Result<Option<Ends>> {
        let source = {
            let state = rename.from.state.read();
            Self::check_may_remove(rename.from, &state)?;
            self.check_may_add(rename.from, &state, rename.from_name)?;
            let found = self.find_existing(rename.from, &state, rename.from_name)?;
            self.child(rename.from, &found)?
        };
        let state = rename.to.state.read();
        self.check_may_add(rename.to, &state, rename.to_name)?;
        let target = match self.find(rename.to, &state, rename.to_name)? {
            Some(found) => Some(self.child(rename.to, &found)?),
            None => None,
        };
        match (&target, rename.mode) {
            (Some(_), RenameMode::NoReplace) => Err(Error::Exists),
            (None, RenameMode::Exchange) => Err(Error::NotFound),
            (Some(target), _) if Arc::ptr_eq(target, &source) => Ok(None),
            _ => Ok(Some(Ends { source, target })),
        }
    }

    fn ends_still_hold(&self, rename: &Rename<'_>, ends: &Ends, locked: &mut Locked<'_>) -> Result<bool> {
        let source = self.find(rename.from, locked.state(rename.from), rename.from_name)?;
        let target = self.find(rename.to, locked.state(rename.to), rename.to_name)?;
        // A number may have been given to another inode.
        let is = |found: Option<EntryLocation>, inode: Option<&Arc<Inode>>| match (found, inode) {
            (Some(found), Some(inode)) => found.inode == inode.number() && !inode.is_freed(),
            (found, inode) => found.is_none() && inode.is_none(),
        };
        Ok(is(source, Some(&ends.source)) && is(target, ends.target.as_ref()))
    }

    /// A directory cannot move into itself or a descendant, and an ancestor cannot be replaced.
    fn check_not_into_itself(&self, rename: &Rename<'_>, ends: &Ends) -> Result<()> {
        let into_itself = Error::InvalidArgument("a directory cannot be moved into itself");
        if is_directory(&ends.source) && self.is_above(&ends.source, rename.to)? {
            return Err(into_itself);
        }
        match &ends.target {
            Some(target) if is_directory(target) && self.is_above(target, rename.from)? => {
                Err(if rename.mode == RenameMode::Exchange { into_itself } else { Error::NotEmpty })
            }
            _ => Ok(()),
        }
    }

    /// Whether `upper` is `lower` or above it. The rename lock is held.
    fn is_above(&self, upper: &Inode, lower: &Inode) -> Result<bool> {
        let mut number = lower.number();
        let mut above = None;
        for _ in 0..DEPTH_MAX {
            if number == upper.number() {
                return Ok(true);
            }
            if number == InodeNumber::ROOT {
                return Ok(false);
            }
            let inode = above.as_deref().unwrap_or(lower);
            let next = {
                let state = inode.state.read();
                if state.links == 0 {
                    return Err(Error::NotFound);
                }
                let found = self.find_existing(inode, &state, b"..")?;
                self.inode_of(inode, &found)?
            };
            if !is_directory(&next) {
                let what = "the entry `..` does not point to a directory";
                return Err(Corrupt::Inode { inode: number, what }.into());
            }
            number = next.number();
            above = Some(next);
        }
        Err(Corrupt::Inode { inode: number, what: "the parent directories do not lead to the root" }.into())
    }

    /// The rules that need the locks.
    fn check_rename(&self, rename: &Rename<'_>, ends: &Ends, locked: &mut Locked<'_>) -> Result<()> {
        let across = rename.from.number() != rename.to.number();
        Self::check_may_remove(rename.from, locked.state(rename.from))?;
        self.check_may_add(rename.to, locked.state(rename.to), rename.to_name)?;
        Self::check_may_drop_name(locked.state(&ends.source))?;
        let project = locked.state(&ends.source).project;
        Self::check_same_project(locked.state(rename.to), project)?;
        if let (RenameMode::Exchange, Some(target)) = (rename.mode, &ends.target) {
            let project = locked.state(target).project;
            Self::check_same_project(locked.state(rename.from), project)?;
        }
        let source_is_directory = is_directory(&ends.source);
        let mut target_is_directory = false;
        if let Some(target) = &ends.target {
            Self::check_may_remove(rename.to, locked.state(rename.to))?;
            let state = locked.state(target);
            Self::check_may_drop_name(state)?;
            target_is_directory = is_directory(target);
            if rename.mode != RenameMode::Exchange {
                match (source_is_directory, target_is_directory) {
                    (true, false) => return Err(Error::NotADirectory),
                    (false, true) => return Err(Error::IsADirectory),
                    (true, true) if !self.is_empty_directory(target, state)? => {
                        return Err(Error::NotEmpty);
                    }
                    _ => {}
                }
            }
        }
        self.check_dot_dot(rename, ends, locked)?;
        if across && source_is_directory && !target_is_directory {
            self.check_link_count(rename.to, locked.state(rename.to))?;
        }
        if across && rename.mode == RenameMode::Exchange && target_is_directory && !source_is_directory {
            self.check_link_count(rename.from, locked.state(rename.from))?;
        }
        Ok(())
    }

    /// Directories that move into another one must have the entry `..`, which is changed after the new name is there.
    fn check_dot_dot(&self, rename: &Rename<'_>, ends: &Ends, locked: &mut Locked<'_>) -> Result<()> {
        if rename.from.number() == rename.to.number() {
            return Ok(());
        }
        let exchanged = ends.target.as_ref().filter(|_| rename.mode == RenameMode::Exchange);
        for directory in std::iter::once(&ends.source).chain(exchanged).filter(|inode| is_directory(inode)) {
            if self.find(directory, locked.state(directory), b"..")?.is_none() {
                let what = "the directory has no entry `..`";
                return Err(Corrupt::Inode { inode: directory.number(), what }.into());
            }
        }
        Ok(())
    }

    fn move_name<'v>(
        &'v self,
        handle: &mut Handle<'v>,
        rename: &Rename<'_>,
        ends: &Ends,
        locked: &mut Locked<'_>,
        whiteout: &mut Option<Arc<Inode>>,
    ) -> Result<()> {
        let (from, to, source) = (rename.from, rename.to, &ends.source);
        if let RenameMode::Whiteout(owner) = rename.mode {
            let (made, inherited) = self.make_whiteout(handle, from, locked.state(from), owner)?;
            *whiteout = Some(made);
            inherited?;
        }
        let state = locked.state(to);
        if ends.target.is_some() {
            self.point_entry(handle, to, state, rename.to_name, source)?;
        } else {
            let place = self.place_for(handle, to, state, rename.to_name)?;
            self.put_entry(handle, to, state, &place, rename.to_name, source)?;
        }
        if !self.core.has_journal() && !handle.is_new(source.number().0) {
            self.order_names(handle, rename, locked)?;
        }
        // Making space may have moved the old entry.
        let state = locked.state(from);
        if let Some(whiteout) = whiteout {
            self.point_entry(handle, from, state, rename.from_name, whiteout)?;
            let mut state = whiteout.state.write();
            self.inodes.remove_orphan(handle, whiteout, &mut state)?;
            state.links = 1;
            self.files.store(handle, whiteout, &mut state)?;
        } else {
            let found = self.find_existing(from, state, rename.from_name)?;
            self.remove_entry(handle, from, state, rename.from_name, &found)?;
        }
        let target_is_directory = ends.target.as_deref().is_some_and(is_directory);
        let across = from.number() != to.number();
        if is_directory(source) && across {
            self.point_entry(handle, source, locked.state(source), b"..", to)?;
            Self::drop_link(from, locked.state(from));
            if !target_is_directory {
                self.add_link(to, locked.state(to));
            }
        } else if target_is_directory {
            Self::drop_link(to, locked.state(to));
        }
        self.store_ends(handle, rename, source, locked)?;
        match &ends.target {
            Some(target) if target_is_directory => self.drop_directory(handle, target, locked.state(target)),
            Some(target) => self.drop_name(handle, target, locked.state(target)),
            None => Ok(()),
        }
    }

    /// A whiteout that has no name yet, recorded as an orphan, and whether it could take the directory's default access control list. The
    /// directory is locked.
    fn make_whiteout(
        &self,
        handle: &mut Handle<'_>,
        directory: &Inode,
        parent: &InodeState,
        owner: Owner,
    ) -> Result<(Arc<Inode>, Result<()>)> {
        let spec =
            NodeSpec { kind: FileKind::CharacterDevice, permissions: 0, umask: 0, owner, device: (0, 0) };
        let whiteout = self.inodes.allocate(handle, directory.number(), parent, &spec)?;
        let mut state = whiteout.state.write();
        let inherited =
            self.xattrs.inherit_acl(handle, (directory, parent), &whiteout, &mut state, spec.umask);
        self.inodes.add_orphan(handle, &whiteout, &mut state)?;
        self.files.store(handle, &whiteout, &mut state)?;
        drop(state);
        Ok((whiteout, inherited))
    }

    /// Without a journal: the new name, which exists, must be on the disk before the old one goes.
    fn order_names<'v>(
        &'v self,
        handle: &mut Handle<'v>,
        rename: &Rename<'_>,
        locked: &mut Locked<'_>,
    ) -> Result<()> {
        let gained = self.block_with(rename.to, locked.state(rename.to), rename.to_name)?;
        let lost = self.block_with(rename.from, locked.state(rename.from), rename.from_name)?;
        if let (Some(lost), Some(gained)) = (lost, gained)
            && handle.orders_name(lost, gained)
        {
            return Ok(());
        }
        self.store_touched(handle, rename.to, locked.state(rename.to))?;
        Ok(handle.restart_durable(2 * ADD_NAME_CREDITS)?)
    }

    /// The block of a directory that has an entry; none of one that is in its inode.
    fn block_with(&self, directory: &Inode, state: &InodeState, name: &[u8]) -> Result<Option<FsBlock>> {
        let found = self.find_existing(directory, state, name)?;
        if state.is_inline() {
            return Ok(None);
        }
        let block = self.maps.directory_block(directory, state, FileBlock(found.block.into()))?;
        Ok(Some(block.block()))
    }

    fn exchange<'v>(
        &'v self,
        handle: &mut Handle<'v>,
        rename: &Rename<'_>,
        source: &Inode,
        target: &Inode,
        locked: &mut Locked<'_>,
    ) -> Result<()> {
        let (from, to) = (rename.from, rename.to);
        self.point_entry(handle, to, locked.state(to), rename.to_name, source)?;
        self.point_entry(handle, from, locked.state(from), rename.from_name, target)?;
        if from.number() != to.number() {
            for (moved, old, new) in [(source, from, to), (target, to, from)] {
                if is_directory(moved) {
                    self.point_entry(handle, moved, locked.state(moved), b"..", new)?;
                }
                // Two directories change places without changing a count.
                let other = if moved.number() == source.number() { target } else { source };
                if is_directory(moved) && !is_directory(other) {
                    Self::drop_link(old, locked.state(old));
                    self.add_link(new, locked.state(new));
                }
            }
        }
        self.store_ends(handle, rename, source, locked)?;
        let state = locked.state(target);
        state.changed = self.core.now();
        self.files.store(handle, target, state)
    }

    /// Store both directories and the inode that moved, with their new times.
    fn store_ends(
        &self,
        handle: &mut Handle<'_>,
        rename: &Rename<'_>,
        source: &Inode,
        locked: &mut Locked<'_>,
    ) -> Result<()> {
        self.store_touched(handle, rename.from, locked.state(rename.from))?;
        if rename.from.number() != rename.to.number() {
            self.store_touched(handle, rename.to, locked.state(rename.to))?;
        }
        let state = locked.state(source);
        state.changed = self.core.now();
        self.files.store(handle, source, state)
    }

    /// Point the entry `name` to another inode.
    fn point_entry<'v>(
        &'v self,
        handle: &mut Handle<'v>,
        directory: &Inode,
        state: &mut InodeState,
        name: &[u8],
        inode: &Inode,
    ) -> Result<()> {
        let found = self.find_existing(directory, state, name)?;
        self.dentries.remove(directory, name);
        handle.freed_name();
        let (number, kind) = (inode.number(), kind_code(inode.kind()));
        if state.is_inline() {
            return self.change_inline(handle, directory, state, |format, content| {
                format.set_inode_inline(content, found.offset, number.0, kind)
            });
        }
        self.change_directory(handle, directory, state, |entries| entries.set_inode(&found, number, kind))
    }
}
