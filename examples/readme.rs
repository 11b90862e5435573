//! The program of README.md.

use diorite::{DirectIo, Filesystem};

fn main() -> diorite::Result<()> {
    let fs = Filesystem::open("disk.img")?;
    fs.write("/settings", "pages=1\n")?; // the calls of std::fs
    let file =
        fs.open_options().read(true).write(true).create(true).direct(DirectIo::Required).open("/data")?;
    let mut page = file.buffer(1 << 20)?; // aligned memory for direct transfers
    file.write_all_at(&page, 0)?; // no copy, no cache
    file.sync_data()?;
    file.read_exact_at(&mut page, 0)?;
    println!("{} bytes copied by the CPU", fs.stats().bytes_copied);
    drop(file);
    fs.close()
}

#[cfg(test)]
mod tests {
    /// README.md has this program as it stands here, and it runs as README.md says.
    #[test]
    fn the_readme_has_this_program_and_it_runs() {
        let readme = include_str!("../README.md");
        let (_, program) = include_str!("readme.rs").split_once("\n\n").expect("a head");
        let (program, _) = program.split_once("\n#[cfg(test)]").expect("a test");
        assert!(readme.contains(&format!("```rust\n{program}```")), "README.md has another program");
        let directory = tempfile::tempdir().expect("a directory");
        std::env::set_current_dir(&directory).expect("the directory of the image");
        let options = diorite::mkfs::MkfsOptions::default();
        let fs = diorite::Filesystem::create("disk.img", 64 << 20, &options).expect("an image");
        fs.close().expect("close");
        super::main().expect("run");
        let fs = diorite::Filesystem::open("disk.img").expect("open");
        assert_eq!(fs.read("/settings").expect("read"), b"pages=1\n");
        assert_eq!(fs.read("/data").expect("read").len(), 1 << 20);
    }
}
