//! Text files: their lines, with a limit on the length of each.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::source::{LimitedReader, cannot_read};
use crate::error::DataError;

/// The byte-order mark that some programs write before UTF-8. It is not part of the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Length limit of a line.
pub(crate) const MAX_LINE: u64 = 1 << 16;

/// A reader of the text after a byte-order mark.
pub(crate) fn without_byte_order_mark(reader: &mut dyn Read) -> io::Result<impl Read> {
    let mut head = Vec::new();
    reader.take(BYTE_ORDER_MARK.len() as u64).read_to_end(&mut head)?;
    if head == BYTE_ORDER_MARK {
        head.clear();
    }
    Ok(io::Cursor::new(head).chain(reader))
}

/// The lines of a text of at most `limit` bytes, without their line ends, numbered from 1.
pub(crate) fn lines<'a>(
    reader: &'a mut dyn Read,
    path: &'a Path,
    limit: u64,
) -> impl Iterator<Item = Result<(usize, Vec<u8>), DataError>> {
    let mut reader = BufReader::new(LimitedReader::new(reader, limit, "the file is too long"));
    let mut number = 0;
    std::iter::from_fn(move || {
        let mut line = Vec::new();
        let read = reader.by_ref().take(MAX_LINE + 1).read_until(b'\n', &mut line);
        number += 1;
        match read {
            Ok(0) => None,
            Ok(_) if line.len() as u64 > MAX_LINE => {
                let what = format!("more than {MAX_LINE} bytes");
                Some(Err(DataError::Line { path: path.to_owned(), line: number, what }))
            }
            Ok(_) => {
                line.pop_if(|last| *last == b'\n');
                if number == 1 && line.starts_with(BYTE_ORDER_MARK) {
                    line.drain(..BYTE_ORDER_MARK.len());
                }
                Some(Ok((number, line)))
            }
            Err(error) => Some(Err(cannot_read(path)(error))),
        }
    })
}
