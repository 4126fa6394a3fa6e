//! `rederive request`: what the model was sent, in canonical bytes or as a provider's body.
#![expect(clippy::print_stderr, reason = "the command alone prints")]

use std::io::Write;
use std::process::ExitCode;

use rederive_cas::policy::RouteLimits;
use rederive_engine::{Seq, object_member, string_text};
use rederive_projection::formats::{BodyOptions, Format, body};
use rederive_projection::{Projector, Request, RequestRef, check_images, reconstruct};

use super::{Context, object, session_id};
use crate::args::RequestArgs;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(context: &Context, args: &RequestArgs) -> Result<ExitCode, Failure> {
    let store = context.read()?;
    let mut reader = store.read_session(&session_id(&args.id)?)?;
    if args.closed {
        reader = reader.with_closers();
    }
    let request = match (args.seq.map(Seq::new).map(RequestRef::Seq), args.step) {
        (Some(named), _) | (None, Some(named)) => reconstruct(&reader, named)?,
        (None, None) => Projector::new().request(reader.fold())?,
    };
    let objects = object::open_existing(&store)?;
    if args.resolve {
        let limits = provider(&request).and_then(|provider| RouteLimits::of(&provider));
        match &objects {
            Some(objects) => check_images(&request, objects, limits.as_ref())?,
            None if rederive_projection::images(&request)?.is_empty() => {}
            None => {
                return Err(Failure::Said("the store has no objects, and the request shows images".into()));
            }
        }
    }
    if args.format == Format::Canonical {
        return canonical(context, &request);
    }
    let images = object::images(objects.as_ref());
    let body = body(
        &request.in_tree(&store.tree_root(reader.header_line())?),
        &BodyOptions::new(args.format),
        &*images,
    )?;
    if context.json {
        output::json(&serde_json::json!({
            "format": args.format.name(),
            "version": args.format.version(),
            "bytes": body.len(),
            "blake3": body.digest().to_string(),
            "rules": body.rules().map(|applied| serde_json::json!({
                "seq": applied.seq, "rule": applied.rule.name(), "detail": applied.detail,
            })).collect::<Vec<_>>(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for applied in body.rules() {
        let node = applied.seq.map(|seq| format!("node {seq}: ")).unwrap_or_default();
        let detail = applied.detail.as_deref().unwrap_or_default();
        eprintln!("rederive: {node}{} {detail}", applied.rule.name());
    }
    let mut out = std::io::stdout().lock();
    body.write_to(&mut out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn canonical(context: &Context, request: &Request) -> Result<ExitCode, Failure> {
    if context.json {
        output::json(&serde_json::json!({
            "headerSeq": request.header().seq().value(),
            "messages": request.message_count(),
            "bytes": request.bytes(),
            "generation": request.generation().value(),
            "blake3": request.digest().to_string(),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = std::io::stdout().lock();
    request.write_to(&mut out)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn provider(request: &Request) -> Option<String> {
    let config = object_member(request.header().text(), "config")?;
    object_member(config, "provider").and_then(string_text).map(std::borrow::Cow::into_owned)
}
