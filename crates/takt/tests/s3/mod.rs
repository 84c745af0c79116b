//! Stores in a bucket: moto's S3 behind `takt`, and boto3 as the other reader of what is there.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use takt_rundir::{RUN_FILE, RunDir, RunHeader};

use super::takt::{Beside, has, missing, refusal, root, stderr, stdout, takt as run, tls_proxy};

/// A server with the bucket `fleet`; ends with its input, which ends with this.
struct Server {
    _program: Beside,
    environment: Vec<(&'static str, String)>,
    secret: String,
}

impl Server {
    /// `None` where this machine has none.
    fn start() -> Option<Self> {
        let mut probe = Command::new("python3");
        probe.args(["-c", "import boto3, moto.server"]).stderr(Stdio::null());
        let there = probe.status().is_ok_and(|status| status.success());
        if missing("python3 has not moto's server and boto3", there) {
            return None;
        }
        let mut command = Command::new("python3");
        command.arg(root().join("crates/takt/tests/s3/server.py")).stdin(Stdio::piped());
        let mut program = Beside::start(command);
        let line = program.line("stdout", "");
        let [port, key, secret]: [&str; 3] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let environment = vec![
            ("AWS_ACCESS_KEY_ID", key.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_DEFAULT_REGION", "us-east-1".to_owned()),
            ("NO_PROXY", "127.0.0.1".to_owned()),
        ];
        Some(Self { secret: secret.to_owned(), environment, _program: program })
    }

    fn takt(&self, arguments: &[&str]) -> Command {
        let mut command = run(arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn ask(&self, arguments: &[&str]) -> Output {
        self.takt(arguments).output().unwrap()
    }

    /// Runs code in the other reader.
    fn boto3(&self, code: &str) -> String {
        let begin = "import boto3, hashlib, json\nbucket = boto3.resource('s3').Bucket('fleet')\n";
        let mut command = Command::new("python3");
        command.args(["-c", &format!("{begin}{code}")]);
        let output =
            command.envs(self.environment.iter().map(|(name, value)| (name, value))).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    }

    fn runs(&self) -> Vec<Value> {
        let list = self.ask(&["store", "ls", PLACE, "--json"]);
        assert!(list.status.success(), "{}", stderr(&list));
        serde_json::from_slice(&list.stdout).unwrap()
    }
}

const PLACE: &str = "s3://fleet/lab/runs";

/// Names and contents of all files below `folder`.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            found.extend(contents(&path).into_iter().map(|(of, bytes)| (format!("{name}/{of}"), bytes)));
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

/// A sealed run with a file that is sent in three parts.
fn large(folder: &Path) -> RunDir {
    let dir = RunDir::create(folder, "large").unwrap();
    dir.write_json(RUN_FILE, &RunHeader::new("cyclic", "large")).unwrap();
    let noise: Vec<u8> = (0..20u64 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(dir.path().join("noise"), noise).unwrap();
    dir.seal().unwrap();
    dir
}

#[test]
#[ignore = "takes 15 s"]
fn a_bucket_holds_what_a_folder_holds() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    // No real-time thread, so that the test may run beside others.
    let config = folder.path().join("cyclic.toml");
    fs::write(&config, "robot = \"cyclic\"\nname = \"beat\"\nrate_hz = 200\npolicy = \"other:0\"\n").unwrap();
    let dir = folder.path().join("run");
    let mut command = server.takt(&["run", config.to_str().unwrap(), "--seconds", "0.3", "--view", "none"]);
    let ran = command.args(["--store", PLACE, "--run-dir"]).arg(&dir).output().unwrap();
    assert!(ran.status.success(), "{}", stderr(&ran));
    // The key is nowhere but in the requests.
    for name in [server.secret.as_bytes(), server.environment[0].1.as_bytes()] {
        let holds = |bytes: &[u8]| bytes.windows(name.len()).any(|part| part == name);
        assert!(!contents(&dir).values().any(|bytes| holds(bytes)) && !holds(&ran.stderr));
    }
    // Of the other reader: every object is what its name says, and none is elsewhere.
    let names = server.boto3(
        "for o in bucket.objects.all():\n  print(o.key, hashlib.sha256(o.get()['Body'].read()).hexdigest())",
    );
    assert!(names.lines().count() > 4, "{names}");
    for line in names.lines() {
        let (key, hash) = line.split_once(' ').unwrap();
        let name = key.strip_prefix("lab/runs/").unwrap();
        let file = name.rsplit('/').next().unwrap().split('.').next().unwrap();
        assert!(file == hash || name == "takt-store.json", "{line}");
    }
    let seal = takt_rundir::sha256_of(&fs::read(dir.join("hashes.json")).unwrap());
    let runs = server.runs();
    assert_eq!((runs.len(), &runs[0]["run"]), (1, &seal.clone().into()), "{runs:?}");
    let to = folder.path().join("got");
    let got = server.ask(&["store", "get", PLACE, &seal[..9], "--to", to.to_str().unwrap()]);
    assert!(got.status.success(), "{}", stderr(&got));
    assert_eq!(contents(Path::new(stdout(&got).trim())), contents(&dir));

    // Killed anywhere, an upload in parts shows nothing or all; what is there is whole.
    let large = large(folder.path());
    let place = large.path().to_str().unwrap();
    for attempt in 0..12 {
        let mut child = server.takt(&["store", "put", PLACE, place]).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20 + attempt * 60));
        // It may have ended.
        let _ = child.kill();
        child.wait().unwrap();
        assert!(server.runs().len() <= 2);
    }
    let put = server.ask(&["store", "put", PLACE, place]);
    assert!(put.status.success() && server.runs().len() == 2, "{}", stderr(&put));
    assert!(stdout(&server.ask(&["store", "verify", PLACE])).starts_with("whole"));
    let got = server.ask(&["store", "get", PLACE, &large.seal_hash().unwrap(), "--to", to.to_str().unwrap()]);
    assert_eq!(contents(Path::new(stdout(&got).trim())), contents(large.path()), "{}", stderr(&got));

    // Who asks across runs reads the same store, and copies of what it needs.
    for more in [&[][..], &["--samples"]] {
        let arguments = ["compare", "--by", "robot", "--where", "label <> 'large'", "--json", PLACE];
        let compared = server.ask(&[&arguments[..], more].concat());
        let json: Value =
            serde_json::from_slice(&compared.stdout).unwrap_or_else(|_| panic!("{}", stderr(&compared)));
        assert_eq!(json["runs"], serde_json::json!([1, 2]), "{json:#}");
    }

    // Damage is named, and never handed out.
    server.boto3(
        "o = max(bucket.objects.all(), key=lambda o: o.size)\no.put(Body=b'x' + o.get()['Body'].read()[1:])",
    );
    let verified = server.ask(&["store", "verify", PLACE]);
    assert_eq!(verified.status.code(), Some(1));
    has(&stdout(&verified), &["noise: ", "its content has the hash", "1 damages"]);
    let again = folder.path().join("again");
    let name = large.seal_hash().unwrap();
    let got = server.ask(&["store", "get", PLACE, &name, "--to", again.to_str().unwrap()]);
    has(&refusal(&got), &["is damaged"]);
    assert!(contents(&again).is_empty());
    // Whoever has the run mends it: of the same size, and cut off; whole ones are not sent again.
    for (change, sent) in [("", "20971520 bytes sent"), ("o.put(Body=b'torn')", "20971520 bytes sent")] {
        server.boto3(&format!("o = max(bucket.objects.all(), key=lambda o: o.size)\n{change}"));
        let put = server.ask(&["store", "put", PLACE, place]);
        has(&stderr(&put), &["was there as", sent, "1 damaged objects were sent again"]);
        assert!(stdout(&server.ask(&["store", "verify", PLACE])).starts_with("whole"));
        let put = server.ask(&["store", "put", PLACE, place]);
        has(&stderr(&put), &["was there as", "(0 bytes sent)"]);
    }
    let pruned = server.ask(&["store", "prune", PLACE, &name]);
    has(&stdout(&pruned), &["1 runs and 0 objects"]);
    assert_eq!(server.runs().len(), 1);

    // What cannot be is a sentence, before anything is measured, and without the secret.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = format!("http://{closed}");
    for (place, change, words) in [
        (PLACE, ("AWS_SECRET_ACCESS_KEY", "hushhush"), &["the server answered SignatureDoesNotMatch"][..]),
        (PLACE, ("AWS_ENDPOINT_URL", &closed), &["error sending request", "refused"]),
        (PLACE, ("AWS_ALLOW_HTTP", "false"), &["URL scheme is not allowed"]),
        ("s3://nobody/lab", ("AWS_DEFAULT_REGION", "us-east-1"), &["the bucket does not exist"]),
        // What the client's library would end its thread for.
        (PLACE, ("AWS_ACCESS_KEY_ID", "hush\nhush"), &["AWS_ACCESS_KEY_ID contains a space or"]),
        (PLACE, ("AWS_ENDPOINT_URL", "http://127.0.0.1:hush"), &["AWS_ENDPOINT_URL: expected https://"]),
        (PLACE, ("AWS_ENDPOINT_URL", "http://127.0.0.1/hush^hush"), &["AWS_ENDPOINT_URL: expected https://"]),
        (PLACE, ("AWS_ENDPOINT_URL", "127.0.0.1:9000"), &["AWS_ENDPOINT_URL: expected https://"]),
    ] {
        let runs = folder.path().join("none");
        let mut command =
            server.takt(&["run", config.to_str().unwrap(), "--seconds", "0.3", "--view", "none"]);
        command.args(["--store", place, "--runs"]).arg(&runs).env(change.0, change.1);
        let message = refusal(&command.output().unwrap());
        has(&message, &[&[place][..], words].concat());
        assert!(!message.contains("hushhush") && !message.contains(&server.secret), "{message}");
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
        assert!(!runs.exists(), "{place}");
    }
}

#[test]
#[ignore = "takes 10 s"]
fn a_bucket_over_tls_is_asked_only_where_its_authority_is_known() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = server.environment[2].1.rsplit(':').next().unwrap().to_owned();
    let Some(mut proxy) = tls_proxy(folder.path(), Some(&port)) else { return };
    let own = proxy.line("stdout", "");
    let put = |url: String, authorities: Option<&Path>| {
        let mut command = server.takt(&["store", "put", PLACE, large_in(folder.path()).to_str().unwrap()]);
        command.env("AWS_ENDPOINT_URL", url).env_remove("AWS_ALLOW_HTTP").env_remove("SSL_CERT_FILE");
        command.envs(authorities.map(|file| ("SSL_CERT_FILE", file))).output().unwrap()
    };
    let authority = folder.path().join("authority.pem");
    let other = folder.path().join("server.key");
    let here = || format!("https://127.0.0.1:{own}");
    for (url, authorities, words) in [
        (here(), None, "set SSL_CERT_FILE to a PEM file"),
        (here(), Some(folder.path().join("none")), "cannot be read"),
        (here(), Some(other), "not in the file in SSL_CERT_FILE"),
        (format!("https://localhost:{own}"), Some(authority.clone()), "not valid for name"),
        (format!("https://127.0.0.2:{own}"), Some(authority.clone()), "basicConstraints=CA:FALSE"),
        (format!("https://127.0.0.1:{port}"), Some(authority.clone()), "does not use TLS there"),
    ] {
        let message = refusal(&put(url, authorities.as_deref()));
        has(&message, &[PLACE, words]);
        assert_eq!(message.trim_end().lines().count(), 1, "{message}");
    }
    assert!(put(here(), Some(&authority)).status.success());
    // The same through the server's own address.
    assert_eq!(server.runs().len(), 1);
}

fn large_in(folder: &Path) -> std::path::PathBuf {
    let place = folder.join("large");
    if place.exists() { place } else { large(folder).path().to_owned() }
}
