//! A message holds a reference of bounded size, with one spelling, that every reader finds.

use rederive_cas::{
    DigestError, ImageLimits, ImageRef, NAME_BYTES_MAX, ReferenceError, admit, placeholder, references,
};

use crate::samples;

fn image(name: Option<&str>) -> ImageRef {
    admit(samples::png(300, 20), None, name, &ImageLimits::default()).unwrap().reference().clone()
}

#[test]
fn a_block_has_one_spelling_close_to_the_harness() {
    let plain = image(None);
    let block = format!(
        r#"{{"type":"image","attachment":{{"attachmentId":"{}","mediaType":"image/png","width":300,"height":20,"bytes":200}}}}"#,
        plain.digest()
    );
    assert_eq!(plain.to_block(), block);
    let full = image(Some(r#"C:\shots\a "b".png"#)).with_original_size(3000, 200);
    assert!(
        full.to_block()
            .ends_with(r#""bytes":200,"name":"a \"b\".png","originalWidth":3000,"originalHeight":200}}"#)
    );
    for image in [plain, full] {
        assert_eq!(ImageRef::from_block(&image.to_block()), Ok(image.clone()));
        assert!(image.to_block().len() < 500);
        // The spelling that the engine looks for in a visible text.
        assert!(image.to_block().contains(&format!("blake3:{}", image.digest().to_hex())));
    }
    let longest = image(Some(&"\u{1f600}".repeat(100))).with_original_size(u32::MAX, u32::MAX);
    assert!(longest.to_block().len() < 500);
}

#[test]
fn what_is_no_reference_says_why() {
    let block = image(Some("a.png")).with_original_size(5, 5).to_block();
    let error = |from: &str, to: &str| {
        let changed = block.replacen(from, to, 1);
        assert_ne!(changed, block);
        ImageRef::from_block(&changed).unwrap_err()
    };
    assert_eq!(error("\"image\"", "\"text\""), ReferenceError::NotAnImage);
    assert_eq!(error("\"attachment\"", "\"source\""), ReferenceError::NotAnImage);
    assert!(matches!(error("}}", "}"), ReferenceError::Json { .. }));
    assert!(matches!(error("blake3:", "sha256:"), ReferenceError::Digest(DigestError::Algorithm { .. })));
    assert!(matches!(error("image/png", "image/tiff"), ReferenceError::MediaType(_)));
    for (from, to, field) in [
        (r#""width":300"#, r#""width":0"#, "width"),
        (r#""width":300"#, r#""width":4294967296"#, "width"),
        (r#""width":300"#, r#""width":"300""#, "width"),
        (r#""height":20"#, r#""height":2e1"#, "height"),
        (r#""bytes":200"#, r#""bytes":-1"#, "bytes"),
        (r#""bytes":200"#, r#""length":200"#, "bytes"),
        ("a.png", "/etc/a.png", "name"),
        (r#""originalWidth":5,"#, "", "originalWidth"),
    ] {
        assert_eq!(error(from, to), ReferenceError::Field { field });
    }
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    assert_eq!(error("a.png", &long), ReferenceError::Field { field: "name" });
}

#[test]
fn a_messages_references_are_found_wherever_blocks_are() {
    let (first, second) = (image(Some("first")), image(Some("second")));
    let (a, b) = (first.to_block(), second.to_block());
    let inline = r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":""}}"#;
    let text = format!(
        r#"{{"id":"u","\ud83d":1e999,"role":"user","content":[{{"type":"text","text":"\ud83d"}},{a},{inline},
        {{"type":"tool-result","content":[{b},{{"type":"tool-result","content":[{a}]}},7]}},"x",{}]}}"#,
        a.replace("\"image\"", r#""im\u0061ge""#)
    );
    assert_eq!(references(&text).unwrap(), [first.clone(), second, first.clone(), first]);
    assert_eq!(references(r#"{"content":"blake3:ab"}"#).unwrap(), []);
    assert_eq!(references("{}").unwrap(), []);
    assert!(references("[]").is_err());
    let foreign = format!(r#"{{"content":[{{"type":"x","content":[{}]}}]}}"#, a.replace("blake3", "sha256"));
    let error = references(&foreign).unwrap_err();
    assert_eq!(error.block, "0.0");
    assert!(matches!(error.error, ReferenceError::Digest(_)));
}

#[test]
fn a_placeholder_says_what_was_there_and_references_nothing() {
    let image = image(Some("a.png"));
    let text = placeholder(&image, "the object is missing");
    let hex = image.digest().to_hex();
    assert_eq!(
        text,
        format!(
            r#"{{"type":"text","text":"[image removed: the object is missing; image/png of 300x20 pixels, 200 bytes, blake3 {hex}, \"a.png\"]"}}"#
        )
    );
    assert!(!text.contains("blake3:"));
    assert_eq!(references(&format!(r#"{{"content":[{text}]}}"#)).unwrap(), []);
}

#[test]
fn the_harness_logs_of_the_corpus_are_read() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../shared/corpus/dsh-v3/acp-image-compaction.jsonl");
    let Ok(log) = std::fs::read_to_string(&corpus) else {
        eprintln!("skipped: no corpus beside the project");
        return;
    };
    let blocks = log.matches(r#""attachmentId":"sha256:"#).count();
    assert!(0 < blocks);
    // Named as objects of this store are, every one is a reference.
    let ours = log.replace("sha256:", "blake3:");
    let mut found = 0;
    for line in ours.lines().filter(|line| line.starts_with(r#"{"type":"user/message""#)) {
        let line: std::collections::BTreeMap<String, Box<serde_json::value::RawValue>> =
            serde_json::from_str(line).unwrap();
        found += references(line["data"].get()).unwrap().len();
    }
    assert!(0 < found);
}
