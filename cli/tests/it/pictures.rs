//! Images in the command: counted where sessions are listed, and base64 that is still in a log.

use crate::support::Home;

#[test]
fn images_are_counted_and_base64_in_a_log_is_shown() {
    let home = Home::new();
    let file = home.path().with_extension("gif");
    // The smallest GIF: one pixel.
    let gif = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;";
    std::fs::write(&file, gif).unwrap();
    let digest = home.ok(&["object", "put", file.to_str().unwrap()]);
    let digest = digest.split_whitespace().next().unwrap();
    let digest = if digest.starts_with("blake3:") { digest.to_owned() } else { format!("blake3:{digest}") };
    let attachment = format!(
        "{{\"attachmentId\":\"{digest}\",\"mediaType\":\"image/gif\",\"width\":1,\"height\":1,\"bytes\":{}}}",
        gif.len()
    );
    let mut writer = home.writer("s");
    writer.append(&format!(
        "{{\"type\":\"user/message\",\"data\":{{\"id\":\"u\",\"role\":\"user\",\"content\":[{{\"type\":\"image\",\"attachment\":{attachment}}}]}},\"surfaceOp\":\"append\"}}"
    ));
    let inline = "QUJD".repeat(200);
    writer.append(&format!(
        "{{\"type\":\"todo/write\",\"data\":{{\"shot\":\"data:image/png;base64,{inline}\",\"short\":\"data:text/plain;base64,QUJD\"}}}}"
    ));
    writer.close();
    let list: serde_json::Value = home.json(&["ls"]);
    assert_eq!(list[0]["images"], 1);
    let stats: serde_json::Value = home.json(&["stats", "--inline"]);
    assert_eq!(
        (&stats["objects"], &stats["inline_images"], &stats["inline_image_bytes"]),
        (&1.into(), &1.into(), &800.into())
    );
    assert!(stats["object_bytes"].as_u64().unwrap() > 0);
}
