use proptest::prelude::*;

use super::*;

impl Places {
    /// Places for tests: those at the given indices of the lattice, of a window that begins at
    /// `first`.
    fn of(first: [i32; 3], seen: &[[i32; 3]], before: &[[i32; 3]], within: &[[i32; 3]]) -> Self {
        let mut places = Self { side_m: 0.2, first, looked: 100, allowed: 2, ..Self::default() };
        let planes = [(&mut places.seen, seen), (&mut places.before, before), (&mut places.within, within)];
        for (rows, list) in planes {
            for at in list {
                let [x, y, z]: [usize; 3] = std::array::from_fn(|axis| (at[axis] - first[axis]) as usize);
                rows[z * PLACES_SIDE + y] |= 1 << x;
            }
        }
        places
    }
}

fn tool() -> Vector3<f32> {
    Vector3::zeros()
}

#[test]
fn what_hides_before_the_volume_always_counts_and_within_it_above_the_share() {
    let alone = |places: &Places| places.hidden_from_all(&tool(), std::iter::empty());
    assert_eq!(alone(&Places::default()), None);
    assert_eq!(alone(&Places::of([0; 3], &[[1, 1, 1]], &[], &[])), None);
    let found = alone(&Places::of([0; 3], &[], &[[3, 0, 4]], &[])).unwrap();
    // Its nearest corner lies at 0.6, 0, 0.8.
    assert!((found.distance_m - 1.0).abs() < 1e-6 && found.places == 1, "{found:?}");
    let within = [[1, 0, 0], [2, 0, 0], [3, 0, 0]];
    assert_eq!(alone(&Places::of([0; 3], &[], &[], &within[..2])), None);
    let found = alone(&Places::of([0; 3], &[], &[], &within)).unwrap();
    assert!((found.distance_m - 0.2).abs() < 1e-6 && found.places == 3, "{found:?}");
    // The tool within a hidden place.
    let found = alone(&Places::of([-3, -3, -3], &[], &[[-1, 0, -1]], &[])).unwrap();
    assert_eq!(found.distance_m, 0.0);
}

proptest! {
    #[test]
    fn what_one_camera_sees_is_seen_wherever_its_window_begins(
        at in prop::array::uniform3(0i32..16),
        off in prop::array::uniform3(-15i32..=15),
        first in prop::array::uniform3(-40i32..40),
    ) {
        let place: [i32; 3] = std::array::from_fn(|axis| first[axis] + at[axis]);
        let other: [i32; 3] = std::array::from_fn(|axis| first[axis] + off[axis]);
        let hidden = Places::of(first, &[], &[place], &[]);
        let in_window = (0..3).all(|axis| (0..16).contains(&(place[axis] - other[axis])));
        if in_window {
            let seen = Places::of(other, &[place], &[], &[]);
            prop_assert_eq!(hidden.hidden_from_all(&tool(), [&seen].into_iter()), None);
            let coarser = Places { side_m: 0.3, ..seen };
            prop_assert!(hidden.hidden_from_all(&tool(), [&coarser].into_iter()).is_some());
        }
        // Another place that is seen changes nothing.
        let beside: [i32; 3] = std::array::from_fn(|axis| place[axis] + i32::from(axis == 0));
        if (0..3).all(|axis| (0..16).contains(&(beside[axis] - other[axis]))) {
            let seen = Places::of(other, &[beside], &[], &[]);
            prop_assert!(hidden.hidden_from_all(&tool(), [&seen].into_iter()).is_some());
        }
    }

    #[test]
    fn words_are_the_places_and_any_words_are_some(seed in prop::array::uniform32(any::<u64>())) {
        let mut words = [0; Places::WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = seed[index % 32].rotate_left(index as u32);
        }
        let places = Places::from_words(&words);
        prop_assert_eq!(Places::from_words(&places.words()).words(), places.words());
        let others = [&places, &places];
        let _ = places.hidden_from_all(&tool(), others.into_iter());
        let _ = Places { side_m: 0.1, ..places }.hidden_from_all(&tool(), others.into_iter());
    }
}

/// Depth by a function of column and row.
struct Picture<F>(F);

impl<F: Fn(usize, usize) -> (Option<f32>, End)> Samples for Picture<F> {
    fn depth_m(&self, column: usize, row: usize) -> Option<f32> {
        self.0(column, row).0
    }

    fn end(&mut self, column: usize, row: usize) -> End {
        self.0(column, row).1
    }
}

fn limits(max_hidden_s: f32) -> Limits {
    Limits { radius_m: 1.0, max_hidden: 0.3, max_hidden_s, hidden_m: 0.08 }
}

#[test]
fn a_strip_as_wide_as_a_hand_hides_and_a_cable_does_not() {
    let config = crate::config::OccupancyConfig::default();
    let intrinsics = crate::testing::intrinsics();
    let mut scene = Scene::new(&config, &intrinsics, 150, 10_000);
    scene.place(&crate::testing::pose());
    let mut looker = Looker::new(limits(3.0), 4, &intrinsics);
    let tcp = Point3::new(3.0, 0.0, 1.0);
    let mut hidden = |low: usize, width: usize, upright: bool| {
        let strip = move |column: usize, row: usize| {
            let at = if upright { column } else { row };
            (Some(if (low..low + width).contains(&at) { 0.5 } else { 8.0 }), End::Before)
        };
        let mut out = Places::default();
        looker.look(&scene, &tcp, 7, [0, 0, 96, 72], &mut Picture(strip), &mut out);
        out.hidden_before()
    };
    // A place is 0.13 m wide; at 2.9 m, in the middle of what is near the tool, 0.16 m are 4
    // samples.
    for low in 30..50 {
        assert!(hidden(low, 4, true) > 0, "upright at {low}");
        assert!(hidden(low, 1, true) == 0, "a cable at {low}");
    }
    for low in 22..42 {
        assert!(hidden(low, 4, false) > 0, "lying at {low}");
        assert!(hidden(low, 1, false) == 0, "a cable at {low}");
    }
}

#[test]
fn what_something_within_the_volume_hides_for_long_counts_and_what_it_hides_in_passing_does_not() {
    let config = crate::config::OccupancyConfig::default();
    let intrinsics = crate::testing::intrinsics();
    let mut scene = Scene::new(&config, &intrinsics, 150, 10_000);
    scene.place(&crate::testing::pose());
    let mut looker = Looker::new(limits(2.0), 4, &intrinsics);
    let mut look = |at_ms: u64, hides: bool, x_m: f32| {
        let depth = move |column: usize, _: usize| {
            (Some(if hides && (40..52).contains(&column) { 2.05 } else { 8.0 }), End::Within)
        };
        let mut out = Places::default();
        let tcp = Point3::new(x_m, 0.0, 1.0);
        looker.look(&scene, &tcp, at_ms * 1_000_000, [0, 0, 96, 72], &mut Picture(depth), &mut out);
        (out.hidden_before(), out.hidden_within())
    };
    // Somebody who passes again and again, each time for less than two seconds.
    for round in 0..4 {
        for at in [0, 500, 1900] {
            let (before, within) = look(round * 3000 + at, true, 3.0);
            assert!(before == 0 && within > 20, "{round} {at}: {before} {within}");
        }
        assert_eq!(look(round * 3000 + 2000, false, 3.0), (0, 0));
    }
    // Something that stays.
    assert_eq!(look(20_000, true, 3.0).0, 0);
    assert_eq!(look(21_999, true, 3.0).0, 0);
    let (before, within) = look(22_000, true, 3.0);
    assert!(before > 20 && within == 0, "{before} {within}");
    // The tool goes away and comes back, and nobody looked at the places meanwhile.
    look(22_100, true, 4.9);
    assert!(look(22_200, true, 3.0).0 > 20);
    // A stamp of the future keeps nothing free, and one of the past makes nothing old.
    assert_eq!(look(23_000, false, 3.0), (0, 0));
    assert_eq!(look(9_000_000, true, 3.0).0, 0);
    assert_eq!(look(24_000, true, 3.0).0, 0);
    assert!(look(26_000, true, 3.0).0 > 20);
}

#[test]
fn hidden_places_are_those_whose_samples_end_before_them() {
    let config = crate::config::OccupancyConfig::default();
    let intrinsics = crate::testing::intrinsics();
    let mut scene = Scene::new(&config, &intrinsics, 150, 10_000);
    scene.place(&crate::testing::pose());
    let mut looker = Looker::new(limits(3.0), 4, &intrinsics);
    let looker = &mut looker;
    let tcp = Point3::new(3.0, 0.0, 1.0);
    let mut look = |picture: &dyn Fn(usize, usize) -> (Option<f32>, End)| {
        let mut out = Places::default();
        looker.look(&scene, &tcp, 7, [0, 0, 96, 72], &mut Picture(picture), &mut out);
        out
    };
    let clear = look(&|_, _| (Some(8.0), End::Before));
    assert!(clear.looked() > 1000 && clear.hidden_share() == 0.0, "{clear:?}");
    let covered = look(&|_, _| (Some(0.5), End::Before));
    assert_eq!((covered.hidden_before(), covered.hidden_within()), (covered.looked(), 0));
    let left = look(&|column, _| (Some(if column < 48 { 2.05 } else { 8.0 }), End::Within));
    assert!((left.hidden_share() - 0.5).abs() < 0.08 && left.hidden_before() == 0, "{left:?}");
    for unsure in [(None, End::Before), (Some(0.5), End::Explained), (Some(0.5), End::Unknown)] {
        assert_eq!(look(&|_, _| unsure).hidden_share(), 0.0, "{unsure:?}");
    }
    // In the volume, but near the lens.
    let near = look(&|_, _| (Some(0.5), End::Within));
    assert_eq!((near.hidden_before(), near.hidden_within()), (near.looked(), 0));
    // A cloth of which half is not measured.
    let gaps = look(&|column, row| (((column + row) % 2 == 0).then_some(0.5), End::Before));
    assert!(gaps.hidden_share() > 0.9, "{gaps:?}");
    // Depth in the middle of the zone: what is before it is seen, what is behind is not.
    let half = look(&|_, _| (Some(3.0), End::Within));
    assert!((half.hidden_share() - 0.45).abs() < 0.1, "{half:?}");
    // A zone outside of the volume, or behind the camera, has no places.
    let mut out = clear;
    for tcp in [Point3::new(9.0, 0.0, 1.0), Point3::new(-3.0, 0.0, 1.0), Point3::new(f32::NAN, 0.0, 0.0)] {
        let covered = &mut Picture(|_, _| (Some(0.5), End::Before));
        looker.look(&scene, &tcp, 7, [0, 0, 96, 72], covered, &mut out);
        assert_eq!((out.looked(), out.hidden_before()), (0, 0), "{tcp}");
    }
}
