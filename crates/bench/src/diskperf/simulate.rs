//! The disk test on simulated devices, in virtual time.

use std::sync::Arc;

use diorite::front_end::ScheduledDevice;
use diorite::{BlockDevice, SchedulerKind};
use diorite_block::sync;
use diorite_sim::{Context, DISK_NAMES, DiskParameters, SimDisk, Simulation, WorldOptions};

use super::{DiskPerf, DiskPerfError, DiskPerfOutcome, run};
use crate::measure::Spent;
use crate::scheduling::SchedulerReport;
use crate::simulated::{SimulatedDiskError, open_simulated};
use crate::watch::{Cancel, Silent};

/// The array of 2002: the number of `fc-2002` disks on one link.
const ARRAY: (&str, usize) = ("fc-array", 8);

/// Simulated devices: `sim:NAME` or `sim:FILE.toml` is one, `sim:fc-array` eight on one link.
pub fn simulated_devices(names: &[String]) -> Result<Vec<Arc<dyn BlockDevice>>, DiskPerfError> {
    let mut devices: Vec<Arc<dyn BlockDevice>> = Vec::new();
    for name in names {
        let name = name.strip_prefix("sim:").unwrap_or(name);
        if name == ARRAY.0 {
            let parameters = DiskParameters::named("fc-2002").map_err(SimulatedDiskError::from)?;
            devices.extend(SimDisk::array(ARRAY.0, &parameters, ARRAY.1).into_iter().map(|disk| disk as _));
        } else {
            devices.push(open_simulated(name)?);
        }
    }
    Ok(devices)
}

/// Names of simulated devices, for help and messages.
pub fn simulated_names() -> String {
    format!("{}, {}", DISK_NAMES.join(", "), ARRAY.0)
}

/// Run the test in a new world, each device through a scheduler (by default that of its kind). Times are virtual, and CPU time
/// is charged by the world.
pub fn run_simulated(
    devices: Vec<Arc<dyn BlockDevice>>,
    test: DiskPerf,
    scheduler: Option<SchedulerKind>,
    world: WorldOptions,
) -> Result<(DiskPerfOutcome, Vec<SchedulerReport>), DiskPerfError> {
    Simulation::run_one(world, move || in_world(devices, test, scheduler))?.0
}

fn in_world(
    mut devices: Vec<Arc<dyn BlockDevice>>,
    test: DiskPerf,
    scheduler: Option<SchedulerKind>,
) -> Result<(DiskPerfOutcome, Vec<SchedulerReport>), DiskPerfError> {
    let mut scheduled = Vec::new();
    for device in &mut devices {
        let kind = scheduler.unwrap_or_else(|| SchedulerKind::default_for(device.geometry().rotational));
        if let Some(queue) = ScheduledDevice::of_kind(device, kind) {
            *device = queue.clone();
            scheduled.push(queue);
        }
    }
    let begun = sync::now();
    let mut outcome = run(&devices, test, &Silent, &Cancel::default())?;
    let seconds = sync::now().saturating_sub(begun).as_secs_f64();
    let cpu = Context::current().map_or(0.0, |world| world.cpu_time_of_all().as_secs_f64());
    outcome.spent = Spent::alone(seconds, cpu);
    let reports = scheduled.iter().map(|queue| SchedulerReport::of(queue, |_| Some(queue.device_name())));
    Ok((outcome, reports.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Mode;

    fn rate(depth: u32) -> f64 {
        let test = DiskPerf { blocks: 16, mode: Mode::Direct, depth, ..DiskPerf::default() };
        let devices = simulated_devices(&["sim:fc-array".to_owned()]).unwrap();
        assert_eq!(devices.len(), 8);
        let (outcome, reports) =
            run_simulated(devices, test, Some(SchedulerKind::Inject), WorldOptions::default()).unwrap();
        assert_eq!((outcome.bytes, reports.len()), (128 << 20, 8));
        outcome.bytes as f64 / 1e6 / outcome.spent.seconds
    }

    /// One read at a time keeps one disk busy; four reads on each disk fill the link of 200 MB/s.
    #[test]
    fn an_array_is_as_fast_as_its_link_when_much_is_asked_of_it() {
        let (one, four) = (rate(1), rate(4));
        assert!((20.0..80.0).contains(&one), "{one} MB/s");
        assert!((150.0..200.1).contains(&four), "{four} MB/s");
    }
}
