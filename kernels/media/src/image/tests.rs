use arrow::{
    array::{Array, AsArray, BinaryArray, StructArray},
    datatypes::{Float32Type, UInt8Type},
};

use super::*;

fn spec(height: u32, width: u32, channels: u32) -> ImageSpec {
    ImageSpec {
        height,
        width,
        channels,
        resample: Resample::Bilinear,
        crop: Crop::None,
        flip: false,
        seed: 0,
        normalize: None,
        fill: None,
    }
}

fn png(width: u32, height: u32, colour: ::png::ColorType, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = ::png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(colour);
    encoder.set_depth(::png::BitDepth::Eight);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(data).unwrap();
    writer.finish().unwrap();
    bytes
}

fn row(bytes: &[u8]) -> ImageRow<'_> {
    match ImageHeader::read(bytes) {
        Ok(header) => ImageRow::Image(bytes, header, ImageKey::default()),
        Err(problem) => ImageRow::Failed(problem),
    }
}

fn values(rows: &ImageRows) -> Vec<u8> {
    rows.tensors.as_fixed_size_list().values().as_primitive::<UInt8Type>().values().to_vec()
}

#[test]
fn an_image_of_the_size_is_unchanged() {
    let data: Vec<u8> = (0..24).map(|value| value * 10).collect();
    let image = png(4, 2, ::png::ColorType::Rgb, &data);
    let rows = ImageDecoder::new(spec(2, 4, 3)).decode(vec![row(&image)]).unwrap();
    assert_eq!((values(&rows), rows.failed.len()), (data.clone(), 0));
    assert_eq!(rows.tensors.data_type(), &spec(2, 4, 3).data_type());
    // Transparency is dropped, and grey is repeated.
    let transparent: Vec<u8> = data.chunks(3).flat_map(|pixel| [pixel[0], pixel[1], pixel[2], 0]).collect();
    let image = png(4, 2, ::png::ColorType::Rgba, &transparent);
    assert_eq!(values(&ImageDecoder::new(spec(2, 4, 3)).decode(vec![row(&image)]).unwrap()), data);
    let image = png(2, 1, ::png::ColorType::GrayscaleAlpha, &[7, 0, 9, 255]);
    assert_eq!(values(&ImageDecoder::new(spec(1, 2, 3)).decode(vec![row(&image)]).unwrap()), [7, 7, 7, 9, 9, 9]);
    assert_eq!(values(&ImageDecoder::new(spec(1, 2, 1)).decode(vec![row(&image)]).unwrap()), [7, 9]);
}

#[test]
fn crops_and_flips_are_drawn_for_each_row() {
    let data: Vec<u8> = (0..=255).collect();
    let image = png(16, 16, ::png::ColorType::Grayscale, &data);
    let header = ImageHeader::read(&image).unwrap();
    let crop = Crop::Random { scale: (0.25, 0.25), ratio: (1.0, 1.0) };
    let random = ImageSpec { crop, flip: true, ..spec(8, 8, 1) };
    let rows = |seed: u64| -> Vec<ImageRow> {
        (0..64).map(|row| ImageRow::Image(&image, header, ImageKey { seed, epoch: 1, row })).collect()
    };
    let decode = |seed| values(&ImageDecoder::new(random.clone()).decode(rows(seed)).unwrap());
    assert_eq!(decode(5), decode(5));
    assert_ne!(decode(5), decode(6));
    for (row, tensor) in decode(5).chunks(64).enumerate() {
        let key = ImageKey { seed: 5, epoch: 1, row: row as u64 };
        let view = random.view(&header, key);
        let [left, top, width, height] = ImageSpec::whole_box(&view);
        assert_eq!((width, height, random.flips(key)), (8, 8, view.is_flipped));
        let first = if view.is_flipped { left + 7 } else { left };
        assert_eq!(i32::from(tensor[0]), top * 16 + first);
    }
}

#[test]
fn values_are_scaled_and_filled() {
    let image = png(1, 1, ::png::ColorType::Rgb, &[0, 128, 255]);
    let normalize = Some(Normalize { mean: vec![0.5, 0.25, 0.0], std: vec![0.5, 2.0, 1.0] });
    let scaled = ImageSpec { normalize, fill: Some(-1.0), ..spec(1, 1, 3) };
    let rows = ImageDecoder::new(scaled).decode(vec![row(&image), ImageRow::Null, row(b"")]).unwrap();
    let expected = [-1.0, ((128.0 / 255.0 - 0.25) / 2.0) as f32, 1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0];
    let found = rows.tensors.as_fixed_size_list();
    assert_eq!(found.values().as_primitive::<Float32Type>().values(), &expected);
    assert_eq!((found.null_count(), rows.failed), (0, vec![(2, ImageProblem::Empty)]));
    let rows = ImageDecoder::new(spec(1, 1, 3)).decode(vec![row(b"text"), row(&image), ImageRow::Null]).unwrap();
    assert_eq!((rows.tensors.is_null(0), rows.tensors.is_null(1), rows.tensors.is_null(2)), (true, false, true));
    assert_eq!(rows.failed.iter().map(|(row, _)| *row).collect::<Vec<_>>(), [0]);
}

#[test]
fn every_truncation_is_an_error() {
    let data: Vec<u8> = (0..300_u32).map(|value| (value * 7919 % 251) as u8).collect();
    let image = png(10, 10, ::png::ColorType::Rgb, &data);
    let end = image.windows(4).position(|chunk| chunk == b"IEND").unwrap() - 8;
    let decoder = ImageDecoder::new(spec(3, 3, 3));
    for length in 0..end {
        let rows = decoder.decode(vec![row(&image[..length])]).unwrap();
        assert_eq!(rows.failed.len(), 1, "{length} of {} bytes", image.len());
    }
}

#[test]
fn declared_sizes_are_limited() {
    let mut image = png(1, 1, ::png::ColorType::Grayscale, &[1]);
    for (width, height, words) in [
        (31_623_u32, 31_623_u32, "declares 31623 × 31623 pixels, the limit is 134217728"),
        (0, 5, "has 0 × 5 pixels"),
        (u32::MAX, u32::MAX, "the limit"),
    ] {
        image[16..20].copy_from_slice(&width.to_be_bytes());
        image[20..24].copy_from_slice(&height.to_be_bytes());
        let message = ImageHeader::read(&image).unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
    let message = ImageHeader::read(b"%PDF-1.7").unwrap_err().to_string();
    assert!(message.ends_with("the first bytes are 25 50 44 46 2d 31 2e 37"), "{message}");
}

#[test]
fn images_may_be_in_structs() {
    let images = BinaryArray::from_opt_vec(vec![Some(b"a"), None, Some(b"c")]);
    let item = Arc::new(Field::new("bytes", DataType::Binary, true));
    let nulls = Some(NullBuffer::from(vec![true, true, false]));
    let structs = StructArray::new(vec![Arc::clone(&item)].into(), vec![Arc::new(images)], nulls);
    let column: ArrayRef = Arc::new(structs);
    assert_eq!(ImageBytes::data_type(column.data_type()), Some(DataType::Binary));
    let found = ImageBytes::of(&column).unwrap();
    assert_eq!((0..3).map(|row| found.get(row)).collect::<Vec<_>>(), [Some(b"a".as_slice()), None, None]);
    assert_eq!(ImageBytes::data_type(&DataType::Utf8), None);
}
