//! Invariant 10: damaged images get errors or answers, nothing worse. The long campaign is `cargo xtask fuzz`.

mod fuzz;

/// Cases of the campaign that were found to fail once, each with the fault that it showed.
const ONCE_FAILED: &[u64] = &[
    // Directories below themselves: a walk without end.
    1_000_079, 1_000_211,
];

#[test]
fn damaged_images_get_errors_or_answers() {
    let campaign = fuzz::Campaign::new();
    let (mut opened, mut problems, mut failed) = ([0, 0], 0, Vec::new());
    for case in ONCE_FAILED.iter().copied().chain(0..150) {
        match campaign.run(case) {
            Ok(outcome) => {
                (0..2).for_each(|which| opened[which] += u64::from(outcome.opened[which]));
                problems += outcome.problems;
            }
            Err(what) => failed.push(what),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    // The damage is neither none nor such that nothing can be tried.
    assert!(opened[0] > 75 && opened[1] > 75 && problems > 75, "{opened:?} opened, {problems} problems");
}
