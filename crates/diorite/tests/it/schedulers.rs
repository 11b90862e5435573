//! A volume with an I/O scheduler: chosen when it is opened, absent by default, and it reports what each owner got.

use crate::common;
use common::{aligned_pattern, memory_volume};
use diorite::front_end::{IoOwner, IoPriority, TaskId};
use diorite::{DirectIo, FilesystemOptions, SchedulerKind};
use diorite_ext_tools::mkfs::MkfsOptions;

#[test]
fn a_device_stays_as_it_is_unless_a_scheduler_is_chosen() {
    let device = memory_volume(8, &MkfsOptions::default());
    let filesystem = FilesystemOptions::new().open_device(device.clone()).expect("open");
    assert!(filesystem.scheduler().is_none());
    assert!(std::sync::Arc::ptr_eq(filesystem.device(), &device), "direct issue: nothing in between");
    filesystem.close().expect("close");
    let none = FilesystemOptions::new().scheduler(SchedulerKind::None);
    assert!(none.open_device(device).expect("open").scheduler().is_none());
}

/// Two owners at two priorities use one volume through each scheduler: data is what it was, and statistics distinguish them.
#[test]
fn owners_get_their_data_and_are_told_apart() {
    for name in ["deadline", "cfq:2.6.32", "cfq:fixed", "inject"] {
        let device = memory_volume(16, &MkfsOptions::default());
        let options = FilesystemOptions::new().scheduler(name.parse().expect("a scheduler"));
        let filesystem = options.open_device(device).expect("open");
        std::thread::scope(|scope| {
            for task in 1..=2_u64 {
                let filesystem = &filesystem;
                scope.spawn(move || {
                    let priority =
                        if task == 1 { IoPriority::RealTime(0) } else { IoPriority::BestEffort(7) };
                    let _charged = IoOwner { task: TaskId(task), priority }.enter();
                    let open = filesystem.open_options().read(true).write(true).create(true);
                    let file = open.direct(DirectIo::Required).open(format!("/{task}")).expect("open");
                    let data = aligned_pattern(256 << 10, task);
                    file.write_all_at(&data, 0).expect("write");
                    let mut read = file.buffer(256 << 10).expect("memory");
                    assert!(read.is_registered(), "known to the rings, as the README says");
                    for _ in 0..task {
                        file.read_exact_at(&mut read, 0).expect("read");
                    }
                    assert_eq!(&read[..], &data[..], "{name}");
                });
            }
        });
        let scheduler = filesystem.scheduler().expect("a scheduler");
        let statistics = scheduler.statistics();
        for task in 1..=2_u64 {
            let owner = statistics.owner(TaskId(task)).expect("an owner");
            assert!(owner.read_bytes >= task * (256 << 10), "{name}: {owner:?}");
            assert!(owner.write_bytes >= 256 << 10, "{name}: {owner:?}");
            assert_eq!(owner.wait.count(), owner.service.count(), "{name}: all has ended");
        }
        let state = scheduler.describe();
        assert!(state.contains(scheduler.scheduler_name()) && state.contains("task 2"), "{state}");
        filesystem.close().expect("close");
    }
}
