//! What fuzzing calls of this room: our Huffman decoder against libjpeg-turbo's.

use super::jpeg_ffi::{Ask, Session, Stream};
use super::{ImageFormat, jpeg, sniff};
use crate::sample::Size;

/// A JPEG, decoded by both: the same pixels, or the same refusal.
pub fn huffman(bytes: &[u8]) {
    if sniff::format(bytes).ok() != Some(ImageFormat::Jpeg) {
        return;
    }
    let Ok(size) = jpeg::size(bytes) else { return };
    let is_known = bytes.windows(2).any(|pair| pair == [0xFF, 0xFF]);
    let channels = if jpeg::is_cmyk(bytes).is_ok_and(|is| is) { 4 } else { 3 };
    if is_known || size.pixels() == 0 || size.pixels() > 1 << 16 {
        // The one pattern that libjpeg-turbo's quick and slow path take differently.
        return;
    }
    let mut session = Session::default();
    let ours = decoded(&mut session, bytes, size, channels, true);
    let theirs = decoded(&mut session, bytes, size, channels, false);
    assert_eq!(ours, theirs, "the decoders differ");
}

fn decoded(
    session: &mut Session,
    bytes: &[u8],
    size: Size,
    channels: usize,
    quick: bool,
) -> Result<Vec<u8>, super::jpeg_ffi::Failure> {
    let stride = size.width as usize * channels;
    let mut out = vec![0; stride * size.height as usize];
    let ask = Ask { size, shrink: 1, channels, quick, max_scans: 20 };
    let mut stream = Stream::start(session, bytes, ask)?;
    stream.read(size.height as usize, &mut out, stride).map(|()| out)
}
