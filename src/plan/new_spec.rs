//! How many partitions of the current spec the rows of older files can fall into, as far as metadata tells. Pure.

use std::collections::HashSet;

use iceberg::spec::{Literal, PartitionField, PartitionSpec, TableMetadata, Transform};

use super::RewriteTask;

/// An upper bound of the number of partitions; `None` if only reading the files could tell.
///
/// A field of the current spec is determined by the file's own partition if that has a field of the same source with the same
/// transform or a finer one. A bucket field that is not has as many values as buckets, and null.
pub(super) fn partitions_at_most(tasks: &[RewriteTask], metadata: &TableMetadata) -> Option<u64> {
    let current = metadata.default_partition_spec();
    let mut places: HashSet<Vec<Option<&Literal>>> = HashSet::new();
    let mut buckets = 1_u64;
    for task in tasks {
        let partition = &task.data_file.partition;
        let spec = metadata.partition_spec_by_id(partition.spec_id)?;
        let (place, of_file) = place(spec, current, partition.values.fields())?;
        buckets = buckets.max(of_file);
        places.insert(place);
    }
    u64::try_from(places.len()).ok().map(|places| places.saturating_mul(buckets))
}

/// The values that determine where rows of a file go, and the number of buckets that each place is divided into.
fn place<'a>(
    own: &PartitionSpec,
    current: &PartitionSpec,
    values: &'a [Option<Literal>],
) -> Option<(Vec<Option<&'a Literal>>, u64)> {
    let (mut place, mut buckets) = (Vec::new(), 1_u64);
    for field in current.fields().iter().filter(|field| field.transform != Transform::Void) {
        let finer = own.fields().iter().position(|known| determines(known, field));
        match (finer, field.transform) {
            (Some(index), _) => place.push(values.get(index)?.as_ref()),
            (None, Transform::Bucket(count)) => buckets = buckets.saturating_mul(u64::from(count) + 1),
            (None, _) => return None,
        }
    }
    Some((place, buckets))
}

/// Whether rows of one value of `known` have one value of `field`.
fn determines(known: &PartitionField, field: &PartitionField) -> bool {
    const TIMES: [Transform; 4] = [Transform::Hour, Transform::Day, Transform::Month, Transform::Year];
    let coarseness = |transform| TIMES.iter().position(|time| *time == transform);
    let finer = match (coarseness(known.transform), coarseness(field.transform)) {
        (Some(known), Some(field)) => known <= field,
        _ => known.transform == field.transform || known.transform == Transform::Identity,
    };
    known.source_id == field.source_id && finer
}
