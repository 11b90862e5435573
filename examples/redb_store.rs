//! The database redb on a file in an ext4 image: each call of its storage trait is a call of [`File`].
//!
//! ```text
//! cargo run --release -p diorite --example redb_store
//! ```

use std::error::Error;
use std::io;

use diorite::mkfs::{Flavor, MkfsOptions};
use diorite::{File, Filesystem};
use redb::{Database, ReadableDatabase, StorageBackend, TableDefinition};

const CITIES: TableDefinition<'_, &str, u64> = TableDefinition::new("cities");

#[derive(Debug)]
struct OnDiorite(File);

impl StorageBackend for OnDiorite {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.size())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        Ok(self.0.read_exact_at(out, offset)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(self.0.set_len(len)?)
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(self.0.sync_data()?)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        Ok(self.0.write_all_at(data, offset)?)
    }
}

fn open(filesystem: &Filesystem) -> Result<Database, Box<dyn Error>> {
    let file = filesystem.open_options().read(true).write(true).create(true).open("/cities.redb")?;
    Ok(Database::builder().create_with_backend(OnDiorite(file))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let image = directory.path().join("disk.img");
    let filesystem = Filesystem::create(&image, 64 << 20, &MkfsOptions::new(Flavor::Ext4))?;
    let database = open(&filesystem)?;
    let write = database.begin_write()?;
    {
        let mut table = write.open_table(CITIES)?;
        for (city, people) in [("Oslo", 717_710), ("Bergen", 291_940), ("Trondheim", 214_093)] {
            table.insert(city, people)?;
        }
    }
    write.commit()?;
    drop(database);
    filesystem.close()?;

    let filesystem = Filesystem::open(&image)?;
    let database = open(&filesystem)?;
    let table = database.begin_read()?.open_table(CITIES)?;
    let people = table.get("Bergen")?.ok_or("not there")?.value();
    println!("Bergen: {people}; the database is {} bytes", filesystem.metadata("/cities.redb")?.size);
    assert_eq!(people, 291_940);
    drop((table, database));
    Ok(filesystem.close()?)
}

#[test]
fn runs() {
    main().expect("the example runs");
}
