use super::*;

fn point(mean: u64, max: u64) -> Point {
    Point { mean, max }
}

/// A fixed sequence of numbers without a pattern.
fn noise(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn a_mean_is_rounded_and_a_maximum_is_kept() {
    assert_eq!(Point::over([]), None);
    assert_eq!(Point::over([point(1, 1), point(2, 9), point(2, 2)]), Some(point(2, 9)));
    assert_eq!(Point::over([point(1, 1), point(2, 2)]), Some(point(2, 2)));
    assert_eq!(
        Point::over([point(u64::MAX, u64::MAX); 3]),
        Some(point(u64::MAX, u64::MAX)),
        "the sum does not overflow"
    );
}

#[test]
fn blocks_read_back() {
    let mut block = Block::default();
    let values = [0, 0, 7, 7, 7, 3, u64::MAX, 0, 1 << 63, 5];
    for (slot, mean) in values.into_iter().enumerate() {
        block.set(Metric::Memory, slot, point(mean, mean.saturating_add(slot as u64)));
    }
    block.set(Metric::JobsQueued, 2, point(4, 4));
    block.set(Metric::JobsQueued, 8, point(5, 6));
    let bytes = block.to_bytes();
    assert_eq!(Block::parse(&bytes, 10), Ok(block.clone()));
    let queued: Vec<_> = block.points(Metric::JobsQueued).collect();
    assert_eq!(queued, [(2, point(4, 4)), (8, point(5, 6))]);
    assert_eq!(Block::parse(&bytes, 9), Err(BlockError), "more slots than a block has");
    for cut in 1..bytes.len() {
        let whole_columns = Block::parse(&bytes[..cut], 10).map(|read| read.metrics().count());
        assert!(matches!(whole_columns, Err(BlockError) | Ok(1)), "{cut}: {whole_columns:?}");
    }
    block.clear(8);
    assert_eq!(block.points(Metric::JobsQueued).collect::<Vec<_>>(), [(2, point(4, 4))]);
    block.clear(2);
    assert_eq!(block.metrics().collect::<Vec<_>>(), [Metric::Memory]);
}

#[test]
fn any_bytes_and_any_points_are_read() {
    let mut seed = 42;
    for round in 0..2_000 {
        let mut block = Block::default();
        for metric in [Metric::Cpu, Metric::Gpu, Metric::NodesIdle] {
            for slot in 0..(noise(&mut seed) % 60) as usize {
                let mean = noise(&mut seed) >> (noise(&mut seed) % 64);
                if !noise(&mut seed).is_multiple_of(3) {
                    let max = mean.saturating_add(noise(&mut seed) % 3);
                    block.set(metric, slot, point(mean, max));
                }
            }
        }
        let mut bytes = block.to_bytes();
        assert_eq!(Block::parse(&bytes, 60).as_ref(), Ok(&block), "round {round}");
        if !bytes.is_empty() {
            let place = noise(&mut seed) as usize % bytes.len();
            bytes[place] ^= 1 << (noise(&mut seed) % 8);
            let _ = Block::parse(&bytes, 60); // It must not panic.
        }
    }
}

#[test]
fn a_metric_that_does_not_change_takes_a_few_bytes() {
    let mut block = Block::default();
    for slot in 0..60 {
        block.set(Metric::NodesIdle, slot, Point::sample(400));
    }
    // Code, slots, a difference of two bytes, a run; then one run of excesses.
    assert_eq!(block.to_bytes().len(), 1 + 1 + 2 + 2 + 2);
    let mut block = Block::default();
    for slot in 0..60 {
        block.set(Metric::Cpu, slot, Point::sample(1_000 + (slot as u64 % 2) * 20));
    }
    assert!(block.to_bytes().len() <= 60 + 6, "{}", block.to_bytes().len());
}

#[test]
fn intervals_are_filled_from_the_preferred_level_first() {
    let fine: Points = [(600, point(1, 1)), (660, point(3, 8)), (1_200, point(5, 5))].into();
    let coarse: Points = [(0, point(9, 9)), (600, point(2, 7))].into();
    let filled = fill(std::slice::from_ref(&fine), &[], 600);
    assert_eq!(filled, [(600, point(2, 8)), (1_200, point(5, 5))].into());
    let both = fill(&[coarse.clone(), fine.clone()], &[], 600);
    assert_eq!(both, [(0, point(9, 9)), (600, point(2, 7)), (1_200, point(5, 5))].into());
    // A gap in the fine points is not filled with a mean over much more than the gap.
    let gap: Points = [(0, point(1, 1)), (120, point(1, 1))].into();
    let hours: Points = [(60, point(4, 4))].into();
    assert_eq!(fill(std::slice::from_ref(&gap), &[(3_600, hours)], 60), gap);
    // Nor is the first interval of the fine points preceded by a mean that includes it.
    let minutes: Points = [(0, point(1, 1)), (60, point(2, 2))].into();
    let begun: Points = [(70, point(5, 5))].into();
    let both = fill(std::slice::from_ref(&begun), &[(60, minutes)], 10);
    assert_eq!(both, [(0, point(1, 1)), (70, point(5, 5))].into());
    let finest = fill(&[fine], &[(600, coarse)], 60);
    assert_eq!(finest.keys().copied().collect::<Vec<_>>(), [0, 600, 660, 1_200]);
    assert_eq!(finest[&600], point(1, 1));
}

#[test]
fn blocks_and_points_of_levels_nest() {
    for levels in [Level::OF_CLUSTERS, Level::OF_NODES] {
        for pair in levels.windows(2) {
            let [fine, coarse] = pair else { unreachable!("a window of two") };
            assert_eq!(fine.block_s % coarse.step_s, 0, "a coarse point needs one fine block");
            assert!(fine.kept_s >= coarse.step_s + fine.block_s, "it is there when it is needed");
            assert_eq!(coarse.block_s % fine.block_s, 0);
        }
    }
}

#[test]
fn metrics_have_distinct_codes_and_names() {
    let codes: BTreeSet<u8> = Metric::ALL.map(Metric::code).into();
    assert_eq!(codes.len(), Metric::ALL.len());
    for metric in Metric::ALL {
        assert_eq!(Metric::of_code(metric.code()), Some(metric));
        assert_eq!(metric.as_str().parse(), Ok(metric));
    }
    assert!("nodes".parse::<Metric>().is_err());
}
