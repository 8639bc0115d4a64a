//! What stands in a folder and is no file: a read of it is refused at once, and never waited for.

use super::*;

#[test]
fn what_is_no_file_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let made = std::process::Command::new("mkfifo").arg(path("pipe.jpg")).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", path("zero.jpg")).unwrap();
    std::os::unix::fs::symlink("pipe.jpg", path("link.jpg")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(path("socket.jpg")).unwrap();
    std::fs::create_dir(path("folder.jpg")).unwrap();
    let (fetcher, _) = fetcher(&recipe::Fetch::default());
    for name in ["pipe.jpg", "zero.jpg", "link.jpg", "socket.jpg", "folder.jpg"] {
        let object = Location::parse(path(name).to_str().unwrap()).unwrap();
        let extent = Extent { object: Arc::new(object), range: None };
        let error = fetch_error(fetcher.read_blocking(&extent));
        assert_eq!((error.kind, error.attempts), (FetchErrorKind::NotFound, 1), "{name}");
        assert_eq!(error.reason, "not a file", "{name}");
    }
}

/// Links are followed to files, as those of the hub's cache have to be.
#[test]
fn links_to_files_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("blobs")).unwrap();
    std::fs::write(folder.path().join("blobs/1"), "photo").unwrap();
    std::os::unix::fs::symlink("blobs/1", folder.path().join("a.jpg")).unwrap();
    let object = Location::parse(folder.path().join("a.jpg").to_str().unwrap()).unwrap();
    let (fetcher, _) = fetcher(&recipe::Fetch::default());
    let extent = Extent { object: Arc::new(object), range: None };
    assert_eq!(fetcher.read_blocking(&extent).unwrap(), Bytes::from_static(b"photo"));
}
