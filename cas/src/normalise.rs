//! Smaller variants of images, for routes that do not take the original.
//!
//! Owns the way from an image and a policy to one variant: longest side first, then a budget of
//! bytes. A variant is an object of its own, found again by the image, the policy and
//! [`ENCODER_VERSION`] through a file in `objects/variants` (FORMAT.md § Objects). It is a cache:
//! nobody's reference keeps a variant, a sweep may free it, and it is made again from the original
//! when it is asked for. The original is never changed.
//!
//! Two runs of one build on one machine make the same bytes. Pixels are decoded here and nowhere
//! else, under the limits of [`VariantPolicy::pixels_max`].

use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::imageops;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use rederive_disk::{OpenMode, read_exact_at};

use crate::images::{ImageLimits, ImageRef, ImageRefusal, MediaType, ResolveError, admit, base64_bytes};
use crate::objects::{DiskError, Objects, PutError, VARIANTS_FOLDER, during};
use crate::policy::RouteLimits;

/// Part of a variant's key: raised when the same policy makes other bytes.
pub const ENCODER_VERSION: u32 = 1;

const JPEG_QUALITIES: [u8; 3] = [85, 70, 50];
const SIDE_MIN: u32 = 16;
/// Bytes that a decoder may hold for each pixel: 16 bits in four channels, and as much to work.
const BYTES_PER_PIXEL: u64 = 16;
/// Larger than any reference's block.
const VARIANT_FILE_BYTES_MAX: u64 = 4096;

/// What a variant may have at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VariantPolicy {
    /// Pixels on the longer side.
    pub side_max: u32,
    /// Length as base64 with padding.
    pub base64_bytes_max: u64,
    /// Pixels of an original that is decoded. Default 64,000,000.
    pub pixels_max: u64,
}

impl VariantPolicy {
    /// What a route takes of one image in a request of `images` images, all of the same size.
    pub fn of(route: &RouteLimits, images: u64) -> Self {
        let many = route.side_max_above.filter(|(above, _)| *above < images).map(|(_, side)| side);
        let sides = [route.side_max, many];
        let share = route.request_base64_bytes_max.map(|bytes| bytes / images.max(1));
        let bytes = [route.image_base64_bytes_max, share];
        Self {
            side_max: sides.into_iter().flatten().min().unwrap_or(u32::MAX),
            base64_bytes_max: bytes.into_iter().flatten().min().unwrap_or(u64::MAX),
            pixels_max: ImageLimits::default().pixels_max,
        }
    }

    fn takes(&self, image: &ImageRef) -> bool {
        image.width().max(image.height()) <= self.side_max && image.base64_bytes() <= self.base64_bytes_max
    }
}

/// Why there is no variant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NormaliseError {
    /// The original could not be read. Replace the node.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The original has more pixels than are decoded. Raise the limit, or replace the node.
    #[error("image of {pixels} pixels, where at most {pixels_max} are decoded")]
    Pixels {
        /// Width times height.
        pixels: u64,
        /// The limit.
        pixels_max: u64,
    },
    /// The original's pixels cannot be decoded. Replace the node.
    #[error("pixels that cannot be decoded")]
    Decode(#[source] image::ImageError),
    /// The variant cannot be encoded. Replace the node.
    #[error("variant that cannot be encoded")]
    Encode(#[source] image::ImageError),
    /// No variant is small enough. Replace the node.
    #[error("no variant of {base64_bytes_max} bytes as base64")]
    Budget {
        /// The limit.
        base64_bytes_max: u64,
    },
    /// The variant is no image by the rules of admission, which is this crate's mistake. Report it.
    #[error("variant that is refused")]
    Refused(#[source] ImageRefusal),
    /// The variant could not be stored. Retry.
    #[error(transparent)]
    Put(#[from] PutError),
    /// The disk failed. Retry.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

impl Objects {
    /// A reference to a variant of `image` that `policy` takes: `image` itself where it does.
    ///
    /// Of an animation the first frame is kept. What is opaque may become a JPEG; what is not stays
    /// a PNG. The orientation is applied.
    ///
    /// # Cost
    ///
    /// A verified read of the variant where it was made before. Otherwise the pixels are decoded,
    /// scaled and encoded once or several times: up to seconds and several bytes of memory a pixel.
    ///
    /// # Errors
    ///
    /// By variant of [`NormaliseError`].
    pub fn normalise(&self, image: &ImageRef, policy: &VariantPolicy) -> Result<ImageRef, NormaliseError> {
        if policy.takes(image) {
            return Ok(image.clone());
        }
        let path = self.variant_path(image, policy);
        if let Some(variant) = self.known_variant(&path, image, policy) {
            return Ok(variant);
        }
        let original = self.get_verified(image)?;
        let bytes = shrink(&original, image, policy)?;
        let (width, height) = image.original_size().unwrap_or((image.width(), image.height()));
        let unlimited = ImageLimits {
            image_bytes_max: u64::MAX,
            image_base64_bytes_max: u64::MAX,
            side_max: u32::MAX,
            pixels_max: u64::MAX,
            ..ImageLimits::default()
        };
        let admitted = admit(bytes, None, image.name(), &unlimited).map_err(NormaliseError::Refused)?;
        let variant = self.put_image(&admitted)?.with_original_size(width, height);
        self.write_variant(&path, &variant)?;
        Ok(variant)
    }

    fn variant_path(&self, image: &ImageRef, policy: &VariantPolicy) -> PathBuf {
        let mut key = blake3::Hasher::new();
        // The whole reference: a variant's holds its name and original size as well.
        key.update(&ENCODER_VERSION.to_le_bytes());
        key.update(&policy.side_max.to_le_bytes());
        key.update(&policy.base64_bytes_max.to_le_bytes());
        key.update(image.to_block().as_bytes());
        self.folder().join(VARIANTS_FOLDER).join(key.finalize().to_hex().as_str())
    }

    /// The variant that the file at `path` names, if that is still there, whole, and one. Whatever
    /// is wrong with the file: the variant is made again.
    fn known_variant(&self, path: &Path, image: &ImageRef, policy: &VariantPolicy) -> Option<ImageRef> {
        let file = self.disk().open(path, OpenMode::Read).ok()?;
        let length = file.len().ok().filter(|length| *length <= VARIANT_FILE_BYTES_MAX)?;
        let mut block = vec![0; length as usize];
        read_exact_at(&*file, &mut block, 0).ok()?;
        let variant = ImageRef::from_block(std::str::from_utf8(&block).ok()?).ok()?;
        let original = image.original_size().unwrap_or((image.width(), image.height()));
        let is_one = policy.takes(&variant) && variant.original_size() == Some(original);
        (is_one && variant.name() == image.name() && self.get_verified(&variant).is_ok()).then_some(variant)
    }

    /// Not synced: what a loss of power takes is made again.
    fn write_variant(&self, path: &Path, variant: &ImageRef) -> Result<(), NormaliseError> {
        let _shared = self.lock_shared()?;
        let folder = self.folder().join(VARIANTS_FOLDER);
        self.disk().create_folder(&folder).map_err(during("make", &folder))?;
        let (temporary, file) = self.create_temporary(variant.digest())?;
        let written = file
            .write_at(variant.to_block().as_bytes(), 0)
            .map_err(during("write", &temporary))
            .and_then(|()| self.disk().rename(&temporary, path).map_err(during("rename", &temporary)));
        if written.is_err() {
            let _ = self.disk().remove(&temporary); // best effort: a sweep finds what stays
        }
        Ok(written?)
    }
}

/// Bytes of an image that `policy` takes.
fn shrink(original: &[u8], image: &ImageRef, policy: &VariantPolicy) -> Result<Vec<u8>, NormaliseError> {
    let decoded = decode(original, image, policy)?;
    let has_alpha = decoded.color().has_alpha();
    let mut side = image.width().max(image.height()).min(policy.side_max.max(1));
    loop {
        let scaled = scale(&decoded, side);
        // A drawing stays sharp where that fits; a photo would not.
        if image.media_type() != MediaType::Jpeg || has_alpha {
            let encoded = encode_png(&scaled).map_err(NormaliseError::Encode)?;
            if base64_bytes(encoded.len() as u64) <= policy.base64_bytes_max {
                return Ok(encoded);
            }
        }
        if !has_alpha {
            for quality in JPEG_QUALITIES {
                let mut encoded = Vec::new();
                let encoder = JpegEncoder::new_with_quality(&mut encoded, quality);
                scaled.to_rgb8().write_with_encoder(encoder).map_err(NormaliseError::Encode)?;
                if base64_bytes(encoded.len() as u64) <= policy.base64_bytes_max {
                    return Ok(encoded);
                }
            }
        }
        if side <= SIDE_MIN {
            return Err(NormaliseError::Budget { base64_bytes_max: policy.base64_bytes_max });
        }
        side = side / 4 * 3;
    }
}

fn decode(original: &[u8], image: &ImageRef, policy: &VariantPolicy) -> Result<DynamicImage, NormaliseError> {
    let pixels = u64::from(image.width()) * u64::from(image.height());
    if policy.pixels_max < pixels {
        return Err(NormaliseError::Pixels { pixels, pixels_max: policy.pixels_max });
    }
    let format = match image.media_type() {
        MediaType::Png => ImageFormat::Png,
        MediaType::Jpeg => ImageFormat::Jpeg,
        MediaType::Webp => ImageFormat::WebP,
        MediaType::Gif => ImageFormat::Gif,
    };
    let mut limits = Limits::default();
    limits.max_alloc = Some(policy.pixels_max.saturating_mul(BYTES_PER_PIXEL));
    let mut reader = ImageReader::with_format(Cursor::new(original), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(NormaliseError::Decode)?;
    let orientation = decoder.orientation().map_err(NormaliseError::Decode)?;
    let mut decoded = DynamicImage::from_decoder(decoder).map_err(NormaliseError::Decode)?;
    decoded.apply_orientation(orientation);
    Ok(decoded)
}

/// Scaled so that the longer side has at most `side` pixels and the shorter one at least one.
fn scale(decoded: &DynamicImage, side: u32) -> DynamicImage {
    if decoded.width().max(decoded.height()) <= side {
        return decoded.clone();
    }
    decoded.resize(side, side, imageops::FilterType::CatmullRom)
}

fn encode_png(scaled: &DynamicImage) -> image::ImageResult<Vec<u8>> {
    let mut encoded = Vec::new();
    let encoder = PngEncoder::new_with_quality(&mut encoded, CompressionType::Default, FilterType::Adaptive);
    let eight_bits = if scaled.color().has_alpha() {
        DynamicImage::from(scaled.to_rgba8())
    } else {
        DynamicImage::from(scaled.to_rgb8())
    };
    eight_bits.write_with_encoder(encoder)?;
    Ok(encoded)
}
