//! When an output file has enough row groups. Pure.
//!
//! A file is closed where all files so far are closest to the target on average. With row groups of at most
//! [`Filling::row_group_bytes`] every file but a run's last one holds about three quarters of the target at least, whatever
//! encoding makes of the inputs' sizes: planning relies on that (`Sizes::is_full`).

/// Bytes of a file beside its row groups: indexes and footer, at first guess.
const FOOTER_RESERVE: u64 = 64 << 10;

/// The sizes that output files shall have, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Filling {
    target: u64,
    max: u64,
}

impl Filling {
    /// Files of about `target` bytes, none larger than `max`.
    pub(crate) fn new(target: u64, max: u64) -> Self {
        let max = max.max(1);
        Self { target: target.clamp(1, max), max }
    }

    /// Encoded bytes at which a row group ends, where the table asks for `wanted`: at least four make a file, so that it ends
    /// near the target, and one more must not bring a file that is nearly full past the maximum.
    pub(crate) fn row_group_bytes(self, wanted: u64) -> u64 {
        let room = self.max.saturating_sub(self.target / 8 * 7).max(self.target / 8);
        wanted.min(self.target / 4).min(room).max(1)
    }

    /// Whether a file of `bytes` can take a row group of `next` bytes.
    pub(crate) fn fits(self, bytes: u64, next: u64) -> bool {
        let reserve = FOOTER_RESERVE.min(self.max / 16).saturating_add(bytes / 200);
        bytes.saturating_add(next).saturating_add(reserve) <= self.max
    }
}

/// Follows a run and decides where its files end.
#[derive(Debug)]
pub(crate) struct Filler {
    filling: Filling,
    /// Whether the run's bytes are spread evenly over its files, so that it leaves no small last one.
    even: bool,
    /// Input bytes of the segments to come, the current one first.
    segments: std::vec::IntoIter<u64>,
    current: u64,
    left: u64,
    /// Of the segments that are done.
    input: u64,
    output: u64,
    output_of_current: u64,
    /// What the open file shall have.
    file_target: u64,
    /// By how much the files so far miss the target together, of what can be made up for by the next one.
    missing: i64,
}

impl Filler {
    /// For a run whose segments have so many input bytes each.
    pub(crate) fn new(filling: Filling, even: bool, segments: Vec<u64>) -> Self {
        let left = segments.iter().sum();
        let (input, output, output_of_current) = (0, 0, 0);
        let mut segments = segments.into_iter();
        let current = segments.next().unwrap_or(0);
        Self {
            filling,
            even,
            segments,
            current,
            left,
            input,
            output,
            output_of_current,
            file_target: filling.target,
            missing: 0,
        }
    }

    /// Whether the open file of `file` bytes, if there is one, is to be closed before a row group of `next` bytes is added to
    /// the run.
    pub(crate) fn ends_before(&mut self, file: Option<u64>, next: u64) -> bool {
        let to_come = self.to_come().max(next);
        self.output_of_current = self.output_of_current.saturating_add(next);
        let Some(bytes) = file else {
            self.begin_file(to_come);
            return false;
        };
        let ends = if !self.filling.fits(bytes, next) {
            true
        } else if self.filling.fits(bytes, to_come) {
            // Everything that is left fits: a small last file is not worth it.
            false
        } else {
            bytes.saturating_add(next / 2) >= self.file_target
        };
        if ends {
            let most = self.filling.target / 8;
            self.missing =
                difference(self.filling.target, bytes).saturating_add(self.missing).clamp(-signed(most), signed(most));
            self.begin_file(to_come);
        }
        ends
    }

    /// The current segment has given all its row groups.
    pub(crate) fn end_segment(&mut self) {
        self.input = self.input.saturating_add(self.current);
        self.output = self.output.saturating_add(self.output_of_current);
        self.left = self.left.saturating_sub(self.current);
        (self.current, self.output_of_current) = (self.segments.next().unwrap_or(0), 0);
    }

    /// Output bytes to come, about: what is left of the input, in the proportion seen so far.
    fn to_come(&self) -> u64 {
        let left = u128::from(self.left);
        let scaled = match (self.input, self.output) {
            (0, _) => left,
            (input, output) => left * u128::from(output) / u128::from(input),
        };
        u64::try_from(scaled).unwrap_or(u64::MAX).saturating_sub(self.output_of_current)
    }

    fn begin_file(&mut self, to_come: u64) {
        let target = self.filling.target;
        self.file_target = target.saturating_add_signed(self.missing).min(self.filling.max);
        if self.even {
            // What does not fit one file makes two, small as they may be.
            let least = if self.filling.fits(0, to_come) { 1 } else { 2 };
            let files = (to_come.saturating_add(target / 2) / target).max(least);
            self.file_target = (to_come / files).min(self.filling.max);
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn difference(a: u64, b: u64) -> i64 {
    signed(a).saturating_sub(signed(b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sizes of the files that these row groups, by segment, become. Each segment has `input` times its output as input.
    fn files(filling: Filling, even: bool, segments: &[Vec<u64>], input: f64) -> Vec<u64> {
        let inputs = segments.iter().map(|groups| (groups.iter().sum::<u64>() as f64 * input) as u64).collect();
        let mut filler = Filler::new(filling, even, inputs);
        let mut files: Vec<u64> = Vec::new();
        for groups in segments {
            for group in groups {
                if filler.ends_before(files.last().copied(), *group) || files.is_empty() {
                    files.push(0);
                }
                *files.last_mut().expect("one is open") += group;
            }
            filler.end_segment();
        }
        files
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn files_are_filled_to_the_target_and_a_small_rest_joins_the_last() {
        let filling = Filling::new(100 * MIB, 140 * MIB);
        let of = |groups: u64| files(filling, false, &vec![vec![10 * MIB]; groups as usize], 1.0);
        assert_eq!(of(20), [100 * MIB, 100 * MIB]);
        assert_eq!(of(25), [100 * MIB, 100 * MIB, 50 * MIB]);
        assert_eq!(of(23), [100 * MIB, 130 * MIB]);
        assert_eq!(of(3), [30 * MIB]);
        // Six row groups are a little less than the target, seven are more.
        let uneven = files(filling, false, &vec![vec![16 * MIB]; 44], 1.0);
        assert_eq!(uneven, [96, 96, 112, 96, 96, 96, 112].map(|mib| mib * MIB));
    }

    #[test]
    fn a_run_that_others_follow_leaves_no_small_file() {
        let filling = Filling::new(100 * MIB, 140 * MIB);
        // The first guess is that what goes in comes out; here it is three times as much.
        let files = files(filling, true, &vec![vec![10 * MIB]; 85], 3.0);
        assert!(files.iter().all(|bytes| (90 * MIB..=120 * MIB).contains(bytes)), "{files:?}");
    }

    #[test]
    fn a_row_group_larger_than_a_file_has_one_of_its_own() {
        let filling = Filling::new(100 * MIB, 140 * MIB);
        assert_eq!(files(filling, false, &[vec![200 * MIB], vec![MIB], vec![MIB]], 1.0), [200 * MIB, 2 * MIB]);
    }

    proptest! {
        /// Where many files follow, none of a run is small, unless encoding leaves less than one file of it all.
        #[test]
        fn a_run_that_others_follow_has_full_files_only(
            target in 2 * MIB..600 * MIB,
            (count, share) in (80..300_usize, 30..=100_u64),
            input in 0.2..5.0_f64,
        ) {
            let filling = Filling::new(target, target / 5 * 7);
            let segments = vec![vec![filling.row_group_bytes(128 * MIB) * share / 100]; count];
            let files = files(filling, true, &segments, input);
            prop_assert!(files.iter().all(|bytes| *bytes as f64 >= target as f64 * 0.7), "{:?}", files);
        }

        #[test]
        fn every_file_but_the_last_is_full_and_none_too_large(
            (target, more) in (2 * MIB..600 * MIB, 0..400 * MIB),
            shares in prop::collection::vec(prop::collection::vec(1..=100_u64, 0..6), 0..60),
            input in 0.05..20.0_f64,
        ) {
            let filling = Filling::new(target, target + more);
            let largest = filling.row_group_bytes(128 * MIB);
            let segments: Vec<Vec<u64>> =
                shares.iter().map(|s| s.iter().map(|share| (largest * share / 100).max(1)).collect()).collect();
            let files = files(filling, false, &segments, input);
            prop_assert_eq!(files.iter().sum::<u64>(), segments.iter().flatten().sum::<u64>());
            prop_assert!(files.iter().all(|bytes| *bytes <= target + more), "{:?}", files);
            let full = target as f64 * 0.74;
            prop_assert!(files.iter().rev().skip(1).all(|bytes| *bytes as f64 >= full), "{:?}", files);
        }
    }
}
