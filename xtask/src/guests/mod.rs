//! A virtual machine with Debian's kernel that uses volumes over virtio-fs and NFS, makes MD and LVM2 arrays that are opened here, and boots
//! images of `mkfs`. `e2fsck -fn` checks the volume after each part.
//!
//! QEMU emulates the processor, so this works without hardware virtualization.

#![allow(clippy::disallowed_methods, reason = "files of the host")]

mod arrays;
mod images;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::output_of;
use crate::{setup, target};

/// The time limit of a guest.
const TIME_LIMIT: &str = "300";
/// The common part of the guests' scripts. The volume is mounted on /mnt.
const EXERCISE: &str = "\
cd /mnt && [ \"$(cat hello)\" = 'from the host' ] || fail hello
dd if=/dev/urandom of=big bs=1M count=24 && cp big big2 && sync || fail write
dd if=/dev/zero of=direct bs=1M count=16 oflag=direct && dd if=direct of=/dev/null bs=1M iflag=direct || fail direct
echo 3 > /proc/sys/vm/drop_caches; cmp big big2 || fail content; rm big2 || fail remove
mkdir d && for i in $(seq 1 300); do echo $i > d/$i || fail create; done
[ $(ls d | wc -l) = 300 ] && mv d e && rm -r e || fail directory
ln big hard && ln -s big sym && mkfifo fifo || fail link
echo content > guest && chmod 4640 guest && chown 5:6 guest || fail attributes
[ \"$(stat -c '%a %u %g' guest)\" = '640 5 6' ] || fail privileges
df /mnt || fail space
cd / && umount /mnt || fail unmount
";
const INIT: &str = "\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/sbin:/bin
fail() { echo \"GUEST-FAILED: $1\"; poweroff -f; }
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
for module in $(cat /modules); do insmod /m/$module || fail $module; done
. /test.sh
echo GUEST-DONE
poweroff -f
";

/// The access of a guest to a volume.
struct Access {
    name: &'static str,
    /// Arguments of `diorite serve`, without the image.
    serve: &'static [&'static str],
    mount: &'static str,
    machine: &'static [&'static str],
}

const ACCESSES: &[Access] = &[
    Access {
        name: "virtiofs",
        serve: &["virtiofs", "--socket", "socket"],
        mount: "mount -t virtiofs vol /mnt || fail mount\n",
        machine: &[
            "-chardev",
            "socket,id=c,path=socket",
            "-device",
            "vhost-user-fs-pci,chardev=c,tag=vol",
            "-object",
            "memory-backend-memfd,id=m,size=512M,share=on",
            "-numa",
            "node,memdev=m",
        ],
    },
    Access {
        name: "nfs",
        serve: &["nfs", "--listen", "127.0.0.1:20490", "--insecure"],
        mount: "ip link set eth0 up && ip addr add 10.0.2.15/24 dev eth0 || fail network\n\
                mount -t nfs -o vers=3,proto=tcp,mountproto=tcp,addr=10.0.2.2,port=20490,mountport=20490,nolock \
                10.0.2.2:/ /mnt || fail mount\n",
        machine: &["-netdev", "user,id=n", "-device", "virtio-net-pci,netdev=n"],
    },
];

/// A part with its own disks: from the working directory, the program and the version of the kernel.
type Part = fn(&Path, &Path, &str) -> Result<(), String>;

/// `cargo xtask guests`: all parts, or the named ones.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    if !setup::is_root() {
        return Err("guests: this needs root".to_owned());
    }
    setup::install_guest_packages()?;
    super::cargo(&["build", "--quiet", "--package", "diorite-cli"], &[])?;
    let diorite =
        fs::canonicalize(target::directory().join("debug/diorite")).map_err(|error| error.to_string())?;
    let directory = target::directory().join("guests");
    fs::create_dir_all(&directory).map_err(|error| error.to_string())?;
    let kernel = unpack_kernel(&directory)?;
    for access in ACCESSES
        .iter()
        .filter(|access| arguments.is_empty() || arguments.iter().any(|name| name == access.name))
    {
        let start = Instant::now();
        let said = use_volume(access, &directory, &diorite, &kernel);
        said.map_err(|why| format!("guests: {}: {why}", access.name))?;
        println!("{}: done in {} s", access.name, start.elapsed().as_secs());
    }
    let parts: [(&str, Part); 2] = [("arrays", arrays::run), ("images", images::run)];
    for (name, part) in parts {
        if arguments.is_empty() || arguments.iter().any(|argument| argument == name) {
            let start = Instant::now();
            part(&directory, &diorite, &kernel).map_err(|why| format!("guests: {name}: {why}"))?;
            println!("{name}: done in {} s", start.elapsed().as_secs());
        }
    }
    Ok(())
}

fn shell(directory: &Path, script: &str) -> Result<String, String> {
    output_of(Command::new("sh").args(["-ec", script]).current_dir(directory))
}

/// Install Debian's kernel for virtual machines and make an initial file tree. Returns the version of the kernel.
fn unpack_kernel(directory: &Path) -> Result<String, String> {
    let fetch = "\
        package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print $2 }')\n\
        if [ ! -d kernel ]; then apt-get download -qq $package; dpkg-deb -x ${package}_*.deb kernel.new\n\
        mv kernel.new kernel; fi\n\
        version=$(ls kernel/lib/modules)\n\
        depmod -b kernel $version\n\
        rm -rf tree; mkdir -p tree/bin tree/m tree/mnt tree/proc tree/sys tree/dev; cp $(command -v busybox) tree/bin/\n\
        for module in virtiofs nfsv3 virtio_net virtio_pci virtio_blk ext4 raid0 raid1 linear dm_mod dm_raid dm_mirror; do\n\
        modprobe -d kernel -S $version --show-depends $module | awk '/^insmod/ { print $2 }'; done |\n\
        awk '!seen[$0]++' > list\n\
        for file in $(cat list); do cp $file tree/m/; basename $file; done > tree/modules\n\
        for program in mdadm lvm mke2fs e2fsck; do program=$(command -v $program || echo /sbin/$program)\n\
        mkdir -p tree/sbin; cp $program tree/sbin/; for library in $(ldd $program | grep -o '/[^ ]*'); do\n\
        mkdir -p tree/$(dirname $library); cp -n $library tree/$library || true; done; done\n\
        echo $version";
    let version = shell(directory, fetch)?.trim().to_owned();
    let init = directory.join("tree/init");
    fs::write(&init, INIT).map_err(|error| error.to_string())?;
    shell(directory, "chmod +x tree/init")?;
    Ok(version)
}

/// A guest uses a new volume.
fn use_volume(access: &Access, directory: &Path, diorite: &Path, kernel: &str) -> Result<(), String> {
    let error = |error: std::io::Error| error.to_string();
    let program = diorite.display();
    fs::write(directory.join("tree/test.sh"), access.mount.to_owned() + EXERCISE).map_err(error)?;
    let make = format!(
        "rm -f a.img socket; {program} mkfs a.img 256M; echo from the host > hello; {program} cp hello a.img:/\n\
         cd tree; find . | cpio -o -H newc 2>/dev/null | gzip -1 > ../tree.gz"
    );
    shell(directory, &make)?;
    let mut serve = Command::new(diorite);
    serve.arg("serve").args(access.serve).arg("a.img").current_dir(directory).stderr(Stdio::piped());
    let mut server = Server(serve.spawn().map_err(error)?);
    server.wait_until_it_listens()?;
    boot(directory, kernel, access.machine)?;
    server.end()?;
    shell(directory, &format!("/sbin/e2fsck -fn a.img; {program} stat a.img:/guest a.img:/hard a.img:/fifo"))
        .map(drop)
}

/// Boot the virtual machine and return its output.
fn boot(directory: &Path, kernel: &str, machine: &[&str]) -> Result<String, String> {
    let machine = Command::new("timeout")
        .args([TIME_LIMIT, "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"])
        .args(["-m", "512M", "-nographic", "-no-reboot", "-initrd", "tree.gz"])
        .args(["-append", "console=ttyS0 panic=-1 quiet", "-kernel"])
        .arg(format!("kernel/boot/vmlinuz-{kernel}"))
        .args(machine)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&machine.stdout).into_owned();
    if said.contains("GUEST-DONE") {
        Ok(said)
    } else {
        Err(format!("the guest did not come to its end:\n{said}"))
    }
}

/// A process of `diorite serve`, which is killed on drop.
struct Server(Child);

impl Server {
    /// Wait for the message of the server.
    fn wait_until_it_listens(&mut self) -> Result<(), String> {
        let stderr = self.0.stderr.take().ok_or("it has no standard error")?;
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
        let line = lines.next().and_then(Result::ok).unwrap_or_default();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        if line.contains(" on ") { Ok(()) } else { Err(format!("it does not serve: {line}")) }
    }

    fn end(&mut self) -> Result<(), String> {
        shell(Path::new("."), &format!("kill -TERM {}", self.0.id()))?;
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if let Some(status) = self.0.try_wait().map_err(|error| error.to_string())? {
                return if status.success() { Ok(()) } else { Err(format!("the server: {status}")) };
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err("the server does not end".to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
