//! Avro values, decoded in place by the writer's schema: what is wanted is read, the rest is stepped over.
//!
//! Input is not trusted. Every length is checked against the bytes that are left before anything is allocated, nesting is
//! limited, and every error names the file and the offset. Encoding is limited to what manifests need.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::error::{Error, Result};

/// Nesting of types; Iceberg's own schemas reach about 8.
const DEPTH_MAX: usize = 32;
/// Types in a schema, each named one counted wherever it is used: what stepping over a value may cost.
const NODES_MAX: usize = 20_000;

/// A type of the writer's schema.
#[derive(Debug)]
pub(crate) struct Type {
    pub(crate) kind: Kind,
    pub(crate) logical: Option<Logical>,
    nodes: usize,
}

/// What values of a type look like.
#[derive(Debug)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Enum,
    Fixed(usize),
    Array(Arc<Type>),
    Map(Arc<Type>),
    Union(Vec<Arc<Type>>),
    Record(Vec<Field>),
}

/// A field of a record.
#[derive(Debug)]
pub(crate) struct Field {
    /// Iceberg's field id; -1 if the schema gives none.
    pub(crate) id: i32,
    pub(crate) ty: Arc<Type>,
}

/// Meaning laid over a primitive type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logical {
    Date,
    Time,
    Timestamp { utc: bool },
    TimestampNanos { utc: bool },
    Decimal { precision: u32, scale: u32 },
    Uuid,
}

impl Type {
    /// Parses an Avro schema. Recursive types are refused: manifests have none.
    pub(crate) fn parse(schema: &Value) -> Result<Arc<Self>> {
        Parser::default().parse(schema, 0)
    }

    fn new(kind: Kind, logical: Option<Logical>) -> Result<Arc<Self>> {
        let inner = match &kind {
            Kind::Array(item) | Kind::Map(item) => item.nodes,
            Kind::Union(branches) => branches.iter().map(|b| b.nodes).sum(),
            Kind::Record(fields) => fields.iter().map(|f| f.ty.nodes).sum(),
            _ => 0,
        };
        if inner >= NODES_MAX {
            return Err(Error::invalid("avro schema is too large"));
        }
        Ok(Arc::new(Self { kind, logical, nodes: inner + 1 }))
    }

    /// The fields of a record, or of the only record that a union may hold. Values are read by [`Decoder::record`], which
    /// knows the branch.
    pub(crate) fn fields(&self) -> Option<&[Field]> {
        match &self.kind {
            Kind::Record(fields) => Some(fields),
            Kind::Union(branches) => {
                let mut records = branches.iter().filter_map(|branch| match &branch.kind {
                    Kind::Record(fields) => Some(fields.as_slice()),
                    _ => None,
                });
                records.next().filter(|_| records.next().is_none())
            }
            _ => None,
        }
    }

    /// Whether values of the type take no bytes.
    fn is_empty(&self) -> bool {
        match &self.kind {
            Kind::Null | Kind::Fixed(0) => true,
            Kind::Record(fields) => fields.iter().all(|field| field.ty.is_empty()),
            _ => false,
        }
    }
}

#[derive(Default)]
struct Parser {
    /// By full name.
    named: HashMap<String, Arc<Type>>,
    /// The namespace that names without one belong to; empty for none.
    namespace: String,
}

impl Parser {
    fn parse(&mut self, schema: &Value, depth: usize) -> Result<Arc<Type>> {
        if depth > DEPTH_MAX {
            return Err(Error::invalid("avro schema is nested too deeply"));
        }
        match schema {
            Value::String(name) => self.by_name(name),
            Value::Array(branches) => {
                let branches = branches.iter().map(|b| self.parse(b, depth + 1)).collect::<Result<Vec<_>>>()?;
                Type::new(Kind::Union(branches), None)
            }
            Value::Object(object) => match object.get("type") {
                Some(Value::String(name)) => self.complex(name, schema, depth),
                Some(inner) => self.parse(inner, depth + 1),
                None => Err(Error::invalid("avro schema without a type")),
            },
            _ => Err(Error::invalid("avro schema is neither a name, a list nor an object")),
        }
    }

    fn by_name(&self, name: &str) -> Result<Arc<Type>> {
        match primitive(name) {
            Some(kind) => Type::new(kind, None),
            None => {
                let found = self.named.get(&self.full_name(name)).or_else(|| self.named.get(name));
                found.cloned().ok_or_else(|| Error::invalid(format!("unknown avro type {name:?}")))
            }
        }
    }

    fn full_name(&self, name: &str) -> String {
        match name.contains('.') || self.namespace.is_empty() {
            true => name.to_owned(),
            false => format!("{}.{name}", self.namespace),
        }
    }

    /// The full name that a schema defines, if it defines one. Its namespace is that of the names inside.
    fn defined_name(&mut self, schema: &Value) -> Option<String> {
        let name = schema.get("name").and_then(Value::as_str)?;
        match (name.rsplit_once('.'), schema.get("namespace").and_then(Value::as_str)) {
            (Some((space, _)), _) => self.namespace = space.to_owned(),
            (None, Some(space)) => self.namespace = space.to_owned(),
            (None, None) => {}
        }
        Some(self.full_name(name))
    }

    fn complex(&mut self, name: &str, schema: &Value, depth: usize) -> Result<Arc<Type>> {
        if !matches!(name, "record" | "error" | "fixed" | "enum") {
            return self.unnamed(name, schema, depth);
        }
        let outer = self.namespace.clone();
        let own = self.defined_name(schema);
        let kind = match name {
            "record" | "error" => {
                let fields = schema.get("fields").and_then(Value::as_array);
                let fields = fields.ok_or_else(|| Error::invalid("avro record without fields"))?;
                Kind::Record(fields.iter().map(|f| self.field(f, depth)).collect::<Result<Vec<_>>>()?)
            }
            "fixed" => {
                let size = schema.get("size").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
                Kind::Fixed(size.ok_or_else(|| Error::invalid("avro fixed without a size"))?)
            }
            _ => Kind::Enum,
        };
        self.namespace = outer;
        let ty = Type::new(kind, logical(schema))?;
        if let Some(own) = own {
            self.named.insert(own, ty.clone());
        }
        Ok(ty)
    }

    fn unnamed(&mut self, name: &str, schema: &Value, depth: usize) -> Result<Arc<Type>> {
        let kind = match name {
            "array" => Kind::Array(self.parse(schema.get("items").unwrap_or(&Value::Null), depth + 1)?),
            "map" => Kind::Map(self.parse(schema.get("values").unwrap_or(&Value::Null), depth + 1)?),
            _ => match primitive(name) {
                Some(kind) => kind,
                None => return self.by_name(name),
            },
        };
        Type::new(kind, logical(schema))
    }

    fn field(&mut self, field: &Value, depth: usize) -> Result<Field> {
        let id = field.get("field-id").and_then(Value::as_i64).and_then(|n| i32::try_from(n).ok()).unwrap_or(-1);
        let ty = field.get("type").ok_or_else(|| Error::invalid("avro field without a type"))?;
        Ok(Field { id, ty: self.parse(ty, depth + 1)? })
    }
}

fn primitive(name: &str) -> Option<Kind> {
    Some(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::Text,
        _ => return None,
    })
}

/// One that is incomplete or unknown means nothing, as the Avro specification has it.
fn logical(schema: &Value) -> Option<Logical> {
    let number = |key: &str| schema.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let utc = schema.get("adjust-to-utc").and_then(Value::as_bool).unwrap_or(false);
    match schema.get("logicalType").and_then(Value::as_str) {
        Some("date") => Some(Logical::Date),
        Some("time-micros") => Some(Logical::Time),
        Some("timestamp-micros") => Some(Logical::Timestamp { utc }),
        Some("timestamp-nanos") => Some(Logical::TimestampNanos { utc }),
        Some("uuid") => Some(Logical::Uuid),
        Some("decimal") => {
            number("precision").map(|precision| Logical::Decimal { precision, scale: number("scale").unwrap_or(0) })
        }
        _ => None,
    }
}

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

    /// An error at the present place.
    pub(crate) fn error(&self, what: impl std::fmt::Display) -> Error {
        let Self { file, block_at, at, .. } = self;
        Error::invalid(format!("{file}: avro data at byte {block_at}, offset {at} inside: {what}"))
    }

    /// Bytes consumed so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// What was consumed since `start`, a former [`Self::position`].
    pub(crate) fn since(&self, start: usize) -> &'a [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    /// The next `n` bytes.
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
            Kind::Union(branches) => {
                let n = self.long()?;
                let branch = usize::try_from(n).ok().and_then(|n| branches.get(n));
                branch.ok_or_else(|| self.error(format!("no union branch {n}")))?.as_ref()
            }
            _ => ty,
        };
        Ok(if matches!(chosen.kind, Kind::Null) { None } else { Some(chosen) })
    }

    /// The fields of the record that follows, by the branch that was written. `None`: a null.
    pub(crate) fn record<'t>(&mut self, ty: &'t Type) -> Result<Option<&'t [Field]>> {
        match self.branch(ty)? {
            None => Ok(None),
            Some(Type { kind: Kind::Record(fields), .. }) => Ok(Some(fields)),
            Some(_) => Err(self.error("a record was expected")),
        }
    }

    /// An optional integer of either width.
    pub(crate) fn opt_long(&mut self, ty: &Type) -> Result<Option<i64>> {
        match self.branch(ty)? {
            None => Ok(None),
            Some(Type { kind: Kind::Int | Kind::Long, .. }) => self.long().map(Some),
            Some(_) => Err(self.error("an integer was expected")),
        }
    }

    /// An optional 32-bit integer.
    pub(crate) fn opt_int(&mut self, ty: &Type) -> Result<Option<i32>> {
        let value = self.opt_long(ty)?;
        value.map(|v| i32::try_from(v).map_err(|_| self.error(format!("{v} does not fit 32 bits")))).transpose()
    }

    /// An optional boolean.
    pub(crate) fn opt_bool(&mut self, ty: &Type) -> Result<Option<bool>> {
        match self.branch(ty)? {
            None => Ok(None),
            Some(Type { kind: Kind::Boolean, .. }) => Ok(Some(self.take(1)?[0] != 0)),
            Some(_) => Err(self.error("a boolean was expected")),
        }
    }

    /// Optional bytes: `bytes`, `fixed` or text.
    pub(crate) fn opt_bytes(&mut self, ty: &Type) -> Result<Option<&'a [u8]>> {
        match self.branch(ty)? {
            None => Ok(None),
            Some(Type { kind: Kind::Bytes | Kind::Text, .. }) => self.raw_bytes().map(Some),
            Some(Type { kind: Kind::Fixed(n), .. }) => self.take(*n).map(Some),
            Some(_) => Err(self.error("bytes were expected")),
        }
    }

    /// Optional text.
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
            Some(Type { kind: Kind::Array(item), .. }) => item,
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

    /// Steps over a value.
    pub(crate) fn skip(&mut self, ty: &Type) -> Result<()> {
        match &ty.kind {
            Kind::Null => Ok(()),
            Kind::Boolean => self.take(1).map(drop),
            Kind::Int | Kind::Long | Kind::Enum => self.long().map(drop),
            Kind::Float => self.take(4).map(drop),
            Kind::Double => self.take(8).map(drop),
            Kind::Bytes | Kind::Text => self.raw_bytes().map(drop),
            Kind::Fixed(n) => self.take(*n).map(drop),
            Kind::Array(item) => self.skip_items(item, false),
            Kind::Map(value) => self.skip_items(value, true),
            Kind::Union(_) => match self.branch(ty)? {
                Some(branch) => self.skip(branch),
                None => Ok(()),
            },
            Kind::Record(fields) => fields.iter().try_for_each(|f| self.skip(&f.ty)),
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

/// Appends length-prefixed bytes.
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

    #[test]
    fn recursive_and_deep_schemas_are_refused() {
        let recursive = serde_json::json!({"type": "record", "name": "r", "fields": [{"name": "next", "type": "r"}]});
        assert!(Type::parse(&recursive).is_err());
        let mut deep = serde_json::json!("int");
        for _ in 0..100 {
            deep = serde_json::json!({"type": "array", "items": deep});
        }
        assert!(Type::parse(&deep).is_err());
    }

    #[test]
    fn a_schema_that_doubles_at_every_level_is_refused() {
        let mut fields = vec![serde_json::json!({"name": "f", "type": {"type": "record", "name": "r0", "fields": []}})];
        for n in 1..40 {
            let inner = format!("r{}", n - 1);
            let twice = serde_json::json!([{"name": "a", "type": inner}, {"name": "b", "type": inner}]);
            let record = serde_json::json!({"type": "record", "name": format!("r{n}"), "fields": twice});
            fields.push(serde_json::json!({"name": "f", "type": record}));
        }
        let schema = serde_json::json!({"type": "record", "name": "root", "fields": fields});
        assert!(Type::parse(&schema).expect_err("too large").to_string().contains("too large"));
    }
}
