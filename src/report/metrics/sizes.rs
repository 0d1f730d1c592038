//! Histograms of file sizes. They show how things are, so they are set as a whole, which the library's histograms, made for
//! counting what happens, cannot do.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use super::definitions::Definition;
use super::{Labels, VALID};

/// The histograms of all tables.
#[derive(Clone)]
pub(super) struct SizeCollector {
    definition: &'static Definition,
    description: Arc<Desc>,
    /// By catalog, namespace and table: files in each bucket, and behind them the sum of their sizes.
    histograms: Arc<Mutex<BTreeMap<[String; 3], Vec<f64>>>>,
}

impl SizeCollector {
    pub(super) fn new(definition: &'static Definition) -> Self {
        let labels = definition.labels.iter().map(|label| (*label).to_owned()).collect();
        let description = Desc::new(definition.name.to_owned(), definition.help.to_owned(), labels, Default::default());
        Self { definition, description: Arc::new(description.expect(VALID)), histograms: Arc::default() }
    }

    /// Replaces a table's histogram.
    pub(super) fn set(&self, labels: &Labels<'_>, values: &[f64]) {
        self.histograms.lock().insert(key(labels), values.to_vec());
    }

    pub(super) fn remove(&self, labels: &Labels<'_>) {
        self.histograms.lock().remove(&key(labels));
    }

    fn metric(&self, key: &[String; 3], values: &[f64]) -> Metric {
        let pair = |(name, value): (&&str, &String)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value.clone());
            pair
        };
        let (counts, sum) = values.split_at(values.len().saturating_sub(1));
        // The bucket without a bound is written from the count of all.
        let mut total = 0.0;
        let mut buckets = Vec::with_capacity(counts.len());
        for (bound, files) in self.definition.buckets().into_iter().zip(counts) {
            total += files;
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(total as u64);
            buckets.push(bucket);
        }
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets);
        histogram.set_sample_count(counts.iter().sum::<f64>() as u64);
        histogram.set_sample_sum(sum.iter().sum());
        let mut metric = Metric::from_label(self.definition.labels.iter().zip(key).map(pair).collect());
        metric.set_histogram(histogram);
        metric
    }
}

fn key(labels: &Labels<'_>) -> [String; 3] {
    [labels.catalog, &labels.namespace, labels.table].map(str::to_owned)
}

impl Collector for SizeCollector {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.description]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut family = MetricFamily::default();
        family.set_name(self.definition.name.to_owned());
        family.set_help(self.definition.help.to_owned());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(self.histograms.lock().iter().map(|(key, values)| self.metric(key, values)).collect());
        vec![family]
    }
}
