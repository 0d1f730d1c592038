//! The table's write properties as Parquet writer properties. What cannot be honoured is refused. Pure.

use std::collections::HashMap;
use std::str::FromStr;

use iceberg::spec::Schema;
use parquet::basic::{BrotliLevel, Compression, GzipLevel, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder, WriterVersion};
use parquet::schema::types::{ColumnPath, SchemaDescriptor};

use crate::error::{Error, Result};

const PREFIX: &str = "write.parquet.";
/// Levels that the reference implementation's codecs use when the table names none.
const ZSTD_LEVEL: i32 = 3;
const GZIP_LEVEL: u32 = 6;
const BROTLI_LEVEL: u32 = 1;
/// Encoded bytes of a row group where the table says nothing.
pub(crate) const ROW_GROUP_BYTES: usize = 128 << 20;
/// Parquet's longest bounds in a footer, unless a metrics mode wants more.
const FOOTER_BOUND_BYTES: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct FileSettings {
    pub writer: WriterProperties,
    /// Encoded bytes at which a row group ends.
    pub row_group_bytes: u64,
    /// How many times larger than its input an output may become, at worst.
    pub growth: u64,
}

/// How long bounds in footers must be for the manifest's bounds to be exact; `None`: whole values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FooterBounds(pub Option<usize>);

impl FooterBounds {
    /// Long enough for bounds of `characters` characters.
    pub(crate) fn for_characters(characters: usize) -> Self {
        Self(Some(characters.saturating_add(1).saturating_mul(4).max(FOOTER_BOUND_BYTES)))
    }
}

/// A property's value, or its default; an unreadable value is refused with its name.
pub(crate) fn parsed<T: FromStr>(properties: &HashMap<String, String>, key: &str, default: T) -> Result<T> {
    match properties.get(key) {
        Some(text) => text.trim().parse().map_err(|_| {
            Error::invalid(format!("table property {key} = {text:?} cannot be read: correct or unset it"))
        }),
        None => Ok(default),
    }
}

/// A boolean property as the reference implementation reads it.
pub(crate) fn flag(properties: &HashMap<String, String>, key: &str, default: bool) -> bool {
    properties.get(key).map_or(default, |text| text.trim().eq_ignore_ascii_case("true"))
}

/// Reads the settings of output files from table properties.
pub(crate) fn file_settings(
    properties: &HashMap<String, String>,
    schema: &Schema,
    parquet_schema: &SchemaDescriptor,
    bounds: FooterBounds,
) -> Result<FileSettings> {
    let key = |name: &str| format!("{PREFIX}{name}");
    let positive = |name: &str, default: usize| -> Result<usize> {
        match parsed(properties, &key(name), default)? {
            0 => Err(Error::invalid(format!("table property {} must be positive", key(name)))),
            n => Ok(n),
        }
    };
    let version = match properties.get(&key("page-version")).map_or("v1", String::as_str) {
        v if v.eq_ignore_ascii_case("v1") => WriterVersion::PARQUET_1_0,
        v if v.eq_ignore_ascii_case("v2") => WriterVersion::PARQUET_2_0,
        other => return Err(Error::unsupported(format!("{} = {other:?}: v1 or v2", key("page-version")))),
    };
    let iceberg_schema = KeyValue::new("iceberg.schema".into(), serde_json::to_string(schema)?);
    let compression = compression(properties)?;
    let growth = if compression == Compression::UNCOMPRESSED { 10 } else { 3 };
    let mut builder = WriterProperties::builder()
        .set_created_by(concat!("icewright version ", env!("CARGO_PKG_VERSION")).into())
        .set_writer_version(version)
        .set_compression(compression)
        .set_data_page_size_limit(positive("page-size-bytes", 1 << 20)?)
        .set_data_page_row_count_limit(positive("page-row-limit", 20_000)?)
        .set_dictionary_page_size_limit(positive("dict-size-bytes", 2 << 20)?)
        .set_statistics_truncate_length(bounds.0)
        .set_max_row_group_row_count(None)
        .set_key_value_metadata(Some(vec![iceberg_schema]));
    for (id, path) in column_paths(parquet_schema) {
        if let Some(name) = schema.name_by_field_id(id) {
            builder = column_settings(builder, properties, name, path)?;
        }
    }
    let row_group_bytes = positive("row-group-size-bytes", ROW_GROUP_BYTES)? as u64;
    Ok(FileSettings { writer: builder.build(), row_group_bytes, growth })
}

/// Field ids and paths of the leaf columns.
fn column_paths(parquet_schema: &SchemaDescriptor) -> impl Iterator<Item = (i32, ColumnPath)> {
    parquet_schema.columns().iter().filter_map(|column| {
        let info = column.self_type().get_basic_info();
        info.has_id().then(|| (info.id(), column.path().clone()))
    })
}

fn column_settings(
    mut builder: WriterPropertiesBuilder,
    properties: &HashMap<String, String>,
    name: &str,
    path: ColumnPath,
) -> Result<WriterPropertiesBuilder> {
    let key = |setting: &str| format!("{PREFIX}{setting}.column.{name}");
    if properties.contains_key(&key("dict-encoding-enabled")) {
        let enabled = flag(properties, &key("dict-encoding-enabled"), true);
        builder = builder.set_column_dictionary_enabled(path.clone(), enabled);
    }
    if properties.contains_key(&key("stats-enabled")) && !flag(properties, &key("stats-enabled"), true) {
        builder = builder.set_column_statistics_enabled(path.clone(), EnabledStatistics::None);
    }
    if flag(properties, &key("bloom-filter-enabled"), false) {
        let fpp: f64 = parsed(properties, &key("bloom-filter-fpp"), 0.01)?;
        if !(fpp > 0.0 && fpp < 1.0) {
            return Err(Error::invalid(format!("table property {} must lie between 0 and 1", key("bloom-filter-fpp"))));
        }
        let max_bytes: u64 = parsed(properties, "write.parquet.bloom-filter-max-bytes", 1 << 20)?;
        let fitting = fitting_ndv(max_bytes, fpp);
        let ndv = parsed(properties, &key("bloom-filter-ndv"), fitting)?.clamp(1, fitting);
        builder = builder
            .set_column_bloom_filter_enabled(path.clone(), true)
            .set_column_bloom_filter_fpp(path.clone(), fpp)
            .set_column_bloom_filter_ndv(path, ndv);
    }
    Ok(builder)
}

/// Distinct values that a split-block bloom filter of `max_bytes` holds at the false positive rate `fpp`.
fn fitting_ndv(max_bytes: u64, fpp: f64) -> u64 {
    let bits = max_bytes.saturating_mul(8) as f64;
    let values = -bits * (1.0 - fpp.powf(0.125)).ln() / 8.0;
    (values.floor() as u64).max(1)
}

fn compression(properties: &HashMap<String, String>) -> Result<Compression> {
    let codec_key = format!("{PREFIX}compression-codec");
    let level_key = format!("{PREFIX}compression-level");
    let codec = properties.get(&codec_key).map_or("gzip", String::as_str);
    let bad_level = |e: parquet::errors::ParquetError| {
        Error::invalid(format!("table property {level_key}: {e}: correct or unset it"))
    };
    Ok(match codec.to_ascii_lowercase().as_str() {
        "uncompressed" | "none" => Compression::UNCOMPRESSED,
        "snappy" => Compression::SNAPPY,
        // The same algorithm without the undocumented framing of Parquet's deprecated codec, which not every reader knows.
        "lz4" | "lz4_raw" => Compression::LZ4_RAW,
        "gzip" => {
            let level = parsed(properties, &level_key, GZIP_LEVEL)?;
            Compression::GZIP(GzipLevel::try_new(level).map_err(bad_level)?)
        }
        "zstd" => {
            let level = parsed(properties, &level_key, ZSTD_LEVEL)?;
            Compression::ZSTD(ZstdLevel::try_new(level).map_err(bad_level)?)
        }
        "brotli" => {
            let level = parsed(properties, &level_key, BROTLI_LEVEL)?;
            Compression::BROTLI(BrotliLevel::try_new(level).map_err(bad_level)?)
        }
        other => {
            return Err(Error::unsupported(format!(
                "{codec_key} = {other:?} cannot be written: use zstd, gzip, snappy, lz4, lz4_raw, brotli or uncompressed"
            )));
        }
    })
}
