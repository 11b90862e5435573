//! Images of `mkfs --size fit` from a tar stream. A real kernel boots each one as its root disk, and `e2fsck -fn` checks it before and after.

use std::fs;
use std::path::Path;

use super::{boot, shell};

/// The content of the image: busybox with its links, small files, and a list of digests.
const MAKE_TREE: &str = "\
rm -rf root; mkdir -p root/bin root/sbin root/dev root/proc root/sys root/var root/share
cp $(command -v busybox) root/bin/busybox
for applet in $(busybox --list); do [ $applet = busybox ] || ln -sf busybox root/bin/$applet; done
for i in $(seq 1 300); do seq $i $((i * 7)) > root/share/$i; done
head -c 6000000 /dev/urandom > root/share/large; ln root/share/large root/share/again
yes 'from the host' | head -n 512 > root/var/state
(cd root && find bin/busybox share -type f | xargs sha256sum > digests)
cp root.init root/sbin/init; chmod 755 root/sbin/init";
/// The first process of the image. The file `new` needs space that only an image with slack has.
const INIT: &str = "\
#!/bin/sh
export PATH=/bin
fail() { echo \"GUEST-FAILED: $1\"; poweroff -f; }
mount -t proc p /proc && mount -t devtmpfs d /dev || fail mount
grep -q '^/dev/vda / ext4 rw' /proc/mounts || fail 'the root disk'
sha256sum -c digests > /dev/null || fail content
echo 'from the guest' | dd of=/var/state conv=notrunc 2> /dev/null || fail write
if dd if=/share/large of=/new bs=1k count=512 2> /dev/null && sync && cmp -n 524288 /new /share/large; then
echo IMAGE-HAS-SPACE; else rm -f /new; echo IMAGE-IS-FULL; fi
sync; mount -o remount,ro / || fail remount
echo IMAGE-BOOTED; echo GUEST-DONE; poweroff -f
";
/// The guest's initial file tree only loads the driver of the disk.
const ENTER: &str = "\
mount -t ext4 -o rw /dev/vda /mnt || fail 'mount of the root disk'
umount /proc /sys /dev; exec switch_root /mnt /sbin/init
";
const DISK: &[&str] = &["-drive", "file=root.img,format=raw,if=virtio,cache=writeback"];

/// A size of the image, and what the guest says about its space.
const SIZES: &[(&str, &str)] =
    &[("--size fit", "IMAGE-IS-FULL"), ("--size fit --slack 10%", "IMAGE-HAS-SPACE")];

pub(super) fn run(directory: &Path, diorite: &Path, kernel: &str) -> Result<(), String> {
    let error = |error: std::io::Error| error.to_string();
    fs::write(directory.join("root.init"), INIT).map_err(error)?;
    fs::write(directory.join("tree/test.sh"), ENTER).map_err(error)?;
    shell(directory, MAKE_TREE)?;
    shell(directory, "cd tree; find . | cpio -o -H newc 2>/dev/null | gzip -1 > ../tree.gz")?;
    SIZES.iter().try_for_each(|(size, space)| {
        boot_image(directory, diorite, kernel, size, space).map_err(|why| format!("{size}: {why}"))
    })
}

/// Make the image twice, boot it and check what the guest wrote.
fn boot_image(directory: &Path, diorite: &Path, kernel: &str, size: &str, space: &str) -> Result<(), String> {
    let program = diorite.display();
    let make = format!(
        "rm -f root.img again.img\n\
         tar -C root --sort=name -cf - . | {program} mkfs -q -d - --owner 0:0 {size} root.img\n\
         (cd root; find . | sort -r) | tar -C root --no-recursion -T - -cf - | {program} mkfs -q -d - --owner 0:0 {size} again.img\n\
         cmp root.img again.img; /sbin/e2fsck -fn root.img"
    );
    shell(directory, &make)?;
    let said = boot(directory, kernel, DISK)?;
    if !said.contains("IMAGE-BOOTED") || !said.contains(space) {
        return Err(format!("the guest did not say IMAGE-BOOTED and {space}:\n{said}"));
    }
    let check = format!(
        "/sbin/e2fsck -fn root.img; {program} cat root.img:/var/state | head -n 1 | grep -qx 'from the guest'\n\
         {program} cat root.img:/share/large | cmp - root/share/large"
    );
    shell(directory, &check).map(drop)
}
