//! Encoded images, as a table may have them.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, BinaryArray};
use forebay_media::{Crop, ImageBytes, ImageDecoder, ImageHeader, ImageKey, ImageRow, ImageRows, ImageSpec, Resample};

/// Images with more pixels are not decoded: a run would take seconds and its memory.
const PIXELS_MAX: u64 = 1 << 20;

/// The first byte selects the parameters. The rest is an image.
///
/// # Panics
/// If an invariant is violated, as every target does.
pub fn image(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let crops = [Crop::None, Crop::Center, Crop::Random { scale: (0.08, 1.0), ratio: (0.75, 1.25) }];
    let resamples = [Resample::Nearest, Resample::Bilinear, Resample::Lanczos, Resample::Hamming];
    let spec = ImageSpec {
        height: 5,
        width: 7,
        channels: if choice & 1 > 0 { 3 } else { 1 },
        resample: resamples[usize::from(choice >> 1 & 3)],
        crop: crops[usize::from(choice >> 3) % crops.len()],
        flip: choice & 0x80 > 0,
        seed: 0,
        normalize: None,
        fill: None,
    };
    let column: ArrayRef = Arc::new(BinaryArray::from_vec(vec![bytes]));
    let images = ImageBytes::of(&column).expect("bytes");
    let Some(header) = images.get(0).map(ImageHeader::read) else { return };
    let Ok(header) = header else { return };
    let key = ImageKey { seed: 1, epoch: 2, row: 3 };
    let view = spec.view(&header, key);
    let (width, height) = header.shown_size();
    let [left, top, box_width, box_height] = ImageSpec::whole_box(&view).map(i64::from);
    assert!(left >= 0 && box_width > 0 && left + box_width <= i64::from(width), "{view:?} of {header:?}");
    assert!(top >= 0 && box_height > 0 && top + box_height <= i64::from(height), "{view:?} of {header:?}");
    assert!(spec.decoding_bytes(&header, &view) > 0);
    if header.pixel_count() > PIXELS_MAX {
        return;
    }
    let decoder = ImageDecoder::new(spec);
    let decode = || decoder.decode(vec![ImageRow::Image(bytes, header, key), ImageRow::Null]).expect("an array");
    let (first, second): (ImageRows, ImageRows) = (decode(), decode());
    assert!(first.tensors == second.tensors && first.failed == second.failed, "a second decoding differs");
    let tensors = first.tensors.as_fixed_size_list();
    assert_eq!((tensors.len(), tensors.is_null(0), tensors.is_null(1)), (2, !first.failed.is_empty(), true));
}
