//! One manifest entry as it lies in the file, borrowed from the block.

use std::sync::Arc;

use super::avro::{Decoder, Field, Type};
use super::container::Container;
use crate::error::{Error, Result};

/// Field id of the path column in position delete files.
const DELETE_FILE_PATH: i32 = 2_147_483_546;

const PARTITION: i32 = 102;

/// Status of an entry: still there from an earlier snapshot, added, deleted.
pub(crate) const EXISTING: i32 = 0;
/// See [`EXISTING`].
pub(crate) const ADDED: i32 = 1;
/// See [`EXISTING`].
pub(crate) const DELETED: i32 = 2;

/// What is decoded of each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    Paths,
    /// Everything but column metrics.
    Full,
}

/// An entry's fields, before anything is inherited.
#[derive(Debug, Default)]
pub(crate) struct RawEntry<'a> {
    pub(crate) status: i32,
    pub(crate) snapshot_id: Option<i64>,
    pub(crate) sequence_number: Option<i64>,
    pub(crate) file_sequence_number: Option<i64>,
    pub(crate) data_file: &'a [u8],
    pub(crate) content: i32,
    pub(crate) file_path: &'a str,
    pub(crate) file_format: &'a str,
    pub(crate) partition: &'a [u8],
    pub(crate) record_count: i64,
    pub(crate) file_size: i64,
    pub(crate) encrypted: bool,
    pub(crate) equality_ids: Vec<i32>,
    pub(crate) sort_order_id: Option<i32>,
    pub(crate) first_row_id: Option<i64>,
    pub(crate) referenced_data_file: Option<&'a str>,
    pub(crate) content_offset: Option<i64>,
    pub(crate) content_size: Option<i64>,
    lower_path: Option<&'a [u8]>,
    upper_path: Option<&'a [u8]>,
}

impl<'a> RawEntry<'a> {
    /// See [`crate::table::FileEntry::path_bound`].
    pub(crate) fn path_bound(&self) -> Option<&'a str> {
        let bound = self.lower_path.filter(|lower| self.content == 1 && Some(*lower) == self.upper_path)?;
        std::str::from_utf8(bound).ok()
    }
}

/// Where an entry's fields lie in the writer's schema.
#[derive(Debug)]
pub(crate) struct Layout {
    root: Arc<Type>,
    pub(crate) partition: Option<Arc<Type>>,
}

impl Layout {
    /// Of an opened manifest.
    pub(crate) fn of(file: &str, container: &Container<'_>) -> Result<Self> {
        let wrong = |what: &str| Error::invalid(format!("{file}: not a manifest: {what}"));
        let fields = container.schema.fields().ok_or_else(|| wrong("entries are no records"))?;
        let data_file = fields.iter().find(|f| f.id == 2).ok_or_else(|| wrong("no data_file (field id 2)"))?;
        let data_file = data_file.ty.fields().ok_or_else(|| wrong("data_file is no record"))?;
        for (id, name) in [(100, "file_path"), (104, "file_size_in_bytes")] {
            if !data_file.iter().any(|f| f.id == id) {
                return Err(wrong(&format!("no {name} (field id {id})")));
            }
        }
        if !fields.iter().any(|f| f.id == 0) {
            return Err(wrong("no status (field id 0)"));
        }
        let layout = Self::with_root(container.schema.clone());
        // The Java library (1.9.2) puts the length before `fixed` partition values, against the schema that it writes beside
        // them: such a manifest can be read only in this other way.
        match container.schema.with_counted_fixed(PARTITION)?.map(Self::with_root) {
            Some(counted) if !layout.fits(container) && counted.fits(container) => Ok(counted),
            _ => Ok(layout),
        }
    }

    fn with_root(root: Arc<Type>) -> Self {
        let data_file = root.fields().and_then(|fields| fields.iter().find(|f| f.id == 2)).and_then(|f| f.ty.fields());
        let partition = data_file.and_then(|fields| fields.iter().find(|f| f.id == PARTITION)).map(|f| f.ty.clone());
        Self { root, partition }
    }

    /// Whether every entry can be read so.
    fn fits(&self, container: &Container<'_>) -> bool {
        container.for_each(|decoder| self.decode(decoder, Detail::Paths).map(drop)).is_ok()
    }

    pub(crate) fn decode<'a>(&self, decoder: &mut Decoder<'a>, detail: Detail) -> Result<RawEntry<'a>> {
        let mut entry = RawEntry { status: -1, record_count: -1, file_size: -1, ..RawEntry::default() };
        let fields = decoder.record(&self.root)?.ok_or_else(|| decoder.error("an entry is null"))?;
        for Field { id, ty } in fields {
            match id {
                0 => entry.status = decoder.opt_int(ty)?.unwrap_or(-1),
                1 => entry.snapshot_id = decoder.opt_long(ty)?,
                2 => data_file(decoder, ty, detail, &mut entry)?,
                3 => entry.sequence_number = decoder.opt_long(ty)?,
                4 => entry.file_sequence_number = decoder.opt_long(ty)?,
                _ => decoder.skip(ty)?,
            }
        }
        if !(EXISTING..=DELETED).contains(&entry.status) {
            return Err(decoder.error(format!("entry status {} is unknown", entry.status)));
        }
        if entry.file_path.is_empty() {
            return Err(decoder.error("entry without a file path"));
        }
        Ok(entry)
    }
}

fn data_file<'a>(decoder: &mut Decoder<'a>, ty: &Type, detail: Detail, entry: &mut RawEntry<'a>) -> Result<()> {
    let start = decoder.position();
    let fields = decoder.record(ty)?.ok_or_else(|| decoder.error("entry without a data file"))?;
    for Field { id, ty } in fields {
        let full = detail == Detail::Full;
        match id {
            134 => entry.content = decoder.opt_int(ty)?.unwrap_or(0),
            100 => entry.file_path = decoder.opt_text(ty)?.unwrap_or_default(),
            104 => entry.file_size = decoder.opt_long(ty)?.unwrap_or(-1),
            101 if full => entry.file_format = decoder.opt_text(ty)?.unwrap_or_default(),
            &PARTITION if full => {
                let start = decoder.position();
                decoder.skip(ty)?;
                entry.partition = decoder.since(start);
            }
            103 if full => entry.record_count = decoder.opt_long(ty)?.unwrap_or(-1),
            125 if full => entry.lower_path = path_bound(decoder, ty)?,
            128 if full => entry.upper_path = path_bound(decoder, ty)?,
            131 if full => entry.encrypted = decoder.opt_bytes(ty)?.is_some_and(|k| !k.is_empty()),
            135 if full => entry.equality_ids = ints(decoder, ty)?,
            140 if full => entry.sort_order_id = decoder.opt_int(ty)?,
            142 if full => entry.first_row_id = decoder.opt_long(ty)?,
            143 if full => entry.referenced_data_file = decoder.opt_text(ty)?,
            144 if full => entry.content_offset = decoder.opt_long(ty)?,
            145 if full => entry.content_size = decoder.opt_long(ty)?,
            _ => decoder.skip(ty)?,
        }
    }
    entry.data_file = decoder.since(start);
    Ok(())
}

fn ints(decoder: &mut Decoder<'_>, ty: &Type) -> Result<Vec<i32>> {
    let mut values = Vec::new();
    decoder.opt_array(ty, |d, item| {
        values.extend(d.opt_int(item)?);
        Ok(())
    })?;
    Ok(values)
}

/// The bound of the path column in a map of bounds (an array of pairs with keys 126/129 and values 127/130, in any order).
fn path_bound<'a>(decoder: &mut Decoder<'a>, ty: &Type) -> Result<Option<&'a [u8]>> {
    let mut bound = None;
    decoder.opt_array(ty, |d, item| {
        let (mut key, mut value) = (None, None);
        for Field { id, ty } in d.record(item)?.unwrap_or_default() {
            match id {
                126 | 129 => key = d.opt_int(ty)?,
                127 | 130 => value = d.opt_bytes(ty)?,
                _ => d.skip(ty)?,
            }
        }
        if key == Some(DELETE_FILE_PATH) {
            bound = value;
        }
        Ok(())
    })?;
    Ok(bound)
}
