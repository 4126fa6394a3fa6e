//! Writes the seed corpora: `cargo run -p rederive-fuzz-targets --example seeds`.

use std::path::Path;

use rederive_fuzz::workload;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../corpus");
    let write = |target: &str, name: String, bytes: &[u8]| {
        let folder = corpus.join(target);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), bytes)
    };
    for seed in 0..6 {
        let options = workload::Options::everything().turns(1);
        let lines: Vec<String> = workload::random(seed, &options).take(12).collect();
        write("import", format!("seed-{seed}"), lines.join("\n").as_bytes())?;
        write("admission-bytes", format!("seed-{seed}"), lines[1..].join("\n").as_bytes())?;
    }
    for index in (0..workload::BREAKS).step_by(5) {
        let broken = workload::broken_by(index, 1);
        let name = format!("{}--{}", broken.rule, broken.what);
        // The last line alone: what it builds on makes it refused under another rule, which is fine.
        write("admission-bytes", name, broken.lines.last().map_or(&[], |line| line.as_bytes()))?;
    }
    for target in ["admission-events", "projection", "journal", "segment", "object"] {
        for seed in 0..6_u64 {
            let mut state = seed;
            let bytes: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 56) as u8
            })
            .take(32 << seed)
            .collect();
            write(target, format!("seed-{seed}"), &bytes)?;
        }
    }
    Ok(())
}
