//! Where output files go: the default layout, or the one for object storage. Pure.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use iceberg::spec::{
    Literal, PartitionSpec, PrimitiveLiteral, PrimitiveType, Schema, Struct, TableMetadata, Transform, Type,
};

use crate::error::{Error, Result};
use crate::rewrite::properties::flag;
use crate::rewrite::transform::civil_date;

/// Decides the path of a data file by its name and partition.
#[derive(Debug, Clone)]
pub(crate) struct DataLocation {
    root: String,
    object_storage: Option<ObjectStorage>,
}

#[derive(Debug, Clone)]
struct ObjectStorage {
    partitioned_paths: bool,
    /// Set if the root lies outside of the table's location: names the table below the hash.
    context: Option<String>,
}

impl DataLocation {
    /// Reads the layout from a table's properties.
    pub(crate) fn new(metadata: &TableMetadata) -> Result<Self> {
        let properties = metadata.properties();
        if let Some(class) = properties.get("write.location-provider.impl") {
            return Err(Error::unsupported(format!(
                "write.location-provider.impl = {class}: paths are decided by code that runs elsewhere; unset it to let this table be compacted"
            )));
        }
        for old in ["write.object-storage.path", "write.folder-storage.path"] {
            if properties.contains_key(old) {
                return Err(Error::unsupported(format!(
                    "table property {old} is no longer honoured: use write.data.path"
                )));
            }
        }
        let table = metadata.location().trim_end_matches('/');
        let root = match properties.get("write.data.path") {
            Some(path) => path.trim_end_matches('/').to_string(),
            None => format!("{table}/data"),
        };
        let object_storage = flag(properties, "write.object-storage.enabled", false).then(|| ObjectStorage {
            partitioned_paths: flag(properties, "write.object-storage.partitioned-paths", true),
            context: (!root.starts_with(table)).then(|| {
                let mut last = table.rsplit('/').filter(|s| !s.is_empty());
                let name = last.next().unwrap_or_default();
                last.next().map_or_else(|| name.to_string(), |parent| format!("{parent}/{name}"))
            }),
        });
        Ok(Self { root, object_storage })
    }

    /// The path of a new data file; `partition` is empty for unpartitioned files.
    pub(crate) fn path(&self, partition: &str, name: &str) -> String {
        let root = &self.root;
        let separator = if partition.is_empty() { "" } else { "/" };
        let Some(object) = &self.object_storage else { return format!("{root}/{partition}{separator}{name}") };
        let suffix = if object.partitioned_paths { format!("{partition}{separator}{name}") } else { name.to_string() };
        let hash = hash_directories(&suffix);
        match &object.context {
            Some(context) => format!("{root}/{hash}/{context}/{suffix}"),
            None if object.partitioned_paths => format!("{root}/{hash}/{suffix}"),
            None => format!("{root}/{hash}-{suffix}"),
        }
    }
}

/// The last 20 bits of the name's hash as directories of 4, 4, 4 and 8 digits.
fn hash_directories(name: &str) -> String {
    let hash = murmur3::murmur3_32(&mut name.as_bytes(), 0).unwrap_or_default();
    let bits = format!("{:020b}", hash & 0xf_ffff);
    format!("{}/{}/{}/{}", &bits[..4], &bits[4..8], &bits[8..12], &bits[12..])
}

/// `name=value/name=value`, URL-encoded as the reference implementation does it. Empty for unpartitioned specs.
pub(crate) fn partition_path(spec: &PartitionSpec, schema: &Schema, values: &Struct) -> Result<String> {
    if values.fields().len() != spec.fields().len() {
        return Err(Error::invalid(format!(
            "a partition tuple has {} values and spec {} has {} fields",
            values.fields().len(),
            spec.spec_id(),
            spec.fields().len()
        )));
    }
    let mut path = String::new();
    for (field, value) in spec.fields().iter().zip(values.iter()) {
        let source = schema.field_by_id(field.source_id).map(|f| f.field_type.as_ref());
        let text = human(field.transform, source, value)?;
        let separator = if path.is_empty() { "" } else { "/" };
        let _ = write!(path, "{separator}{}={}", url_encode(&field.name), url_encode(&text));
    }
    Ok(path)
}

/// A partition value as people read it.
fn human(transform: Transform, source: Option<&Type>, value: Option<&Literal>) -> Result<String> {
    let value = match (transform, value) {
        (Transform::Void, _) | (_, None) => return Ok("null".into()),
        (_, Some(Literal::Primitive(value))) => value,
        _ => return Err(Error::invalid("a partition value that is not primitive")),
    };
    Ok(match (transform, value) {
        (Transform::Year, PrimitiveLiteral::Int(years)) => format!("{:04}", 1970 + i64::from(*years)),
        (Transform::Month, PrimitiveLiteral::Int(months)) => {
            let months = i64::from(*months);
            format!("{:04}-{:02}", 1970 + months.div_euclid(12), months.rem_euclid(12) + 1)
        }
        (Transform::Day, PrimitiveLiteral::Int(days)) => day(i64::from(*days)),
        (Transform::Hour, PrimitiveLiteral::Int(hours)) => {
            let hours = i64::from(*hours);
            format!("{}-{:02}", day(hours.div_euclid(24)), hours.rem_euclid(24))
        }
        (Transform::Identity | Transform::Truncate(_), value) => match source {
            Some(Type::Primitive(ty)) => primitive(ty, value)?,
            _ => return Err(Error::unsupported("a partition field whose source column has left the schema")),
        },
        (_, PrimitiveLiteral::Int(n)) => n.to_string(),
        (transform, _) => return Err(Error::invalid(format!("a {transform} partition value of another type"))),
    })
}

fn primitive(ty: &PrimitiveType, value: &PrimitiveLiteral) -> Result<String> {
    use PrimitiveLiteral as V;
    Ok(match (ty, value) {
        (PrimitiveType::Date, V::Int(days)) => day(i64::from(*days)),
        (PrimitiveType::Time, V::Long(micros)) => time_of_day(*micros),
        (PrimitiveType::Timestamp, V::Long(micros)) => timestamp(*micros),
        (PrimitiveType::Timestamptz, V::Long(micros)) => format!("{}+00:00", timestamp(*micros)),
        (PrimitiveType::Decimal { scale, .. }, V::Int128(unscaled)) => decimal(*unscaled, *scale),
        (PrimitiveType::Uuid, V::UInt128(bits)) => uuid::Uuid::from_u128(*bits).to_string(),
        (_, V::Boolean(v)) => v.to_string(),
        (_, V::Int(v)) => v.to_string(),
        (_, V::Long(v)) => v.to_string(),
        (_, V::Float(v)) => java_float(v.into_inner().into(), &format!("{:e}", v.into_inner())),
        (_, V::Double(v)) => java_float(v.into_inner(), &format!("{:e}", v.into_inner())),
        (_, V::String(v)) => v.clone(),
        (_, V::Binary(v)) => STANDARD.encode(v),
        _ => return Err(Error::invalid(format!("a partition value that is no {ty}"))),
    })
}

fn day(days: i64) -> String {
    let (year, month, day) = civil_date(days);
    format!("{year:04}-{month:02}-{day:02}")
}

fn time_of_day(micros: i64) -> String {
    let (seconds, fraction) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let mut text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction != 0 {
        let digits = format!("{fraction:06}");
        let _ = write!(text, ".{}", digits.trim_end_matches('0'));
    }
    text
}

fn timestamp(micros: i64) -> String {
    const DAY: i64 = 86_400_000_000;
    format!("{}T{}", day(micros.div_euclid(DAY)), time_of_day(micros.rem_euclid(DAY)))
}

/// A float as Java writes it: -0.0, NaN, Infinity, 1.5, 1.0E7. `scientific` is the shortest form, such as `1.5e-7`.
fn java_float(value: f64, scientific: &str) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "NaN".into()
        } else if value > 0.0 {
            "Infinity".into()
        } else {
            "-Infinity".into()
        };
    }
    if value == 0.0 || (1e-3..1e7).contains(&value.abs()) {
        // Digits of the shorter type: a 32-bit 0.1 is no 64-bit 0.1.
        let plain = scientific.parse::<f64>().unwrap_or(value);
        return format!("{plain:?}");
    }
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let point = if digits.contains('.') { "" } else { ".0" };
    format!("{digits}{point}E{exponent}")
}

fn decimal(unscaled: i128, scale: u32) -> String {
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale as usize + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale as usize);
    let sign = if unscaled < 0 { "-" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{whole}{point}{fraction}")
}

/// Form encoding: letters, digits, `.`, `-`, `*` and `_` stay, a space becomes `+`, the rest is hex.
fn url_encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'*' | b'_' => encoded.push(char::from(byte)),
            b' ' => encoded.push('+'),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests;
