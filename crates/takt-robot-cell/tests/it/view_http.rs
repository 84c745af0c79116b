//! The web view over its socket: what it serves, what it refuses, and that no client can wear it
//! down.

#![allow(clippy::unwrap_used)] // Helpers of tests may panic as tests may.

use crate::view_cell as cell;

use std::io::{Read, Write};
use std::net::SocketAddr;

use cell::{Scene, connect, exchange, get, read_reply, start};
use takt_robot_cell::view::{ViewConfig, ViewServer};
use takt_view::Error;

fn raw(address: SocketAddr, request: &str) -> cell::Reply {
    exchange(&mut connect(address), request.as_bytes()).expect("an answer")
}

#[test]
fn serves_the_page_with_nothing_from_elsewhere() {
    let (_cell, server) = start(ViewConfig::default());
    let page = get(server.address(), "/");
    assert_eq!(page.code, 200);
    let policy = page.field("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert_eq!(page.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.field("access-control-allow-origin"), None);
    let mut text = String::from_utf8(page.body).unwrap();
    for (path, kind) in
        [("/view.css", "text/css"), ("/view.js", "text/javascript"), ("/icon.svg", "image/svg")]
    {
        assert!(text.contains(&format!("\"{path}\"")), "the page does not use {path}");
        let part = get(server.address(), path);
        assert_eq!(part.code, 200);
        assert!(part.field("content-type").unwrap().starts_with(kind));
        if path != "/icon.svg" {
            text.push_str(&String::from_utf8(part.body).unwrap());
        }
    }
    assert!(!text.contains("http://") && !text.contains("https://"), "an outside resource");
    assert!(text.contains("Not a certified safety function"));
}

#[test]
fn the_state_is_complete_json() {
    let (mut cell, server) = start(ViewConfig::default());
    let before = get(server.address(), "/api/status").json();
    assert_eq!((&before["sequence"], &before["light"]), (&0.into(), &"red".into()));
    cell.publish_status(900, Scene::Stopped);
    let reply = get(server.address(), "/api/status");
    assert_eq!(reply.field("content-type"), Some("application/json"));
    let state = reply.json();
    assert_eq!(state["sequence"], 1);
    assert_eq!(state["title"], "Cobot cell: pick and place");
    assert_eq!(
        (&state["light"], &state["stop"], &state["zone"]),
        (&"red".into(), &true.into(), &"stop".into())
    );
    assert!(state["stop_reason"].as_str().unwrap().contains("camera left"));
    assert_eq!(state["robot"]["robot_mode"], "running");
    assert_eq!(state["policy"], "DL+RR");
    let reaction = &state["reaction"];
    let (edges, counts) = (reaction["edges_ms"].as_array().unwrap(), reaction["counts"].as_array().unwrap());
    assert_eq!(edges.len(), counts.len() + 1);
    assert_eq!(counts.iter().map(|n| n.as_u64().unwrap()).sum::<u64>(), 2402);
    assert_eq!(reaction["count"], 2402);
    let cameras = state["cameras"].as_array().unwrap();
    assert_eq!(cameras.len(), 5);
    assert_eq!((&cameras[1]["name"], &cameras[1]["zone"]), (&"left".into(), &"stop".into()));
    assert!(cameras[3]["separation_m"].is_null(), "nobody is seen there");
}

#[test]
fn pictures_carry_the_objects_of_their_frame() {
    let (mut cell, server) = start(ViewConfig::default());
    assert_eq!(get(server.address(), "/api/camera/0").code, 503);
    cell.publish_status(900, Scene::Reduced);
    cell.publish_frames(900, Scene::Reduced);
    let reply = get(server.address(), "/api/camera/0");
    assert_eq!((reply.code, reply.field("content-type")), (200, Some("image/jpeg")));
    let note: serde_json::Value = serde_json::from_str(reply.field("x-takt-picture").unwrap()).unwrap();
    assert_eq!((&note["frame"], &note["same_frame"]), (&900.into(), &true.into()));
    let objects = note["objects"].as_array().unwrap();
    assert_eq!(objects.len(), 2);
    assert_eq!((&objects[0]["zone"], &objects[0]["kind"]), (&"reduce".into(), &"person".into()));
    assert_eq!(objects[1]["zone"], "clear");

    let mut decoder = zune_jpeg::JpegDecoder::new(std::io::Cursor::new(&reply.body));
    let rgb = decoder.decode().unwrap();
    assert_eq!(decoder.dimensions(), Some((cell::WIDTH as usize, cell::HEIGHT as usize)));
    let tinted = rgb.chunks_exact(3).filter(|p| p[0] > p[2].saturating_add(50)).count();
    assert!(tinted > 500, "only {tinted} pixels have the colour of the mask");

    let again = get(server.address(), "/api/camera/0?have=900");
    assert_eq!((again.code, again.body.len()), (204, 0));
}

#[test]
fn one_picture_is_encoded_for_any_number_of_askers() {
    let (mut cell, server) = start(ViewConfig::default());
    cell.publish_frames(1, Scene::Running);
    let mut stream = connect(server.address());
    let request = format!("GET /api/camera/2 HTTP/1.1\r\nHost: {}\r\n\r\n", server.address());
    for _ in 0..200 {
        assert_eq!(exchange(&mut stream, request.as_bytes()).unwrap().code, 200);
    }
    let state = get(server.address(), "/api/status").json();
    let pictures: Vec<_> = (0..5).map(|i| state["cameras"][i]["pictures"].as_u64().unwrap()).collect();
    assert_eq!(pictures, [0, 0, 1, 0, 0]);
}

#[test]
fn pictures_can_be_shrunk() {
    let (mut cell, server) = start(ViewConfig { shrink: 3, ..ViewConfig::default() });
    cell.publish_frames(1, Scene::Running);
    let reply = get(server.address(), "/api/camera/4");
    let mut decoder = zune_jpeg::JpegDecoder::new(std::io::Cursor::new(&reply.body));
    decoder.decode_headers().unwrap();
    assert_eq!(decoder.dimensions(), Some((128, 96)));
    assert!(
        reply.field("x-takt-picture").unwrap().contains("\"width\":384"),
        "boxes are in pixels of the frame"
    );
}

#[test]
fn foreign_names_of_this_machine_are_refused() {
    let (_cell, server) = start(ViewConfig::default());
    let address = server.address();
    let port = address.port();
    for host in [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1",
        "127.0.0.1:1",
        &format!("127.0.0.1:{port}.evil.example"),
    ] {
        for path in ["/", "/api/status", "/api/camera/0"] {
            let reply = raw(address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(reply.code, 403, "{host}{path}");
        }
    }
    assert_eq!(raw(address, &format!("GET / HTTP/1.1\r\nhost: LOCALHOST:{port}\r\n\r\n")).code, 200);
    assert_eq!(raw(address, "GET / HTTP/1.1\r\n\r\n").code, 400, "no Host");
    let twice = format!("GET / HTTP/1.1\r\nHost: {address}\r\nHost: evil.example\r\n\r\n");
    assert_eq!(raw(address, &twice).code, 400, "two Hosts");
}

#[test]
fn other_sites_get_no_data() {
    let (_cell, server) = start(ViewConfig::default());
    let ask = |path: &str, site: &str| {
        let address = server.address();
        raw(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nSec-Fetch-Site: {site}\r\n\r\n"))
            .code
    };
    assert_eq!(ask("/api/status", "cross-site"), 403);
    assert_eq!(ask("/api/status", "same-site"), 403, "another port of this machine");
    assert_eq!(ask("/api/status", "same-origin"), 200);
    assert_eq!(ask("/", "cross-site"), 200, "a link to the page is harmless");
}

#[test]
fn nothing_but_get_is_accepted() {
    let (_cell, server) = start(ViewConfig::default());
    let address = server.address();
    for method in ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE"] {
        let reply =
            raw(address, &format!("{method} / HTTP/1.1\r\nHost: {address}\r\nContent-Length: 2\r\n\r\nhi"));
        assert_eq!((reply.code, reply.field("allow")), (405, Some("GET")), "{method}");
    }
    for body in ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"] {
        let reply = raw(address, &format!("GET / HTTP/1.1\r\nHost: {address}\r\n{body}"));
        assert_eq!((reply.code, reply.field("connection")), (400, Some("close")), "{body}");
    }
}

#[test]
fn no_path_leads_to_a_file() {
    let (_cell, server) = start(ViewConfig::default());
    for path in [
        "/../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/view.js/..",
        "/src/lib.rs",
        "/%00",
        "/api/",
        "/api/camera/5",
        "/api/camera/-1",
        "/api/camera/99999999999999999999",
        "/api/camera/0/../1",
        "*",
        "",
    ] {
        let code =
            raw(server.address(), &format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", server.address())).code;
        assert!(matches!(code, 404 | 400), "{path} gives {code}");
    }
}

#[test]
fn garbage_is_answered_or_cut_off_and_the_view_lives_on() {
    let (_cell, server) = start(ViewConfig::default());
    let address = server.address();
    let host = format!("Host: {address}\r\n");
    let cases: [(&[u8], u16); 6] = [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 is a TLS hello\r\n\r\n", 400),
        (b"hello\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon here\r\n\r\n", 400),
        (&[b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'a'; 9000]].concat(), 431),
        (&[b"GET / HTTP/1.1\r\n".as_slice(), &b"X: y\r\n".repeat(70), b"\r\n"].concat(), 431),
    ];
    for (bytes, code) in cases {
        let reply = exchange(&mut connect(address), bytes).expect("an answer");
        assert_eq!((reply.code, reply.field("connection")), (code, Some("close")));
    }
    // Bytes of any kind, the same ones every time.
    let mut random = 99_u64;
    for _ in 0..100 {
        let bytes: Vec<u8> = (0..300)
            .map(|_| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
                (random >> 56) as u8
            })
            .collect();
        let mut stream = connect(address);
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(raw(address, &format!("GET / HTTP/1.1\r\n{host}\r\n")).code, 200);
}

#[test]
fn a_connection_serves_many_requests_and_pipelined_ones() {
    let (_cell, server) = start(ViewConfig::default());
    let mut stream = connect(server.address());
    let request = format!("GET /icon.svg HTTP/1.1\r\nHost: {}\r\n\r\n", server.address());
    for _ in 0..3 {
        assert_eq!(exchange(&mut stream, request.as_bytes()).unwrap().code, 200);
    }
    let mut stream = connect(server.address());
    let last = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    stream.write_all((request.repeat(40) + &last).as_bytes()).unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 41);
}

#[test]
fn a_request_may_come_in_pieces() {
    let (_cell, server) = start(ViewConfig::default());
    let mut stream = connect(server.address());
    for byte in format!("GET /icon.svg HTTP/1.1\r\nHost: {}\r\n\r\n", server.address()).bytes() {
        stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(read_reply(&mut stream).unwrap().code, 200);
}

fn threads_of_views() -> usize {
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok())
        .filter(|name| name.starts_with("view-"))
        .count()
}

#[test]
fn stuck_clients_cost_neither_threads_nor_service() {
    let (mut cell, server) = start(ViewConfig::default());
    cell.publish_frames(1, Scene::Running);
    let address = server.address();
    // Half requests, and requests whose answers nobody reads.
    let picture = format!("GET /api/camera/0 HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let stuck: Vec<_> = (0..100)
        .map(|i| {
            let mut stream = connect(address);
            // The server may close a connection that is one too many while this writes.
            let _ = stream.write_all(if i % 2 == 0 { b"GET / HTTP/1.1\r\nHo" } else { picture.as_bytes() });
            stream
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(get(address, "/api/status").code, 200);
        assert_eq!(get(address, "/api/camera/0").code, 200);
    }
    // Other tests of this binary run views, too, one thread each; a thread for each client would
    // be 100.
    assert!(threads_of_views() < 40, "{} threads", threads_of_views());
    let open = stuck
        .iter()
        .filter(|stream| {
            stream.set_nonblocking(true).unwrap();
            // Answers that were not read come first; then either the end (closed) or nothing yet
            // (open).
            let mut stream = *stream;
            let mut chunk = vec![0; 1 << 20];
            loop {
                match stream.read(&mut chunk) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
                }
            }
        })
        .count();
    assert!(open <= 32, "{open} connections are still held");
}

#[test]
fn only_loopback_addresses_and_sane_settings_are_accepted() {
    let refused = |config: ViewConfig| {
        let (_cell, sources, _) = cell::cell();
        match ViewServer::start(config, sources, "") {
            Err(error) => error,
            Ok(_) => panic!("accepted"),
        }
    };
    for bind in ["0.0.0.0:0", "[::]:0", "192.168.1.7:8080"] {
        let error = refused(ViewConfig { bind: bind.parse().unwrap(), ..ViewConfig::default() });
        assert!(
            matches!(error, Error::NotLoopback { .. }) && error.to_string().contains("127.0.0.1"),
            "{error}"
        );
    }
    for config in [
        ViewConfig { max_fps: 0.0, ..ViewConfig::default() },
        ViewConfig { max_fps: f64::NAN, ..ViewConfig::default() },
        ViewConfig { jpeg_quality: 0, ..ViewConfig::default() },
        ViewConfig { shrink: 0, ..ViewConfig::default() },
    ] {
        assert!(matches!(refused(config), Error::Setting { .. }));
    }
    let (_cell, server) = start(ViewConfig::default());
    let error = refused(ViewConfig { bind: server.address(), ..ViewConfig::default() });
    assert!(matches!(error, Error::Listen { .. }) && error.to_string().contains("port 0"), "{error}");
}

#[test]
fn stopping_closes_the_port() {
    let (_cell, server) = start(ViewConfig::default());
    let address = server.address();
    let mut open = connect(address);
    assert_eq!(server.url(), format!("http://{address}/"));
    drop(server);
    assert_eq!(open.read(&mut [0]).unwrap_or(0), 0);
    assert!(std::net::TcpStream::connect(address).is_err());
}
