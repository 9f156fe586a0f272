//! Divides the images of a column into jobs by what their headers declare.

use std::ops::Range;

use forebay_media::{ImageBytes, ImageHeader, ImageKey, ImageProblem, ImageRow, ImageSpec};

/// Pixels of a job, unless a single image has more: some milliseconds of work.
const JOB_PIXELS_MAX: u64 = 1 << 20;

/// Pixels that a row without an image counts as, for its tensor.
const ROW_PIXELS: u64 = 1 << 12;

/// The headers of images, in the order of rows; none where an image is null.
pub(super) type Headers = Vec<Option<Result<ImageHeader, ImageProblem>>>;

/// Rows that a thread decodes one after the other.
#[derive(Debug)]
pub(super) struct ImageJob {
    pub rows: Range<usize>,
    /// Bytes that the job needs at once: those of its largest image, and of its tensors.
    pub bytes: u64,
    /// The row of its largest image, and the width and height of this.
    pub largest: (usize, u32, u32),
}

/// The headers of images.
pub(super) fn headers(images: &ImageBytes) -> Headers {
    (0..images.len()).map(|row| images.get(row).map(ImageHeader::read)).collect()
}

/// Divides rows into jobs.
pub(super) fn jobs(headers: &Headers, keys: &[ImageKey], spec: &ImageSpec) -> Vec<ImageJob> {
    let (mut jobs, mut pixels): (Vec<ImageJob>, u64) = (Vec::new(), JOB_PIXELS_MAX);
    for (row, header) in headers.iter().enumerate() {
        let found = header.as_ref().and_then(|header| header.as_ref().ok());
        let row_pixels = found.map_or(0, ImageHeader::pixel_count).saturating_add(ROW_PIXELS);
        let (needed, size) = found.map_or((0, (0, 0)), |header| {
            (spec.decoding_bytes(header, &spec.view(header, keys[row])), (header.width, header.height))
        });
        pixels = pixels.saturating_add(row_pixels);
        if let Some(job) = jobs.last_mut().filter(|_| pixels <= JOB_PIXELS_MAX) {
            job.rows.end = row + 1;
            if needed > job.bytes {
                (job.bytes, job.largest) = (needed, (row, size.0, size.1));
            }
        } else {
            pixels = row_pixels;
            jobs.push(ImageJob { rows: row..row + 1, bytes: needed, largest: (row, size.0, size.1) });
        }
    }
    for job in &mut jobs {
        // Pixels of 8 bits, and the values that normalizing makes of them.
        let tensors = (job.rows.len() as u64).saturating_mul(spec.tensor_bytes() + spec.value_count() as u64);
        job.bytes = job.bytes.saturating_add(tensors);
    }
    jobs
}

/// The images of some rows, which `headers` has from the first one on.
pub(super) fn rows<'a>(
    images: &'a ImageBytes,
    headers: &[Option<Result<ImageHeader, ImageProblem>>],
    keys: &[ImageKey],
    rows: Range<usize>,
) -> Vec<ImageRow<'a>> {
    let row = |row: usize| match (images.get(row), &headers[row]) {
        (Some(bytes), Some(Ok(header))) => ImageRow::Image(bytes, *header, keys[row]),
        (_, Some(Err(problem))) => ImageRow::Failed(problem.clone()),
        _ => ImageRow::Null,
    };
    rows.map(row).collect()
}

#[cfg(test)]
mod tests {
    use forebay_media::{Crop, ImageFormat, Orientation, Resample};

    use super::*;

    fn spec() -> ImageSpec {
        ImageSpec {
            height: 10,
            width: 10,
            channels: 3,
            resample: Resample::Bilinear,
            crop: Crop::None,
            flip: false,
            seed: 0,
            normalize: None,
            fill: None,
        }
    }

    #[test]
    fn small_images_share_a_job() {
        let (format, orientation) = (ImageFormat::Png, Orientation::Upright);
        let header = |width, height| Some(Ok(ImageHeader { format, width, height, orientation, jpeg: None }));
        let headers = vec![
            header(500, 500),
            None,
            header(500, 500),
            Some(Err(ImageProblem::Empty)),
            header(5000, 5000),
            header(1, 1),
            header(1000, 1000),
        ];
        let keys = vec![ImageKey::default(); headers.len()];
        let jobs = jobs(&headers, &keys, &spec());
        let ranges: Vec<_> = jobs.iter().map(|job| job.rows.clone()).collect();
        assert_eq!(ranges, [0..4, 4..5, 5..7]);
        assert_eq!(
            (jobs[0].largest, jobs[1].largest, jobs[2].largest),
            ((0, 500, 500), (4, 5000, 5000), (6, 1000, 1000))
        );
        assert!(jobs[1].bytes > 5000 * 5000 * 16);
    }
}
