//! Logs of the kinds that failed in the field give the figures that were computed elsewhere.

use rederive_fuzz::{Model, fold};

use crate::support::in_workspace;

/// Name, surface, generation; messages, bytes and digest of the next request.
type Figures = (&'static str, &'static [u64], u64, u64, u64, &'static str);

fn folded(name: &str) -> (Model, Option<(u64, &'static str)>) {
    let path = in_workspace("engine/tests/fixtures/cases").join(name).with_extension("jsonl");
    let (model, end) = fold(&std::fs::read(path).unwrap());
    (model, end.err().map(|refusal| (refusal.seq, refusal.rule)))
}

fn next(model: &Model) -> (u64, u64, String) {
    let next = model.expected().next.expect("a header is in force");
    (next.messages, next.bytes, next.blake3)
}

fn shared_bytes(one: &[u8], two: &[u8]) -> usize {
    one.iter().zip(two).take_while(|(left, right)| left == right).count()
}

/// The next request of the log up to and without the event at `seq`.
fn request_before(name: &str, seq: usize) -> Vec<u8> {
    let path = in_workspace("engine/tests/fixtures/cases").join(name).with_extension("jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let head: Vec<&str> = text.lines().take(seq + 1).collect();
    fold(head.join("\n").as_bytes()).0.next_request().expect("a header is in force")
}

#[test]
fn admitted_cases_give_their_figures() {
    let cases: [Figures; 14] = [
        ("prefix", &[2, 3], 0, 2, 249, "4a8c3b1e1060f8451e642a79ffd28f1d095a34a435aad3490a29145c7014fe2d"),
        (
            "call-without-result",
            &[2, 3, 5],
            0,
            3,
            463,
            "1ca16f9bdf960142f3d21b8cb3dc440fd1c17d7f6e4a9dff73a27547c7ff7aa3",
        ),
        (
            "cut-inside-parallel-calls",
            &[2, 10, 9],
            1,
            3,
            429,
            "8ba0cb1a543bb431403a3335e7e135e08368c26b185fe4025fd9d4c033ba8e0d",
        ),
        (
            "cut-behind-parallel-calls",
            &[2, 10],
            1,
            2,
            252,
            "641795abd23606a855b2f36e843b2327a2105c188b33a35272af2a4db95ba36d",
        ),
        (
            "message-typed-while-summarising",
            &[2, 9, 7],
            1,
            3,
            338,
            "00a90b65ba85ece81c80c9a0330d36f640164ba0d9162d6734a86e7211c8776a",
        ),
        (
            "odd-spelling-before-the-answer",
            &[2, 3],
            0,
            2,
            340,
            "20d06c6fa6c70467ddf21e8b2141cf5daf48977694f5b883a373ff3ae8449f64",
        ),
        (
            "odd-spelling",
            &[2, 3, 5],
            0,
            3,
            468,
            "daae3fc6e57f3f51a99511ad6fe8bcdcde52f23406367d777c91fddebb9d9016",
        ),
        (
            "tools-in-the-same-order",
            &[2, 3, 5, 6],
            0,
            4,
            442,
            "42f430415e9f37df4b38c7db83240d547186e7b0a23dca8252feb804e49633ff",
        ),
        (
            "tools-in-another-order",
            &[2, 3, 5, 6],
            0,
            4,
            424,
            "a7eb7cd803b84ad9e8b41beb7baaf18ff6a06a63b2889f22e6dded55ddc638d4",
        ),
        (
            "prompt-changed-in-history",
            &[2, 3, 5, 6, 7],
            0,
            5,
            563,
            "03a626d9d01e23e0a6fd154054a1e250697b3ea4699de2e2470e0ccaeae1f8b4",
        ),
        (
            "prompt-changed-at-the-head",
            &[6, 3, 5, 7],
            1,
            4,
            471,
            "eafeb65496fe2595344cd5dae1f9c2f77dd07e810425219071cda9274881e8b8",
        ),
        (
            "pruned-result",
            &[2, 3, 5, 9, 8, 10],
            1,
            6,
            781,
            "54aa8192c6b7a5e90246be378c4c2e2fe6422aa9e00346090006bf9bd0f80543",
        ),
        (
            "half-an-emoji",
            &[2, 3, 5],
            0,
            3,
            460,
            "4d3d693648831091b72b98edfbe6ab252d871a5e3f551abb9f79500aad5be669",
        ),
        (
            "large-integers",
            &[2, 3, 5, 7],
            0,
            4,
            616,
            "2136eb6c03d31ecc7fcd011a53318f2e801f1fdd365bb6375452a95f31962904",
        ),
    ];
    for (name, surface, generation, messages, bytes, digest) in cases {
        let (model, refused) = folded(name);
        assert_eq!(refused, None, "{name}");
        assert_eq!(model.surface(), surface, "{name}");
        assert_eq!(model.generation(), generation, "{name}");
        assert_eq!(next(&model), (messages, bytes, digest.to_owned()), "{name}");
    }
}

#[test]
fn refused_cases_leave_the_session_as_it_was() {
    let cases: [(&str, u64, &str, &[u64]); 5] = [
        ("torn-record-glued-to-the-next", 5, "json", &[2, 3]),
        ("zeroes-in-the-middle", 5, "json", &[2, 3]),
        ("one-seq-two-events", 8, "seq", &[2, 3, 5]),
        ("range-pruned-while-summarising", 10, "surface-op", &[2, 3, 5, 9]),
        ("summary-over-the-prompt", 6, "system-head", &[2, 3, 5]),
    ];
    for (name, seq, rule, surface) in cases {
        let (model, refused) = folded(name);
        assert_eq!(refused, Some((seq, rule)), "{name}");
        assert_eq!(model.surface(), surface, "{name}");
    }
    let digest = "b76da3f318fb25e438c78968a9c0cbfb72c78756978a06b775925405a9effb48";
    assert_eq!(next(&folded("one-seq-two-events").0), (3, 376, digest.to_owned()));
}

#[test]
fn prefixes_end_where_the_change_is() {
    let cases = [
        ("odd-spelling", 5, 9, 340, 338),
        ("tools-in-the-same-order", 5, 7, 249, 247),
        ("tools-in-another-order", 5, 8, 0, 67),
        ("prompt-changed-in-history", 5, 8, 274, 272),
        ("prompt-changed-at-the-head", 5, 8, 274, 124),
        ("pruned-result", 8, 11, 600, 554),
    ];
    for (name, first, second, bytes, shared) in cases {
        let (one, two) = (request_before(name, first), request_before(name, second));
        assert!(bytes == 0 || one.len() == bytes, "{name}: {} bytes", one.len());
        assert_eq!(shared_bytes(&one, &two), shared, "{name}");
    }
}

#[test]
fn spelling_survives() {
    let request = |name| String::from_utf8(folded(name).0.next_request().unwrap()).unwrap();
    assert!(request("half-an-emoji").contains(r"ok \ud83d end"));
    assert!(request("large-integers").contains(r#"{"id":9007199254740993,"t":1.0,"e":1E+2,"d":0.1}"#));
}

#[test]
fn bytes_that_are_no_utf8_are_no_json() {
    let mut line = br#"{"type":"turn/start","seq":0,"time":1,"data":{"x":""#.to_vec();
    line.extend_from_slice(&[0xed, 0xa0, 0xbd]);
    line.extend_from_slice(br#""}}"#);
    assert_eq!(Model::new().push_bytes(&line).map_err(|refusal| refusal.rule), Err("json"));
}
