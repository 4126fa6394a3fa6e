//! Lines of logs: read back from a store, compared with the model, moved to other seqs.

use rederive_engine::{Fold, NodeKind, Reader, Seq, list_items, object_member};
use rederive_fuzz::Model;

/// The naive fold of `lines`, which must be valid.
pub(crate) fn model_of<'a>(lines: impl IntoIterator<Item = &'a str>) -> Model {
    let mut model = Model::new().without_requests();
    for line in lines {
        model.push_line(line).unwrap_or_else(|refusal| panic!("the model refuses {line}: {refusal}"));
    }
    model
}

/// Every line of a log, in order.
pub(crate) fn read_all(reader: &Reader) -> Vec<String> {
    let events = reader.events(Seq::FIRST..reader.fold().next_seq()).unwrap();
    events.map(|event| event.unwrap().to_line()).collect()
}

/// The fold is what the model says: surface, generation, header, and the bytes of the next request.
pub(crate) fn check_against_model(fold: &Fold, model: &Model, context: &str) {
    let surface: Vec<u64> = fold.surface().seqs().into_iter().map(Seq::value).collect();
    assert_eq!(fold.next_seq().value(), model.next_seq(), "{context}: events");
    assert_eq!(surface, model.surface(), "{context}: surface");
    assert_eq!(fold.surface().generation().value(), model.generation(), "{context}: generation");
    let header = fold.header().map(|header| (header.seq().value(), header.text()));
    assert_eq!(header, model.header(), "{context}: header");
    assert_eq!(next_request(fold), model.next_request(), "{context}: next request");
}

/// The canonical bytes of the next request, joined here in the plainest way.
pub(crate) fn next_request(fold: &Fold) -> Option<Vec<u8>> {
    let header = fold.header()?.text();
    let shown = fold.surface().nodes().filter(|node| match node.kind() {
        NodeKind::System | NodeKind::Assistant => {
            !list_items(object_member(node.text(), "content").unwrap()).is_empty()
        }
        NodeKind::User | NodeKind::ToolResult => true,
    });
    let messages: Vec<&str> = shown.map(|node| node.text()).collect();
    Some(format!("{{\"header\":{header},\"messages\":[{}]}}", messages.join(",")).into_bytes())
}

/// A line of a generated log, moved to the end of `model`'s log, whose events have other seqs:
/// `place` says where an event of the generated log stands in it.
pub(crate) fn moved(line: &str, model: &Model, place: impl Fn(u64) -> u64) -> String {
    let number = |text: &str| place(text.parse().unwrap());
    let member = |key| object_member(line, key);
    let mut sources: Vec<u64> = member("sourceEventSeqs")
        .map_or(Vec::new(), |list| list_items(list).into_iter().map(number).collect());
    let mut rest = String::new();
    if let Some(op) = member("surfaceOp") {
        match (object_member(op, "startSeq"), object_member(op, "endSeq")) {
            (Some(start), Some(end)) => {
                let (start, end) = (number(start), number(end));
                // Closers may stand in the range, which the generated log knows nothing of.
                let surface = model.surface();
                let first = surface.iter().position(|seq| *seq == start).unwrap();
                let last = surface.iter().position(|seq| *seq == end).unwrap();
                sources.extend(&surface[first..=last]);
                rest = format!(",\"surfaceOp\":{{\"op\":\"replace\",\"startSeq\":{start},\"endSeq\":{end}}}");
            }
            _ => rest = format!(",\"surfaceOp\":{op}"),
        }
    }
    sources.sort_unstable();
    sources.dedup();
    if !sources.is_empty() {
        let sources: Vec<String> = sources.iter().map(u64::to_string).collect();
        rest.extend([",\"sourceEventSeqs\":[", &sources.join(","), "]"]);
    }
    if member("ignorable").is_some() {
        rest += ",\"ignorable\":true";
    }
    format!(
        "{{\"type\":{},\"seq\":{},\"time\":{},\"data\":{}{rest}}}",
        member("type").unwrap(),
        model.next_seq(),
        member("time").unwrap(),
        member("data").unwrap(),
    )
}
