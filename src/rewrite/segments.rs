//! Cuts the inputs of a group into runs (one after another into files, each run for itself) and segments (one worker each),
//! keeping their order, so that rows that were neighbours stay neighbours. Pure.

/// Something that is read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadUnit {
    pub task: usize,
    /// The row group of a large file, or `None` for a whole small one.
    pub row_group: Option<usize>,
    pub bytes: u64,
}

/// Inputs of one sequence of output files, cut into segments.
pub(crate) type InputSegments = Vec<Vec<ReadUnit>>;

/// Cuts `items` into at most `count` runs of about the same size, and those into segments of about `segment_bytes` at most.
pub(crate) fn runs(items: &[ReadUnit], count: u64, segment_bytes: u64) -> Vec<InputSegments> {
    cut(items, count)
        .into_iter()
        .map(|run| {
            let bytes: u64 = run.iter().map(|i| i.bytes).sum();
            cut(run, bytes.div_ceil(segment_bytes.max(1))).into_iter().map(<[ReadUnit]>::to_vec).collect()
        })
        .collect()
}

/// Contiguous parts of about the same number of bytes, at most `parts` and none empty.
fn cut(items: &[ReadUnit], parts: u64) -> Vec<&[ReadUnit]> {
    let total: u128 = items.iter().map(|i| u128::from(i.bytes)).sum();
    let parts = u128::from(parts.max(1));
    let mut cuts = Vec::new();
    let (mut start, mut before, mut current) = (0, 0u128, None);
    for (i, item) in items.iter().enumerate() {
        // An item belongs to the part that holds its middle.
        let part = ((before * 2 + u128::from(item.bytes)) * parts / (total * 2).max(1)).min(parts - 1);
        if current.is_some_and(|c| c != part) {
            cuts.push(&items[start..i]);
            start = i;
        }
        current = Some(part);
        before += u128::from(item.bytes);
    }
    if start < items.len() {
        cuts.push(&items[start..]);
    }
    cuts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn items(sizes: &[u64]) -> Vec<ReadUnit> {
        sizes.iter().enumerate().map(|(task, bytes)| ReadUnit { task, row_group: None, bytes: *bytes }).collect()
    }

    fn sizes(runs: &[InputSegments]) -> Vec<Vec<u64>> {
        runs.iter().map(|run| run.iter().map(|s| s.iter().map(|i| i.bytes).sum()).collect()).collect()
    }

    #[test]
    fn outputs_are_of_about_the_same_size_and_in_order() {
        let cut = runs(&items(&[10; 12]), 3, 1000);
        assert_eq!(sizes(&cut), [[40], [40], [40]]);
        assert_eq!(cut[1][0][0].task, 4);
        assert_eq!(sizes(&runs(&items(&[10; 12]), 2, 30)), [[30, 30], [30, 30]]);
    }

    #[test]
    fn a_large_item_makes_no_empty_part() {
        assert_eq!(sizes(&runs(&items(&[100, 1, 1]), 3, 1000)), [vec![100], vec![2]]);
        assert_eq!(sizes(&runs(&items(&[0, 0]), 1, 1)), [[0]]);
        assert!(runs(&[], 3, 10).is_empty());
    }

    proptest! {
        #[test]
        fn every_item_comes_out_once_and_in_order(sizes in proptest::collection::vec(0u64..50, 0..40), outputs in 1u64..9, segment in 1u64..99) {
            let input = items(&sizes);
            let cut = runs(&input, outputs, segment);
            prop_assert!(cut.len() as u64 <= outputs);
            prop_assert!(cut.iter().flatten().all(|s| !s.is_empty()));
            prop_assert_eq!(cut.concat().concat(), input);
        }
    }
}
