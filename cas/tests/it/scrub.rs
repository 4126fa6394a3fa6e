//! An object is what its name says, or it is not read; and its damage has a name.

use std::fs;
use std::io::Write;
use std::path::Path;

use rederive_cas::{Codec, Damage, Digest, GetError, Objects, PutError};
use rederive_disk::OsDisk;

use crate::samples::{self, noise};

/// Writes to a file that is read-only.
fn overwrite(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

fn store() -> (tempfile::TempDir, Objects) {
    let folder = tempfile::tempdir().unwrap();
    let objects = samples::open(OsDisk, folder.path().join("objects"));
    (folder, objects)
}

#[test]
fn what_is_put_is_got_by_every_door() {
    let (folder, objects) = store();
    let text = b"a text that repeats itself, ".repeat(100);
    for (object, codec) in [
        (Vec::new(), Codec::Raw),
        (b"x".to_vec(), Codec::Raw),
        (noise(1, 300_000), Codec::Raw),
        (text, Codec::Zstd),
        (samples::png(9, 9), Codec::Raw),
    ] {
        let digest = objects.put(&object).unwrap();
        assert_eq!(digest, Digest::of(&object));
        assert_eq!(objects.put_reader(object.as_slice()).unwrap(), digest);
        let file = folder.path().join("source");
        fs::write(&file, &object).unwrap();
        assert_eq!(objects.put_file(&file).unwrap(), digest);
        assert_eq!(objects.get(&digest).unwrap(), object);
        let stat = objects.stat(&digest).unwrap();
        assert_eq!((stat.bytes, stat.codec), (object.len() as u64, codec));
        let hex = digest.to_hex();
        assert!(stat.path.ends_with(format!("{}/{}", &hex[..2], &hex[2..])));
        let metadata = fs::metadata(&stat.path).unwrap();
        assert!(metadata.permissions().readonly());
        assert_eq!(metadata.len(), stat.stored_bytes);
    }
    let mut listed = objects.list().unwrap();
    assert_eq!(listed.len(), 5);
    listed.sort_unstable();
    assert_eq!(listed, objects.list().unwrap());
    let mut steps = 0;
    let report = objects.verify(|progress| steps = progress.objects).unwrap();
    assert_eq!((report.sound, steps, report.bad.len(), report.foreign.len()), (5, 5, 0, 0));
}

#[test]
fn every_flipped_byte_is_found_by_get_and_by_verify_and_mended_by_a_put() {
    let (_folder, objects) = store();
    for object in [b"small".to_vec(), b"compressible ".repeat(20)] {
        let digest = objects.put(&object).unwrap();
        let path = objects.path(&digest);
        let sound = fs::read(&path).unwrap();
        for at in 0..sound.len() {
            let mut flipped = sound.clone();
            flipped[at] ^= 1 << (at % 8);
            overwrite(&path, &flipped);
            match objects.get(&digest).unwrap_err() {
                GetError::Corrupt { digest: named, path: at, .. } => {
                    assert_eq!((named, at), (digest, path.clone()));
                }
                other => panic!("byte {at}: {other}"),
            }
            let report = objects.verify(|_| {}).unwrap();
            assert!(matches!(&report.bad[..], [GetError::Corrupt { .. }]), "byte {at}");
        }
        for bytes in
            [sound[..63].to_vec(), sound[..sound.len() - 1].to_vec(), [&sound[..], b"!"].concat(), vec![]]
        {
            overwrite(&path, &bytes);
            assert!(matches!(objects.get(&digest), Err(GetError::Corrupt { .. })));
        }
        objects.put(&object).unwrap();
        assert_eq!(fs::read(&path).unwrap(), sound);
        assert_eq!(objects.get(&digest).unwrap(), object);
    }
}

#[test]
fn a_file_under_another_name_is_damage_and_a_lost_one_is_missing() {
    let (_folder, objects) = store();
    let (first, second) = (objects.put(b"first").unwrap(), objects.put(b"other").unwrap());
    let other = fs::read(objects.path(&second)).unwrap();
    overwrite(&objects.path(&first), &other);
    assert!(matches!(objects.get(&first), Err(GetError::Corrupt { damage: Damage::Header, .. })));
    fs::remove_file(objects.path(&second)).unwrap();
    match objects.get(&second).unwrap_err() {
        GetError::Missing { digest, path } => assert_eq!((digest, path), (second, objects.path(&second))),
        other => panic!("{other}"),
    }
    assert!(matches!(objects.stat(&second), Err(GetError::Missing { .. })));
}

#[test]
fn what_is_too_large_is_neither_put_nor_read() {
    let folder = tempfile::tempdir().unwrap();
    let objects = samples::open(OsDisk, folder.path());
    let digest = objects.put(&[7; 2000]).unwrap();
    let mut options = samples::options(&samples::Clock::default());
    options.object_bytes_max = 1999;
    let small = Objects::open(std::sync::Arc::new(OsDisk), folder.path(), options).unwrap();
    assert!(matches!(small.get(&digest), Err(GetError::TooLarge { bytes: 2000, bytes_max: 1999, .. })));
    assert!(matches!(small.put(&[8; 2000]), Err(PutError::TooLarge { .. })));
    assert!(matches!(small.put_reader(std::io::repeat(8)), Err(PutError::TooLarge { .. })));
    assert_eq!(objects.list().unwrap(), [digest]);
}

#[test]
fn what_is_none_of_the_stores_is_named_and_never_an_object() {
    let (_folder, objects) = store();
    let digest = objects.put(b"an object").unwrap();
    let strange = objects.path(&digest).with_file_name("notes.txt");
    fs::write(&strange, "notes").unwrap();
    let mut file = fs::File::create(objects.folder().join("tmp").join("left")).unwrap();
    file.write_all(b"half an object").unwrap();
    assert_eq!(objects.list().unwrap(), [digest]);
    let report = objects.verify(|_| {}).unwrap();
    assert_eq!((report.sound, report.foreign), (1, vec![strange]));
}
