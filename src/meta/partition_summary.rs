//! Partition summaries of the manifest list: what readers use to skip whole manifests, so they must cover every live value.
//!
//! Readers disagree about the order of UUIDs: Java compares them as two signed numbers, others as bytes. A summary cannot do
//! without bounds either, since readers take that for a manifest without values. So a manifest holds UUIDs of one
//! [`UuidClass`] only, among which all orders are the same.

use std::cmp::Ordering;

use iceberg::spec::{ByteBuf, FieldSummary, Literal, PrimitiveLiteral, Struct};

use super::schema::single_value;
use crate::error::{Error, Result};

/// The signs of both halves of each UUID among partition values. Empty for most tables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UuidClass(Vec<Option<(bool, bool)>>);

impl UuidClass {
    pub(crate) fn of(values: &Struct) -> Self {
        let is_uuid = |(_, value): &(usize, Option<&Literal>)| uuid(*value).is_some();
        let Some((last, _)) = values.iter().enumerate().filter(is_uuid).last() else { return Self(Vec::new()) };
        Self(values.iter().take(last + 1).map(|value| uuid(value).map(signs)).collect())
    }
}

fn uuid(value: Option<&Literal>) -> Option<u128> {
    match value {
        Some(Literal::Primitive(PrimitiveLiteral::UInt128(bits))) => Some(*bits),
        _ => None,
    }
}

/// Whether the upper and the lower half are negative as signed numbers.
fn signs(bits: u128) -> (bool, bool) {
    (bits >> 127 == 1, bits >> 63 & 1 == 1)
}

/// Collects the partitions of a manifest's entries.
#[derive(Debug)]
pub(crate) struct PartitionSummaries(Vec<FieldBounds>);

#[derive(Debug, Default, Clone)]
struct FieldBounds {
    contains_null: bool,
    contains_nan: bool,
    bounds: Option<(PrimitiveLiteral, PrimitiveLiteral)>,
}

impl PartitionSummaries {
    pub(crate) fn new(fields: usize) -> Self {
        Self(vec![FieldBounds::default(); fields])
    }

    /// Widens the summaries by one partition.
    pub(crate) fn add(&mut self, values: &Struct) -> Result<()> {
        if values.fields().len() != self.0.len() {
            let (is, should) = (values.fields().len(), self.0.len());
            return Err(Error::internal(format!("a partition of {is} values for a spec of {should} fields")));
        }
        for (field, value) in self.0.iter_mut().zip(values.iter()) {
            match value {
                None => field.contains_null = true,
                Some(Literal::Primitive(value)) if value.is_nan() => field.contains_nan = true,
                Some(Literal::Primitive(value)) => field.widen(value)?,
                Some(_) => return Err(Error::internal("a partition value that is not primitive")),
            }
        }
        Ok(())
    }

    /// The summaries, bounds in Iceberg's binary form.
    pub(crate) fn finish(self) -> Result<Vec<FieldSummary>> {
        let bytes = |value: &PrimitiveLiteral| {
            single_value(value)
                .map(ByteBuf::from)
                .ok_or_else(|| Error::internal("a partition value without binary form"))
        };
        let summary = |field: FieldBounds| {
            let (lower_bound, upper_bound) = match &field.bounds {
                Some((lower, upper)) => (Some(bytes(lower)?), Some(bytes(upper)?)),
                None => (None, None),
            };
            let FieldBounds { contains_null, contains_nan, .. } = field;
            Ok(FieldSummary { contains_null, contains_nan: Some(contains_nan), lower_bound, upper_bound })
        };
        self.0.into_iter().map(summary).collect()
    }
}

impl FieldBounds {
    fn widen(&mut self, value: &PrimitiveLiteral) -> Result<()> {
        let Some((lower, upper)) = &mut self.bounds else {
            self.bounds = Some((value.clone(), value.clone()));
            return Ok(());
        };
        if compare(value, lower)? == Ordering::Less {
            *lower = value.clone();
        } else if compare(value, upper)? == Ordering::Greater {
            *upper = value.clone();
        }
        Ok(())
    }
}

/// Iceberg's order of two values of one type: unsigned bytes for text and binary, -0.0 before 0.0.
fn compare(a: &PrimitiveLiteral, b: &PrimitiveLiteral) -> Result<Ordering> {
    use PrimitiveLiteral as L;
    Ok(match (a, b) {
        (L::Boolean(a), L::Boolean(b)) => a.cmp(b),
        (L::Int(a), L::Int(b)) => a.cmp(b),
        (L::Long(a), L::Long(b)) => a.cmp(b),
        (L::Float(a), L::Float(b)) => a.0.total_cmp(&b.0),
        (L::Double(a), L::Double(b)) => a.0.total_cmp(&b.0),
        (L::String(a), L::String(b)) => a.cmp(b),
        (L::Binary(a), L::Binary(b)) => a.cmp(b),
        (L::Int128(a), L::Int128(b)) => a.cmp(b),
        (L::UInt128(a), L::UInt128(b)) if signs(*a) == signs(*b) => a.cmp(b),
        (L::UInt128(_), L::UInt128(_)) => {
            return Err(Error::internal("UUIDs that readers order differently in one manifest"));
        }
        _ => return Err(Error::internal("partition values of different types in one field")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(values: Vec<Option<Literal>>) -> FieldSummary {
        let mut summaries = PartitionSummaries::new(1);
        for value in values {
            summaries.add(&Struct::from_iter([value])).expect("one field");
        }
        summaries.finish().expect("plain values").remove(0)
    }

    #[test]
    fn bounds_cover_every_value_and_are_never_cut() {
        let long = "x".repeat(40);
        let s =
            summary(vec![Some(Literal::string(&long)), Some(Literal::string("é")), Some(Literal::string("a")), None]);
        assert_eq!(s.lower_bound, Some(ByteBuf::from(b"a".to_vec())));
        assert_eq!(s.upper_bound, Some(ByteBuf::from("é".as_bytes().to_vec())));
        assert!(s.contains_null);
        let s = summary(vec![Some(Literal::string(&long))]);
        assert_eq!(s.upper_bound.map(|b| b.len()), Some(40));
        let s = summary(vec![Some(Literal::decimal(-129)), Some(Literal::decimal(128))]);
        assert_eq!(
            (s.lower_bound, s.upper_bound),
            (Some(ByteBuf::from(vec![0xff, 0x7f])), Some(ByteBuf::from(vec![0, 0x80])))
        );
    }

    #[test]
    fn uuids_share_a_manifest_only_where_signed_and_unsigned_order_agree() {
        let class = |upper: u64, lower: u64| {
            let bits = u128::from(upper) << 64 | u128::from(lower);
            UuidClass::of(&Struct::from_iter([None, Some(Literal::Primitive(PrimitiveLiteral::UInt128(bits))), None]))
        };
        let high = 1 << 63;
        let all = [class(0, 0), class(0, high), class(high, 0), class(high, high)];
        assert!((0..4).all(|i| (0..i).all(|j| all[i] != all[j])));
        assert_eq!(class(5, 7), class(high - 1, high - 1));
        assert_eq!(UuidClass::of(&Struct::from_iter([Some(Literal::long(-1)), None])), UuidClass(Vec::new()));
        let mut summaries = PartitionSummaries::new(1);
        let mut add =
            |bits| summaries.add(&Struct::from_iter([Some(Literal::Primitive(PrimitiveLiteral::UInt128(bits)))]));
        add(1).expect("the first");
        add(1 << 127).expect_err("bounds that some reader would misunderstand");
    }

    #[test]
    fn nan_is_no_bound() {
        let s = summary(vec![Some(Literal::double(f64::NAN)), Some(Literal::double(2.0)), Some(Literal::double(-1.0))]);
        assert_eq!(s.contains_nan, Some(true));
        assert_eq!(s.lower_bound, Some(ByteBuf::from((-1.0f64).to_le_bytes().to_vec())));
        assert_eq!(s.upper_bound, Some(ByteBuf::from(2.0f64.to_le_bytes().to_vec())));
        let s = summary(vec![Some(Literal::float(f32::NAN))]);
        assert_eq!((s.lower_bound, s.upper_bound, s.contains_null), (None, None, false));
    }

    #[test]
    fn a_partition_of_the_wrong_length_is_an_error() {
        assert!(PartitionSummaries::new(2).add(&Struct::from_iter([None])).is_err());
    }
}
