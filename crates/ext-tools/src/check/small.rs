//! Content that is a matter of an inode: targets of symbolic links, and files and directories in their inodes (`inline_data`).

use crate::check::claim::MapSummary;
use crate::check::{Checker, DirectoryWork, NameForm, Place, ProblemKind};
use diorite_ext::Result;
use diorite_ext_format::extent::{Extent, Header};
use diorite_ext_format::inode::GOOD_OLD_SIZE;
use diorite_ext_format::xattr::Attributes;
use diorite_ext_format::{DiskInode, FileKind, FsBlock, InodeFlags, le32};

impl Checker<'_> {
    pub(super) fn check_fast_symlink(&mut self, number: u32, fields: &DiskInode) {
        // The target ends with the first NUL, and that is the link's size; what is encrypted may have any bytes.
        let len = fields.block.iter().position(|byte| *byte == 0).map(|len| len as u64);
        let is_right = fields.flags.contains(InodeFlags::ENCRYPTED) || len == Some(fields.size);
        if fields.size == 0 || !is_right {
            let what = "the target of a symbolic link is not as long as its size says, or there is none";
            self.problem(ProblemKind::Inode, Place::inode(number), what);
        }
    }

    /// A target in a block ends with the first NUL, and that is the link's size.
    pub(super) fn check_slow_symlink(&mut self, number: u32, fields: &DiskInode) -> Result<()> {
        let is_encrypted = fields.flags.contains(InodeFlags::ENCRYPTED);
        if is_encrypted || fields.size == 0 || fields.size >= self.layout.block_size.bytes() {
            // A wrong size has been reported.
            return Ok(());
        }
        let block = target_block(fields).filter(|block| self.layout.is_data_range(*block, 1));
        let target = block.map(|block| self.reader.block(block)).transpose()?;
        let len = target.and_then(|target| target.iter().position(|byte| *byte == 0));
        if len.is_none_or(|len| len as u64 != fields.size) {
            let what = "the target of a symbolic link is not as long as its size says";
            self.problem(ProblemKind::Inode, Place::inode(number), what);
        }
        Ok(())
    }

    /// A file, directory or symbolic link whose content is in the inode.
    pub(super) fn check_inline_inode(
        &mut self,
        number: u32,
        raw: &[u8],
        fields: &DiskInode,
        acl_clusters: u64,
    ) {
        let rest = self.check_inline_content(number, raw, fields);
        let kind = fields.kind();
        if kind != Some(FileKind::Symlink) {
            self.check_sectors(number, fields, &MapSummary::default(), acl_clusters);
        }
        if self.is_removed(number, fields) {
            return;
        }
        match kind {
            Some(FileKind::Symlink) => self.check_inline_symlink(number, fields, rest),
            Some(FileKind::Directory) => self.take_inline_directory(number, fields, rest),
            _ => {}
        }
    }

    /// A target in an inode and in the attribute that follows has the bytes of both.
    fn check_inline_symlink(&mut self, number: u32, fields: &DiskInode, rest: Option<&[u8]>) {
        let Some(rest) = rest else { return };
        if fields.size != (fields.block.len() + rest.len()) as u64 {
            let what = "the target of a symbolic link is not as long as its size says";
            self.problem(ProblemKind::Inode, Place::inode(number), what);
        }
    }

    /// Devices, sockets and pipes have no content; what `acl_clusters` count is that of their attributes.
    pub(super) fn check_special_file(&mut self, number: u32, fields: &DiskInode, acl_clusters: u64) {
        let place = Place::inode(number);
        if fields.size != 0 {
            let what = format!("a special file of {} bytes", fields.size);
            self.problem(ProblemKind::Inode, place, what);
        }
        if fields.flags.contains(InodeFlags::EXTENTS) {
            self.problem(ProblemKind::Inode, place, "a special file is mapped by extents");
        }
        self.check_sectors(number, fields, &MapSummary::default(), acl_clusters);
    }

    /// What lies in an inode is in its map and in an attribute, which is there even if it is empty: the part in the attribute.
    fn check_inline_content<'r>(
        &mut self,
        number: u32,
        raw: &'r [u8],
        fields: &DiskInode,
    ) -> Option<&'r [u8]> {
        let tail = GOOD_OLD_SIZE + usize::from(fields.extra_isize);
        let area = raw.get(tail..).unwrap_or_default();
        let rest = Attributes::in_inode(area, self.layout.inodes_count)
            .filter_map(std::result::Result::ok)
            .find(|attribute| attribute.name_index == 7 && attribute.name == b"data");
        if rest.is_none() {
            let what = "its content is in the inode, and the attribute for the rest of it is missing";
            self.problem(ProblemKind::Inode, Place::inode(number), what);
        }
        rest.map(|rest| rest.value)
    }

    /// A directory in an inode: `rest` is the part in the attribute, if that is not missing.
    fn take_inline_directory(&mut self, number: u32, fields: &DiskInode, rest: Option<&[u8]>) {
        let mut content = fields.block.to_vec();
        content.extend_from_slice(rest.unwrap_or_default());
        if rest.is_some() && fields.size != content.len() as u64 {
            let what = format!("a directory of {} bytes has {} in the inode", fields.size, content.len());
            self.problem(ProblemKind::Inode, Place::inode(number), what);
        }
        content.truncate(usize::try_from(fields.size).unwrap_or(usize::MAX));
        self.directories.push(DirectoryWork {
            inode: number,
            generation: fields.generation,
            size: fields.size,
            indexed: false,
            names: NameForm::of(fields.flags),
            runs: Vec::new(),
            inline: Some(content),
        });
    }
}

/// The block of a symbolic link's target: its map has no other blocks.
fn target_block(fields: &DiskInode) -> Option<FsBlock> {
    if !fields.flags.contains(InodeFlags::EXTENTS) {
        return Some(FsBlock(u64::from(le32(&fields.block, 0))));
    }
    let root = Header::parse(&fields.block).ok()?;
    let extent = Extent::parse(&fields.block, 0);
    (root.depth == 0 && root.entries > 0 && extent.start.0 == 0).then_some(extent.block)
}
