//! The longest wait of any owner among many busy ones: a round of slices.

use std::sync::Arc;
use std::time::Duration;

use diorite_block::sync::{self, Mutex};
use diorite_block::{Bio, BlockDevice, IoOwner, IoPriority, Sector, TaskId};
use diorite_scheduler::ScheduledDevice;
use diorite_scheduler::SchedulerKind;
use diorite_sim::{SimDisk, Simulation};

const LENGTH: Duration = Duration::from_secs(10);
const FILE: u64 = 64 << 20;

/// Operations and the longest one, of each owner.
type Waits = Vec<(u64, Duration)>;

/// Sequential readers that all begin at once, and one that reads a block somewhere every 200 ms.
fn run(disk: &str, streams: u64, seed: u64) -> (Waits, String) {
    let disk = SimDisk::named(disk).expect("known");
    let scheduler = SchedulerKind::Inject.build().expect("a scheduler");
    let device = ScheduledDevice::new(disk as _, scheduler, 31);
    let simulation = Simulation::new(seed);
    let waits = Arc::new(Mutex::new(vec![(0, Duration::ZERO); streams as usize + 1]));
    for number in 0..=streams {
        let owner = IoOwner { task: TaskId(number + 1), priority: IoPriority::default() };
        let (device, waits) = (Arc::clone(&device), Arc::clone(&waits));
        let is_sparse = number == streams;
        simulation.spawn(&format!("reader {number}"), owner, move || {
            let mut memory = vec![0u8; if is_sparse { 4096 } else { 128 << 10 }];
            let mut random = fastrand::Rng::with_seed(seed);
            let mut at = number * FILE;
            while sync::now() < LENGTH {
                if is_sparse {
                    at = number * FILE + random.u64(0..FILE / 4096) * 4096;
                }
                let begun = sync::now();
                let mut bio = Bio::read(Sector::containing(at), &mut memory);
                device.execute(std::slice::from_mut(&mut bio)).expect("a disk without faults");
                let took = sync::now().saturating_sub(begun);
                let (count, longest) = waits.lock()[number as usize];
                waits.lock()[number as usize] = (count + 1, longest.max(took));
                at = number * FILE + (at + memory.len() as u64 - number * FILE) % FILE;
                sync::sleep(if is_sparse { Duration::from_millis(200) } else { Duration::from_micros(30) });
            }
        });
    }
    simulation.run().expect("no deadlock");
    let waits = waits.lock().clone();
    (waits, device.describe())
}

/// Thirteen of 64 readers that began at once waited ten seconds for their first request: the scattered flows, among which those that have
/// just begun are, had received a long slice when they were alone, and waited until every stream had received as much by short ones.
#[test]
fn no_owner_waits_longer_than_a_round_of_slices() {
    // Six seeks.
    let slice = Duration::from_millis(6 * 8);
    for disk in ["sim:sata-2009", "sim:sata-2020"] {
        for seed in 1..=3 {
            let (waits, state) = run(disk, 64, seed);
            let longest = waits.iter().map(|(_, longest)| *longest).max().expect("owners");
            assert!(longest <= slice * 64, "{disk}, seed {seed}: {longest:?}, {waits:?}\n{state}");
            let counts = waits[..64].iter().map(|(count, _)| *count);
            let (least, all) = (counts.clone().min().expect("readers"), counts.sum::<u64>());
            assert!(least * 2 >= all / 64, "{disk}, seed {seed}: the same work: {waits:?}\n{state}");
        }
    }
}
