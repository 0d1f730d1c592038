//! Texts that are kept for onlookers. What went wrong may be told at any length, such as with a server's whole answer.

/// Bytes kept of a text.
const TEXT_MAX: usize = 1 << 10;
const ELLIPSIS: &str = "…";

/// The text, or as much of its beginning as fits into 1 KiB together with an ellipsis.
pub(super) fn kept(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        text.truncate(text.floor_char_boundary(TEXT_MAX - ELLIPSIS.len()));
        text.push_str(ELLIPSIS);
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_two_characters() {
        let fits = "x".repeat(TEXT_MAX);
        assert_eq!(kept(fits.clone()), fits);
        assert_eq!(kept(fits + "x"), "x".repeat(TEXT_MAX - 3) + "…");
        // 1021 is in the middle of a character of four bytes.
        assert_eq!(kept("😀".repeat(300)), "😀".repeat(255) + "…");
    }
}
