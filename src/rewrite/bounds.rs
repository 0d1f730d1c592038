//! Shorter lower and upper bounds of texts and bytes. Pure.

/// The first `length` characters: never above the text.
pub(crate) fn truncate_text_down(text: &str, length: usize) -> &str {
    match text.char_indices().nth(length) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// The least text of at most `length` characters that is not below any text starting like this one.
/// `None`: all of its characters are the last of Unicode.
pub(crate) fn truncate_text_up(text: &str, length: usize) -> Option<String> {
    let kept = truncate_text_down(text, length);
    if kept.len() == text.len() {
        return Some(text.to_string());
    }
    let mut characters: Vec<char> = kept.chars().collect();
    while let Some(last) = characters.pop() {
        // The code points of surrogates are no characters.
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            _ => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            characters.push(next);
            return Some(characters.into_iter().collect());
        }
    }
    None
}

pub(crate) fn truncate_bytes_down(bytes: &[u8], length: usize) -> &[u8] {
    &bytes[..length.min(bytes.len())]
}

/// The least value of at most `length` bytes that is not below any value starting like this one; `None` if all bytes are 255.
pub(crate) fn truncate_bytes_up(bytes: &[u8], length: usize) -> Option<Vec<u8>> {
    if bytes.len() <= length {
        return Some(bytes.to_vec());
    }
    let mut kept = bytes[..length].to_vec();
    while let Some(last) = kept.pop() {
        if last < u8::MAX {
            kept.push(last + 1);
            return Some(kept);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upper_bound_is_rounded_up() {
        assert_eq!(truncate_text_up("abc", 3).as_deref(), Some("abc"));
        assert_eq!(truncate_text_up("abcd", 3).as_deref(), Some("abd"));
        assert_eq!(truncate_text_up("ab\u{10ffff}d", 3).as_deref(), Some("ac"));
        assert_eq!(truncate_text_up("a\u{d7ff}x", 2).as_deref(), Some("a\u{e000}"));
        assert_eq!(truncate_text_up("\u{10ffff}\u{10ffff}", 1), None);
        assert_eq!(truncate_bytes_up(&[1, 255, 7], 2), Some(vec![2]));
        assert_eq!(truncate_bytes_up(&[255, 255, 7], 2), None);
        assert_eq!(truncate_bytes_up(&[255], 2), Some(vec![255]));
    }

    #[test]
    fn a_lower_bound_is_cut() {
        assert_eq!(truncate_text_down("äöü", 2), "äö");
        assert_eq!(truncate_text_down("ä", 2), "ä");
        assert_eq!(truncate_bytes_down(&[1, 2, 3], 2), [1, 2]);
    }
}
