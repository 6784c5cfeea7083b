//! Files that are put: in blocks, or as parts in objects.

use super::{number, signed, tables};
use crate::database::{BLOCK_BYTES, ChangedFile};
use crate::objects::Part;

/// Puts changes of a file.
pub(super) async fn put(
    transaction: &tokio_postgres::Transaction<'_>,
    cell: i32,
    file: &ChangedFile,
) -> Result<(), tokio_postgres::Error> {
    let name = &file.name;
    if let Some(parts) = &file.parts {
        return put_parts(transaction, cell, file, parts).await;
    }
    if file.is_new {
        let names = std::slice::from_ref(name);
        transaction
            .execute(tables::REMOVE_BLOCKS, &[&cell, &names])
            .await?;
    }
    let numbers: Vec<i32> = file.blocks.iter().map(|(at, _)| number((*at).into())).collect();
    let bodies: Vec<&[u8]> = file.blocks.iter().map(|(_, body)| body.as_slice()).collect();
    transaction
        .execute(tables::PUT_BLOCKS, &[&cell, name, &numbers, &bodies])
        .await?;
    let end = number(file.bytes.div_ceil(BLOCK_BYTES as u64));
    transaction
        .execute(tables::CUT_BLOCKS, &[&cell, name, &end])
        .await?;
    transaction
        .execute(tables::PUT_FILE, &[&cell, name, &signed(file.bytes), &false])
        .await?;
    Ok(())
}

/// Puts parts in the place of everything of a file's name.
async fn put_parts(
    transaction: &tokio_postgres::Transaction<'_>,
    cell: i32,
    file: &ChangedFile,
    parts: &[Part],
) -> Result<(), tokio_postgres::Error> {
    let name = &file.name;
    let names = std::slice::from_ref(name);
    let objects: Vec<&str> = parts.iter().map(|part| part.object.as_str()).collect();
    transaction
        .execute(tables::REMOVE_BLOCKS, &[&cell, &names])
        .await?;
    for text in [tables::REMOVE_ROWS, tables::REMOVE_PARTS] {
        transaction.execute(text, &[&cell, &names, &objects]).await?;
    }
    let places: Vec<i64> = parts.iter().map(|part| signed(part.at)).collect();
    let bytes: Vec<i32> = parts.iter().map(|part| number(part.bytes.into())).collect();
    let checksums: Vec<i64> = parts.iter().map(|part| part.checksum.into()).collect();
    transaction
        .execute(
            tables::PUT_PARTS,
            &[&cell, name, &places, &bytes, &objects, &checksums],
        )
        .await?;
    transaction
        .execute(tables::PUT_FILE, &[&cell, name, &signed(file.bytes), &true])
        .await?;
    Ok(())
}
