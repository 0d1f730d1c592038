//! Partition values as keys: which of them are the same partition.

use std::hash::{Hash, Hasher};

use iceberg::spec::{Literal, PrimitiveLiteral, Struct};

/// The values of a partition, one per field of its spec.
///
/// Two of them are equal where the reference implementation, which compares floats as Java does, sees one partition: 0.0 and
/// -0.0 are two values, and all NaNs are one. The library's own [`Struct`] takes the two zeros for one, so it must not be a key.
#[derive(Debug, Clone)]
pub struct PartitionValues(Struct);

impl PartitionValues {
    /// Of an unpartitioned spec.
    pub fn empty() -> Self {
        Self(Struct::empty())
    }

    /// One value per field; `None` is NULL.
    pub fn fields(&self) -> &[Option<Literal>] {
        self.0.fields()
    }

    /// The values in the order of the fields.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&Literal>> {
        self.0.iter()
    }

    /// As the library's writers want them.
    pub fn as_struct(&self) -> &Struct {
        &self.0
    }
}

impl From<Struct> for PartitionValues {
    fn from(values: Struct) -> Self {
        Self(values)
    }
}

impl FromIterator<Option<Literal>> for PartitionValues {
    fn from_iter<I: IntoIterator<Item = Option<Literal>>>(values: I) -> Self {
        Self(Struct::from_iter(values))
    }
}

impl PartialEq for PartitionValues {
    fn eq(&self, other: &Self) -> bool {
        let (own, others) = (self.fields(), other.fields());
        own.len() == others.len() && own.iter().zip(others).all(|(a, b)| key(a.as_ref()) == key(b.as_ref()))
    }
}

impl Eq for PartitionValues {}

impl Hash for PartitionValues {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fields().len().hash(state);
        self.fields().iter().for_each(|value| key(value.as_ref()).hash(state));
    }
}

/// What is compared of a value.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Float(u32),
    Double(u64),
    Other(Option<&'a Literal>),
}

fn key(value: Option<&Literal>) -> Key<'_> {
    match value {
        Some(Literal::Primitive(PrimitiveLiteral::Float(v))) => Key::Float(one_nan_f32(v.0).to_bits()),
        Some(Literal::Primitive(PrimitiveLiteral::Double(v))) => Key::Double(one_nan_f64(v.0).to_bits()),
        other => Key::Other(other),
    }
}

/// The value with one bit pattern for all NaNs, so that bits can be compared.
pub fn one_nan_f32(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value }
}

/// See [`one_nan_f32`].
pub fn one_nan_f64(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn of(value: Literal) -> PartitionValues {
        PartitionValues::from_iter([Some(value), None])
    }

    fn distinct(values: Vec<Literal>) -> usize {
        values.into_iter().map(of).collect::<HashSet<_>>().len()
    }

    #[test]
    fn the_two_zeros_are_two_partitions_and_all_nans_are_one() {
        assert_eq!(distinct(vec![Literal::double(0.0), Literal::double(-0.0)]), 2);
        assert_eq!(distinct(vec![Literal::float(0.0), Literal::float(-0.0)]), 2);
        let odd = f64::from_bits(0xfff8_0000_0000_0001);
        assert_eq!(distinct(vec![Literal::double(f64::NAN), Literal::double(odd), Literal::double(-f64::NAN)]), 1);
        let odd = f32::from_bits(0xffc0_0001);
        assert_eq!(distinct(vec![Literal::float(f32::NAN), Literal::float(odd)]), 1);
        assert_ne!(of(Literal::double(0.0)), of(Literal::double(-0.0)));
        assert_eq!(of(Literal::double(1.5)), of(Literal::double(1.5)));
    }

    #[test]
    fn values_of_other_types_number_and_place_differ() {
        assert_ne!(of(Literal::long(1)), of(Literal::int(1)));
        assert_ne!(of(Literal::long(1)), PartitionValues::from_iter([None, Some(Literal::long(1))]));
        assert_ne!(PartitionValues::from_iter([None]), PartitionValues::from_iter([None, None]));
        assert_eq!(of(Literal::string("a")), of(Literal::string("a")));
    }
}
