//! Decoded pixels, and what Pillow makes of other layouts: RGB or greyscale, upright.

use super::exif::Orientation;

/// Decoded pixels, row by row, 8 bits per channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pixels {
    pub(super) width: usize,
    pub(super) height: usize,
    /// 1, greyscale, or 3, RGB.
    pub(super) channels: usize,
    pub(super) values: Vec<u8>,
}

/// The layouts that decoders return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Grey,
    GreyAlpha,
    Rgb,
    Rgba,
    /// Cyan, magenta, yellow and black, of which 255 is no ink: JPEG has them as Adobe's programs write them.
    Cmyk,
}

// === impl Layout ===

impl Layout {
    pub(super) fn channels(self) -> usize {
        match self {
            Self::Grey => 1,
            Self::GreyAlpha => 2,
            Self::Rgb => 3,
            Self::Rgba | Self::Cmyk => 4,
        }
    }
}

// === impl Pixels ===

impl Pixels {
    /// Pixels of a decoder in this number of channels. Transparency is dropped, as `convert("RGB")` does.
    pub(super) fn new((width, height): (usize, usize), layout: Layout, decoded: Vec<u8>, channels: usize) -> Self {
        let values = match (layout, channels) {
            (Layout::Grey, 1) | (Layout::Rgb, 3) => decoded,
            (Layout::Grey | Layout::GreyAlpha, _) => decoded
                .chunks_exact(layout.channels())
                .flat_map(|pixel| std::iter::repeat_n(pixel[0], channels))
                .collect(),
            (Layout::Rgb | Layout::Rgba, 1) => {
                decoded.chunks_exact(layout.channels()).map(|pixel| luma([pixel[0], pixel[1], pixel[2]])).collect()
            }
            (Layout::Rgb | Layout::Rgba, _) => {
                decoded.chunks_exact(layout.channels()).flat_map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
            }
            (Layout::Cmyk, _) => {
                let colours = decoded.as_chunks::<4>().0.iter().map(|inks| rgb_of_inks(inks.map(|ink| 255 - ink)));
                if channels == 1 { colours.map(luma).collect() } else { colours.flatten().collect() }
            }
        };
        Self { width, height, channels, values }
    }

    /// The pixels as they are shown.
    pub(super) fn upright(self, orientation: Orientation) -> Self {
        if orientation == Orientation::Upright {
            return self;
        }
        let Self { width, height, channels, .. } = self;
        let (shown_width, shown_height) = if orientation.exchanges_sides() { (height, width) } else { (width, height) };
        let mut values = Vec::with_capacity(self.values.len());
        for y in 0..shown_height {
            for x in 0..shown_width {
                let (from_x, from_y) = match orientation {
                    Orientation::Upright => (x, y),
                    Orientation::Mirrored => (width - 1 - x, y),
                    Orientation::Turned => (width - 1 - x, height - 1 - y),
                    Orientation::Flipped => (x, height - 1 - y),
                    Orientation::Transposed => (y, x),
                    Orientation::Right => (y, height - 1 - x),
                    Orientation::Transversed => (width - 1 - y, height - 1 - x),
                    Orientation::Left => (width - 1 - y, x),
                };
                let start = (from_y * width + from_x) * channels;
                values.extend_from_slice(&self.values[start..start + channels]);
            }
        }
        Self { width: shown_width, height: shown_height, channels, values }
    }
}

/// Mirrors rows of pixels left to right.
pub(super) fn mirror(values: &mut [u8], width: usize, channels: usize) {
    for row in values.chunks_exact_mut(width * channels) {
        match channels {
            1 => row.reverse(),
            _ => row.as_chunks_mut::<3>().0.reverse(),
        }
    }
}

/// Pillow's conversion from RGB to greyscale: ITU-R 601 in 16 bits.
fn luma([red, green, blue]: [u8; 3]) -> u8 {
    let sum = u32::from(red) * 19_595 + u32::from(green) * 38_470 + u32::from(blue) * 7471 + 0x8000;
    (sum >> 16) as u8
}

/// Pillow's conversion from CMYK to RGB.
fn rgb_of_inks([cyan, magenta, yellow, black]: [u8; 4]) -> [u8; 3] {
    let white = 255 - i32::from(black);
    [cyan, magenta, yellow].map(|ink| {
        let product = i32::from(ink) * white + 128;
        let inked = ((product >> 8) + product) >> 8;
        (white - inked).clamp(0, 255) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greyscale_is_that_of_pillow() {
        // `Image.new("RGB", (1, 1), colour).convert("L").getpixel((0, 0))`.
        for (colour, grey) in
            [([255, 0, 0], 76), ([0, 255, 0], 150), ([0, 0, 255], 29), ([255; 3], 255), ([1, 2, 3], 2)]
        {
            assert_eq!(luma(colour), grey);
        }
    }

    #[test]
    fn inks_are_those_of_pillow() {
        // `Image.new("CMYK", (1, 1), inks).convert("RGB").getpixel((0, 0))`.
        for (inks, colour) in
            [([0, 0, 0, 0], [255; 3]), ([255, 0, 0, 0], [0, 255, 255]), ([10, 20, 30, 40], [207, 198, 190])]
        {
            assert_eq!(rgb_of_inks(inks), colour);
        }
    }

    #[test]
    fn every_orientation_is_that_of_exif() {
        // `ImageOps.exif_transpose` of the rows 1 2 3 and 4 5 6.
        let stored = Pixels { width: 3, height: 2, channels: 1, values: vec![1, 2, 3, 4, 5, 6] };
        for (orientation, width, values) in [
            (Orientation::Upright, 3, [1, 2, 3, 4, 5, 6]),
            (Orientation::Mirrored, 3, [3, 2, 1, 6, 5, 4]),
            (Orientation::Turned, 3, [6, 5, 4, 3, 2, 1]),
            (Orientation::Flipped, 3, [4, 5, 6, 1, 2, 3]),
            (Orientation::Transposed, 2, [1, 4, 2, 5, 3, 6]),
            (Orientation::Right, 2, [4, 1, 5, 2, 6, 3]),
            (Orientation::Transversed, 2, [6, 3, 5, 2, 4, 1]),
            (Orientation::Left, 2, [3, 6, 2, 5, 1, 4]),
        ] {
            let shown = stored.clone().upright(orientation);
            assert_eq!((shown.width, shown.values.as_slice()), (width, values.as_slice()), "{orientation:?}");
        }
    }

    #[test]
    fn mirrored_rows() {
        let mut values = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18];
        mirror(&mut values, 3, 3);
        assert_eq!(values, [7, 8, 9, 4, 5, 6, 1, 2, 3, 16, 17, 18, 13, 14, 15, 10, 11, 12]);
    }
}
