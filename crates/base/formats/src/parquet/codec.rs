//! Pages are compressed one by one, each to a size that its header announces.

use std::io::Read;

use flate2::bufread::MultiGzDecoder;

use crate::compressed::{Compression, Decompressed};
use crate::error::Problem;

/// Writes what `packed` holds, `bytes` bytes, after what is in `into`.
pub fn decompress(codec: i64, packed: &[u8], bytes: usize, into: &mut Vec<u8>) -> Result<(), Problem> {
    let start = into.len();
    match codec {
        0 => into.extend_from_slice(packed),
        1 => {
            let announced = snap::raw::decompress_len(packed).map_err(|error| Problem::damaged(error.to_string()))?;
            expect(announced, bytes)?;
            into.resize(start + bytes, 0);
            let written = snap::raw::Decoder::new().decompress(packed, &mut into[start..]);
            expect(written.map_err(|error| Problem::damaged(error.to_string()))?, bytes)?;
        }
        2 => {
            let mut content = MultiGzDecoder::new(packed).take(bytes as u64 + 1);
            content.read_to_end(into).map_err(|error| Problem::damaged(error.to_string()))?;
        }
        6 => {
            // The page's size is the limit, so that of a file does not matter.
            let mut content = Decompressed::new(packed, Compression::Zstd, u64::MAX);
            into.resize(start + bytes, 0);
            let filled = content.fill(&mut into[start..]).map_err(|error| error.problem)?;
            let more = content.fill(&mut [0]).map_err(|error| error.problem)?;
            expect(filled + more, bytes)?;
        }
        5 => hadoop_lz4(packed, bytes, into)?,
        7 => {
            into.resize(start + bytes, 0);
            let written = lz4_flex::block::decompress_into(packed, &mut into[start..]);
            expect(written.map_err(|error| Problem::damaged(error.to_string()))?, bytes)?;
        }
        _ => {
            let name = match codec {
                3 => "LZO".into(),
                4 => "Brotli".into(),
                _ => format!("codec {codec}"),
            };
            let remedy = "write it with zstd, snappy, gzip or lz4";
            return Err(Problem::Unsupported { what: format!("a table compressed by {name}"), remedy });
        }
    }
    expect(into.len() - start, bytes)
}

/// Blocks of lz4, each after its two lengths; older writers left the lengths out.
fn hadoop_lz4(packed: &[u8], bytes: usize, into: &mut Vec<u8>) -> Result<(), Problem> {
    let start = into.len();
    let number =
        |at: usize| packed.get(at..at + 4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    let mut at = 0;
    while let (Some(whole), Some(own)) = (number(at), number(at + 4)) {
        let block = packed.get(at + 8..at + 8 + own as usize);
        let left = bytes - (into.len() - start);
        let Some(block) = block.filter(|_| whole as usize <= left) else { break };
        let begin = into.len();
        into.resize(begin + whole as usize, 0);
        match lz4_flex::block::decompress_into(block, &mut into[begin..]) {
            Ok(written) if written == whole as usize => at += 8 + own as usize,
            Ok(_) | Err(_) => break,
        }
    }
    if at != packed.len() {
        into.truncate(start);
        into.resize(start + bytes, 0);
        let written = lz4_flex::block::decompress_into(packed, &mut into[start..]);
        expect(written.map_err(|error| Problem::damaged(error.to_string()))?, bytes)?;
    }
    Ok(())
}

fn expect(found: usize, announced: usize) -> Result<(), Problem> {
    if found != announced {
        return Err(Problem::damaged(format!("a page has {found} bytes, but {announced} were announced")));
    }
    Ok(())
}
