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
