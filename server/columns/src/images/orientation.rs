//! How images are turned: as their metadata says, like the images of other columns, or not at all.

use forebay_media::{ImageBytes, ImageHeader, Orientation};

use super::jobs::{Headers, headers};

/// How images of a column are turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turning {
    /// Upright, by their own metadata or that of other columns.
    Upright,
    /// Not at all.
    AsStored,
}

// === impl Turning ===

impl Turning {
    /// The headers of images with the orientations that they are shown in. `others` are the columns that they are turned
    /// like, in the order in which these decide.
    pub(super) fn of(self, images: &ImageBytes, others: &[ImageBytes]) -> Headers {
        let mut found = headers(images);
        for (row, header) in found.iter_mut().enumerate() {
            let Some(Ok(header)) = header else { continue };
            if self == Self::AsStored {
                header.orientation = Orientation::Upright;
            } else if header.orientation == Orientation::Upright {
                let others = others.iter().filter_map(|images| ImageHeader::read(images.get(row)?).ok());
                header.orientation = of_others(header, others);
            }
        }
        found
    }
}

/// The orientation of the first image that has one; upright if the image is already turned like it.
fn of_others(image: &ImageHeader, mut others: impl Iterator<Item = ImageHeader>) -> Orientation {
    let first = others.find(|other| other.orientation != Orientation::Upright);
    let turned = first.filter(|other| !(other.orientation.exchanges_sides() && lies_across(image, other)));
    turned.map_or(Orientation::Upright, |other| other.orientation)
}

/// Whether one image is higher than wide and the other wider than high.
fn lies_across(image: &ImageHeader, other: &ImageHeader) -> bool {
    image.width.cmp(&image.height) == other.height.cmp(&other.width) && other.width != other.height
}

#[cfg(test)]
mod tests {
    use forebay_media::ImageFormat;

    use super::*;

    fn image(width: u32, height: u32, orientation: Orientation) -> ImageHeader {
        ImageHeader { format: ImageFormat::Png, width, height, orientation, jpeg: None }
    }

    #[test]
    fn a_mask_is_turned_like_its_image_unless_it_already_is() {
        let mask = |width, height, like: &[ImageHeader]| {
            of_others(&image(width, height, Orientation::Upright), like.iter().copied())
        };
        let (right, turned) = (image(160, 90, Orientation::Right), image(160, 90, Orientation::Turned));
        let upright = image(160, 90, Orientation::Upright);
        assert_eq!(mask(160, 90, &[]), Orientation::Upright);
        assert_eq!(mask(160, 90, &[upright]), Orientation::Upright);
        assert_eq!(mask(160, 90, &[upright, right]), Orientation::Right);
        assert_eq!(mask(80, 45, &[right, turned]), Orientation::Right);
        assert_eq!(mask(90, 160, &[right]), Orientation::Upright);
        assert_eq!(mask(90, 160, &[turned]), Orientation::Turned);
        assert_eq!(mask(64, 64, &[right]), Orientation::Right);
        assert_eq!(mask(90, 160, &[image(100, 100, Orientation::Left)]), Orientation::Left);
    }
}
