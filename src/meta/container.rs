//! Avro container files: header, blocks, codecs. The reader is hardened like [`super::avro`]; the writer makes one file in memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use super::avro::{Decoder, Type, put_bytes, put_long};
use crate::error::{Context, Error, Result};

const MAGIC: &[u8] = b"Obj\x01";
const SYNC_LEN: usize = 16;
/// A block may not inflate past this, in bytes: about 300,000 entries with full metrics.
const BLOCK_MAX: usize = 256 << 20;
/// Blocks of the writer are closed at about this many bytes, before compression.
const BLOCK_TARGET: usize = 64 << 10;

/// How blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Null,
    /// Raw deflate; Iceberg calls it gzip.
    Deflate,
    /// Snappy with a CRC-32.
    Snappy,
    Zstandard,
}

impl Codec {
    /// Avro's name.
    fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Deflate => "deflate",
            Self::Snappy => "snappy",
            Self::Zstandard => "zstandard",
        }
    }

    fn from_name(name: &[u8]) -> Option<Self> {
        [Self::Null, Self::Deflate, Self::Snappy, Self::Zstandard].into_iter().find(|c| c.name().as_bytes() == name)
    }

    fn inflate(self, data: &[u8], max: usize) -> Result<Cow<'_, [u8]>> {
        let limit = (max as u64).saturating_add(1);
        let mut out = Vec::new();
        let read = match self {
            Self::Null => return Ok(Cow::Borrowed(data)),
            Self::Deflate => flate2::read::DeflateDecoder::new(data).take(limit).read_to_end(&mut out),
            Self::Zstandard => zstd::stream::read::Decoder::with_buffer(data)
                .and_then(|decoder| decoder.take(limit).read_to_end(&mut out)),
            Self::Snappy => return unsnap(data, max).map(Cow::Owned),
        };
        read.map_err(|e| Error::invalid(format!("{} block is damaged: {e}", self.name())))?;
        if out.len() > max {
            return Err(Error::invalid(format!("block inflates past {max} bytes")));
        }
        Ok(Cow::Owned(out))
    }

    fn deflate(self, data: &[u8]) -> Result<Vec<u8>> {
        let failed = |e: &dyn std::fmt::Display| Error::internal(format!("compress avro block: {e}"));
        match self {
            Self::Null => Ok(data.to_vec()),
            Self::Deflate => {
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(data).and_then(|()| encoder.finish()).map_err(|e| failed(&e))
            }
            Self::Zstandard => zstd::stream::encode_all(data, 0).map_err(|e| failed(&e)),
            Self::Snappy => {
                let mut out = snap::raw::Encoder::new().compress_vec(data).map_err(|e| failed(&e))?;
                out.extend_from_slice(&crc(data).to_be_bytes());
                Ok(out)
            }
        }
    }
}

fn crc(data: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(data);
    crc.sum()
}

fn unsnap(data: &[u8], max: usize) -> Result<Vec<u8>> {
    let damaged = |what: &dyn std::fmt::Display| Error::invalid(format!("snappy block is damaged: {what}"));
    let (body, sum) = data.split_last_chunk::<4>().ok_or_else(|| damaged(&"too short"))?;
    if snap::raw::decompress_len(body).map_err(|e| damaged(&e))? > max {
        return Err(damaged(&"inflates too far"));
    }
    let out = snap::raw::Decoder::new().decompress_vec(body).map_err(|e| damaged(&e))?;
    if crc(&out) != u32::from_be_bytes(*sum) {
        return Err(damaged(&"checksum differs"));
    }
    Ok(out)
}

#[derive(Debug)]
pub(crate) struct Container<'a> {
    file: &'a str,
    bytes: &'a [u8],
    codec: Codec,
    sync: [u8; SYNC_LEN],
    body_at: usize,
    /// Key-value metadata, with `avro.schema` and `avro.codec`.
    pub(crate) metadata: BTreeMap<String, Vec<u8>>,
    pub(crate) schema: Arc<Type>,
}

impl<'a> Container<'a> {
    /// Reads the header of `bytes`, the content of `file`.
    pub(crate) fn open(file: &'a str, bytes: &'a [u8]) -> Result<Self> {
        let mut decoder = Decoder::new(bytes, file, 0);
        if decoder.take(MAGIC.len())? != MAGIC {
            return Err(Error::invalid(format!("{file}: not an avro container file")));
        }
        let map = Type::parse(&serde_json::json!({"type": "array", "items": "null"}))?;
        let mut metadata = BTreeMap::new();
        // A map of bytes is encoded like an array of pairs.
        decoder.opt_array(&map, |d, _| {
            let key = std::str::from_utf8(d.raw_bytes()?).map_err(|_| d.error("metadata key is not UTF-8"))?;
            metadata.insert(key.to_owned(), d.raw_bytes()?.to_vec());
            Ok(())
        })?;
        let mut sync = [0; SYNC_LEN];
        sync.copy_from_slice(decoder.take(SYNC_LEN)?);
        let schema = metadata.get("avro.schema").ok_or_else(|| decoder.error("no avro.schema in the header"))?;
        let schema: serde_json::Value =
            serde_json::from_slice(schema).context(|| format!("{file}: parse avro.schema"))?;
        let codec = match metadata.get("avro.codec") {
            None => Codec::Null,
            Some(name) => Codec::from_name(name).ok_or_else(|| {
                let name = String::from_utf8_lossy(name);
                Error::unsupported(format!(
                    "{file}: avro codec {name:?}; null, deflate, snappy and zstandard are known"
                ))
            })?,
        };
        let schema = Type::parse(&schema).context(|| format!("{file}: parse avro.schema"))?;
        Ok(Self { file, bytes, codec, sync, body_at: decoder.position(), metadata, schema })
    }

    /// Calls `each` at the start of every record; `each` must consume the record. Returns the number of records.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&mut Decoder<'_>) -> Result<()>) -> Result<u64> {
        let mut outer = Decoder::new(self.bytes, self.file, 0);
        outer.take(self.body_at)?;
        let mut records = 0;
        while outer.remaining() > 0 {
            let block_at = outer.position();
            let count = outer.long()?;
            let data = outer.raw_bytes()?;
            if outer.take(SYNC_LEN)? != self.sync {
                return Err(outer.error("sync marker differs"));
            }
            let data =
                self.codec.inflate(data, BLOCK_MAX).context(|| format!("{}: block at byte {block_at}", self.file))?;
            let mut decoder = Decoder::new(&data, self.file, block_at);
            let count = u64::try_from(count).ok().filter(|n| *n <= data.len() as u64);
            let count = count.ok_or_else(|| decoder.error("record count cannot be right"))?;
            for _ in 0..count {
                each(&mut decoder)?;
            }
            if decoder.remaining() > 0 {
                return Err(decoder.error("bytes left after the last record of a block"));
            }
            records += count;
        }
        Ok(records)
    }
}

/// Makes a container file in memory.
#[derive(Debug)]
pub(crate) struct ContainerWriter {
    out: Vec<u8>,
    header_len: usize,
    codec: Codec,
    sync: [u8; SYNC_LEN],
    block: Vec<u8>,
    count: i64,
}

impl ContainerWriter {
    /// A file with this metadata, which must hold `avro.schema`. `sync` should be random.
    pub(crate) fn new(mut metadata: BTreeMap<String, Vec<u8>>, codec: Codec, sync: [u8; SYNC_LEN]) -> Self {
        metadata.insert("avro.codec".into(), codec.name().into());
        let mut out = MAGIC.to_vec();
        put_long(&mut out, i64::try_from(metadata.len()).unwrap_or(i64::MAX));
        for (key, value) in &metadata {
            put_bytes(&mut out, key.as_bytes());
            put_bytes(&mut out, value);
        }
        put_long(&mut out, 0);
        out.extend_from_slice(&sync);
        Self { header_len: out.len(), out, codec, sync, block: Vec::new(), count: 0 }
    }

    /// Appends a record: `encode` writes its bytes.
    pub(crate) fn append(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        encode(&mut self.block);
        self.count += 1;
        if self.block.len() >= BLOCK_TARGET { self.flush() } else { Ok(()) }
    }

    pub(crate) fn body_len(&self) -> usize {
        self.out.len() - self.header_len
    }

    fn flush(&mut self) -> Result<()> {
        if self.count > 0 {
            put_long(&mut self.out, self.count);
            put_bytes(&mut self.out, &self.codec.deflate(&self.block)?);
            self.out.extend_from_slice(&self.sync);
            self.block.clear();
            self.count = 0;
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<Vec<u8>> {
        self.flush()?;
        Ok(self.out)
    }
}

/// The same file with its blocks in another codec.
pub(crate) fn recode(file: &str, bytes: &[u8], codec: Codec) -> Result<Vec<u8>> {
    let container = Container::open(file, bytes)?;
    let mut writer = ContainerWriter::new(container.metadata.clone(), codec, container.sync);
    container.for_each(|decoder| {
        let start = decoder.position();
        decoder.skip(&container.schema)?;
        let record = decoder.since(start);
        writer.append(|out| out.extend_from_slice(record))
    })?;
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(codec: Codec, records: i64) -> Vec<u8> {
        let metadata = BTreeMap::from([("avro.schema".to_owned(), br#"{"type":"long"}"#.to_vec())]);
        let mut writer = ContainerWriter::new(metadata, codec, [7; SYNC_LEN]);
        for n in 0..records {
            writer.append(|out| put_long(out, n * 1000)).expect("small");
        }
        writer.finish().expect("small")
    }

    fn sum(bytes: &[u8]) -> Result<i64> {
        let mut sum = 0;
        Container::open("f", bytes)?.for_each(|d| {
            sum += d.long()?;
            Ok(())
        })?;
        Ok(sum)
    }

    #[test]
    fn every_codec_round_trips_over_several_blocks() {
        for codec in [Codec::Null, Codec::Deflate, Codec::Snappy, Codec::Zstandard] {
            let bytes = sample(codec, 50_000);
            assert_eq!(sum(&bytes).expect("valid"), 50_000 * 49_999 / 2 * 1000, "{codec:?}");
            assert_eq!(
                sum(&recode("f", &bytes, Codec::Deflate).expect("valid")).expect("valid"),
                sum(&bytes).expect("valid")
            );
        }
    }

    #[test]
    fn a_changed_sync_marker_or_checksum_or_codec_is_an_error() {
        let mut bytes = sample(Codec::Null, 10);
        *bytes.last_mut().expect("not empty") ^= 1;
        assert!(sum(&bytes).expect_err("sync").to_string().contains("sync marker"));
        let mut bytes = sample(Codec::Snappy, 10);
        let at = bytes.len() - SYNC_LEN - 1;
        bytes[at] ^= 1;
        assert!(sum(&bytes).expect_err("crc").to_string().contains("checksum"));
        let bytes = sample(Codec::Null, 10);
        let text = String::from_utf8_lossy(&bytes).replace("null", "xz22");
        let error = sum(text.as_bytes()).expect_err("codec");
        assert_eq!(error.kind(), crate::error::ErrorKind::Unsupported);
    }

    #[test]
    fn a_bomb_is_refused() {
        let zeros = vec![0; 100_000];
        for codec in [Codec::Deflate, Codec::Snappy, Codec::Zstandard] {
            let packed = codec.deflate(&zeros).expect("packs");
            assert!(codec.inflate(&packed, 99_999).is_err(), "{codec:?}");
            assert_eq!(codec.inflate(&packed, 100_000).expect("fits").len(), 100_000);
        }
    }
}
