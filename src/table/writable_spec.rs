//! Partition specs that no new file may be written by.

use iceberg::spec::{PrimitiveType, TableMetadata, Transform, Type};

/// Why files of partition spec `spec_id` cannot be written such that every engine reads them; `None` if they can.
///
/// The identity of a `fixed` column is a partition that the Java library (1.9.2) reads and writes in a form of its own, with
/// a length before each value: a manifest with proper values makes the whole table unreadable for it.
pub fn unwritable_spec(metadata: &TableMetadata, spec_id: i32) -> Option<String> {
    let Some(spec) = metadata.partition_spec_by_id(spec_id) else {
        return Some(format!("the table has no partition spec {spec_id}"));
    };
    let schema = metadata.current_schema();
    spec.fields().iter().find_map(|field| {
        let (name, transform) = (&field.name, field.transform);
        let source = schema.field_by_id(field.source_id);
        match (transform, source.map(|column| column.field_type.as_ref())) {
            (Transform::Void, _) => None,
            (Transform::Unknown, _) => {
                Some(format!("partition field {name} has a transform that this version does not know"))
            }
            (_, None) => Some(format!("the source column of partition field {name} has left the schema")),
            (Transform::Identity, Some(Type::Primitive(ty @ PrimitiveType::Fixed(_)))) => {
                Some(format!("partition field {name} is the identity of a {ty} column, whose values Java engines keep in a form of their own"))
            }
            (_, Some(ty)) => {
                transform.result_type(ty).err().map(|_| format!("partition field {name} is the {transform} of a {ty}"))
            }
        }
    })
}
