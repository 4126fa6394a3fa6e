//! Images through the whole path: stored once, checked before anything is sent, and mended in place.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use image::{ImageBuffer, ImageFormat, Luma};
use rederive_cas::lift::lift;
use rederive_cas::normalise::VariantPolicy;
use rederive_cas::policy::{RouteLimits, RouteRule};
use rederive_cas::{ImageLimits, ImageRef, Objects, ObjectsOptions, Sweep, admit};
use rederive_disk::OsDisk;
use rederive_engine::{NewSession, Seq, Target};
use rederive_projection::step::{Conversation, message};
use rederive_projection::{ImageError, Projector, check_images, images, verify};

use crate::step::{Home, ask, audited, plan, says, session, surface, turn};

/// A PNG of noise, which does not compress, of about `width * height` bytes.
fn noise(seed: u32, width: u32, height: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    png(width, height, |_, _| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    })
}

fn png(width: u32, height: u32, mut pixel: impl FnMut(u32, u32) -> u8) -> Vec<u8> {
    let picture: ImageBuffer<Luma<u8>, Vec<u8>> =
        ImageBuffer::from_fn(width, height, |x, y| Luma([pixel(x, y)]));
    let mut out = Cursor::new(Vec::new());
    picture.write_to(&mut out, ImageFormat::Png).unwrap();
    out.into_inner()
}

fn objects(folder: &std::path::Path) -> Objects {
    Objects::open(Arc::new(OsDisk), folder.join("objects"), ObjectsOptions::default()).unwrap()
}

fn put(objects: &Objects, bytes: &[u8]) -> ImageRef {
    objects.put_image(&admit(bytes, None, Some("shot.png"), &ImageLimits::default()).unwrap()).unwrap()
}

fn with_image(id: &str, image: &ImageRef) -> String {
    message::user_blocks(id, &[message::text_block("look"), image.to_block()])
}

/// Field case 6: a picture of a megabyte, used 120 times and forked ten times over.
#[test]
fn an_image_lives_once_however_often_it_is_used() {
    let home = Home::new();
    let objects = objects(home.store.folder());
    let bytes = noise(1, 1_000, 1_000);
    assert!(bytes.len() > 1_000_000);
    let image = put(&objects, &bytes);
    let mut conversation = home.create("s");
    let mut uses = 0;
    for turn_number in 0..50 {
        let before = conversation.fold().unwrap().line_bytes();
        let batch = if turn_number < 20 { 3 } else { 2 };
        for _ in 0..batch {
            uses += 1;
            let message = with_image(&format!("i{uses}"), &image);
            conversation.inbox().insert(Target::NextStep, &message).unwrap();
        }
        let inserted = conversation.fold().unwrap().line_bytes() - before;
        // Once in the inbox and once on the surface, each with its envelope.
        assert!(inserted < 800 * batch, "{inserted} bytes for {batch} uses in the inbox");
        turn(&mut conversation, &format!("q{turn_number}"), plan());
    }
    assert_eq!(uses, 120);
    let reader = conversation.reader().unwrap();
    for event in reader.events(Seq::FIRST..reader.fold().next_seq()).unwrap() {
        let event = event.unwrap();
        if event.kind().to_string() == "user/message" && event.data().contains("attachment") {
            assert!(event.to_line().len() < 500, "{} bytes a use", event.to_line().len());
        }
    }
    let request = Projector::new().request(&conversation.fold().unwrap()).unwrap();
    assert_eq!(images(&request).unwrap().len(), 120);
    conversation.close().unwrap();
    let cut = home.reader("s").fold().next_seq().previous().unwrap();
    for fork in 0..10 {
        let id = format!("fork-{fork}");
        home.store.fork_session(&session("s"), cut, NewSession::new(id)).unwrap().close().unwrap();
    }
    assert_eq!(objects.list().unwrap(), [*image.digest()]);
    let sweep = |dry_run| {
        let referenced = home.store.referenced_objects().unwrap();
        let now_ms = u64::MAX / 2; // long after every grace
        let sweep = Sweep { now_ms, grace: Duration::from_secs(0), dry_run };
        objects.sweep(|digest| referenced.contains(digest.as_bytes()), sweep).unwrap().freed.len()
    };
    assert_eq!(sweep(true), 0, "a dry run frees nothing");
    home.store.delete_session(&session("s")).unwrap();
    for fork in 0..9 {
        home.store.delete_session(&session(&format!("fork-{fork}"))).unwrap();
        assert_eq!(sweep(false), 0, "ten forks hold it, down to the last");
    }
    home.store.delete_session(&session("fork-9")).unwrap();
    assert_eq!((sweep(true), sweep(false)), (1, 1));
    assert!(objects.list().unwrap().is_empty());
}

#[test]
fn the_same_bytes_by_value_end_in_the_same_object() {
    use base64::Engine as _;
    let bytes = noise(2, 40, 40);
    let expected = admit(&bytes[..], None, None, &ImageLimits::default()).unwrap().reference().clone();
    let text = base64::engine::general_purpose::STANDARD.encode(&bytes);
    let lines: Vec<&str> =
        text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    for payload in
        [text.clone(), lines.join("\\n"), lines.join("\\r\\n"), text.trim_end_matches('=').to_owned()]
    {
        let block =
            format!(r#"[{{"type":"image_url","image_url":{{"url":"data:image/PNG;base64,{payload}"}}}}]"#);
        match lift(&block, &ImageLimits::default()) {
            Ok(lifted) => assert_eq!(lifted.images[0].reference().digest(), expected.digest()),
            Err(error) => assert!(error.to_string().contains("padding"), "{error}"),
        }
    }
    let wrapped = format!(
        r#"[{{"type":"image_url","image_url":{{"url":"data:image/PNG;base64,{}"}}}}]"#,
        lines.join("\\n")
    );
    assert!(lift(&wrapped, &ImageLimits::default()).is_ok(), "line breaks are read");
}

/// Field case 7 (a) and (b): what no request could carry is refused before anything is logged.
#[test]
fn limits_are_held_before_anything_is_logged() {
    let home = Home::new();
    let mut conversation = home.create("s");
    turn(&mut conversation, "1", plan());
    let before = conversation.fold().unwrap().next_seq();
    // A header that claims 9000 x 100 pixels.
    let mut claims = png(8, 8, |_, _| 0);
    claims[16..20].copy_from_slice(&[0, 0, 0x23, 0x28]);
    claims[20..24].copy_from_slice(&[0, 0, 0, 100]);
    let limits = RouteLimits::ANTHROPIC.image_limits();
    let refusal = admit(&claims[..], None, None, &limits).unwrap_err().to_string();
    assert!(refusal.contains("9000") && refusal.contains("8000"), "{refusal}");
    // Bytes and base64 bytes, at the edge and one over it.
    let bytes = noise(3, 100, 100);
    let length = bytes.len() as u64;
    let open = ImageLimits::default();
    let base64 = length.div_ceil(3) * 4;
    for (limits, fits) in [
        (ImageLimits { image_bytes_max: length, ..open }, true),
        (ImageLimits { image_bytes_max: length - 1, ..open }, false),
        (ImageLimits { image_base64_bytes_max: base64, ..open }, true),
        (ImageLimits { image_base64_bytes_max: base64 - 1, ..open }, false),
    ] {
        assert_eq!(admit(&bytes[..], None, None, &limits).is_ok(), fits, "{limits:?}");
    }
    assert_eq!(conversation.fold().unwrap().next_seq(), before);
    turn(&mut conversation, "2", plan());
}

/// Twenty pictures pass; with the twenty-first a smaller side counts for all of them.
fn too_many(home: &Home, objects: &Objects) -> (Conversation, Vec<Seq>) {
    let mut conversation = home.create("s");
    for number in 0..20 {
        let image = put(objects, &png(2_100, 400, |x, y| ((x + y * number) % 251) as u8));
        conversation.inbox().insert(Target::NextStep, &with_image(&format!("i{number}"), &image)).unwrap();
        turn(&mut conversation, &format!("q{number}"), plan());
    }
    let request = Projector::new().request(&conversation.fold().unwrap()).unwrap();
    check_images(&request, objects, Some(&RouteLimits::ANTHROPIC)).unwrap();
    let image = put(objects, &png(2_100, 400, |x, _| (x % 7) as u8));
    conversation.inbox().insert(Target::NextStep, &with_image("i20", &image)).unwrap();
    ask(&mut conversation, "q20", plan())
        .settle(says("no"))
        .unwrap()
        .end()
        .unwrap()
        .end("completed")
        .unwrap();
    let request = Projector::new().request(&conversation.fold().unwrap()).unwrap();
    let refused = check_images(&request, objects, Some(&RouteLimits::ANTHROPIC));
    let Err(ImageError::Route(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!((refusal.rule, refusal.limit, refusal.found), (RouteRule::SideOfMany, 2_000, 2_100));
    let due: Vec<u64> = images(&request).unwrap().iter().map(|(seq, _)| seq.value()).collect();
    assert_eq!((refusal.nodes.len(), &refusal.nodes), (21, &due), "every node concerned is named");
    (conversation, due.into_iter().map(Seq::new).collect())
}

#[test]
fn images_that_a_request_cannot_carry_are_shrunk_and_the_past_stays_provable() {
    let home = Home::new();
    let objects = objects(home.store.folder());
    let (mut conversation, nodes) = too_many(&home, &objects);
    let policy = VariantPolicy::of(&RouteLimits::ANTHROPIC, 21);
    for node in &nodes {
        conversation
            .upkeep()
            .replace_images(*node, |image| {
                let smaller = objects.normalise(image, &policy).unwrap();
                assert_eq!(smaller, objects.normalise(image, &policy).unwrap(), "the same each time");
                assert_eq!(smaller.original_size(), Some((2_100, 400)));
                (smaller != *image).then(|| smaller.to_block())
            })
            .unwrap();
    }
    let request = turn(&mut conversation, "q21", plan());
    check_images(&request, &objects, Some(&RouteLimits::ANTHROPIC)).unwrap();
    assert_eq!(images(&request).unwrap().len(), 21);
    assert_eq!(surface(&conversation).len(), request.surface().len() + 1);
    let audit = audited(&conversation);
    let last = audit.requests.last().unwrap();
    assert!(last.causes.iter().all(|cause| cause.name() == "attachment") && last.causes.len() == 21);
    let verified = verify(&conversation.reader().unwrap()).unwrap();
    assert_eq!((verified.compared, verified.mismatches.len()), (22, 0), "every earlier request is provable");
}

#[test]
fn a_lost_image_is_quarantined_and_the_session_goes_on() {
    let home = Home::new();
    let objects = objects(home.store.folder());
    let (mut conversation, nodes) = too_many(&home, &objects);
    for node in &nodes {
        let lost = |_: &ImageRef| Some("too large for many".to_owned());
        let new = conversation.upkeep().quarantine(*node, lost).unwrap();
        assert!(conversation.upkeep().quarantine(*node, lost).is_err(), "it has left the surface");
        assert!(conversation.upkeep().quarantine(new, lost).is_err(), "and shows no image");
    }
    let request = turn(&mut conversation, "q21", plan());
    assert!(images(&request).unwrap().is_empty());
    let audit = audited(&conversation);
    let last = audit.requests.last().unwrap();
    assert!(last.causes.iter().all(|cause| cause.name() == "attachment") && last.causes.len() == 21);
    // Missing and corrupt are told apart, with the node.
    let image = put(&objects, &noise(9, 20, 20));
    conversation.inbox().insert(Target::NextStep, &with_image("lost", &image)).unwrap();
    let request = turn(&mut conversation, "q22", plan());
    let node = images(&request).unwrap()[0].0;
    let path = objects.path(image.digest());
    let stored = std::fs::read(&path).unwrap();
    let rewrite = |bytes: &[u8]| {
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
    };
    let mut flipped = stored.clone();
    *flipped.last_mut().unwrap() ^= 1;
    rewrite(&flipped);
    let corrupt = check_images(&request, &objects, None).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    let missing = check_images(&request, &objects, None).unwrap_err();
    for (error, word) in [(corrupt, "corrupt"), (missing, "missing")] {
        let ImageError::Object { seq, source, .. } = &error else { panic!("{word}: {error}") };
        assert_eq!(*seq, node);
        assert!(error.to_string().contains(&image.digest().to_string()), "{error}");
        let chain = format!("{source:?}");
        assert!(chain.to_lowercase().contains(word), "{word}: {chain}");
    }
}
