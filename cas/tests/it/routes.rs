//! A request is checked as a whole before it is sent, and the refusal names the nodes.

use rederive_cas::policy::{RouteLimits, RouteRefusal, RouteRule, check_request};
use rederive_cas::{ImageLimits, ImageRef, admit};

use crate::samples;

fn image(width: u32, height: u32, bytes: usize) -> ImageRef {
    admit(samples::png_of(width, height, bytes), None, None, &ImageLimits::default())
        .unwrap()
        .reference()
        .clone()
}

#[test]
fn a_side_that_passes_alone_is_refused_among_many() {
    let limits = RouteLimits::ANTHROPIC;
    let large = image(2100, 400, 200);
    let mut request: Vec<_> = (0..20).map(|seq| (10 + seq, large.clone())).collect();
    assert_eq!(check_request(&request, &limits), Ok(()));
    request.push((50, image(2000, 2000, 200)));
    let refused = check_request(&request, &limits).unwrap_err();
    assert_eq!(
        refused,
        RouteRefusal {
            provider: "anthropic",
            rule: RouteRule::SideOfMany,
            limit: 2000,
            found: 2100,
            images: 21,
            nodes: (10..30).collect(),
        }
    );
    assert!(refused.to_string().starts_with(
        "request of 21 images breaks anthropic's limit side-of-many: 2100, where at most 2000 is taken (nodes [10, 11"
    ));
    // Twenty in the place of twenty-one, or all of them small enough: it goes out.
    assert_eq!(check_request(&request[1..], &limits), Ok(()));
    let small: Vec<_> = (0..100).map(|seq| (seq, image(2000, 400, 200))).collect();
    assert_eq!(check_request(&small, &limits), Ok(()));
}

#[test]
fn every_limit_of_a_route_is_held_to_the_byte() {
    let limits = RouteLimits {
        image_base64_bytes_max: Some(400),
        side_max: Some(500),
        side_max_above: None,
        images_max: Some(3),
        request_base64_bytes_max: Some(1068),
        ..RouteLimits::OPENAI
    };
    let (small, fits, long) = (image(500, 1, 200), image(1, 500, 300), image(1, 1, 301));
    let check = |images: &[(u64, &ImageRef)]| {
        let images: Vec<_> = images.iter().map(|(seq, image)| (*seq, (*image).clone())).collect();
        check_request(&images, &limits).map_err(|refused| (refused.rule, refused.found, refused.nodes))
    };
    assert_eq!(check(&[(1, &small), (2, &fits), (2, &fits)]), Ok(()));
    assert_eq!(check(&[(4, &small), (9, &long)]), Err((RouteRule::ImageBase64Bytes, 404, vec![9])));
    assert_eq!(check(&[(4, &small), (3, &image(501, 1, 200))]), Err((RouteRule::Side, 501, vec![3])));
    assert_eq!(
        check(&[(4, &small), (3, &small), (3, &small), (2, &small)]),
        Err((RouteRule::Images, 4, vec![2, 3, 4]))
    );
    assert_eq!(
        check(&[(1, &fits), (1, &fits), (2, &fits)]),
        Err((RouteRule::RequestBase64Bytes, 1200, vec![1, 2]))
    );
}

#[test]
fn routes_are_known_by_name_and_their_limits_hold_at_admission() {
    for route in RouteLimits::ALL {
        assert_eq!(RouteLimits::of(route.provider), Some(route));
        assert!(!route.source.is_empty() && route.as_of.len() == 7);
        let limits = route.image_limits();
        let admitted = admit(samples::png(100, 100), None, None, &limits).unwrap();
        assert_eq!(check_request(&[(0, admitted.reference().clone())], &route), Ok(()));
    }
    assert_eq!(RouteLimits::of("Anthropic"), Some(RouteLimits::ANTHROPIC));
    assert_eq!(RouteLimits::of("another"), None);
    let limits = RouteLimits::ANTHROPIC.image_limits();
    assert!(admit(samples::png_of(9, 9, 3_932_160), None, None, &limits).is_ok());
    assert!(admit(samples::png_of(9, 9, 3_932_161), None, None, &limits).is_err());
}
