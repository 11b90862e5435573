//! MD arrays and LVM2 volumes that a real kernel makes, Diorite writes, and the kernel checks.

use std::fs;
use std::path::Path;

use super::{boot, shell};

const DISKS: usize = 9;
const DISK_MIB: u64 = 48;
/// The first run of the guest makes arrays, each with a filesystem and a file. Disks: a b mirror, c d e RAID-0 of three sizes, f g linear, h i LVM2.
const MAKE: &str = "\
mkdir -p /etc/lvm /run/lock /run/lvm
echo 'devices { use_devicesfile=0 } activation { udev_sync=0 udev_rules=0 } global { use_lvmpolld=0 }' > /etc/lvm/lvm.conf
fill() { /sbin/mke2fs -q -t ext4 $1 || fail \"mke2fs $1\"; mount $1 /mnt || fail \"mount $1\"
  dd if=/dev/urandom of=/mnt/kernel bs=1M count=5 2>/dev/null; (cd /mnt && sha256sum kernel > sum); umount /mnt || fail \"umount $1\"; }
make() { name=$1; shift; mdadm --create /dev/md/$name --name $name --homehost any --run --force \"$@\" || fail \"make $name\"; fill /dev/md/$name; mdadm --wait /dev/md/$name; mdadm --stop /dev/md/$name || fail \"stop $name\"; }
make m1 -l 1 -n 2 -e 1.2 /dev/vda /dev/vdb
make m0 -l 0 -n 3 -c 64 /dev/vdc /dev/vdd /dev/vde
make ml -l linear -n 2 /dev/vdf /dev/vdg
lvm pvcreate -q /dev/vdh /dev/vdi && lvm vgcreate -q vg /dev/vdh /dev/vdi || fail vgcreate
lvm lvcreate -q -y -Wn -Zn -n lin -l 4 vg && lvm lvcreate -q -y -Wn -Zn -n str -i 2 -I 32k -l 4 vg || fail lvcreate
lvm lvcreate -q -y -Wn -Zn -n r1 --type raid1 -m 1 -l 2 vg || fail raid1
lvm lvcreate -q -y -Wn -Zn -n mir --type mirror -m 1 --mirrorlog core -l 2 vg || fail mirror
for volume in lin str r1 mir; do fill /dev/mapper/vg-$volume; done
for second in $(seq 1 60); do lvm lvs --noheadings -o copy_percent vg | grep -q '[0-9]' && ! lvm lvs --noheadings -o copy_percent vg | grep -v '100.00' | grep -q '[0-9]' && break; sleep 1; done
lvm vgchange -q -an vg || fail vgchange
";
/// The second run of the guest checks the host's writes, and that the members of the mirror are in sync and equal.
const USE: &str = "\
mkdir -p /etc/lvm /run/lock /run/lvm
echo 'devices { use_devicesfile=0 } activation { udev_sync=0 udev_rules=0 } global { use_lvmpolld=0 }' > /etc/lvm/lvm.conf
look() { /sbin/e2fsck -fn $1 || fail \"e2fsck $1\"; mount -o ro,noload $1 /mnt || fail \"mount $1\"
  (cd /mnt && sha256sum -c sum && { [ ! -e written.sum ] || sha256sum -c written.sum; }) || fail \"content of $1\"; [ -n \"$2\" ] || [ -e /mnt/written ] || fail \"nothing written on $1\"; umount /mnt; }
mdadm --assemble /dev/md/m1 /dev/vda /dev/vdb && mdadm --assemble /dev/md/m0 /dev/vdc /dev/vdd /dev/vde && mdadm --assemble /dev/md/ml /dev/vdf /dev/vdg || fail assemble
cat /proc/mdstat
grep -q 'UU' /proc/mdstat && ! grep -q resync /proc/mdstat || fail 'the mirror is not in sync'
md=$(basename $(readlink -f /dev/md/m1)); echo check > /sys/block/$md/md/sync_action; mdadm --wait /dev/md/m1
[ \"$(cat /sys/block/$md/md/mismatch_cnt)\" = 0 ] || fail 'the members of the mirror differ'
look /dev/md/m1; look /dev/md/m0; look /dev/md/ml
lvm vgchange -q -ay vg || fail activate
look /dev/mapper/vg-lin; look /dev/mapper/vg-str; look /dev/mapper/vg-r1 readonly; look /dev/mapper/vg-mir readonly
";

/// The targets that Diorite opens, and whether it can write to them.
const OPENED: &[(&str, bool)] = &[
    ("md:b.disk,a.disk", true),
    ("md:e.disk,c.disk,d.disk", true),
    ("md:g.disk,f.disk", true),
    ("lvm:i.disk,h.disk?volume=lin", true),
    ("lvm:h.disk,i.disk?volume=str", true),
    ("lvm:h.disk,i.disk?volume=r1", false),
    ("lvm:h.disk,i.disk?volume=mir", false),
];

pub(super) fn run(directory: &Path, diorite: &Path, kernel: &str) -> Result<(), String> {
    let names: Vec<char> = ('a'..).take(DISKS).collect();
    let mut machine = Vec::new();
    for (index, name) in names.iter().enumerate() {
        // The disks of the RAID-0 have different sizes.
        let mib = if (2..5).contains(&index) { DISK_MIB + 16 * index as u64 } else { DISK_MIB };
        shell(directory, &format!("rm -f {name}.disk; truncate -s {mib}M {name}.disk"))?;
        machine
            .extend(["-drive".to_owned(), format!("file={name}.disk,format=raw,if=virtio,cache=writeback")]);
    }
    let machine: Vec<&str> = machine.iter().map(String::as_str).collect();
    let guest = |script: &str| {
        fs::write(directory.join("tree/test.sh"), script).map_err(|error| error.to_string())?;
        shell(directory, "cd tree; find . | cpio -o -H newc 2>/dev/null | gzip -1 > ../tree.gz")?;
        boot(directory, kernel, &machine)
    };
    guest(MAKE)?;
    let program = diorite.display();
    for (target, writes) in OPENED {
        let script = format!(
            "rm -rf out; mkdir out; {program} cp '{target}:/kernel' '{target}:/sum' out/; cd out; sha256sum -c sum\n\
             dd if=/dev/urandom of=written bs=1M count=3 2>/dev/null; sha256sum written > written.sum"
        );
        shell(directory, &script)?;
        let write = format!("{program} cp out/written out/written.sum '{target}:/'");
        match (shell(directory, &write), writes) {
            (Ok(_), true) => {}
            (Err(why), false) if why.contains("read-only") => {}
            (result, _) => return Err(format!("{target}: {result:?}")),
        }
    }
    guest(USE).map(drop)
}
