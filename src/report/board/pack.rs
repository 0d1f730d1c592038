//! JSON that is looked at now and then: kept compressed, so that what is shown of many tables takes little memory.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

/// Text longer than this is not kept, in bytes.
const TEXT_MAX: usize = 4 << 20;
/// Speed before size.
const LEVEL: i32 = 1;

/// A value as compressed JSON; a copy shares it.
#[derive(Debug, Clone, Default)]
pub(super) struct Packed(Option<Arc<[u8]>>);

impl Packed {
    /// Keeps a value; one whose text is longer than 4 MiB is forgotten.
    pub(super) fn new(value: &impl Serialize) -> Self {
        let text = serde_json::to_vec(value).ok().filter(|text| text.len() <= TEXT_MAX);
        Self(text.and_then(|text| zstd::bulk::compress(&text, LEVEL).ok()).map(Arc::from))
    }

    /// The value; `None` if nothing is kept.
    pub(super) fn get(&self) -> Option<Box<RawValue>> {
        let text = zstd::bulk::decompress(self.0.as_deref()?, TEXT_MAX).ok()?;
        RawValue::from_string(String::from_utf8(text).ok()?).ok()
    }

    /// The value, which is a list; `[]` if nothing is kept.
    pub(super) fn list(&self) -> Box<RawValue> {
        self.get().unwrap_or_else(|| serde_json::value::to_raw_value(&[(); 0]).unwrap_or_default())
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |packed| packed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_nothing_takes_too_much() {
        let repeated = vec!["the same text again"; 1000];
        let packed = Packed::new(&repeated);
        assert_eq!(packed.get().expect("kept").get(), serde_json::to_string(&repeated).expect("text"));
        assert!(packed.bytes() < 500, "{}", packed.bytes());
        assert!(Packed::new(&"x".repeat(TEXT_MAX)).get().is_none(), "too long with its quotes");
        assert_eq!(Packed::default().list().get(), "[]");
    }
}
