//! The names of a file: one that is renamed and removed, and links beside it.

use super::oracle::Sync;

/// The file has this name from some moment on, or none.
#[derive(Clone, Debug)]
struct Naming {
    begin: usize,
    end: Option<usize>,
    name: Option<String>,
}

/// All names of a file. Each list is of one name in its course; the first is of the name that the file was made with.
#[derive(Clone, Debug)]
pub struct Names(Vec<Vec<Naming>>);

impl Default for Names {
    fn default() -> Self {
        Self(vec![Vec::new()])
    }
}

/// The last entry that a sync has promised.
fn floor(list: &[Naming], cut: usize, syncs: &[Sync]) -> Option<usize> {
    let is_promised = |naming: &Naming| {
        let Some(end) = naming.end.filter(|end| *end <= cut) else { return false };
        syncs.iter().any(|sync| sync.names && sync.end <= cut && end <= sync.begin)
    };
    list.iter().rposition(is_promised)
}

/// The file is under one of these names; `None`: it may be missing.
fn presence(list: &[Naming], cut: usize, syncs: &[Sync]) -> Option<Vec<String>> {
    let floor = floor(list, cut, syncs)?;
    let possible = list[floor..].iter().filter(|naming| naming.begin <= cut);
    possible.map(|naming| naming.name.clone()).collect()
}

impl Names {
    /// A call begins that gives the file its name, another one, or none. Returns the place of the name for [`Names::end`].
    pub fn begin(&mut self, begin: usize, name: Option<String>) -> usize {
        self.0[0].push(Naming { begin, end: None, name });
        0
    }

    /// A call begins that gives the file one more name, or takes the last such name away.
    pub fn begin_link(&mut self, begin: usize, name: Option<String>) -> usize {
        if name.is_some() {
            self.0.push(Vec::new());
        }
        let place = self.0.len() - 1;
        self.0[place].push(Naming { begin, end: None, name });
        place
    }

    /// The last call about the name at `place` has returned.
    pub fn end(&mut self, place: usize, end: usize) {
        self.0[place].last_mut().expect("a call has begun").end = Some(end);
    }

    /// The last link that is there.
    pub fn link(&self) -> Option<&str> {
        self.0[1..].last()?.last()?.name.as_deref()
    }

    /// The name now.
    pub fn current(&self) -> Option<&str> {
        self.0[0].last()?.name.as_deref()
    }

    /// A sync has failed: the last change of each name is not promised.
    pub(super) fn give_up(&mut self) {
        for naming in self.0.iter_mut().filter_map(|list| list.last_mut()) {
            naming.end = None;
        }
    }

    /// The file must have one of these names, by its own name; `None`: it may be missing.
    pub(super) fn presence(&self, cut: usize, syncs: &[Sync]) -> Option<Vec<String>> {
        presence(&self.0[0], cut, syncs)
    }

    /// Links that must be there.
    pub(super) fn promised_links(&self, cut: usize, syncs: &[Sync]) -> Vec<String> {
        let lists = self.0[1..].iter().filter_map(|list| presence(list, cut, syncs));
        lists.filter_map(|names| names.into_iter().next()).collect()
    }

    /// Names that it may have at once.
    pub fn most(&self, cut: usize) -> usize {
        let has_begun = |list: &&Vec<Naming>| list.first().is_some_and(|naming| naming.begin <= cut);
        self.0.iter().filter(has_begun).count()
    }

    /// Whether the file may be there under a name at a cut: no later change of that name was promised.
    pub(super) fn may_be(&self, name: &str, cut: usize, syncs: &[Sync]) -> bool {
        self.0.iter().any(|list| {
            let first = floor(list, cut, syncs).unwrap_or(0);
            let possible = list.iter().skip(first).filter(|naming| naming.begin <= cut);
            possible.into_iter().any(|naming| naming.name.as_deref() == Some(name))
        })
    }

    /// Whether a rename may be under way.
    pub(super) fn is_renamed(&self, cut: usize, syncs: &[Sync]) -> bool {
        let own = &self.0[0];
        let first = floor(own, cut, syncs).unwrap_or(0);
        own[first..].iter().filter(|naming| naming.begin <= cut && naming.name.is_some()).count() > 1
    }

    /// Since when the file is there for good, if no call had begun to remove it.
    pub(super) fn kept_since(&self, cut: usize) -> Option<usize> {
        let own = &self.0[0];
        let has_a_name = own.iter().filter(|naming| naming.begin <= cut).all(|naming| naming.name.is_some());
        own.first().and_then(|naming| naming.end).filter(|_| has_a_name)
    }
}
