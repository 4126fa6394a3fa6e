//! What is recorded of a body makes it again, and the document names what the code does.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rederive_projection::formats::import::{ObjectSink, import};
use rederive_projection::formats::{
    BodyOptions, CacheRules, Format, Lifetime, Object, ObjectError, Rule, WireError, WireRecord, body,
};

use super::golden::features;
use super::sample::{Objects, Sample, lay_out};

#[test]
fn a_recorded_body_is_made_again() {
    for format in Format::ALL {
        let (sample, _) = lay_out(&[], format);
        let options = BodyOptions::new(format).stream(true).head_lifetime(Lifetime::Hour);
        let sent = body(&sample, &options, &Objects).unwrap();
        let text = WireRecord::of(&sent, &options).to_json();
        assert!(
            text.starts_with(&format!(r#"{{"format":"{format}","version":1,"digest":"blake3:"#)),
            "{text}"
        );
        let record = WireRecord::parse(&text).unwrap();
        let again = record.options(&CacheRules::built_in()).unwrap();
        assert!(record.matches(&body(&sample, &again, &Objects).unwrap()));
        // Gemini says in the URL whether it streams, and canonical bytes know no options.
        if !matches!(format, Format::Canonical | Format::Gemini) {
            assert!(!record.matches(&body(&sample, &BodyOptions::new(format), &Objects).unwrap()));
        }

        let other = CacheRules::parse(r#"{"date":"2027-01-01","rules":[]}"#).unwrap();
        assert!(matches!(record.options(&Arc::new(other)), Err(WireError::Rules { .. })));
        let newer = WireRecord::parse(&text.replace("\"version\":1", "\"version\":2")).unwrap();
        assert!(matches!(
            newer.options(&CacheRules::built_in()),
            Err(WireError::Version { recorded: 2, .. })
        ));
    }
    assert!(matches!(WireRecord::parse("{}"), Err(WireError::Unreadable(_))));
}

#[test]
fn the_document_names_every_rule_and_version() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/FORMATS.md");
    let document = std::fs::read_to_string(path).unwrap();
    for rule in Rule::ALL {
        assert!(document.contains(&format!("`{}`", rule.name())), "FORMATS.md does not name {rule:?}");
    }
    for format in Format::ALL {
        let line = format!("`{format}` version {}", format.version());
        assert!(document.contains(&line), "FORMATS.md does not say \"{line}\"");
    }
}

#[test]
fn every_rule_has_a_golden_body() {
    let mut applied = BTreeSet::new();
    for format in Format::ALL {
        for (_, request, options) in features(format) {
            if let Ok(body) = body(&request, &options, &Objects) {
                applied.extend(body.rules().map(|applied| applied.rule));
            }
        }
    }
    let missing: Vec<_> = Rule::ALL.iter().filter(|rule| !applied.contains(rule)).collect();
    assert!(missing.is_empty(), "no golden body for {missing:?}");
}

struct Nowhere;

impl ObjectSink for Nowhere {
    fn keep(&mut self, _object: Object) -> Result<String, ObjectError> {
        Ok("{}".to_owned())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Cuts, doubles and swaps pieces of real messages: an answer or a typed error, never a panic.
    #[test]
    fn damaged_input_never_panics(which in 0_usize..400, at in 0_usize..400, len in 0_usize..30, put in "[\\[\\]{}\",:0-9ae\\\\u-]{0,4}") {
        for format in Format::ALL {
            let all = features(format);
            let (_, mut request, options) = all[which % all.len()].clone();
            let intact = body(&request, &options, &Objects).ok();
            let place = which % request.messages.len();
            let text = &mut request.messages[place].1;
            let cut = |text: &str, at: usize| (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            let (from, to) = (cut(text, at), cut(text, at + len));
            text.replace_range(from..to, &put);
            if let Ok(body) = body(&request, &options, &Objects) && format != Format::Canonical {
                prop_assert!(super::strict::parse_strictly(&String::from_utf8(body.to_vec()).unwrap()) > 0);
            }
            let header = Sample { header: request.header.replacen(&put, "", 1), ..request.clone() };
            let _ = body(&header, &options, &Objects);
            if let Some(intact) = intact {
                let mut text = String::from_utf8(intact.to_vec()).unwrap();
                let (from, to) = (cut(&text, at), cut(&text, at + len));
                text.replace_range(from..to, &put);
                let _ = import(format, &text, "p", "m", &mut Nowhere);
            }
        }
    }
}
