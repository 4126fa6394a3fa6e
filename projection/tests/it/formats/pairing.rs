//! Each tool call is answered exactly once, right after it, or the request is refused with its node.

use bytes::Bytes;
use rederive_projection::formats::{
    BodyOptions, Format, FormatError, ImageLimits, ImageSource, Object, ObjectError, body,
};

use super::sample::{Objects, Sample, header};

const USER: &str = r#"{"role":"user","content":[{"type":"text","text":"U"}]}"#;

fn call(ids: &[&str]) -> String {
    let calls: Vec<String> = ids
        .iter()
        .map(|id| format!(r#"{{"type":"tool-call","id":"{id}","name":"t","arguments":"{{}}"}}"#))
        .collect();
    format!(
        r#"{{"role":"assistant","source":{{"kind":"model","provider":"p","model":"m"}},"content":[{}]}}"#,
        calls.join(",")
    )
}

fn result(id: &str) -> String {
    format!(r#"{{"role":"user","content":[{{"type":"tool-result","toolCallId":"{id}","content":[]}}]}}"#)
}

/// Seqs count from 2.
fn check(messages: &[String], expected: impl Fn(&FormatError) -> bool) {
    for format in Format::ALL.into_iter().filter(|format| *format != Format::Canonical) {
        let texts: Vec<&str> = messages.iter().map(String::as_str).collect();
        let error =
            body(&Sample::new(&header(format), &texts), &BodyOptions::new(format), &Objects).unwrap_err();
        assert!(expected(&error), "{format}: {error:?}");
    }
}

#[test]
fn a_call_that_waits_at_the_end_is_named() {
    check(
        &[USER.into(), call(&["c1", "c2"]), result("c1")],
        |error| matches!(error, FormatError::Unanswered { seq: 3, asked: 3, call } if call == "c2"),
    );
}

#[test]
fn a_message_between_call_and_result_is_named() {
    check(
        &[USER.into(), call(&["c1"]), USER.into(), result("c1")],
        |error| matches!(error, FormatError::Unanswered { seq: 4, asked: 3, call } if call == "c1"),
    );
    check(
        &[USER.into(), call(&["c1"]), call(&["c2"])],
        |error| matches!(error, FormatError::Unanswered { seq: 4, asked: 3, call } if call == "c1"),
    );
}

#[test]
fn a_result_whose_call_went_into_a_summary_is_named() {
    check(
        &[USER.into(), result("c2")],
        |error| matches!(error, FormatError::Orphan { seq: 3, call } if call == "c2"),
    );
}

#[test]
fn a_second_result_is_named() {
    let twice = [USER.into(), call(&["c1", "c2"]), result("c1"), result("c1"), result("c2")];
    check(&twice, |error| matches!(error, FormatError::RepeatedResult { seq: 5, call } if call == "c1"));
    let late = [USER.into(), call(&["c1"]), result("c1"), USER.into(), result("c1")];
    check(&late, |error| matches!(error, FormatError::Orphan { seq: 6, call } if call == "c1"));
}

#[test]
fn empty_and_repeated_ids_are_named() {
    check(&[USER.into(), call(&["c1", ""])], |error| {
        matches!(error, FormatError::EmptyCallId { seq: 3, index: 1 })
    });
    check(&[USER.into(), call(&["c1", "c1"])], |error| {
        matches!(error, FormatError::RepeatedCallId { seq: 3, first: 3, .. })
    });
    check(
        &[USER.into(), call(&["c1"]), result("c1"), call(&["c1"])],
        |error| matches!(error, FormatError::RepeatedCallId { seq: 5, first: 3, call } if call == "c1"),
    );
}

#[test]
fn blocks_out_of_place_and_unknown_are_named() {
    let image = r#"{"role":"assistant","content":[{"type":"image","attachment":{"mediaType":"image/png"}}]}"#;
    check(&[USER.into(), image.into()], |error| {
        matches!(error, FormatError::Misplaced { seq: 3, index: 0, kind: "image", .. })
    });
    let odd = r#"{"role":"user","content":[{"type":"text","text":"x"},{"type":"hologram"}]}"#;
    check(
        &[odd.into()],
        |error| matches!(error, FormatError::UnknownBlock { seq: 2, index: 1, kind } if kind == "hologram"),
    );
    let lost = r#"{"role":"user","content":[{"type":"image","attachment":{"lost":true}}]}"#;
    check(&[lost.into()], |error| matches!(error, FormatError::Object { seq: 2, index: 0, .. }));
    check(&[r#"{"role":"user","content":[]}"#.into()], |error| matches!(error, FormatError::NoMessages));
    check(&[r#"{"role":"user"}"#.into()], |error| matches!(error, FormatError::Malformed { seq: 2, .. }));
}

struct Sized(usize);

impl ImageSource for Sized {
    fn resolve(&self, _reference: &str) -> Result<Object, ObjectError> {
        Ok(Object::Bytes { media_type: "image/png".to_owned(), bytes: Bytes::from(vec![0; self.0]) })
    }
}

#[test]
fn images_over_a_limit_name_their_nodes() {
    let image = r#"{"role":"user","content":[{"type":"image","attachment":{"width":2100,"height":400}}]}"#;
    let check = |images: usize, bytes: usize, limits: ImageLimits| {
        let sample = Sample::new(&header(Format::Anthropic), &vec![image; images]);
        let options = BodyOptions::new(Format::Anthropic).images(limits);
        match body(&sample, &options, &Sized(bytes)) {
            Ok(_) => Vec::new(),
            Err(FormatError::ImageLimit { seqs, .. }) => seqs,
            Err(error) => panic!("{error:?}"),
        }
    };
    let none = ImageLimits::default();
    let sides = ImageLimits { side_max_over: Some((20, 2_000)), ..none };
    assert_eq!(check(20, 1, sides), [0; 0]);
    assert_eq!(check(21, 1, sides), (2..23).collect::<Vec<u64>>());
    let bytes = ImageLimits { bytes_max: Some(1_000), ..none };
    assert_eq!(check(1, 1_000, bytes), [0; 0]);
    assert_eq!(check(1, 1_001, bytes), [2]);
    let count = ImageLimits { count_max: Some(2), ..none };
    assert_eq!(check(2, 1, count), [0; 0]);
    assert_eq!(check(3, 1, count), [2, 3, 4]);
}

#[test]
fn canonical_bytes_are_those_of_the_design() {
    let messages = [
        r#"{"id":"s0","role":"system","content":[{"type":"text","text":"S"}]}"#,
        r#"{"id":"u0","role":"user","content":[{"type":"text","text":"U"}]}"#,
        r#"{"id":"a5","role":"assistant","source":{"kind":"model","provider":"p","model":"m"},"content":[{"type":"text","text":"ok \ud83d end"},{"type":"tool-call","id":"c1","name":"t","arguments":"{\"q\":\"\\ud83d\"}"}]}"#,
    ];
    let header =
        r#"{"config":{"provider":"p","model":"m"},"tools":[{"name":"t","parameters":{"type":"object"}}]}"#;
    for (count, bytes, digest) in [
        (2, 249, "4a8c3b1e1060f8451e642a79ffd28f1d095a34a435aad3490a29145c7014fe2d"),
        (3, 460, "4d3d693648831091b72b98edfbe6ab252d871a5e3f551abb9f79500aad5be669"),
    ] {
        let sample = Sample::new(header, &messages[..count]);
        let body = body(&sample, &BodyOptions::new(Format::Canonical), &Objects).unwrap();
        assert_eq!((body.len(), body.digest().to_hex().as_str()), (bytes, digest));
    }
}
