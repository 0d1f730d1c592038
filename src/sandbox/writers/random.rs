//! Numbers that look random and are always the same.

/// The seed of everything the writers make up.
const SEED: u64 = 0x1CE5_BE26_0000_0001;

/// A number for an item of a commit, and for a purpose among several. (The mixing is that of SplitMix64.)
pub(super) fn number(checkpoint: u64, item: u64, purpose: u64) -> u64 {
    let mut z = SEED
        .wrapping_add(checkpoint.wrapping_mul(0x9E37_79B9_7F4A_7C15))
        .wrapping_add(item.wrapping_mul(0xD1B5_4A32_D192_ED03))
        .wrapping_add(purpose.wrapping_mul(0x8CB9_2BA7_2F3D_8DD7));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number below `limit`.
pub(super) fn below(limit: u64, checkpoint: u64, item: u64, purpose: u64) -> u64 {
    number(checkpoint, item, purpose) % limit.max(1)
}

pub(super) fn pick<'a>(choices: &[&'a str], checkpoint: u64, item: u64, purpose: u64) -> &'a str {
    let index = below(choices.len() as u64, checkpoint, item, purpose);
    usize::try_from(index).ok().and_then(|i| choices.get(i).copied()).unwrap_or_default()
}
