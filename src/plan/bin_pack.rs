//! Packing files into groups, as the reference does with a lookback of one: only the last bin is open.

/// Splits `items`, in their order, into bins of at most `max_weight` and at most `max_items` each (at least one item:
/// something heavier than `max_weight` has a bin of its own).
pub fn pack<T>(
    items: impl IntoIterator<Item = T>,
    weight: impl Fn(&T) -> u64,
    max_weight: u64,
    max_items: usize,
) -> Vec<Vec<T>> {
    let mut bins: Vec<Vec<T>> = Vec::new();
    let mut open_weight = 0_u64;
    for item in items {
        let item_weight = weight(&item);
        let sum = open_weight.checked_add(item_weight).filter(|sum| *sum <= max_weight);
        match (bins.last_mut(), sum) {
            (Some(open), Some(sum)) if open.len() < max_items => {
                open.push(item);
                open_weight = sum;
            }
            _ => {
                bins.push(vec![item]);
                open_weight = item_weight;
            }
        }
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::pack;

    fn packed(weights: &[u64], max_weight: u64, max_items: usize) -> Vec<Vec<u64>> {
        pack(weights.iter().copied(), |w| *w, max_weight, max_items)
    }

    #[test]
    fn only_the_last_bin_is_open() {
        assert_eq!(packed(&[6, 5, 4, 1], 10, 9), [vec![6], vec![5, 4, 1]]);
        // The 1 would fit beside the 6, but that bin is closed by then.
        assert_eq!(packed(&[6, 9, 1, 1], 10, 9), [vec![6], vec![9, 1], vec![1]]);
    }

    #[test]
    fn limits_are_inclusive_and_an_oversized_item_stands_alone() {
        assert_eq!(packed(&[5, 5, 11, 0, 3], 10, 9), [vec![5, 5], vec![11], vec![0, 3]]);
        assert_eq!(packed(&[1, 1, 1, 1, 1], 10, 2), [vec![1, 1], vec![1, 1], vec![1]]);
        assert_eq!(packed(&[u64::MAX, u64::MAX], u64::MAX, 9).len(), 2);
        assert!(packed(&[], 10, 9).is_empty());
    }
}
