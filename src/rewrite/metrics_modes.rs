//! Which column metrics a manifest gets: `write.metadata.metrics.*`. Pure.

use std::collections::HashMap;

use iceberg::spec::{NestedFieldRef, Schema, SortOrder, TableMetadata, Transform, Type};

use crate::rewrite::properties::FooterBounds;

const DEFAULT_KEY: &str = "write.metadata.metrics.default";
const COLUMN_PREFIX: &str = "write.metadata.metrics.column.";
const LIMIT_KEY: &str = "write.metadata.metrics.max-inferred-column-defaults";
const DEFAULT_LIMIT: usize = 100;

/// How much is kept about a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricsMode {
    None,
    Counts,
    /// Counts and bounds of so many characters or bytes.
    Truncate(usize),
    /// Counts and whole bounds.
    Full,
}

const DEFAULT_MODE: MetricsMode = MetricsMode::Truncate(16);

impl MetricsMode {
    fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "none" => Some(Self::None),
            "counts" => Some(Self::Counts),
            "full" => Some(Self::Full),
            other => {
                let length = other.strip_prefix("truncate(")?.strip_suffix(')')?.trim().parse().ok()?;
                (length > 0).then_some(Self::Truncate(length))
            }
        }
    }
}

/// The mode of every primitive column of the current schema, by field id.
pub(crate) fn metrics_modes(metadata: &TableMetadata) -> HashMap<i32, MetricsMode> {
    modes(metadata.properties(), metadata.current_schema(), metadata.default_sort_order())
}

fn modes(properties: &HashMap<String, String>, schema: &Schema, order: &SortOrder) -> HashMap<i32, MetricsMode> {
    let columns = primitive_columns(schema);
    let explicit = properties.get(DEFAULT_KEY);
    let default = explicit.map_or(DEFAULT_MODE, |text| parse_or(text, DEFAULT_KEY, DEFAULT_MODE));
    let limit = match explicit {
        Some(_) => usize::MAX,
        None => properties.get(LIMIT_KEY).and_then(|t| t.trim().parse().ok()).unwrap_or(DEFAULT_LIMIT),
    };
    let mut modes: HashMap<i32, MetricsMode> =
        columns.iter().enumerate().map(|(i, id)| (*id, if i < limit { default } else { MetricsMode::None })).collect();
    for field in &order.fields {
        let ordered = !matches!(field.transform, Transform::Bucket(_) | Transform::Void | Transform::Unknown);
        if ordered && let Some(mode @ (MetricsMode::None | MetricsMode::Counts)) = modes.get_mut(&field.source_id) {
            *mode = DEFAULT_MODE;
        }
    }
    for (key, text) in properties {
        let Some(id) = key.strip_prefix(COLUMN_PREFIX).and_then(|name| schema.field_id_by_name(name)) else { continue };
        if let Some(mode) = modes.get_mut(&id) {
            *mode = parse_or(text, key, default);
        }
    }
    modes
}

fn parse_or(text: &str, key: &str, fallback: MetricsMode) -> MetricsMode {
    MetricsMode::parse(text).unwrap_or_else(|| {
        tracing::warn!(key, text, "unreadable metrics mode, the default is used");
        fallback
    })
}

/// Ids of primitive columns: those of a level before those nested in it.
fn primitive_columns(schema: &Schema) -> Vec<i32> {
    let mut found = Vec::new();
    let mut level: Vec<NestedFieldRef> = schema.as_struct().fields().to_vec();
    while !level.is_empty() {
        let mut below = Vec::new();
        for field in &level {
            match field.field_type.as_ref() {
                Type::Primitive(_) => found.push(field.id),
                Type::Struct(s) => below.extend(s.fields().iter().cloned()),
                Type::List(l) => below.push(l.element_field.clone()),
                Type::Map(m) => below.extend([m.key_field.clone(), m.value_field.clone()]),
            }
        }
        level = below;
    }
    found
}

/// How long bounds in footers must be to derive all bounds of these modes.
pub(crate) fn footer_bounds(modes: &HashMap<i32, MetricsMode>) -> FooterBounds {
    let mut longest = 0;
    for mode in modes.values() {
        match mode {
            MetricsMode::Full => return FooterBounds(None),
            MetricsMode::Truncate(length) => longest = longest.max(*length),
            MetricsMode::None | MetricsMode::Counts => {}
        }
    }
    FooterBounds::for_characters(longest)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use iceberg::spec::{NestedField, NullOrder, PrimitiveType, SortDirection, SortField};

    use super::*;

    fn schema(columns: i32) -> Schema {
        let fields = (1..=columns)
            .map(|id| Arc::new(NestedField::optional(id, format!("c{id}"), Type::Primitive(PrimitiveType::String))));
        Schema::builder().with_fields(fields).build().expect("a valid schema")
    }

    fn properties(entries: &[(&str, &str)]) -> HashMap<String, String> {
        entries.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
    }

    #[test]
    fn column_settings_win_and_bad_ones_fall_back() {
        let p = properties(&[
            ("write.metadata.metrics.default", "counts"),
            ("write.metadata.metrics.column.c1", "truncate(4)"),
            ("write.metadata.metrics.column.c2", "sometimes"),
            ("write.metadata.metrics.column.c3", "FULL"),
        ]);
        let m = modes(&p, &schema(4), &SortOrder::unsorted_order());
        let of = |id| m[&id];
        assert_eq!(
            [of(1), of(2), of(3), of(4)],
            [MetricsMode::Truncate(4), MetricsMode::Counts, MetricsMode::Full, MetricsMode::Counts]
        );
        assert_eq!(footer_bounds(&m), FooterBounds(None));
    }

    #[test]
    fn inferred_defaults_stop_at_the_limit_unless_one_is_set() {
        let m = modes(&properties(&[(LIMIT_KEY, "2")]), &schema(3), &SortOrder::unsorted_order());
        assert_eq!((m[&2], m[&3]), (MetricsMode::Truncate(16), MetricsMode::None));
        let p = properties(&[(LIMIT_KEY, "2"), (DEFAULT_KEY, "full")]);
        assert_eq!(modes(&p, &schema(3), &SortOrder::unsorted_order())[&3], MetricsMode::Full);
    }

    #[test]
    fn sorted_columns_always_get_bounds() {
        let field = SortField {
            source_id: 1,
            transform: Transform::Identity,
            direction: SortDirection::Ascending,
            null_order: NullOrder::First,
        };
        let order = SortOrder { order_id: 1, fields: vec![field] };
        let m = modes(&properties(&[(DEFAULT_KEY, "none")]), &schema(2), &order);
        assert_eq!((m[&1], m[&2]), (MetricsMode::Truncate(16), MetricsMode::None));
        let p = properties(&[(DEFAULT_KEY, "none"), ("write.metadata.metrics.column.c1", "none")]);
        assert_eq!(modes(&p, &schema(2), &order)[&1], MetricsMode::None);
    }
}
