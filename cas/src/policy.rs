//! What a provider's route takes, as dated data, and the check of a whole request against it.
//!
//! A limit may depend on the request: a side of 2,100 pixels passes until there are more than 20
//! images. So a request is checked as a whole before it is sent, and the refusal names every node
//! that is concerned, so that the host can shrink or replace exactly those.

use crate::images::{ImageLimits, ImageRef};

/// What one route takes at most. `None`: no limit is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteLimits {
    /// Whose limits these are.
    pub provider: &'static str,
    /// When they were looked up, as `YYYY-MM`.
    pub as_of: &'static str,
    /// Where they were looked up.
    pub source: &'static str,
    /// Length of one image as base64.
    pub image_base64_bytes_max: Option<u64>,
    /// Pixels on the longer side.
    pub side_max: Option<u32>,
    /// More images than the first number: at most the second in pixels on the longer side.
    pub side_max_above: Option<(u64, u32)>,
    /// Images in one request, each use counted.
    pub images_max: Option<u64>,
    /// Sum of the lengths of all images as base64: the request's limit, which texts share.
    pub request_base64_bytes_max: Option<u64>,
}

impl RouteLimits {
    /// Anthropic's Messages API.
    pub const ANTHROPIC: Self = Self {
        provider: "anthropic",
        as_of: "2025-11",
        source: "docs.claude.com, Vision",
        image_base64_bytes_max: Some(5 * 1024 * 1024),
        side_max: Some(8000),
        side_max_above: Some((20, 2000)),
        images_max: Some(100),
        request_base64_bytes_max: Some(32 * 1024 * 1024),
    };
    /// OpenAI's Chat Completions and Responses API.
    pub const OPENAI: Self = Self {
        provider: "openai",
        as_of: "2025-11",
        source: "platform.openai.com, Images and vision",
        image_base64_bytes_max: None,
        side_max: None,
        side_max_above: None,
        images_max: Some(500),
        request_base64_bytes_max: Some(50 * 1024 * 1024),
    };
    /// Google's Gemini API with images in the request.
    pub const GEMINI: Self = Self {
        provider: "gemini",
        as_of: "2025-11",
        source: "ai.google.dev, Image understanding",
        image_base64_bytes_max: None,
        side_max: None,
        side_max_above: None,
        images_max: Some(3600),
        request_base64_bytes_max: Some(20 * 1024 * 1024),
    };
    /// Every route that is known.
    pub const ALL: [Self; 3] = [Self::ANTHROPIC, Self::OPENAI, Self::GEMINI];

    /// The limits of `provider`; `None` where none are known.
    pub fn of(provider: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|route| route.provider.eq_ignore_ascii_case(provider))
    }

    /// Limits for admission under which no single message breaks this route's.
    pub fn image_limits(&self) -> ImageLimits {
        let default = ImageLimits::default();
        ImageLimits {
            image_bytes_max: u64::MAX,
            image_base64_bytes_max: self
                .image_base64_bytes_max
                .or(self.request_base64_bytes_max)
                .unwrap_or(u64::MAX),
            side_max: self.side_max.unwrap_or(u32::MAX),
            pixels_max: default.pixels_max,
            trailing_bytes_max: default.trailing_bytes_max,
            message_images_max: self.images_max.unwrap_or(default.message_images_max),
            message_bytes_max: self.request_base64_bytes_max.map_or(u64::MAX, |bytes| bytes / 4 * 3),
        }
    }
}

/// A limit of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteRule {
    /// Length of one image as base64, in bytes.
    ImageBase64Bytes,
    /// Pixels on the longer side, however many images there are.
    Side,
    /// Pixels on the longer side in a request of many images.
    SideOfMany,
    /// Images in the request.
    Images,
    /// All images as base64, in bytes.
    RequestBase64Bytes,
}

impl RouteRule {
    /// Short name, for logs and hosts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ImageBase64Bytes => "image-base64-bytes",
            Self::Side => "side",
            Self::SideOfMany => "side-of-many",
            Self::Images => "images",
            Self::RequestBase64Bytes => "request-base64-bytes",
        }
    }
}

/// A request that the provider would refuse. Make the nodes' images smaller, or replace them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request of {images} images breaks {provider}'s limit {}: {found}, where at most {limit} is taken (nodes {nodes:?})", rule.as_str())]
pub struct RouteRefusal {
    /// Whose limit.
    pub provider: &'static str,
    /// Which limit.
    pub rule: RouteRule,
    /// The limit.
    pub limit: u64,
    /// The largest value that breaks it.
    pub found: u64,
    /// Images in the request.
    pub images: u64,
    /// The seqs of all nodes that are concerned, ascending, each once: for a limit of one image the
    /// nodes of the images that break it, for one of the request those of all images.
    pub nodes: Vec<u64>,
}

/// Checks the images of one request, each use with the seq of its node.
///
/// # Cost
///
/// A few passes over `images`.
///
/// # Errors
///
/// [`RouteRefusal`] for the first limit that is broken, in the order of [`RouteRule`].
pub fn check_request(images: &[(u64, ImageRef)], limits: &RouteLimits) -> Result<(), RouteRefusal> {
    let count = images.len() as u64;
    let refuse = |rule, limit, found, concerned: &dyn Fn(&ImageRef) -> bool| {
        let mut nodes: Vec<u64> =
            images.iter().filter(|(_, image)| concerned(image)).map(|(seq, _)| *seq).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Err(RouteRefusal { provider: limits.provider, rule, limit, found, images: count, nodes })
    };
    let largest = |value: fn(&ImageRef) -> u64| images.iter().map(|(_, image)| value(image)).max();
    let side = |image: &ImageRef| u64::from(image.width().max(image.height()));
    let side_max = limits.side_max.map(u64::from);
    let side_of_many_max =
        limits.side_max_above.filter(|(above, _)| *above < count).map(|(_, side)| u64::from(side));
    for (rule, limit, value) in [
        (
            RouteRule::ImageBase64Bytes,
            limits.image_base64_bytes_max,
            ImageRef::base64_bytes as fn(&ImageRef) -> u64,
        ),
        (RouteRule::Side, side_max, side),
        (RouteRule::SideOfMany, side_of_many_max, side),
    ] {
        if let (Some(limit), Some(found)) = (limit, largest(value))
            && limit < found
        {
            return refuse(rule, limit, found, &|image| limit < value(image));
        }
    }
    let bytes = images.iter().map(|(_, image)| image.base64_bytes()).fold(0, u64::saturating_add);
    for (rule, limit, found) in [
        (RouteRule::Images, limits.images_max, count),
        (RouteRule::RequestBase64Bytes, limits.request_base64_bytes_max, bytes),
    ] {
        if let Some(limit) = limit.filter(|limit| *limit < found) {
            return refuse(rule, limit, found, &|_| true);
        }
    }
    Ok(())
}
