//! Compressed bodies of requests.

use axum::http::{HeaderMap, header};
use stafett_model::compression::{decompress, ratio_max};
use stafett_model::{BatchError, Codec};

use crate::body::Packing;
use crate::{Code, Problem};

/// Unpacks bytes, up to a bound.
type Unpack = fn(&[u8], usize) -> Result<Vec<u8>, Problem>;

/// Returns how a body is packed; `None` if it is not.
pub fn packing(headers: &HeaderMap) -> Result<Option<Packing>, Problem> {
    let Some(coding) = headers.get(header::CONTENT_ENCODING) else {
        return Ok(None);
    };
    let word = coding.to_str().unwrap_or_default().trim().to_ascii_lowercase();
    let (codec, unpack): (_, Unpack) = match word.as_str() {
        "identity" => return Ok(None),
        "gzip" | "x-gzip" => (Codec::Gzip, |bytes, max| unpack(Codec::Gzip, bytes, max)),
        "zstd" => (Codec::Zstd, |bytes, max| unpack(Codec::Zstd, bytes, max)),
        _ => {
            let why = format!("Content-Encoding is gzip, zstd or identity, not {coding:?}");
            return Err(Problem::new(Code::UnsupportedType, why));
        }
    };
    Ok(Some(Packing {
        ratio_max: ratio_max(codec),
        unpack,
    }))
}

fn unpack(codec: Codec, bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, Problem> {
    decompress(codec, bytes, bytes_max).map_err(|why| {
        if matches!(why, BatchError::TooLarge { .. }) {
            let why = format!("the body has more than {bytes_max} bytes when it is unpacked");
            return Problem::new(Code::TooLarge, why).with("bytes_max", bytes_max);
        }
        Problem::bad_request("the body is not what its Content-Encoding says, or was cut off")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stafett_model::compression::compress;

    fn of(coding: &'static str) -> Result<Option<Packing>, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_ENCODING, coding.parse().unwrap());
        packing(&headers)
    }

    #[test]
    fn bodies_are_unpacked_within_their_bound() {
        for (coding, codec) in [("gzip", Codec::Gzip), ("ZSTD", Codec::Zstd)] {
            let mut packed = Vec::new();
            compress(codec, &[7; 1000], &mut packed).unwrap();
            let unpack = of(coding).unwrap().unwrap().unpack;
            assert_eq!(unpack(&packed, 1000).unwrap(), [7; 1000]);
            assert_eq!(unpack(&packed, 999).unwrap_err().code, Code::TooLarge);
            assert_eq!(unpack(&packed[..9], 1000).unwrap_err().code, Code::BadRequest);
            assert_eq!(unpack(b"{}", 1000).unwrap_err().code, Code::BadRequest);
        }
    }

    #[test]
    fn other_codings_are_refused() {
        assert!(packing(&HeaderMap::new()).unwrap().is_none());
        assert!(of("identity").unwrap().is_none());
        for coding in ["br", "gzip, gzip", ""] {
            assert_eq!(of(coding).unwrap_err().code, Code::UnsupportedType, "{coding}");
        }
    }
}
