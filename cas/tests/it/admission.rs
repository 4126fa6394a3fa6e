//! An image is measured before anything of it is stored, and refused by the rule that it breaks.

use rederive_cas::{
    BatchRefusal, Candidate, ImageLimits, ImageRefusal, MediaType, Objects, ResolveError, admit, admit_batch,
};
use rederive_disk::OsDisk;

use crate::samples;

fn every_kind() -> Vec<(MediaType, u32, u32, Vec<u8>)> {
    vec![
        (MediaType::Png, 300, 20, samples::png(300, 20)),
        (MediaType::Jpeg, 300, 20, samples::jpeg(300, 20, None)),
        (MediaType::Gif, 300, 20, samples::gif(300, 20)),
        (MediaType::Webp, 300, 20, samples::webp_lossless(300, 20)),
        (MediaType::Webp, 300, 20, samples::webp_lossy(300, 20)),
        (MediaType::Webp, 300, 20, samples::webp_extended(300, 20)),
    ]
}

fn refusal(bytes: &[u8]) -> ImageRefusal {
    admit(bytes, None, None, &ImageLimits::default()).map(|_| ()).unwrap_err()
}

#[test]
fn every_format_is_measured_without_its_pixels() {
    for (media_type, width, height, bytes) in every_kind() {
        let image = admit(&bytes, Some(media_type), None, &ImageLimits::default()).unwrap();
        let image = image.reference();
        assert_eq!((image.media_type(), image.width(), image.height()), (media_type, width, height));
        assert_eq!(image.bytes(), bytes.len() as u64);
        if bytes.get(12..16) != Some(b"VP8 ") {
            // Another reader agrees; it takes a lossy WebP's scaling bits for a part of its sides.
            let other = imagesize::blob_size(&bytes).unwrap();
            assert_eq!((other.width, other.height), (width as usize, height as usize));
        }
    }
}

#[test]
fn an_orientation_that_turns_the_image_turns_its_sides() {
    for (orientation, turned) in
        [(1, false), (3, false), (4, false), (5, true), (6, true), (8, true), (9, false)]
    {
        for is_little in [true, false] {
            let bytes = samples::jpeg(300, 20, Some((orientation, is_little)));
            let image = admit(&bytes, None, None, &ImageLimits::default()).unwrap();
            let sides = (image.reference().width(), image.reference().height());
            assert_eq!(sides, if turned { (20, 300) } else { (300, 20) }, "orientation {orientation}");
        }
    }
}

#[test]
fn an_image_cut_short_anywhere_is_refused() {
    for (media_type, .., bytes) in every_kind() {
        for length in 0..bytes.len() {
            match refusal(&bytes[..length]) {
                ImageRefusal::Empty => assert_eq!(length, 0),
                ImageRefusal::Unknown => assert!(length < 12, "{media_type} of {length}"),
                ImageRefusal::Truncated { media_type: of, bytes } => {
                    assert_eq!((of, bytes), (media_type, length as u64));
                }
                other => panic!("{media_type} of {length} bytes: {other}"),
            }
        }
    }
}

#[test]
fn a_flipped_bit_never_panics_and_never_changes_what_is_said_of_the_bytes() {
    for (.., bytes) in every_kind() {
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            if let Ok(image) = admit(&flipped, None, None, &ImageLimits::default()) {
                assert_eq!(image.reference().bytes(), flipped.len() as u64);
                assert_eq!(*image.reference().digest(), rederive_cas::Digest::of(&flipped));
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_the_header_of_a_png_is_found() {
    let bytes = samples::png(300, 20);
    for at in 16 * 8..33 * 8 {
        let mut flipped = bytes.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        refusal(&flipped);
    }
}

#[test]
fn what_was_swapped_or_renamed_is_refused_by_its_media_type() {
    let limits = ImageLimits::default();
    for (found, .., bytes) in every_kind() {
        for declared in MediaType::ALL.into_iter().filter(|declared| *declared != found) {
            let refused = admit(&bytes, Some(declared), Some("shot.png"), &limits).map(|_| ()).unwrap_err();
            assert_eq!(refused, ImageRefusal::MediaType { declared, found });
        }
    }
    for bytes in
        [b"<svg xmlns='http://www.w3.org/2000/svg'/>".as_slice(), b"BM6\0\0\0", b"%PDF-1.7", b"GIF88a"]
    {
        assert_eq!(refusal(bytes), ImageRefusal::Unknown);
    }
}

#[test]
fn something_behind_the_end_is_refused_and_padding_is_not() {
    for (media_type, .., bytes) in every_kind() {
        let archive = [bytes.as_slice(), b"PK\x03\x04an archive"].concat();
        let expected = ImageRefusal::Trailing { media_type, bytes: 14, bytes_max: 0 };
        assert_eq!(refusal(&archive), expected);
        let padded = [bytes.as_slice(), &[0; 100]].concat();
        assert!(admit(&padded, None, None, &ImageLimits::default()).is_ok());
        let limits = ImageLimits { trailing_bytes_max: 14, ..ImageLimits::default() };
        assert!(admit(&archive, None, None, &limits).is_ok());
    }
    let (photo, preview) = (samples::jpeg(300, 20, None), samples::jpeg(30, 2, None));
    let both = [photo.as_slice(), &[0; 7], &preview].concat();
    let image = admit(&both, None, None, &ImageLimits::default()).unwrap();
    assert_eq!(image.reference().width(), 300);
    let three = [both.as_slice(), b"<html>"].concat();
    assert!(matches!(refusal(&three), ImageRefusal::Trailing { bytes: 6, .. }));
}

#[test]
fn sides_and_pixels_are_limited_by_what_the_header_says() {
    let wide = samples::png(9000, 100);
    assert_eq!(wide.len(), 200);
    assert_eq!(refusal(&wide), ImageRefusal::Side { width: 9000, height: 100, side_max: 8000 });
    assert_eq!(refusal(&wide).to_string(), "image of 9000x100 pixels, where at most 8000 a side are allowed");
    assert_eq!(refusal(&wide).rule(), "side");
    // Also where the rest is broken: a checksum that does not fit, or nothing behind the header.
    let mut unchecked = samples::png(1, 1);
    unchecked[16..24].copy_from_slice(&wide[16..24]);
    assert!(matches!(refusal(&unchecked), ImageRefusal::Side { width: 9000, .. }));
    assert!(matches!(refusal(&wide[..33]), ImageRefusal::Side { width: 9000, .. }));

    assert!(admit(samples::png(8000, 8000), None, None, &ImageLimits::default()).is_ok());
    assert!(matches!(refusal(&samples::png(8000, 8001)), ImageRefusal::Side { .. }));
    let limits = ImageLimits { side_max: u32::MAX, ..ImageLimits::default() };
    let bomb = admit(samples::png(60_000, 60_000), None, None, &limits).map(|_| ()).unwrap_err();
    assert_eq!(bomb, ImageRefusal::Pixels { pixels: 3_600_000_000, pixels_max: 64_000_000 });
    assert!(matches!(refusal(&samples::png(0, 5)), ImageRefusal::NoPixels { width: 0, height: 5 }));
    assert!(matches!(refusal(&samples::jpeg(9, 0, None)), ImageRefusal::NoPixels { .. }));
}

#[test]
fn lengths_are_limited_raw_and_as_base64_to_the_byte() {
    let raw = ImageLimits { image_bytes_max: 5_242_880, ..ImageLimits::default() };
    assert!(admit(samples::png_of(9, 9, 5_242_880), None, None, &raw).is_ok());
    assert_eq!(
        admit(samples::png_of(9, 9, 5_242_881), None, None, &raw).map(|_| ()).unwrap_err(),
        ImageRefusal::Bytes { bytes: 5_242_881, bytes_max: 5_242_880 }
    );
    // 3,932,160 bytes are 5,242,880 as base64; one more takes four more.
    let base64 = ImageLimits { image_base64_bytes_max: 5_242_880, ..ImageLimits::default() };
    assert!(admit(samples::png_of(9, 9, 3_932_160), None, None, &base64).is_ok());
    assert_eq!(
        admit(samples::png_of(9, 9, 3_932_161), None, None, &base64).map(|_| ()).unwrap_err(),
        ImageRefusal::Base64Bytes { bytes: 5_242_884, bytes_max: 5_242_880 }
    );
}

#[test]
fn a_batch_is_admitted_whole_or_not_at_all() {
    let candidate = |bytes: Vec<u8>| Candidate { bytes: bytes.into(), declared: None, name: None };
    let three = || [samples::png(1, 1), samples::gif(2, 2), samples::png(3, 3)].map(candidate);
    let limits = ImageLimits { message_images_max: 3, message_bytes_max: 442, ..ImageLimits::default() };
    assert_eq!(admit_batch(three(), &limits).unwrap().len(), 3);
    let refuse = |candidates: Vec<Candidate<'static>>, limits| {
        admit_batch(candidates, &limits).map(|_| ()).unwrap_err()
    };
    assert_eq!(
        refuse(three().into(), ImageLimits { message_images_max: 2, ..limits }),
        BatchRefusal::Message(ImageRefusal::MessageImages { images: 3, images_max: 2 })
    );
    assert_eq!(
        refuse(three().into(), ImageLimits { message_bytes_max: 441, ..limits }),
        BatchRefusal::Message(ImageRefusal::MessageBytes { bytes: 442, bytes_max: 441 })
    );
    let bad = vec![candidate(samples::png(1, 1)), candidate(b"no image".to_vec())];
    assert_eq!(refuse(bad, limits), BatchRefusal::Image { index: 1, refusal: ImageRefusal::Unknown });
}

#[test]
fn a_refused_image_leaves_no_object_and_a_stored_one_is_checked_in_every_field() {
    let folder = tempfile::tempdir().unwrap();
    let objects: Objects = samples::open(OsDisk, folder.path());
    assert!(admit(samples::png(9000, 100), None, None, &ImageLimits::default()).is_err());
    assert_eq!(objects.list().unwrap(), []);

    let bytes = samples::png(300, 20);
    let admitted = admit(&bytes, None, Some("/tmp/a.png"), &ImageLimits::default()).unwrap();
    let image = objects.put_image(&admitted).unwrap();
    assert_eq!(objects.get_verified(&image).unwrap(), bytes);
    let block = image.to_block();
    for (from, to, field) in [
        (r#""bytes":200"#, r#""bytes":201"#, "bytes"),
        (r#""width":300"#, r#""width":301"#, "width"),
        (r#""height":20"#, r#""height":21"#, "height"),
        ("image/png", "image/gif", "mediaType"),
    ] {
        let changed = block.replacen(from, to, 1);
        assert_ne!(changed, block);
        let changed = rederive_cas::ImageRef::from_block(&changed).unwrap();
        match objects.get_verified(&changed).unwrap_err() {
            ResolveError::Differs { digest, field: named, .. } => {
                assert_eq!((digest, named), (*image.digest(), field));
            }
            other => panic!("{other}"),
        }
    }
}
