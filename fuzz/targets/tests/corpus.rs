//! Seeds, and inputs that once were findings, pass every target of their kind.

use std::path::Path;

#[test]
fn every_committed_input_passes() {
    for (name, target) in rederive_fuzz_targets::TARGETS {
        for folder in ["../corpus", "../found"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(name);
            let Ok(entries) = std::fs::read_dir(&folder) else {
                assert!(folder.ends_with(format!("found/{name}")), "{name} has no seeds");
                continue;
            };
            let mut inputs = 0;
            for entry in entries {
                let path = entry.unwrap().path();
                let bytes = std::fs::read(&path).unwrap();
                let passed = std::panic::catch_unwind(|| target(&bytes));
                assert!(passed.is_ok(), "{}", path.display());
                inputs += 1;
            }
            assert!(0 < inputs, "{}", folder.display());
        }
    }
}

#[test]
fn every_target_has_a_binary_and_a_dictionary() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, _) in rederive_fuzz_targets::TARGETS {
        assert!(root.join("src/bin").join(format!("{name}.rs")).is_file(), "{name}");
        assert!(root.join("../dictionaries").join(format!("{name}.dict")).is_file(), "{name}");
    }
}
