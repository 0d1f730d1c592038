//! Avro schemas of manifests as this project writes them, and the encoding of new entries.

use iceberg::spec::{
    DataContentType, DataFile, Datum, FormatVersion, Literal, PrimitiveLiteral, PrimitiveType, Struct, StructType, Type,
};
use serde_json::{Value, json};

use super::avro::{put_bytes, put_long};
use crate::error::{Error, Result};

/// The schema of entries around a schema of data files: version 1 has no sequence numbers.
pub(crate) fn entry_schema(version: FormatVersion, data_file: Value) -> Value {
    let mut fields = vec![json!({"name": "status", "type": "int", "field-id": 0})];
    if version == FormatVersion::V1 {
        fields.push(json!({"name": "snapshot_id", "type": "long", "field-id": 1}));
    } else {
        fields.push(optional("snapshot_id", json!("long"), 1));
        fields.push(optional("sequence_number", json!("long"), 3));
        fields.push(optional("file_sequence_number", json!("long"), 4));
    }
    fields.push(json!({"name": "data_file", "type": data_file, "field-id": 2}));
    json!({"type": "record", "name": "manifest_entry", "fields": fields})
}

/// The schema of data files with this partition type.
pub(crate) fn data_file_schema(version: FormatVersion, partition: &StructType) -> Result<Value> {
    let version_1 = version == FormatVersion::V1;
    let mut fields = Vec::new();
    if !version_1 {
        fields.push(json!({"name": "content", "type": "int", "default": 0, "field-id": 134}));
    }
    fields.push(json!({"name": "file_path", "type": "string", "field-id": 100}));
    fields.push(json!({"name": "file_format", "type": "string", "field-id": 101}));
    fields.push(json!({"name": "partition", "type": partition_schema(partition)?, "field-id": 102}));
    fields.push(json!({"name": "record_count", "type": "long", "field-id": 103}));
    fields.push(json!({"name": "file_size_in_bytes", "type": "long", "field-id": 104}));
    if version_1 {
        fields.push(json!({"name": "block_size_in_bytes", "type": "long", "field-id": 105}));
    }
    for (name, id, key, value, ty) in [
        ("column_sizes", 108, 117, 118, "long"),
        ("value_counts", 109, 119, 120, "long"),
        ("null_value_counts", 110, 121, 122, "long"),
        ("nan_value_counts", 137, 138, 139, "long"),
        ("lower_bounds", 125, 126, 127, "bytes"),
        ("upper_bounds", 128, 129, 130, "bytes"),
    ] {
        let pair = json!({"type": "record", "name": format!("k{key}_v{value}"), "fields": [
            {"name": "key", "type": "int", "field-id": key}, {"name": "value", "type": ty, "field-id": value}]});
        fields.push(optional(name, json!({"type": "array", "items": pair, "logicalType": "map"}), id));
    }
    fields.push(optional("key_metadata", json!("bytes"), 131));
    fields.push(optional("split_offsets", json!({"type": "array", "items": "long", "element-id": 133}), 132));
    if !version_1 {
        fields.push(optional("equality_ids", json!({"type": "array", "items": "int", "element-id": 136}), 135));
    }
    fields.push(optional("sort_order_id", json!("int"), 140));
    if !version_1 {
        fields.push(optional("referenced_data_file", json!("string"), 143));
    }
    Ok(json!({"type": "record", "name": "r2", "fields": fields}))
}

fn optional(name: &str, ty: Value, id: i32) -> Value {
    json!({"name": name, "type": ["null", ty], "default": null, "field-id": id})
}

fn partition_schema(partition: &StructType) -> Result<Value> {
    let mut fields = Vec::new();
    for field in partition.fields() {
        let ty = primitive_schema(primitive(&field.field_type, &field.name)?, field.id)?;
        let name = avro_name(&field.name);
        let mut schema = optional(&name, ty, field.id);
        if name != field.name {
            schema["iceberg-field-name"] = json!(field.name);
        }
        fields.push(schema);
    }
    Ok(json!({"type": "record", "name": "r102", "fields": fields}))
}

fn primitive<'a>(ty: &'a Type, name: &str) -> Result<&'a PrimitiveType> {
    ty.as_primitive_type().ok_or_else(|| Error::invalid(format!("partition field {name} is not primitive")))
}

/// A name that Avro accepts; the specification's escaping of everything else.
fn avro_name(name: &str) -> String {
    let mut out = String::new();
    for (n, c) in name.chars().enumerate() {
        match c {
            'a'..='z' | 'A'..='Z' | '_' => out.push(c),
            '0'..='9' if n > 0 => out.push(c),
            '0'..='9' => out.extend(['_', c]),
            _ => out.push_str(&format!("_x{:X}", u32::from(c))),
        }
    }
    out
}

/// `id` goes into the names of fixed types: Avro lets a name be defined once only.
fn primitive_schema(ty: &PrimitiveType, id: i32) -> Result<Value> {
    let timestamp = |unit: &str, utc: bool| json!({"type": "long", "logicalType": unit, "adjust-to-utc": utc});
    Ok(match ty {
        PrimitiveType::Boolean => json!("boolean"),
        PrimitiveType::Int => json!("int"),
        PrimitiveType::Long => json!("long"),
        PrimitiveType::Float => json!("float"),
        PrimitiveType::Double => json!("double"),
        PrimitiveType::Date => json!({"type": "int", "logicalType": "date"}),
        PrimitiveType::Time => json!({"type": "long", "logicalType": "time-micros"}),
        PrimitiveType::Timestamp => timestamp("timestamp-micros", false),
        PrimitiveType::Timestamptz => timestamp("timestamp-micros", true),
        PrimitiveType::TimestampNs => timestamp("timestamp-nanos", false),
        PrimitiveType::TimestamptzNs => timestamp("timestamp-nanos", true),
        PrimitiveType::String => json!("string"),
        PrimitiveType::Uuid => {
            json!({"type": "fixed", "name": format!("uuid_f{id}"), "size": 16, "logicalType": "uuid"})
        }
        PrimitiveType::Fixed(n) => json!({"type": "fixed", "name": format!("fixed_{n}_f{id}"), "size": n}),
        PrimitiveType::Binary => json!("bytes"),
        PrimitiveType::Decimal { precision, scale } => {
            let size = Type::decimal_required_bytes(*precision)?;
            json!({"type": "fixed", "name": format!("decimal_{precision}_{scale}_f{id}"), "size": size,
                   "logicalType": "decimal", "precision": precision, "scale": scale})
        }
    })
}

/// Appends the `data_file` record of a new file, as [`data_file_schema`] describes it.
pub(crate) fn put_data_file(
    out: &mut Vec<u8>,
    version: FormatVersion,
    partition: &StructType,
    file: &DataFile,
) -> Result<()> {
    let version_1 = version == FormatVersion::V1;
    if !version_1 {
        put_long(out, file.content_type() as i64);
    }
    put_bytes(out, file.file_path().as_bytes());
    put_bytes(out, file.file_format().to_string().to_ascii_uppercase().as_bytes());
    put_partition(out, partition, file.partition())?;
    put_count(out, file.record_count())?;
    put_count(out, file.file_size_in_bytes())?;
    if version_1 {
        // Required by version 1 and without meaning; the reference writes this number.
        put_long(out, 64 << 20);
    }
    for counts in [file.column_sizes(), file.value_counts(), file.null_value_counts(), file.nan_value_counts()] {
        put_map(out, counts.iter().map(|(k, v)| (*k, *v)).collect(), put_count)?;
    }
    for bounds in [file.lower_bounds(), file.upper_bounds()] {
        put_map(out, bounds.iter().map(|(k, v)| (*k, v)).collect(), |out, v: &Datum| {
            put_bytes(out, &v.to_bytes()?);
            Ok(())
        })?;
    }
    put_optional(out, file.key_metadata(), put_bytes);
    put_optional(out, file.split_offsets().filter(|o| !o.is_empty()), |out, o| put_longs(out, o.iter().copied()));
    if !version_1 {
        let ids = file.equality_ids().filter(|ids| !ids.is_empty());
        put_optional(out, ids, |out, ids| put_longs(out, ids.into_iter().map(i64::from)));
    }
    put_optional(out, file.sort_order_id(), |out, id| put_long(out, i64::from(id)));
    if !version_1 {
        put_optional(out, file.referenced_data_file(), |out, path| put_bytes(out, path.as_bytes()));
    }
    Ok(())
}

/// Appends a nullable value: the union branch, then the value.
pub(crate) fn put_optional<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    put_long(out, i64::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn put_count(out: &mut Vec<u8>, count: u64) -> Result<()> {
    put_long(out, i64::try_from(count).map_err(|_| Error::invalid(format!("count {count} does not fit 63 bits")))?);
    Ok(())
}

fn put_longs(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = i64>) {
    put_long(out, i64::try_from(values.len()).unwrap_or(i64::MAX));
    values.for_each(|v| put_long(out, v));
    put_long(out, 0);
}

/// A nullable map as an array of pairs, sorted by key so that equal files are encoded equally; null when empty.
fn put_map<T>(out: &mut Vec<u8>, mut pairs: Vec<(i32, T)>, put: impl Fn(&mut Vec<u8>, T) -> Result<()>) -> Result<()> {
    put_long(out, i64::from(!pairs.is_empty()));
    if pairs.is_empty() {
        return Ok(());
    }
    pairs.sort_by_key(|(key, _)| *key);
    put_long(out, i64::try_from(pairs.len()).unwrap_or(i64::MAX));
    for (key, value) in pairs {
        put_long(out, i64::from(key));
        put(out, value)?;
    }
    put_long(out, 0);
    Ok(())
}

fn put_partition(out: &mut Vec<u8>, partition: &StructType, values: &Struct) -> Result<()> {
    let (should, is) = (partition.fields().len(), values.fields().len());
    if should != is {
        return Err(Error::internal(format!("a partition of {is} values for a spec of {should} fields")));
    }
    for (field, value) in partition.fields().iter().zip(values.iter()) {
        put_long(out, i64::from(value.is_some()));
        if let Some(value) = value {
            let ty = primitive(&field.field_type, &field.name)?;
            put_value(out, ty, value).ok_or_else(|| {
                Error::internal(format!("partition field {} of type {ty} cannot hold its value", field.name))
            })?;
        }
    }
    Ok(())
}

fn put_value(out: &mut Vec<u8>, ty: &PrimitiveType, value: &Literal) -> Option<()> {
    let Literal::Primitive(value) = value else { return None };
    if !ty.compatible(value) {
        return None;
    }
    match (value, ty) {
        (PrimitiveLiteral::Boolean(v), _) => out.push(u8::from(*v)),
        (PrimitiveLiteral::Int(v), _) => put_long(out, i64::from(*v)),
        (PrimitiveLiteral::Long(v), _) => put_long(out, *v),
        (PrimitiveLiteral::String(v), _) => put_bytes(out, v.as_bytes()),
        (PrimitiveLiteral::Binary(v), PrimitiveType::Fixed(n)) if v.len() as u64 == *n => out.extend_from_slice(v),
        (PrimitiveLiteral::Binary(v), PrimitiveType::Binary) => put_bytes(out, v),
        (PrimitiveLiteral::Int128(v), PrimitiveType::Decimal { precision, .. }) => {
            let size = usize::try_from(Type::decimal_required_bytes(*precision).ok()?).ok()?;
            let bytes = v.to_be_bytes();
            let (head, tail) = bytes.split_at(16usize.checked_sub(size)?);
            let sign = if *v < 0 { 0xff } else { 0 };
            let fits = head.iter().all(|b| *b == sign) && tail.first().is_some_and(|b| (b & 0x80 != 0) == (*v < 0));
            fits.then(|| out.extend_from_slice(tail))?;
        }
        (PrimitiveLiteral::UInt128(_) | PrimitiveLiteral::Float(_) | PrimitiveLiteral::Double(_), _) => {
            out.extend_from_slice(&single_value(value)?);
        }
        _ => return None,
    }
    Some(())
}

/// Iceberg's binary form of a single value. `None` for literals that are no values.
pub(crate) fn single_value(value: &PrimitiveLiteral) -> Option<Vec<u8>> {
    Some(match value {
        PrimitiveLiteral::Boolean(v) => vec![u8::from(*v)],
        PrimitiveLiteral::Int(v) => v.to_le_bytes().to_vec(),
        PrimitiveLiteral::Long(v) => v.to_le_bytes().to_vec(),
        PrimitiveLiteral::Float(v) => v.0.to_le_bytes().to_vec(),
        PrimitiveLiteral::Double(v) => v.0.to_le_bytes().to_vec(),
        PrimitiveLiteral::String(v) => v.as_bytes().to_vec(),
        PrimitiveLiteral::Binary(v) => v.clone(),
        PrimitiveLiteral::UInt128(v) => v.to_be_bytes().to_vec(),
        PrimitiveLiteral::Int128(v) => {
            let bytes = v.to_be_bytes();
            let sign = if *v < 0 { 0xff } else { 0 };
            // The fewest bytes that keep the sign.
            let mut start = 0;
            while start < 15 && bytes[start] == sign && (bytes[start + 1] & 0x80 != 0) == (*v < 0) {
                start += 1;
            }
            bytes[start..].to_vec()
        }
        PrimitiveLiteral::AboveMax | PrimitiveLiteral::BelowMin => return None,
    })
}

/// Whether a manifest of this content may hold the file.
pub(crate) fn belongs(content: iceberg::spec::ManifestContentType, file: &DataFile) -> bool {
    (content == iceberg::spec::ManifestContentType::Data) == (file.content_type() == DataContentType::Data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_take_the_fewest_bytes_that_keep_the_sign() {
        for (value, bytes) in [
            (0, vec![0]),
            (127, vec![0x7f]),
            (128, vec![0, 0x80]),
            (-1, vec![0xff]),
            (-128, vec![0x80]),
            (-129, vec![0xff, 0x7f]),
        ] {
            assert_eq!(single_value(&PrimitiveLiteral::Int128(value)), Some(bytes), "{value}");
        }
        assert_eq!(single_value(&PrimitiveLiteral::Int128(i128::MIN)).map(|b| b.len()), Some(16));
    }

    #[test]
    fn a_decimal_that_does_not_fit_its_precision_is_refused() {
        let ty = PrimitiveType::Decimal { precision: 4, scale: 2 };
        let mut out = Vec::new();
        assert_eq!(put_value(&mut out, &ty, &Literal::Primitive(PrimitiveLiteral::Int128(-200))), Some(()));
        assert_eq!(out, [0xff, 0x38]);
        assert_eq!(put_value(&mut out, &ty, &Literal::Primitive(PrimitiveLiteral::Int128(1 << 20))), None);
    }

    #[test]
    fn names_are_escaped_as_the_specification_says() {
        assert_eq!(avro_name("a_bucket"), "a_bucket");
        assert_eq!(avro_name("9x"), "_9x");
        assert_eq!(avro_name("a-b☃"), "a_x2Db_x2603");
    }
}
