//! Commands about whole volumes: mkfs, info, check, df.

use std::os::unix::ffi::OsStrExt;

use diorite::Access;
use serde_json::json;

use crate::args::Df;
use crate::change::for_each;
use crate::failure::Result;
use crate::images::Images;
use crate::output::{Output, json_name};
use crate::size::human;

pub(crate) fn df(arguments: &Df, images: &mut Images, output: &mut Output) -> Result<()> {
    let mut rows = Vec::new();
    for_each(&arguments.images, |location| {
        let (image, _) = location.in_image();
        let filesystem = images.open(image, Access::ReadOnly)?;
        rows.push((image.to_owned(), filesystem.statfs()));
        Ok(())
    })?;
    if arguments.reporting.json {
        let list: Vec<_> = rows
            .iter()
            .map(|(image, space)| {
                json!({
                    "image": json_name(image.as_os_str().as_bytes()),
                    "block_size": space.block_size,
                    "blocks": space.blocks,
                    "blocks_free": space.blocks_free,
                    "blocks_available": space.blocks_available,
                    "inodes": space.inodes,
                    "inodes_free": space.inodes_free,
                })
            })
            .collect();
        return output.json(&json!({ "command": "df", "images": list }));
    }
    let width = rows.iter().map(|(image, _)| image.as_os_str().len()).max().unwrap_or(0).max(5);
    let (size, free) = if arguments.inodes { ("Inodes", "Free") } else { ("Size", "Avail") };
    output.line(format!("{:width$} {size:>8} {:>8} {free:>8} {:>5}", "Image", "Used", "Use%"))?;
    for (image, space) in rows {
        let bytes = |blocks: u64| human(blocks.saturating_mul(space.block_size));
        let (all, used, available) = if arguments.inodes {
            (space.inodes, space.inodes.saturating_sub(space.inodes_free), space.inodes_free)
        } else {
            (space.blocks, space.blocks.saturating_sub(space.blocks_free), space.blocks_available)
        };
        // As df does: of what ordinary users could have, rounded up.
        let percent = used.saturating_mul(100).div_ceil(used.saturating_add(available).max(1));
        let show = |count: u64| if arguments.inodes { count.to_string() } else { bytes(count) };
        output.line(format!(
            "{:width$} {:>8} {:>8} {:>8} {percent:>4}%",
            image.display(),
            show(all),
            show(used),
            show(available)
        ))?;
    }
    Ok(())
}
