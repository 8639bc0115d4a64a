//! What fuzzing calls of this room: our Huffman decoder with the transform that follows it, and our colours, each
//! against libjpeg-turbo's.

use super::jpeg_ffi::{Ask, Failure, Session, Stream};
use super::planes::{Buffers, Planes};
use super::{ImageFormat, jpeg, sniff};
use crate::sample::Size;
use crate::simd::Simd;

/// A JPEG, its coefficients decoded and transformed by both: the same pixels, or the same refusal.
pub fn huffman(bytes: &[u8]) {
    // The one pattern that libjpeg-turbo's quick and slow path take differently.
    if bytes.windows(2).any(|pair| pair == [0xFF, 0xFF]) {
        return;
    }
    let Some(ask) = ask(bytes) else { return };
    agree(bytes, ask, Ask { quick: None, ..ask });
}

/// A JPEG, its colours mixed by both: the same pixels, or the same refusal.
pub fn colours(bytes: &[u8]) {
    let Some(ask) = ask(bytes) else { return };
    agree(bytes, Ask { planes: ask.channels == 3, ..ask }, ask);
}

fn ask(bytes: &[u8]) -> Option<Ask> {
    if sniff::format(bytes).ok() != Some(ImageFormat::Jpeg) {
        return None;
    }
    let size = jpeg::size(bytes).ok()?;
    let channels = if jpeg::is_cmyk(bytes).is_ok_and(|is| is) { 4 } else { 3 };
    let quick = Some(Simd::detect());
    let ask = Ask { size, shrink: 1, channels, quick, planes: false, max_scans: 20 };
    (1..=1 << 16).contains(&size.pixels()).then_some(ask)
}

fn agree(bytes: &[u8], ours: Ask, theirs: Ask) {
    let mut session = Session::default();
    let [ours, theirs] = [ours, theirs].map(|ask| decoded(&mut session, bytes, ask));
    assert_eq!(ours, theirs, "the decoders differ");
}

fn decoded(session: &mut Session, bytes: &[u8], ask: Ask) -> Result<Vec<u8>, Failure> {
    let Size { width, height } = ask.size;
    let (height, stride) = (height as usize, width as usize * ask.channels);
    let mut out = vec![0; stride * height];
    let mut stream = Stream::start(session, bytes, ask)?;
    match stream.planes() {
        Some(down) => {
            let mut buffers = Buffers::default();
            let mut planes = Planes::new(stream, down, ask.size, Simd::detect(), &mut buffers);
            planes.read(height, &mut out, stride)
        }
        None => stream.read(height, &mut out, stride),
    }
    .map(|()| out)
}
