//! Reopens an output file from the store and compares it with what its manifest entry will say.

use iceberg::spec::{DataFile, Schema, Type};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;

use crate::error::{Error, Result};
use crate::rewrite::reader::read_footer;
use crate::storage::Store;

/// Checks size, rows, field ids and counts. Anything unexpected is a bug of ours or damage on the way to the store.
pub(crate) async fn verify(store: &dyn Store, file: &DataFile, schema: &Schema) -> Result<u64> {
    let path = file.file_path();
    let wrong = |what: String| Error::internal(format!("output {path} was written wrongly: {what}"));
    let found = store.stat(path).await?.ok_or_else(|| wrong("it is not there".into()))?;
    if found.size != file.file_size_in_bytes() {
        return Err(wrong(format!("it has {} bytes instead of {}", found.size, file.file_size_in_bytes())));
    }
    let footer = read_footer(store, path, found.size).await?;
    let rows = u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0);
    if rows != file.record_count() {
        return Err(wrong(format!("it has {rows} rows instead of {}", file.record_count())));
    }
    check_columns(&footer, file, schema).map_err(|e| wrong(e.to_string()))?;
    Ok(rows)
}

fn check_columns(footer: &ParquetMetaData, file: &DataFile, schema: &Schema) -> Result<()> {
    let descriptor = footer.file_metadata().schema_descr();
    let roots = descriptor.root_schema().get_fields();
    let expected = schema.as_struct().fields();
    let same = roots.len() == expected.len()
        && roots.iter().zip(expected).all(|(root, field)| {
            root.get_basic_info().has_id() && root.get_basic_info().id() == field.id && root.name() == field.name
        });
    if !same {
        return Err(Error::internal("its columns are not the table's"));
    }
    for (i, column) in descriptor.columns().iter().enumerate() {
        let info = column.self_type().get_basic_info();
        if !info.has_id()
            || !matches!(schema.field_by_id(info.id()).map(|f| f.field_type.as_ref()), Some(Type::Primitive(_)))
        {
            return Err(Error::internal(format!("column {} carries no field id of the table", column.path())));
        }
        let chunks = || footer.row_groups().iter().map(|g| g.column(i));
        let values: i64 = chunks().map(|c| c.num_values()).sum();
        if column.max_rep_level() == 0 && u64::try_from(values) != Ok(file.record_count()) {
            return Err(Error::internal(format!("column {} has {values} values", column.path())));
        }
        let nulls: Option<u64> = chunks().map(|c| c.statistics().and_then(Statistics::null_count_opt)).sum();
        let listed = file.null_value_counts().get(&info.id()).copied();
        if listed.is_some() && nulls != listed {
            return Err(Error::internal(format!("column {} has {nulls:?} NULLs and not {listed:?}", column.path())));
        }
    }
    Ok(())
}
