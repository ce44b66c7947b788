//! Files of reports: rotation, links, pipes, and crashes between two lines.

use std::{env, io::Read, os::unix::fs::symlink, process};

use flate2::read::GzDecoder;
use weir_config::Compress;

use super::{
    super::tests::{id, parcels},
    *,
};

/// A temporary directory for one test.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let path = env::temp_dir().join(format!("weir-file-sink-{}-{test}", process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn plain(max_size: u64, keep: usize) -> Rotation {
    Rotation { max_size, keep, compress: Compress::None }
}

/// The ids in a file, which may be compressed.
fn ids(path: &Path) -> Vec<String> {
    let bytes = fs::read(path).unwrap();
    let mut text = String::new();
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("gz") => drop(GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap()),
        Some("zst") => text = String::from_utf8(zstd::decode_all(&bytes[..]).unwrap()).unwrap(),
        _ => text = String::from_utf8(bytes).unwrap(),
    }
    assert!(text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str::<weir_schema::Report>(line).unwrap().id).collect()
}

#[test]
fn reports_are_appended_to_what_is_there() {
    let directory = Directory::new("append");
    let path = directory.0.join("reports.ndjson");
    let mut sink = File::new(&path, None);
    assert_eq!(sink.name(), format!("file:{}", path.display()));
    assert!(!path.exists(), "opened with the first report");
    sink.deliver(&parcels([1])).unwrap();
    sink.deliver(&parcels([2])).unwrap();
    drop(sink);
    File::new(&path, None).deliver(&parcels([101])).unwrap();
    assert_eq!(ids(&path), [id(1), id(2), id(101)]);
    let mode = fs::metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o7777 & !MODE, 0, "{mode:o}: nobody else may read it");
}

#[test]
fn a_file_moved_or_deleted_is_created_anew() {
    let directory = Directory::new("rotate");
    let [path, old] = ["reports.ndjson", "reports.ndjson.1"].map(|name| directory.0.join(name));
    let mut sink = File::new(&path, None);
    sink.deliver(&parcels([1])).unwrap();
    fs::rename(&path, &old).unwrap();
    sink.deliver(&parcels([2])).unwrap();
    assert_eq!((ids(&old), ids(&path)), (vec![id(1)], vec![id(2)]));

    fs::remove_file(&path).unwrap();
    sink.deliver(&parcels([3])).unwrap();
    fs::rename(&path, &old).unwrap();
    fs::write(&path, "").unwrap();
    sink.deliver(&parcels([4])).unwrap();
    assert_eq!((ids(&old), ids(&path)), (vec![id(3)], vec![id(4)]));

    // Another program may rotate by copying, which truncates the same file.
    fs::write(&path, "").unwrap();
    sink.deliver(&parcels([5])).unwrap();
    assert_eq!(ids(&path), [id(5)]);
}

#[test]
fn two_writers_never_mix_their_reports() {
    let directory = Directory::new("two");
    let path = directory.0.join("reports.ndjson");
    let mut first = File::new(&path, None);
    first.deliver(&parcels([1])).unwrap();
    let mut second = File::new(&path, None);
    let error = second.deliver(&parcels([2])).unwrap_err();
    assert!(error.to_string().contains("another process has locked it"), "{error}");
    first.deliver(&parcels([3])).unwrap();
    drop(first);
    second.deliver(&parcels([2])).unwrap();
    assert_eq!(ids(&path), [id(1), id(3), id(2)]);
}

#[test]
fn a_file_that_is_large_enough_is_renamed_and_the_oldest_goes() {
    let directory = Directory::new("large");
    let path = directory.0.join("reports.ndjson");
    let line = parcels([1])[0].encoded.line.len() as u64;
    let mut sink = File::new(&path, Some(plain(2 * line, 2)));
    for nth in 1..=9 {
        sink.deliver(&parcels([nth])).unwrap();
    }
    let names = ["reports.ndjson", "reports.ndjson.1", "reports.ndjson.2"].map(|name| directory.0.join(name));
    assert_eq!(names.map(|name| ids(&name)), [vec![id(9)], vec![id(7), id(8)], vec![id(5), id(6)]]);
    assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 3);
    // The next run appends to the existing file; a report that is too large gets a separate file.
    drop(sink);
    File::new(&path, Some(plain(2 * line, 2))).deliver(&parcels([8])).unwrap();
    assert_eq!(ids(&path), [id(9), id(8)]);
    File::new(&path, Some(plain(1, 2))).deliver(&parcels([102])).unwrap();
    assert_eq!(ids(&path), [id(102)]);
}

#[test]
fn renamed_files_are_compressed_and_those_of_other_settings_rotate_too() {
    let directory = Directory::new("packed");
    let path = directory.0.join("reports.ndjson");
    let line = parcels([1])[0].encoded.line.len() as u64;
    let deliver = |compress, seqs: std::ops::RangeInclusive<u64>| {
        let mut sink = File::new(&path, Some(Rotation { max_size: line, keep: 3, compress }));
        for seq in seqs {
            sink.deliver(&parcels([seq])).unwrap();
        }
    };
    let found = || {
        let mut found: Vec<_> = fs::read_dir(&directory.0).unwrap().map(|file| file.unwrap().path()).collect();
        found.sort();
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        found.iter().map(|path| (name(path), ids(path))).collect::<Vec<_>>()
    };
    let expected =
        |files: [(&str, u64); 4]| files.map(|(ending, seq)| (format!("reports.ndjson{ending}"), vec![id(seq)]));
    deliver(Compress::Gzip, 1..=3);
    deliver(Compress::Zstd, 4..=4);
    assert_eq!(found(), expected([("", 4), (".1.zst", 3), (".2.gz", 2), (".3.gz", 1)]));
    deliver(Compress::None, 5..=5);
    assert_eq!(found(), expected([("", 5), (".1", 4), (".2.zst", 3), (".3.gz", 2)]));
    // A file that was left uncompressed is compressed with the next one.
    deliver(Compress::Gzip, 6..=6);
    assert_eq!(found(), expected([("", 6), (".1.gz", 5), (".2.gz", 4), (".3.zst", 3)]));
    // A file that cannot be compressed stays as it is, and no report is delayed.
    fs::create_dir(directory.0.join("reports.ndjson.unfinished")).unwrap();
    deliver(Compress::Gzip, 7..=7);
    fs::remove_dir(directory.0.join("reports.ndjson.unfinished")).unwrap();
    assert_eq!(found(), expected([("", 7), (".1", 6), (".2.gz", 5), (".3.gz", 4)]));
}

#[test]
fn the_target_of_a_link_is_neither_compressed_nor_written() {
    let directory = Directory::new("links");
    let path = directory.0.join("reports.ndjson");
    let of = |ending: &str| directory.0.join(format!("reports.ndjson{ending}"));
    let secret = directory.0.join("secret");
    fs::write(&secret, "only root may read this\n").unwrap();
    let mut sink = File::new(&path, Some(Rotation { max_size: 1, keep: 3, compress: Compress::Gzip }));
    sink.deliver(&parcels([1])).unwrap();
    // The owner of the folder creates these links.
    symlink("secret", of(".unfinished")).unwrap();
    sink.deliver(&parcels([2])).unwrap();
    assert_eq!(ids(&of(".1.gz")), [id(1)]);
    fs::hard_link(&secret, of(".1")).unwrap();
    sink.deliver(&parcels([3])).unwrap();
    assert!(!of(".2.gz").exists() || ids(&of(".2.gz")) == [id(1)], "the file that has another name was packed");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "only root may read this\n");
    // weir does not write a report through another user's link either.
    fs::remove_file(&path).unwrap();
    symlink("secret", &path).unwrap();
    if std::os::unix::fs::lchown(&path, Some(12_345), None).is_ok() {
        let refused = sink.deliver(&parcels([4])).unwrap_err().to_string();
        assert!(refused.contains("a link that another user has made"), "{refused}");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "only root may read this\n");
    }
}

#[test]
fn a_file_with_another_name_is_not_appended_to() {
    let directory = Directory::new("hard-links");
    let [path, secret] = ["reports.ndjson", "secret"].map(|name| directory.0.join(name));
    fs::write(&secret, "of somebody else\n").unwrap();
    let mut sink = File::new(&path, None);
    sink.deliver(&parcels([1])).unwrap();
    // This holds at the start, and also when the link replaces a file that weir has open.
    fs::remove_file(&path).unwrap();
    fs::hard_link(&secret, &path).unwrap();
    for mut sink in [File::new(&path, None), sink] {
        let why = sink.deliver(&parcels([2])).unwrap_err().to_string();
        assert!(why.contains(path.to_str().unwrap()) && why.contains("2 names (hard links)"), "{why}");
        assert_eq!(fs::read_to_string(&secret).unwrap(), "of somebody else\n");
    }
    fs::remove_file(&path).unwrap();
    File::new(&path, None).deliver(&parcels([2])).unwrap();
    assert_eq!(ids(&path), [id(2)]);
}

#[test]
fn an_obstacle_to_rotation_is_named_and_reports_wait_until_it_is_gone() {
    let directory = Directory::new("obstacle");
    let path = directory.0.join("reports.ndjson");
    let mut sink = File::new(&path, Some(Rotation { max_size: 1, keep: 2, compress: Compress::Gzip }));
    let mut seq = 1;
    sink.deliver(&parcels([seq])).unwrap();
    for ending in [".1", ".1.gz", ".2", ".2.zst"] {
        let place = directory.0.join(format!("reports.ndjson{ending}"));
        for what in ["a link", "a folder", "a pipe"] {
            let _ = fs::remove_file(&place);
            match what {
                "a link" => symlink("secret", &place).unwrap(),
                "a folder" => fs::create_dir(&place).unwrap(),
                _ => rustix::fs::mkfifoat(rustix::fs::CWD, &place, rustix::fs::Mode::RWXU).unwrap(),
            }
            let error = sink.deliver(&parcels([seq + 1])).unwrap_err();
            let DeliveryError::Unavailable { message, .. } = error else { panic!("{error:?}") };
            let expected = format!("older reports go to {}, which is {what}: move it away", place.display());
            assert!(message.contains(&expected), "{message}");
            assert_eq!(ids(&path), [id(seq)], "nothing was renamed");
            fs::remove_dir(&place).or_else(|_| fs::remove_file(&place)).unwrap();
            seq += 1;
            sink.deliver(&parcels([seq])).unwrap();
            assert_eq!(ids(&path), [id(seq)], "it goes on");
        }
    }
}

#[test]
fn the_last_report_of_an_earlier_run_is_not_written_again() {
    let directory = Directory::new("again");
    let path = directory.0.join("reports.ndjson");
    let deliver = |seqs: &[u64]| {
        let mut sink = File::new(&path, None);
        for seq in seqs {
            sink.deliver(&parcels([*seq])).unwrap();
        }
    };
    deliver(&[1, 2]);
    deliver(&[2, 3]);
    assert_eq!(ids(&path), [id(1), id(2), id(3)]);
    deliver(&[2, 3]);
    assert_eq!(ids(&path).len(), 5, "only the last line is looked at");
}

#[test]
fn a_line_that_a_crash_cut_is_not_glued_to_the_next() {
    let directory = Directory::new("torn");
    let path = directory.0.join("reports.ndjson");
    fs::write(&path, "{\"schema\":\"we").unwrap();
    let mut sink = File::new(&path, None);
    let reports = parcels([1, 2]);
    for report in reports.chunks(1) {
        sink.deliver(report).unwrap();
    }
    let expected = [b"{\"schema\":\"we\n", &*reports[0].encoded.line, &*reports[1].encoded.line].concat();
    assert_eq!(fs::read(&path).unwrap(), expected);
}

#[test]
fn an_error_names_the_path_and_ends_with_its_cause() {
    let directory = Directory::new("error");
    let path = directory.0.join("missing").join("reports.ndjson");
    let mut sink = File::new(&path, None);
    let error = sink.deliver(&parcels([1])).unwrap_err();
    let DeliveryError::Unavailable { message, .. } = error else { panic!("{error:?}") };
    assert!(message.contains(path.to_str().unwrap()) && message.contains("No such file"), "{message}");
    fs::create_dir(path.parent().unwrap()).unwrap();
    sink.deliver(&parcels([1])).unwrap();
    assert_eq!(ids(&path), [id(1)]);
}

#[test]
fn a_pipe_takes_reports_only_while_it_has_a_reader() {
    let directory = Directory::new("pipe");
    let path = directory.0.join("reports.pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut sink = File::new(&path, Some(plain(1, 1)));
    let nobody = |sink: &mut File| {
        let error = sink.deliver(&parcels([1])).unwrap_err();
        let expected = format!("cannot write to {}: it is a pipe, and nobody reads it", path.display());
        assert_eq!(error, DeliveryError::unavailable(expected));
    };
    nobody(&mut sink);
    for seq in [1, 2] {
        let mut reader = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
        sink.deliver(&parcels([seq])).unwrap();
        let mut line = vec![0; parcels([seq])[0].encoded.line.len()];
        reader.read_exact(&mut line).unwrap();
        assert!(line == *parcels([seq])[0].encoded.line, "each reader gets whole lines");
        drop(reader);
        nobody(&mut sink);
    }
}

#[test]
fn a_file_that_is_full_is_unavailable() {
    let error = File::new("/dev/full", Some(plain(1, 1))).deliver(&parcels([1])).unwrap_err();
    assert!(matches!(&error, DeliveryError::Unavailable { message, .. } if message.contains("/dev/full")), "{error:?}");
}
