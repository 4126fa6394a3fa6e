//! Each body extends the one before it, and the cached driver gives what the pure one gives.

use proptest::prelude::*;
use std::cell::RefCell;

use rederive_projection::formats::{BodyBuilder, BodyOptions, Format, MessageView, RequestView, body};

use super::sample::{Objects, Sample, conversation, lay_out};

fn check_extension(steps: &[super::sample::Step]) {
    for format in Format::ALL {
        let (sample, cuts) = lay_out(steps, format);
        let options = BodyOptions::new(format);
        let mut before: Option<Vec<u8>> = None;
        for cut in cuts {
            let body = body(&sample.first(cut), &options, &Objects).unwrap();
            let bare = body.without_breakpoints();
            let mut bytes = bare.to_vec();
            assert_eq!(bytes.len(), bare.len());
            bytes.truncate(bare.len() - bare.envelope_len());
            if let Some(before) = before {
                assert!(bytes.starts_with(&before), "{format} at {cut}");
            }
            before = Some(bytes);
        }
    }
}

fn check_builder(steps: &[super::sample::Step], others: &[super::sample::Step]) {
    for format in Format::ALL {
        let (sample, cuts) = lay_out(steps, format);
        let (other, other_cuts) = lay_out(others, format);
        let options = BodyOptions::new(format).digest(true);
        let mut builder = BodyBuilder::new();
        let mut last = sample.first(0);
        let mut requests: Vec<_> = cuts.iter().map(|cut| sample.first(*cut)).collect();
        // Rewind, another branch, the first again.
        requests.extend(other_cuts.iter().map(|cut| other.first(*cut)));
        requests.push(sample.first(cuts[cuts.len() / 2]));
        requests.push(sample.clone());
        for (turn, request) in requests.iter().enumerate() {
            let options = if turn % 5 == 4 { options.clone().stream(true) } else { options.clone() };
            let same = last.messages.iter().zip(&request.messages).take_while(|(a, b)| a == b).count();
            let built = builder.next(request, same, &options, &Objects).unwrap();
            let pure = body(request, &options, &Objects).unwrap();
            assert_eq!(
                String::from_utf8(built.to_vec()).unwrap(),
                String::from_utf8(pure.to_vec()).unwrap(),
                "{format}, turn {turn}"
            );
            assert_eq!((built.len(), built.digest()), (built.to_vec().len(), pure.digest()));
            assert!(built.rules().eq(pure.rules()), "{format}, turn {turn}");
            let mut written = Vec::new();
            built.write_to(&mut written).unwrap();
            let slices: Vec<u8> = built.io_slices().iter().flat_map(|slice| slice.to_vec()).collect();
            assert!(written == pure.to_vec() && slices == written);
            last = request.clone();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_body_extends_the_one_before_it(steps in conversation()) {
        check_extension(&steps);
    }

    #[test]
    fn the_builder_gives_what_the_pure_function_gives(steps in conversation(), others in conversation()) {
        check_builder(&steps, &others);
    }
}

/// Notes which messages are read.
struct Watched<'s> {
    sample: &'s Sample,
    read: RefCell<Vec<usize>>,
}

impl RequestView for Watched<'_> {
    fn header(&self) -> &str {
        &self.sample.header
    }
    fn len(&self) -> usize {
        self.sample.len()
    }
    fn message(&self, index: usize) -> MessageView<'_> {
        self.read.borrow_mut().push(index);
        self.sample.message(index)
    }
    fn tree_id(&self) -> &str {
        &self.sample.tree
    }
}

#[test]
fn the_next_body_reads_what_is_new_and_shares_the_rest() {
    let (mut sample, _) = lay_out(&[], Format::OpenAiChat);
    let options = BodyOptions::new(Format::OpenAiChat).digest(true);
    let user = sample.messages[1].1.clone();
    let mut builder = BodyBuilder::new();
    let first = builder.next(&sample, 0, &options, &Objects).unwrap();
    sample.messages.push((9, user));
    let mut check = |sample: &Sample, unchanged: usize, read: &[usize]| {
        let watched = Watched { sample, read: RefCell::default() };
        let body = builder.next(&watched, unchanged, &options, &Objects).unwrap();
        assert_eq!(watched.read.into_inner(), read);
        body
    };
    let second = check(&sample, 2, &[2]);
    let shared = first.chunks().zip(second.chunks()).filter(|(a, b)| std::ptr::eq(*a, *b)).count();
    assert!(shared >= 3, "head and nodes are the same memory");
    // A new header of the same model reads no message again.
    sample.header = sample.header.replace("4096", "100");
    let third = check(&sample, 3, &[]);
    assert_eq!(third.to_vec(), body(&sample, &options, &Objects).unwrap().to_vec());
    sample.header = sample.header.replace("gpt-5.6", "gpt-5.5");
    check(&sample, 3, &[0, 1, 2]);
}

#[test]
fn a_failed_call_leaves_the_builder_usable() {
    let (sample, cuts) = lay_out(&[], Format::Anthropic);
    let options = BodyOptions::new(Format::Anthropic);
    let mut broken = sample.clone();
    broken.messages.push((
        9,
        r#"{"role":"user","content":[{"type":"tool-result","toolCallId":"x","content":[]}]}"#.to_owned(),
    ));
    let mut builder = BodyBuilder::new();
    builder.next(&sample, 0, &options, &Objects).unwrap();
    assert!(builder.next(&broken, cuts[0], &options, &Objects).is_err());
    let mut mended = broken.clone();
    mended.messages[cuts[0]].1 = r#"{"role":"user","content":[{"type":"text","text":"x"}]}"#.to_owned();
    let built = builder.next(&mended, cuts[0], &options, &Objects).unwrap();
    assert_eq!(built.to_vec(), body(&mended, &options, &Objects).unwrap().to_vec());
}
