//! Avro values, decoded in place by the writer's schema: what is wanted is read, the rest is stepped over.
//!
//! Input is not trusted. Every length is checked against the bytes that are left before anything is allocated, nesting is
//! limited, and every error names the file and the offset. Encoding is limited to what manifests need.

pub(crate) use super::avro_schema::{Field, Logical, Type, TypeKind};
use crate::error::{Error, Result};

/// Reads values from a decompressed block.
#[derive(Debug, Clone)]
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    file: &'a str,
    block_at: usize,
}

impl<'a> Decoder<'a> {
    /// A decoder of `bytes`, which belong to the block at byte `block_at` of `file`.
    pub(crate) fn new(bytes: &'a [u8], file: &'a str, block_at: usize) -> Self {
        Self { bytes, at: 0, file, block_at }
    }

    pub(crate) fn error(&self, what: impl std::fmt::Display) -> Error {
        let Self { file, block_at, at, .. } = self;
        Error::invalid(format!("{file}: avro data at byte {block_at}, offset {at} inside: {what}"))
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// What was consumed since `start`, a former [`Self::position`].
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    pub(crate) fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        match self.at.checked_add(n).and_then(|end| self.bytes.get(self.at..end)) {
            Some(bytes) => {
                self.at += n;
                Ok(bytes)
            }
            None => Err(self.error(format!("{n} bytes wanted, {} left", self.remaining()))),
        }
    }

    /// A zigzag variable-length integer.
    pub(crate) fn long(&mut self) -> Result<i64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                #[allow(clippy::cast_possible_wrap, reason = "zigzag maps the whole range")]
                return Ok((value >> 1) as i64 ^ -((value & 1) as i64));
            }
        }
        Err(self.error("integer longer than 64 bits"))
    }

    /// A length that fits what is left.
    fn length(&mut self) -> Result<usize> {
        let n = self.long()?;
        match usize::try_from(n) {
            Ok(n) if n <= self.remaining() => Ok(n),
            _ => Err(self.error(format!("length {n} exceeds the {} bytes left", self.remaining()))),
        }
    }

    /// Length-prefixed bytes.
    pub(crate) fn raw_bytes(&mut self) -> Result<&'a [u8]> {
        let n = self.length()?;
        self.take(n)
    }

    /// The branch of a union that follows, or the type itself. A null is `None`.
    pub(crate) fn branch<'t>(&mut self, ty: &'t Type) -> Result<Option<&'t Type>> {
        let chosen = match &ty.kind {
            TypeKind::Union(branches) => {
                let n = self.long()?;
                let branch = usize::try_from(n).ok().and_then(|n| branches.get(n));
                branch.ok_or_else(|| self.error(format!("no union branch {n}")))?.as_ref()
            }
            _ => ty,
        };
        Ok(if matches!(chosen.kind, TypeKind::Null) { None } else { Some(chosen) })
    }

    /// The fields of the record that follows, by the branch that was written. `None`: a null.
    pub(crate) fn record<'t>(&mut self, ty: &'t Type) -> Result<Option<&'t [Field]>> {
        match self.branch(ty)? {
            None => Ok(None),
            Some(Type { kind: TypeKind::Record(fields), .. }) => Ok(Some(fields)),
            Some(_) => Err(self.error("a record was expected")),
        }
    }

    /// An optional integer of either width.
    pub(crate) fn opt_long(&mut self, ty: &Type) -> Result<Option<i64>> {
        match self.branch(ty)? {
            None => Ok(None),
            Some(Type { kind: TypeKind::Int | TypeKind::Long, .. }) => self.long().map(Some),
            Some(_) => Err(self.error("an integer was expected")),
        }
    }

    pub(crate) fn opt_int(&mut self, ty: &Type) -> Result<Option<i32>> {
        let value = self.opt_long(ty)?;
        value.map(|v| i32::try_from(v).map_err(|_| self.error(format!("{v} does not fit 32 bits")))).transpose()
    }

    pub(crate) fn opt_bool(&mut self, ty: &Type) -> Result<Option<bool>> {
        match self.branch(ty)? {
            None => Ok(None),
            Some(Type { kind: TypeKind::Boolean, .. }) => Ok(Some(self.take(1)?[0] != 0)),
            Some(_) => Err(self.error("a boolean was expected")),
        }
    }

    /// Optional bytes: `bytes`, `fixed` or text.
    pub(crate) fn opt_bytes(&mut self, ty: &Type) -> Result<Option<&'a [u8]>> {
        match self.branch(ty)? {
            None => Ok(None),
            Some(Type { kind: TypeKind::Bytes | TypeKind::Text, .. }) => self.raw_bytes().map(Some),
            Some(Type { kind: TypeKind::Fixed(n), .. }) => self.take(*n).map(Some),
            Some(_) => Err(self.error("bytes were expected")),
        }
    }

    pub(crate) fn opt_text(&mut self, ty: &Type) -> Result<Option<&'a str>> {
        let bytes = self.opt_bytes(ty)?;
        bytes.map(|b| std::str::from_utf8(b).map_err(|_| self.error("text is not UTF-8"))).transpose()
    }

    /// Calls `each` at the start of every item of an optional array; `each` must consume the item.
    /// `false`: the array is null.
    pub(crate) fn opt_array(
        &mut self,
        ty: &Type,
        mut each: impl FnMut(&mut Self, &Type) -> Result<()>,
    ) -> Result<bool> {
        let item = match self.branch(ty)? {
            None => return Ok(false),
            Some(Type { kind: TypeKind::Array(item), .. }) => item,
            Some(_) => return Err(self.error("an array was expected")),
        };
        loop {
            let (count, _) = self.items()?;
            if count == 0 {
                return Ok(true);
            }
            for _ in 0..count {
                each(self, item)?;
            }
        }
    }

    /// The head of a block of items: their number and, if told, their bytes.
    fn items(&mut self) -> Result<(usize, Option<usize>)> {
        let count = self.long()?;
        let bytes = if count < 0 { Some(self.length()?) } else { None };
        // An item takes at least a byte, since no item that is read is empty: a larger count is an attack on time.
        match usize::try_from(count.unsigned_abs()) {
            Ok(n) if n <= self.remaining() => Ok((n, bytes)),
            _ => Err(self.error(format!("{count} items cannot fit {} bytes", self.remaining()))),
        }
    }

    pub(crate) fn skip(&mut self, ty: &Type) -> Result<()> {
        match &ty.kind {
            TypeKind::Null => Ok(()),
            TypeKind::Boolean => self.take(1).map(drop),
            TypeKind::Int | TypeKind::Long | TypeKind::Enum => self.long().map(drop),
            TypeKind::Float => self.take(4).map(drop),
            TypeKind::Double => self.take(8).map(drop),
            TypeKind::Bytes | TypeKind::Text => self.raw_bytes().map(drop),
            TypeKind::Fixed(n) => self.take(*n).map(drop),
            TypeKind::Array(item) => self.skip_items(item, false),
            TypeKind::Map(value) => self.skip_items(value, true),
            TypeKind::Union(_) => match self.branch(ty)? {
                Some(branch) => self.skip(branch),
                None => Ok(()),
            },
            TypeKind::Record(fields) => fields.iter().try_for_each(|f| self.skip(&f.ty)),
        }
    }

    fn skip_items(&mut self, item: &Type, keyed: bool) -> Result<()> {
        if item.is_empty() && !keyed {
            return self.skip_empty_items();
        }
        loop {
            match self.items()? {
                (0, _) => return Ok(()),
                (_, Some(bytes)) => self.take(bytes).map(drop)?,
                (count, None) => {
                    for _ in 0..count {
                        if keyed {
                            self.raw_bytes()?;
                        }
                        self.skip(item)?;
                    }
                }
            }
        }
    }

    /// Any number of items that take no bytes.
    fn skip_empty_items(&mut self) -> Result<()> {
        loop {
            match self.long()? {
                0 => return Ok(()),
                count if count < 0 => {
                    let bytes = self.length()?;
                    self.take(bytes)?;
                }
                _ => {}
            }
        }
    }
}

/// Appends a zigzag variable-length integer.
pub(crate) fn put_long(out: &mut Vec<u8>, value: i64) {
    let mut rest = (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_long(out, i64::try_from(bytes.len()).unwrap_or(i64::MAX));
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_round_trip_at_the_edges() {
        for value in [0, 1, -1, 63, 64, -64, -65, i64::from(i32::MAX), i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            put_long(&mut out, value);
            let mut decoder = Decoder::new(&out, "f", 0);
            assert_eq!(decoder.long().expect("valid"), value);
            assert_eq!(decoder.remaining(), 0);
        }
        let endless = [0xffu8; 11];
        let error = Decoder::new(&endless, "s3://b/m.avro", 77).long().expect_err("too long");
        assert!(error.to_string().starts_with("s3://b/m.avro: avro data at byte 77, offset 10"), "{error}");
    }

    #[test]
    fn hostile_counts_and_lengths_are_refused_before_work_is_done() {
        let array = Type::parse(&serde_json::json!({"type": "array", "items": "null"})).expect("valid");
        let mut bytes = Vec::new();
        put_long(&mut bytes, 1 << 60);
        assert!(Decoder::new(&bytes, "f", 0).skip(&array).is_err());
        let mut bytes = Vec::new();
        put_long(&mut bytes, i64::MIN);
        put_long(&mut bytes, i64::MAX);
        assert!(Decoder::new(&bytes, "f", 0).skip(&array).is_err());
        let text = Type::parse(&serde_json::json!("string")).expect("valid");
        let mut bytes = Vec::new();
        put_long(&mut bytes, -5);
        assert!(Decoder::new(&bytes, "f", 0).skip(&text).is_err());
    }

    #[test]
    fn counted_blocks_of_both_forms_are_stepped_over() {
        let map = Type::parse(&serde_json::json!({"type": "map", "values": "long"})).expect("valid");
        let mut items = Vec::new();
        put_bytes(&mut items, b"key");
        put_long(&mut items, 9);
        let mut bytes = Vec::new();
        put_long(&mut bytes, 1);
        bytes.extend_from_slice(&items);
        put_long(&mut bytes, -1);
        put_long(&mut bytes, i64::try_from(items.len()).expect("small"));
        bytes.extend_from_slice(&items);
        put_long(&mut bytes, 0);
        put_long(&mut bytes, 42);
        let mut decoder = Decoder::new(&bytes, "f", 0);
        decoder.skip(&map).expect("valid");
        assert_eq!(decoder.long().expect("valid"), 42);
    }
}
