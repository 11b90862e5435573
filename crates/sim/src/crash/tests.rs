use std::collections::BTreeSet;

use diorite_block::{Bio, BioFlags, BlockDevice, Sector};

use super::*;
use crate::image::SparseImage;

fn byte_at(image: &SparseImage, sector: u64) -> u8 {
    let mut byte = [0];
    image.read(sector * 512, &mut byte);
    byte[0]
}

fn write(device: &RecordingDevice, sector: u64, value: u8, flags: BioFlags) {
    let memory = vec![value; 1024];
    device.execute(&mut [Bio::write(Sector(sector), &memory, flags)]).unwrap();
}

/// Rule 1 of the module head: flushed and FUA writes are in every image, the rest in every combination.
#[test]
fn only_unflushed_writes_can_be_lost() {
    let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
    write(&device, 0, 1, BioFlags::SYNC);
    (&*device as &dyn BlockDevice).flush().unwrap();
    device.mark(10);
    write(&device, 4, 2, BioFlags::SYNC);
    write(&device, 8, 3, BioFlags::FUA);
    write(&device, 12, 4, BioFlags::SYNC);
    let recording = device.recording();
    let points: Vec<_> = recording.crash_points().collect();
    // Before the flush, before the FUA write completed, and the end.
    assert_eq!(points.len(), 3);
    assert_eq!((points[0].unflushed_count(), points[0].marks().len()), (1, 0));
    assert_eq!((points[2].unflushed_count(), points[2].marks()), (2, &[10][..]));
    let mut seen = Vec::new();
    for fates in points[2].fates(100, Tearing::Never, 1) {
        let image = points[2].image(&fates);
        assert_eq!((byte_at(&image, 0), byte_at(&image, 8)), (1, 3));
        seen.push((byte_at(&image, 4), byte_at(&image, 12)));
    }
    seen.sort_unstable();
    assert_eq!(seen, [(0, 0), (0, 4), (2, 0), (2, 4)]);
}

/// A crash may come before a FUA write has completed: lost, torn or whole, with and without the unflushed write before it.
#[test]
fn fua_write_can_be_lost_or_torn_until_it_has_completed() {
    let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
    write(&device, 4, 1, BioFlags::SYNC);
    write(&device, 8, 2, BioFlags::FUA);
    device.mark(1);
    let recording = device.recording();
    let mut seen = BTreeSet::new();
    for point in recording.crash_points() {
        for fates in point.fates(100, Tearing::Allowed, 1) {
            let image = point.image(&fates);
            let fua = [byte_at(&image, 8), byte_at(&image, 9)];
            assert!(fua == [2, 2] || point.marks().is_empty(), "lost after it had completed: {fua:?}");
            seen.insert((byte_at(&image, 4), fua));
        }
    }
    for before in [0, 1] {
        for fua in [[0, 0], [2, 0], [2, 2]] {
            assert!(seen.contains(&(before, fua)), "{before} and {fua:?} in no image: {seen:?}");
        }
    }
}

/// Rule 4: data of a PREFLUSH write never overtakes what was completed before it.
#[test]
fn preflush_comes_before_its_data() {
    let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
    write(&device, 0, 1, BioFlags::SYNC);
    write(&device, 4, 2, BioFlags::PREFLUSH | BioFlags::FUA);
    for point in device.recording().crash_points() {
        for fates in point.fates(100, Tearing::Never, 1) {
            let image = point.image(&fates);
            assert!(byte_at(&image, 4) == 0 || byte_at(&image, 0) == 1);
        }
    }
}

#[test]
fn later_durable_write_is_not_undone_by_an_earlier_one() {
    let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
    write(&device, 0, 1, BioFlags::SYNC);
    write(&device, 1, 2, BioFlags::FUA);
    let recording = device.recording();
    let last = recording.crash_points().last().unwrap();
    for fates in last.fates(100, Tearing::Allowed, 1) {
        assert_eq!(byte_at(&last.image(&fates), 1), 2);
    }
}

#[test]
fn torn_writes_keep_whole_sectors() {
    let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
    write(&device, 0, 1, BioFlags::SYNC);
    let recording = device.recording();
    let last = recording.crash_points().last().unwrap();
    let image = last.image(&[Fate::Torn { sectors: 1 }]);
    assert_eq!((byte_at(&image, 0), byte_at(&image, 1)), (1, 0));
}

/// The values of the first two sectors that cuts at the end may leave, by every pattern.
fn outcomes(device: &RecordingDevice) -> BTreeSet<(u8, u8)> {
    let recording = device.recording();
    let mut replay = recording.replay();
    replay.advance(recording.event_count());
    let point = replay.point();
    let image = |seed| point.image_after(Loss::KINDS[seed as usize % Loss::KINDS.len()], &(0..0), seed);
    (0..300).map(image).map(|image| (byte_at(&image, 0), byte_at(&image, 1))).collect()
}

/// Rules 2 and 3.
#[test]
fn a_sector_has_any_version_since_the_durable_one() {
    let one = |device: &RecordingDevice, sector: u64, value: u8, flags| {
        device.execute(&mut [Bio::write(Sector(sector), &[value; 512], flags)]).unwrap();
    };
    let device = RecordingDevice::on_image(SparseImage::filled(1 << 20, 0xa5));
    one(&device, 0, 1, BioFlags::NONE);
    one(&device, 0, 2, BioFlags::NONE);
    assert_eq!(outcomes(&device), BTreeSet::from([(1, 0xa5), (2, 0xa5), (0xa5, 0xa5)]));
    one(&device, 0, 3, BioFlags::FUA);
    one(&device, 1, 4, BioFlags::NONE);
    assert_eq!(outcomes(&device), BTreeSet::from([(3, 4), (3, 0xa5)]));
}

/// `count` writes of two sectors, none of them flushed.
fn unflushed(count: u64) -> Recording {
    let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
    (0..count).for_each(|number| write(&device, number * 8 + 8, number as u8 + 1, BioFlags::NONE));
    device.recording()
}

fn end(recording: &Recording) -> CrashPoint<'_> {
    recording.crash_points().last().unwrap()
}

/// All subsets if the limit allows it, each once.
#[test]
fn every_subset_is_tested_if_there_are_few() {
    let recording = unflushed(4);
    let all: BTreeSet<String> =
        end(&recording).fates(16, Tearing::Never, 1).iter().map(|fates| format!("{fates:?}")).collect();
    assert_eq!(all.len(), 16);
}

/// With many writes, the likely bugs are in a plan of 400 states.
#[test]
fn likely_bugs_come_first() {
    let recording = unflushed(40);
    let fates = end(&recording).fates(400, Tearing::Never, 1);
    assert_eq!(fates.len(), 400);
    let state = |is_kept: &dyn Fn(usize) -> bool| -> Vec<Fate> {
        (0..40).map(|at| if is_kept(at) { Fate::Whole } else { Fate::Lost }).collect()
    };
    for one in [0, 7, 39] {
        let states = [
            state(&|at| at != one),
            state(&|at| at == one),
            state(&|at| at < one),
            state(&|at| at > one),
            state(&|at| at < one || at == one + 1),
        ];
        for wanted in states {
            assert!(fates.contains(&wanted), "{one}: {wanted:?}");
        }
    }
}

/// A tear is at a multiple of the unit of the medium, and never in the superblock.
#[test]
fn tears_are_where_the_medium_allows_them() {
    let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
    let bytes = vec![1; 16 << 10];
    device.execute(&mut [Bio::write(Sector(0), &bytes, BioFlags::NONE)]).unwrap();
    let recording = device.recording();
    let torn = |tearing| -> BTreeSet<u32> {
        let fates = end(&recording).fates(1000, tearing, 1).into_iter().flatten();
        fates
            .filter_map(|fate| if let Fate::Torn { sectors } = fate { Some(sectors) } else { None })
            .collect()
    };
    assert_eq!(torn(Tearing::Pages), BTreeSet::from([8, 16, 24]));
    let sectors = torn(Tearing::Allowed);
    assert!(sectors.len() == 30 && !sectors.contains(&3), "{sectors:?}");
}

/// The states of a plan are at most the limit, and moments with few states keep all of theirs.
#[test]
fn a_plan_divides_its_states() {
    let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
    for group in 0..5 {
        for number in 0..=group * 2 {
            write(&device, (group * 16 + number) * 8 + 8, 1, BioFlags::NONE);
        }
        device.mark(group);
        (&*device as &dyn BlockDevice).flush().unwrap();
    }
    let recording = device.recording();
    let plan = recording.plan(PlanOptions { states: 100, ..PlanOptions::default() });
    let states: Vec<usize> = plan.moments.iter().map(|moment| moment.states).collect();
    assert!(plan.len() <= 100 && states[0] == 2, "{states:?}");
    let few = recording.plan(PlanOptions { states: 3, ..PlanOptions::default() });
    assert!(few.len() <= 3 && few.moments.last().unwrap().event == recording.event_count(), "{few:?}");
}

/// The smallest failing state of a failure that needs two lost writes and one kept.
#[test]
fn a_failing_state_is_shrunk() {
    let recording = unflushed(20);
    let point = end(&recording);
    let fails =
        |fates: &[Fate]| fates[3] == Fate::Lost && fates[11] != Fate::Whole && fates[12] == Fate::Whole;
    let mut first = vec![Fate::Lost; 20];
    (first[11], first[12]) = (Fate::Torn { sectors: 1 }, Fate::Whole);
    let smallest = point.shrunk(&first, 200, fails);
    let damaged: Vec<usize> = (0..20).filter(|at| smallest[*at] != Fate::Whole).collect();
    assert_eq!(damaged, [3, 11]);
    assert_eq!(smallest[11], Fate::Lost, "a lost write is simpler than a torn one");
}

/// Equal states have equal fingerprints, whatever writes they are made of.
#[test]
fn fingerprints_are_those_of_the_content() {
    let device = RecordingDevice::on_image(SparseImage::new(1 << 20));
    for value in [1, 2, 1] {
        write(&device, 8, value, BioFlags::NONE);
    }
    let recording = device.recording();
    let point = end(&recording);
    let fates = point.fates(100, Tearing::Allowed, 1);
    for (a, b) in fates.iter().flat_map(|a| fates.iter().map(move |b| (a, b))) {
        let is_same = point.image(a).same_content(&point.image(b));
        // Content that a write leaves as it was counts as changed.
        assert!(point.fingerprint(a) != point.fingerprint(b) || is_same, "{a:?} {b:?}");
        assert!(
            !is_same
                || point.fingerprint(a) == point.fingerprint(b)
                || byte_at(&point.image(a), 8) == 0
                || byte_at(&point.image(a), 9) == 0
        );
        assert!(point.device(a).image().same_content(&point.image(a)));
    }
}
