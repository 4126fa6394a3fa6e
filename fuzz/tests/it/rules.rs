//! Rules that a file cannot break, and edges of those that it can.

use rederive_fuzz::{Model, workload};

const DISPATCH: &str = r#"{"type":"request/dispatch","seq":0,"time":1,"data":{},"ignorable":true}"#;

#[test]
fn reserved_types_are_refused_from_the_public_append_alone() {
    for line in [DISPATCH, r#"{"type":"session/end-seed","seq":0,"time":1,"data":{}}"#] {
        let refused = Model::new().push_public_line(line).map_err(|refusal| refusal.rule);
        assert_eq!(refused, Err("reserved"), "{line}");
        assert_eq!(Model::new().push_line(line), Ok(()), "{line}");
    }
}

#[test]
fn the_limit_itself_is_admitted() {
    let fits = Model::new().with_event_bytes_max(DISPATCH.len()).push_line(DISPATCH);
    assert_eq!(fits, Ok(()));
    let over = Model::new().with_event_bytes_max(DISPATCH.len() - 1).push_line(DISPATCH);
    assert_eq!(over.map_err(|refusal| refusal.rule), Err("too-large"));
}

#[test]
fn a_registered_type_is_log_only() {
    let line = r#"{"type":"x-host/note","seq":0,"time":1,"data":{}}"#;
    assert_eq!(Model::new().push_line(line).map_err(|refusal| refusal.rule), Err("unknown-type"));
    assert_eq!(Model::new().with_types(&["x-host/note"]).push_line(line), Ok(()));
    let placed = line.replace("\"data\":{}", "\"data\":{},\"surfaceOp\":\"append\"");
    let refused = Model::new().with_types(&["x-host/note"]).push_line(&placed);
    assert_eq!(refused.map_err(|refusal| refusal.rule), Err("surface-metadata"));
}

#[test]
fn a_foreign_event_is_kept_as_it_is() {
    let line =
        r#"{"type":"x/y","seq":0,"time":1,"data":{},"surfaceOp":7,"sourceEventSeqs":[9],"ignorable":true}"#;
    let mut model = Model::new();
    assert_eq!(model.push_line(line), Ok(()));
    assert_eq!((model.surface(), model.generation(), model.next_seq()), (vec![], 0, 1));
}

#[test]
fn what_a_header_may_hold_is_kept() {
    let header = r#"{"config":{"provider":"p","model":"m","stop":[],"x":{"y":[1.0]}},"adapterDefaults":{"stop":true}}"#;
    for reason in ["initial", "resume", "change", "series"] {
        let line = format!(
            r#"{{"type":"request/header","seq":0,"time":1,"data":{{"header":{header},"reason":"{reason}","startsSeries":true}}}}"#
        );
        let mut model = Model::new();
        assert_eq!(model.push_line(&line), Ok(()));
        assert_eq!(model.header(), Some((0, header)));
        let request = format!(r#"{{"header":{header},"messages":[]}}"#);
        assert_eq!(model.next_request(), Some(request.into_bytes()));
    }
}

#[test]
fn the_surface_of_the_past_is_known() {
    let log = workload::random(3, &workload::Options::everything());
    let (mut model, mut seen) = (Model::new(), Vec::new());
    for line in log.skip(1) {
        seen.push(model.surface());
        assert_eq!(model.push_line(&line), Ok(()));
    }
    for (seq, surface) in seen.into_iter().enumerate() {
        assert_eq!(model.surface_at(seq as u64), surface, "before {seq}");
    }
}
