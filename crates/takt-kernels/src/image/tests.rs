use std::process::{Command, Stdio};

use super::*;
use proptest::prelude::*;

/// The entries of an archive: name, mode, content.
fn read_back(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
    let mut entries = Vec::new();
    let mut at = 0;
    loop {
        let field = |index: usize| {
            let text = std::str::from_utf8(&bytes[at + 6 + index * 8..at + 14 + index * 8]).unwrap();
            u32::from_str_radix(text, 16).unwrap()
        };
        assert_eq!(&bytes[at..at + 6], b"070701");
        let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
        let name = String::from_utf8(bytes[at + 110..at + 110 + name_size - 1].to_vec()).unwrap();
        let content = (at + 110 + name_size).next_multiple_of(4);
        if name == "TRAILER!!!" {
            assert_eq!(bytes.len() % 512, 0);
            return entries;
        }
        entries.push((name, mode, bytes[content..content + size].to_vec()));
        at = (content + size).next_multiple_of(4);
    }
}

fn written(image: &Initramfs) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    image.write(file.path()).unwrap();
    fs::read(file.path()).unwrap()
}

#[test]
fn folders_on_the_way_are_made_first() {
    let mut image = Initramfs::new();
    image.file("/etc/takt/order.json", 0o600, b"{}".to_vec()).unwrap();
    image.link("/bin/sh", "/init").unwrap();
    let entries = read_back(&written(&image));
    let names: Vec<&str> = entries.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["bin", "bin/sh", "dev", "dev/console", "etc", "etc/takt", "etc/takt/order.json"]);
    assert_eq!(entries[6], ("etc/takt/order.json".into(), 0o100_600, b"{}".to_vec()));
    assert_eq!(entries[1].1, 0o120_777);
    assert_eq!(entries[3].1, 0o020_600);
}

#[test]
fn the_same_content_is_the_same_image() {
    let make = || {
        let mut image = Initramfs::new();
        image.program(&std::env::current_exe().unwrap(), "/init").unwrap();
        written(&image)
    };
    assert!(make() == make());
}

#[test]
fn a_packed_image_unpacks_to_the_plain_one() {
    let mut image = Initramfs::new();
    image.file("/a", 0o644, vec![7; 10_000]).unwrap();
    let plain = written(&image);
    image.packing(Packing::Gzip);
    let packed = written(&image);
    assert!(packed.len() < plain.len());
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut unpacked).unwrap();
    assert!(unpacked == plain);
}

#[test]
fn paths_that_leave_the_guest_are_refused() {
    let mut image = Initramfs::new();
    for path in ["relative", "/", "", "/../etc", "/a/../../b", "/a\0b"] {
        let refused = matches!(image.dir(path), Err(ImageError::GuestPath { .. }));
        assert!(refused, "{path:?}");
    }
    image.file("/a", 0o644, Vec::new()).unwrap();
    assert!(matches!(image.file("/a/b", 0o644, Vec::new()), Err(ImageError::Clash { .. })));
    assert!(matches!(image.dir("/a"), Err(ImageError::Clash { .. })));
    let missing = image.copy("/nowhere/at/all".as_ref(), "/b").err();
    assert!(matches!(missing, Some(ImageError::Read { .. })));
}

#[test]
fn another_tool_reads_the_image() {
    let mut image = Initramfs::new();
    image.file("/etc/a", 0o644, b"content".to_vec()).unwrap();
    let mut child = match Command::new("cpio").arg("-t").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    {
        Ok(child) => child,
        Err(error) if std::env::var_os("TAKT_REQUIRE_OUTSIDE").is_some() => panic!("cpio: {error}"),
        Err(error) => return takt_witness::skip!("cpio: {error}"),
    };
    child.stdin.take().unwrap().write_all(&written(&image)).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "dev\ndev/console\netc\netc/a\n");
}

proptest! {
    #[test]
    fn what_goes_in_comes_out(files in prop::collection::btree_map("[a-z]{1,9}", prop::collection::vec(any::<u8>(), 0..50), 0..8)) {
        let mut image = Initramfs::new();
        for (name, content) in &files {
            image.file(&format!("/f/{name}"), 0o644, content.clone()).unwrap();
        }
        let entries = read_back(&written(&image));
        let back = entries.into_iter().filter_map(|(name, _, bytes)| Some((name.strip_prefix("f/")?.to_owned(), bytes)));
        prop_assert_eq!(back.collect::<std::collections::BTreeMap<_, _>>(), files);
    }
}
