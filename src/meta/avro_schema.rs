//! Avro schemas as manifests have them. Input is not trusted: their depth and size are limited.

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
    pub(crate) kind: TypeKind,
    pub(crate) logical: Option<Logical>,
    nodes: usize,
}

/// What values of a type look like.
#[derive(Debug)]
pub(crate) enum TypeKind {
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

    fn new(kind: TypeKind, logical: Option<Logical>) -> Result<Arc<Self>> {
        let inner = match &kind {
            TypeKind::Array(item) | TypeKind::Map(item) => item.nodes,
            TypeKind::Union(branches) => branches.iter().map(|b| b.nodes).sum(),
            TypeKind::Record(fields) => fields.iter().map(|f| f.ty.nodes).sum(),
            _ => 0,
        };
        if inner >= NODES_MAX {
            return Err(Error::invalid("avro schema is too large"));
        }
        Ok(Arc::new(Self { kind, logical, nodes: inner + 1 }))
    }

    /// The fields of a record, or of the only record that a union may hold. Values are read by [`super::avro::Decoder::record`], which
    /// knows the branch.
    pub(crate) fn fields(&self) -> Option<&[Field]> {
        match &self.kind {
            TypeKind::Record(fields) => Some(fields),
            TypeKind::Union(branches) => {
                let mut records = branches.iter().filter_map(|branch| match &branch.kind {
                    TypeKind::Record(fields) => Some(fields.as_slice()),
                    _ => None,
                });
                records.next().filter(|_| records.next().is_none())
            }
            _ => None,
        }
    }

    /// The type with each plain `fixed` inside of field `field` as `bytes`, which tell their length. `None`: there are none.
    pub(crate) fn with_counted_fixed(&self, field: i32) -> Result<Option<Arc<Self>>> {
        let mut found = false;
        let changed = self.counted(field, false, &mut found)?;
        Ok(changed.filter(|_| found))
    }

    /// `None`: as it is.
    fn counted(&self, field: i32, inside: bool, found: &mut bool) -> Result<Option<Arc<Self>>> {
        let mut child = |ty: &Arc<Self>, inside: bool| {
            Ok::<_, Error>(ty.counted(field, inside, found)?.unwrap_or_else(|| Arc::clone(ty)))
        };
        let kind = match &self.kind {
            TypeKind::Fixed(_) if inside && self.logical.is_none() => {
                *found = true;
                TypeKind::Bytes
            }
            TypeKind::Union(branches) => {
                TypeKind::Union(branches.iter().map(|b| child(b, inside)).collect::<Result<_>>()?)
            }
            TypeKind::Record(fields) => {
                let fields = fields.iter().map(|f| Ok(Field { id: f.id, ty: child(&f.ty, inside || f.id == field)? }));
                TypeKind::Record(fields.collect::<Result<_>>()?)
            }
            _ => return Ok(None),
        };
        Self::new(kind, self.logical).map(Some)
    }

    /// Whether values of the type take no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.kind {
            TypeKind::Null | TypeKind::Fixed(0) => true,
            TypeKind::Record(fields) => fields.iter().all(|field| field.ty.is_empty()),
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
                Type::new(TypeKind::Union(branches), None)
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
                TypeKind::Record(fields.iter().map(|f| self.field(f, depth)).collect::<Result<Vec<_>>>()?)
            }
            "fixed" => {
                let size = schema.get("size").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
                TypeKind::Fixed(size.ok_or_else(|| Error::invalid("avro fixed without a size"))?)
            }
            _ => TypeKind::Enum,
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
            "array" => TypeKind::Array(self.parse(schema.get("items").unwrap_or(&Value::Null), depth + 1)?),
            "map" => TypeKind::Map(self.parse(schema.get("values").unwrap_or(&Value::Null), depth + 1)?),
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

fn primitive(name: &str) -> Option<TypeKind> {
    Some(match name {
        "null" => TypeKind::Null,
        "boolean" => TypeKind::Boolean,
        "int" => TypeKind::Int,
        "long" => TypeKind::Long,
        "float" => TypeKind::Float,
        "double" => TypeKind::Double,
        "bytes" => TypeKind::Bytes,
        "string" => TypeKind::Text,
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

#[cfg(test)]
mod tests {
    use super::*;

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
