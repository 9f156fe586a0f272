//! Which part of an image is shown, and whether it is mirrored: by its size and its draws alone, before it is decoded.

use super::{
    draw::{Draws, ImageKey},
    exponential::{exp, ln},
    header::ImageHeader,
};

/// The part of an image that becomes the tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Crop {
    /// All of it, stretched to the size of the tensor: `PIL.Image.resize`.
    None,
    /// The largest centred box with the tensor's aspect ratio: `PIL.ImageOps.fit`.
    Center,
    /// A random box: `RandomResizedCrop` of torchvision, with these bounds of the box's share of the area, and of its
    /// aspect ratio.
    Random {
        /// Least and greatest share of the area.
        scale: (f64, f64),
        /// Least and greatest ratio of width to height.
        ratio: (f64, f64),
    },
}

/// A box in an image as shown, in pixels from its upper left corner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CropBox {
    /// Pixels to the left of the box.
    pub left: f64,
    /// Pixels above the box.
    pub top: f64,
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
}

/// What is shown of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageView {
    /// The part that is shown.
    pub crop: CropBox,
    /// Whether it is mirrored left to right, after it is cropped and resized.
    pub is_flipped: bool,
}

/// The draw that decides whether an image is mirrored.
const FLIP_DRAW: u64 = 0;

/// Boxes that are drawn before the centred one is used.
const ATTEMPTS: u64 = 10;

/// Draws of an attempt: area, ratio, top, left.
const ATTEMPT_DRAWS: u64 = 4;

// === impl ImageView ===

impl ImageView {
    /// What is shown of an image of this size under a crop to `target` (width and height), with its draws.
    pub(super) fn new(header: &ImageHeader, crop: Crop, target: (u32, u32), can_flip: bool, draws: &Draws) -> Self {
        let size = header.shown_size();
        let (width, height) = (f64::from(size.0), f64::from(size.1));
        let crop = match crop {
            Crop::None => CropBox { left: 0.0, top: 0.0, width, height },
            Crop::Center => centred((width, height), (f64::from(target.0), f64::from(target.1))),
            Crop::Random { scale, ratio } => random(size, scale, ratio, draws),
        };
        Self { crop, is_flipped: can_flip && flips(draws) }
    }
}

/// Whether an op that mirrors every second image mirrors this one.
pub(super) fn flips(draws: &Draws) -> bool {
    draws.coin(FLIP_DRAW)
}

/// `PIL.ImageOps.fit` with its default centring.
fn centred((width, height): (f64, f64), target: (f64, f64)) -> CropBox {
    let (shown, wanted) = (width / height, target.0 / target.1);
    let (crop_width, crop_height) = if shown > wanted {
        (wanted * height, height)
    } else if shown < wanted {
        (width, width / wanted)
    } else {
        (width, height)
    };
    CropBox {
        left: (width - crop_width) * 0.5,
        top: (height - crop_height) * 0.5,
        width: crop_width,
        height: crop_height,
    }
}

/// `RandomResizedCrop.get_params` of torchvision.
fn random((width, height): (u32, u32), scale: (f64, f64), ratio: (f64, f64), draws: &Draws) -> CropBox {
    let area = f64::from(width) * f64::from(height);
    let log_ratio = (ln(ratio.0), ln(ratio.1));
    for attempt in 0..ATTEMPTS {
        let first = 1 + attempt * ATTEMPT_DRAWS;
        let target = area * draws.between(first, scale);
        let aspect = exp(draws.between(first + 1, log_ratio));
        let (w, h) = ((target * aspect).sqrt().round_ties_even(), (target / aspect).sqrt().round_ties_even());
        if 0.0 < w && w <= f64::from(width) && 0.0 < h && h <= f64::from(height) {
            let (w, h) = (w as u32, h as u32);
            let (top, left) = (draws.below(first + 2, height - h + 1), draws.below(first + 3, width - w + 1));
            return whole(left, top, w, h);
        }
    }
    let (mut w, mut h) = (width, height);
    let found = f64::from(width) / f64::from(height);
    // A box is never wider or higher than the image, and has at least one pixel.
    if found < ratio.0 {
        h = ((f64::from(w) / ratio.0).round_ties_even() as u32).clamp(1, height);
    } else if found > ratio.1 {
        w = ((f64::from(h) * ratio.1).round_ties_even() as u32).clamp(1, width);
    }
    whole((width - w) / 2, (height - h) / 2, w, h)
}

fn whole(left: u32, top: u32, width: u32, height: u32) -> CropBox {
    CropBox { left: left.into(), top: top.into(), width: width.into(), height: height.into() }
}

/// The integers nearest to a box's edges: left, top, width, height.
pub(super) fn rounded(crop: &CropBox) -> [i32; 4] {
    let near = |edge: f64| edge.round_ties_even() as i32;
    let (left, top) = (near(crop.left), near(crop.top));
    [left, top, (near(crop.left + crop.width) - left).max(1), (near(crop.top + crop.height) - top).max(1)]
}

/// The draws of an image.
pub(super) fn draws(key: ImageKey, op_seed: u64) -> Draws {
    Draws::new(key, op_seed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCALE: (f64, f64) = (0.08, 1.0);
    const RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

    fn keyed(row: u64) -> Draws {
        Draws::new(ImageKey { seed: 1, epoch: 0, row }, 0)
    }

    #[test]
    fn the_centred_box_is_that_of_pillow() {
        // `ImageOps.fit` of 500 × 333 to 224 × 224, and of 100 × 300 to 200 × 100.
        let expected = CropBox { left: 83.5, top: 0.0, width: 333.0, height: 333.0 };
        assert_eq!(centred((500.0, 333.0), (224.0, 224.0)), expected);
        let expected = CropBox { left: 0.0, top: 125.0, width: 100.0, height: 50.0 };
        assert_eq!(centred((100.0, 300.0), (200.0, 100.0)), expected);
        assert_eq!(rounded(&CropBox { left: 83.5, top: 0.0, width: 333.0, height: 333.0 }), [84, 0, 332, 333]);
    }

    #[test]
    fn images_without_a_fitting_box_are_cropped_at_the_centre() {
        // No box of a long line has these ratios.
        assert_eq!(random((1000, 1), SCALE, RATIO, &keyed(3)), whole(499, 0, 1, 1));
        assert_eq!(random((1, 1000), SCALE, RATIO, &keyed(3)), whole(0, 499, 1, 1));
        assert_eq!(random((1, 1), SCALE, RATIO, &keyed(3)), whole(0, 0, 1, 1));
    }

    proptest! {
        #[test]
        fn boxes_are_within_the_image(width in 1_u32..70_000, height in 1_u32..70_000, row: u64) {
            let crop = random((width, height), SCALE, RATIO, &keyed(row));
            prop_assert!(crop.width >= 1.0 && crop.left + crop.width <= f64::from(width));
            prop_assert!(crop.height >= 1.0 && crop.top + crop.height <= f64::from(height));
            let crop = centred((width.into(), height.into()), (224.0, 17.0));
            prop_assert!(crop.left >= 0.0 && crop.left + crop.width <= f64::from(width) * (1.0 + 1e-12));
        }
    }

    #[test]
    fn areas_and_ratios_have_the_distribution_of_torchvision() {
        let boxes: Vec<CropBox> = (0..4000).map(|row| random((400, 400), SCALE, RATIO, &keyed(row))).collect();
        let area = boxes.iter().map(|crop| crop.width * crop.height / 160_000.0).sum::<f64>() / 4000.0;
        let ratio = boxes.iter().map(|crop| (crop.width / crop.height).ln()).sum::<f64>() / 4000.0;
        // Wide boxes of nearly the whole area do not fit, so the mean area is below (0.08 + 1) / 2.
        assert!((0.47..0.54).contains(&area), "{area}");
        assert!(ratio.abs() < 0.02, "{ratio}");
    }
}
