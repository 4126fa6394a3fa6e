//! A variant is deterministic, found again, and made again; the original stays.

use std::fs;

use image::codecs::jpeg::JpegEncoder;
use image::{DynamicImage, ImageFormat, RgbImage, RgbaImage};
use rederive_cas::normalise::{NormaliseError, VariantPolicy};
use rederive_cas::policy::{RouteLimits, check_request};
use rederive_cas::{ImageLimits, ImageRef, MediaType, Objects, ResolveError, admit};
use rederive_disk::OsDisk;

use crate::samples::{self, noise};

const POLICY: VariantPolicy =
    VariantPolicy { side_max: 100, base64_bytes_max: 1 << 20, pixels_max: 1_000_000 };

fn store() -> (tempfile::TempDir, Objects) {
    let folder = tempfile::tempdir().unwrap();
    let objects = samples::open(OsDisk, folder.path().join("objects"));
    (folder, objects)
}

fn put(objects: &Objects, bytes: &[u8]) -> ImageRef {
    objects.put_image(&admit(bytes, None, Some("a.png"), &ImageLimits::default()).unwrap()).unwrap()
}

fn png(image: impl Into<DynamicImage>) -> Vec<u8> {
    let mut out = std::io::Cursor::new(Vec::new());
    image.into().write_to(&mut out, ImageFormat::Png).unwrap();
    out.into_inner()
}

fn noisy(width: u32, height: u32) -> RgbImage {
    RgbImage::from_raw(width, height, noise(7, (width * height * 3) as usize)).unwrap()
}

#[test]
fn a_variant_is_the_same_each_time_and_keeps_the_original() {
    let (_folder, objects) = store();
    let image = put(&objects, &png(noisy(400, 200)));
    let variant = objects.normalise(&image, &POLICY).unwrap();
    assert_eq!((variant.width(), variant.height(), variant.media_type()), (100, 50, MediaType::Png));
    assert_eq!((variant.original_size(), variant.name()), (Some((400, 200)), Some("a.png")));
    assert_eq!(objects.normalise(&variant, &POLICY).unwrap(), variant, "what fits is its own variant");
    objects.get_verified(&image).unwrap();

    let (_other, other) = store();
    put(&other, &png(noisy(400, 200)));
    assert_eq!(other.normalise(&image, &POLICY).unwrap(), variant);

    // Found again without the original; made again where the variant or its entry is lost or wrong.
    let entry = fs::read_dir(objects.folder().join("variants")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(objects.path(image.digest())).unwrap();
    assert_eq!(objects.normalise(&image, &POLICY).unwrap(), variant);
    fs::remove_file(objects.path(variant.digest())).unwrap();
    let lost = objects.normalise(&image, &POLICY).unwrap_err();
    assert!(matches!(lost, NormaliseError::Resolve(ResolveError::Get(_))));
    put(&objects, &png(noisy(400, 200)));
    for entry_text in [String::new(), "{".into(), image.to_block()] {
        fs::write(&entry, entry_text).unwrap();
        assert_eq!(objects.normalise(&image, &POLICY).unwrap(), variant);
    }
}

#[test]
fn a_budget_is_kept_by_quality_then_by_size_or_refused() {
    let (_folder, objects) = store();
    let image = put(&objects, &png(noisy(90, 60)));
    let tight = VariantPolicy { base64_bytes_max: 6000, ..POLICY };
    let variant = objects.normalise(&image, &tight).unwrap();
    assert_eq!(variant.media_type(), MediaType::Jpeg);
    assert!(variant.base64_bytes() <= 6000);
    let clear = put(&objects, &png(RgbaImage::from_raw(90, 60, noise(8, 90 * 60 * 4)).unwrap()));
    let variant = objects.normalise(&clear, &tight).unwrap();
    assert_eq!(variant.media_type(), MediaType::Png);
    assert!(variant.base64_bytes() <= 6000 && variant.width() < 90);
    let none = VariantPolicy { base64_bytes_max: 50, ..POLICY };
    assert!(matches!(objects.normalise(&image, &none), Err(NormaliseError::Budget { base64_bytes_max: 50 })));
    let few = VariantPolicy { pixels_max: 5399, side_max: 50, ..POLICY };
    assert!(matches!(objects.normalise(&image, &few), Err(NormaliseError::Pixels { pixels: 5400, .. })));
}

#[test]
fn an_orientation_is_applied_and_broken_pixels_are_an_error() {
    let (_folder, objects) = store();
    let mut plain = Vec::new();
    noisy(300, 200).write_with_encoder(JpegEncoder::new(&mut plain)).unwrap();
    let turned = samples::jpeg(1, 1, Some((6, true)));
    let exif = &turned[2..4 + usize::from(turned[5]) + 256 * usize::from(turned[4])];
    let bytes = [&plain[..2], exif, &plain[2..]].concat();
    let image = put(&objects, &bytes);
    assert_eq!((image.width(), image.height()), (200, 300));
    let variant = objects.normalise(&image, &POLICY).unwrap();
    assert_eq!((variant.width(), variant.height()), (67, 100));

    let broken = put(&objects, &samples::png(300, 20)); // sound container, no pixels
    assert!(matches!(objects.normalise(&broken, &POLICY), Err(NormaliseError::Decode(_))));
}

#[test]
fn a_request_of_many_images_fits_after_its_images_are_normalised() {
    let (_folder, objects) = store();
    let route = RouteLimits::ANTHROPIC;
    let image = put(&objects, &png(RgbImage::new(2100, 400)));
    let request: Vec<_> = (0..21).map(|seq| (seq, image.clone())).collect();
    assert!(check_request(&request, &route).is_err());
    let policy = VariantPolicy::of(&route, 21);
    let request: Vec<_> =
        request.iter().map(|(seq, image)| (*seq, objects.normalise(image, &policy).unwrap())).collect();
    assert_eq!(check_request(&request, &route), Ok(()));
    assert_eq!(request[0].1.width(), 2000);
    let sweep = rederive_cas::Sweep { now_ms: u64::MAX, grace: std::time::Duration::ZERO, dry_run: false };
    let report = objects.sweep(|digest| digest == image.digest(), sweep).unwrap();
    assert_eq!((report.freed.len(), report.leftovers.len()), (1, 1));
    assert_eq!(objects.normalise(&image, &policy).unwrap(), request[0].1);
}
