//! The same bytes end in the same object, however they came; everything else stays as it was.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use rederive_cas::lift::{LiftError, PayloadRefusal, decode_base64, lift, read_data_url};
use rederive_cas::{BatchRefusal, Digest, ImageLimits, ImageRefusal, MediaType, references};

use crate::samples;

/// `text` in lines of 76 characters.
fn lines(text: &str, end: &str) -> String {
    text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect::<Vec<_>>().join(end)
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

#[test]
fn a_data_url_is_read_as_browsers_read_it() {
    let bytes = samples::png_of(300, 20, 1_000_000);
    let base64 = STANDARD.encode(&bytes);
    assert!(base64.ends_with('='));
    for url in [
        format!("data:image/png;base64,{base64}"),
        format!("data:image/PNG;base64,{base64}"),
        format!("DATA:Image/Png;charset=utf-8;BASE64,{}", lines(&base64, "\r\n")),
        format!("data:image/png;base64,{}", lines(base64.trim_end_matches('='), "\n")),
        format!(" data:image/png;base64, {} \n", lines(&base64, "\n\t")),
        format!(
            "data:image/png;base64,{}",
            base64.replace('+', "%2B").replace('/', "%2f").replace('=', "%3D")
        ),
        format!("data:image/png;base64,{}", URL_SAFE_NO_PAD.encode(&bytes)),
    ] {
        let (media_type, read) = read_data_url(&url).unwrap().unwrap();
        assert_eq!((media_type, Digest::of(&read)), (MediaType::Png, Digest::of(&bytes)));
    }
}

#[test]
fn what_is_no_payload_says_why() {
    for (url, refusal) in [
        ("http://x/y.png", PayloadRefusal::DataUrl { missing: "its scheme" }),
        ("data:image/png;base64", PayloadRefusal::DataUrl { missing: "a comma" }),
        ("data:image/png,abcd", PayloadRefusal::DataUrl { missing: "base64" }),
        ("data:image/svg+xml;base64,abcd", PayloadRefusal::MediaType { found: "image/svg+xml".into() }),
        ("data:image/png;base64,ab*d", PayloadRefusal::Character { byte: b'*', at: 2 }),
        ("data:image/png;base64,ab%d", PayloadRefusal::Character { byte: b'%', at: 2 }),
        ("data:image/png;base64,abcde", PayloadRefusal::Length { length: 5 }),
        ("data:image/png;base64,aQ=d", PayloadRefusal::Padding),
        ("data:image/png;base64,abcd====", PayloadRefusal::Padding),
        ("data:image/png;base64,aR==", PayloadRefusal::LastCharacter),
    ] {
        assert_eq!(read_data_url(url), Err(refusal), "{url}");
    }
    assert_eq!(read_data_url("data:application/pdf;base64,****"), Ok(None));
}

#[test]
fn every_shape_ends_in_the_same_object_and_the_rest_stays_as_it_was() {
    let bytes = samples::png(300, 20);
    let digest = Digest::of(&bytes);
    let data = STANDARD.encode(&bytes);
    let url = quoted(&format!("data:image/png;base64,{}", lines(&data, "\n")));
    let block =
        rederive_cas::admit(&bytes, None, None, &ImageLimits::default()).unwrap().reference().to_block();
    let open = block.strip_suffix('}').unwrap();
    for (shape, lifted) in [
        (
            format!(
                r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{data}"}}}}"#
            ),
            block.clone(),
        ),
        (
            format!(
                r#"{{"source":{{"type":"base64","media_type":"image/png","data":"{data}"}},"type":"image","cache_control":{{"type": "ephemeral"}} }}"#
            ),
            format!(r#"{open},"cache_control":{{"type": "ephemeral"}}}}"#),
        ),
        (
            format!(r#"{{"type":"image_url","image_url":{{"url":{url},"detail":"high"}}}}"#),
            format!(r#"{open},"detail":"high"}}"#),
        ),
        (format!(r#"{{"type":"image_url","image_url":{url}}}"#), block.clone()),
        (
            format!(r#"{{"type":"input_image","detail":"low","image_url":{url}}}"#),
            format!(r#"{open},"detail":"low"}}"#),
        ),
        (format!(r#"{{"inlineData":{{"mimeType":"image/png","data":"{data}"}}}}"#), block.clone()),
        (format!(r#"{{"inline_data":{{"mime_type":"image/png","data":"{data}"}}}}"#), block.clone()),
        (format!(r#"{{"type":"image","mimeType":"image/PNG","data":{url}}}"#), block.clone()),
    ] {
        let content = format!(
            "[ {{\"type\":\"text\",\"text\":\"\\ud83d data:image/png;base64,{data}\"}} , {shape},\n{{\"type\":\"tool-result\",\"n\":-0,\"content\":[{shape} ]}}]"
        );
        let expected = content.replace(&shape, &lifted);
        let out = lift(&content, &ImageLimits::default()).unwrap();
        assert_eq!(out.content, expected);
        assert_eq!(out.images.len(), 2);
        for image in &out.images {
            assert_eq!((image.reference().digest(), image.bytes()), (&digest, bytes.as_slice()));
        }
        let message = format!(r#"{{"content":{}}}"#, out.content);
        assert_eq!(references(&message).unwrap().len(), 2);
        let again = lift(&out.content, &ImageLimits::default()).unwrap();
        assert_eq!((again.content, again.images.len()), (out.content, 0));
    }
}

#[test]
fn what_is_no_image_by_value_stays_as_it_was() {
    for content in [
        r#""data:image/png;base64,abcd""#,
        "[]",
        "null",
        r#"[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]"#,
        r#"[{"type":"image","source":{"type":"url","url":"https://x/y.png"}}]"#,
        r#"[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"****"}}]"#,
        r#"[{"inlineData":{"mimeType":"audio/wav","data":"****"}}, 7, "x", {"a":1e999}]"#,
        r#"[{"type":"text","text":"data:image/png;base64,abcd"}]"#,
    ] {
        let lifted = lift(content, &ImageLimits::default()).unwrap();
        assert_eq!((lifted.content.as_str(), lifted.images.len()), (content, 0));
    }
    assert!(matches!(lift("[", &ImageLimits::default()), Err(LiftError::Json)));
}

#[test]
fn one_bad_image_lifts_none_and_is_named() {
    let good = STANDARD.encode(samples::png(3, 2));
    let block =
        |kind: &str, data: &str| format!(r#"{{"inlineData":{{"mimeType":"{kind}","data":"{data}"}}}}"#);
    let content =
        |bad: String| format!(r#"[{},{{"type":"x","content":[7,{bad}]}}]"#, block("image/png", &good));
    let error = |bad| lift(&content(bad), &ImageLimits::default()).map(|_| ()).unwrap_err();
    assert_eq!(
        error(block("image/png", "ab*d")),
        LiftError::Payload { block: "1.1".into(), refusal: PayloadRefusal::Character { byte: b'*', at: 2 } }
    );
    let refusal = ImageRefusal::MediaType { declared: MediaType::Gif, found: MediaType::Png };
    assert_eq!(
        error(block("image/gif", &good)),
        LiftError::Image { block: "1.1".into(), refusal: BatchRefusal::Image { index: 1, refusal } }
    );
    let limits = ImageLimits { message_images_max: 1, ..ImageLimits::default() };
    let refused = lift(&content(block("image/png", &good)), &limits).map(|_| ()).unwrap_err();
    assert!(matches!(refused, LiftError::Image { block, .. } if block.is_empty()));
}

proptest! {
    #[test]
    fn any_spelling_of_base64_gives_the_bytes_or_a_refusal(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        spaces in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec![' ', '\n', '\r', '\t'])), 0..9),
        padded: bool,
        for_urls: bool,
    ) {
        let mut text = STANDARD.encode(&bytes);
        if !padded {
            text = text.trim_end_matches('=').to_owned();
        }
        if for_urls {
            text = text.replace('+', "-").replace('/', "_");
        }
        for (at, space) in spaces {
            text.insert(at.index(text.len() + 1), space);
        }
        prop_assert_eq!(decode_base64(&text), Ok(bytes));
    }

    #[test]
    fn what_decodes_encodes_back(text in "[A-Za-z0-9+/=*\\-_ \n]{0,40}") {
        if let Ok(bytes) = decode_base64(&text) {
            let plain: String = text.chars().filter(|c| !c.is_whitespace() && *c != '=').collect();
            let plain = plain.replace('-', "+").replace('_', "/");
            let encoded = STANDARD.encode(bytes);
            prop_assert_eq!(encoded.trim_end_matches('='), plain);
        }
    }

    #[test]
    fn anything_lifts_or_is_refused(content in "[\\[\\]{}:,\"a-z0-9\\\\]{0,60}", url in ".{0,40}") {
        if let Ok(lifted) = lift(&content, &ImageLimits::default()) {
            prop_assert_eq!(lifted.content, content);
        }
        let _ = read_data_url(&url);
        let _ = read_data_url(&format!("data:image/png;base64,{url}"));
    }
}
