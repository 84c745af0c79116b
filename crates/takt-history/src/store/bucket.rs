//! Objects of a bucket: S3, and what speaks its protocol.
//!
//! The crate `object_store` signs, sends and tries again; keys, endpoint and region come from the
//! environment that every client of S3 reads (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
//! `AWS_ENDPOINT_URL`, ...), and are kept nowhere.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use md5::{Digest, Md5};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{
    ClientConfigKey, Error, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig,
};
use takt_files::AUTHORITIES_BYTES;
use tokio::runtime::Runtime;

use crate::store::backend::{Backend, Draft, Meta};

/// Part size of a larger object: S3 takes at least 5 MiB in a part and at most 10,000 parts, and
/// some servers want parts of one size.
const PART: usize = 8 << 20;

/// A server that is gone or asks for time is tried again for so long; below the patience of whoever
/// asks, whose error has the reason then and not only that it takes long.
const AGAIN: Duration = Duration::from_secs(20);

/// The variable that names a file with the authorities that the client believes.
const AUTHORITIES: &str = "SSL_CERT_FILE";

/// Time that the end of a failed upload waits for the server to drop its parts.
const FORGET: Duration = Duration::from_secs(5);

/// A bucket, or what in it begins with a prefix.
pub(crate) struct Bucket {
    store: Arc<AmazonS3>,
    /// Empty, or without a slash at its end.
    prefix: String,
    runtime: Arc<Threads>,
}

impl fmt::Debug for Bucket {
    /// Without the client, which holds keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bucket").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// The client's thread. Dropping it does not wait for a name server that does not answer.
struct Threads(Option<Runtime>);

impl Threads {
    fn start() -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).thread_name("takt-store-s3").enable_all().build().map(|all| Self(Some(all)))
    }

    fn wait<F: Future>(&self, work: F) -> io::Result<F::Output> {
        let gone = || io::Error::other("the client has ended");
        Ok(self.0.as_ref().ok_or_else(gone)?.block_on(work))
    }

    fn ask<T>(&self, work: impl Future<Output = Result<T, Error>>) -> io::Result<T> {
        self.wait(work)?.map_err(failed)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// The text between two marks.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    rest.split_once(end).map(|(found, _)| found)
}

/// The client's message, on one line of limited length: a server's words are in it.
fn failed(error: Error) -> io::Error {
    let mut kind = match &error {
        Error::NotFound { .. } => ErrorKind::NotFound,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => ErrorKind::PermissionDenied,
        _ => ErrorKind::Other,
    };
    let mut text = error.to_string();
    if let Some(code) = between(&text, "<Code>", "</Code>") {
        // S3's answers are documents.
        if code == "NoSuchBucket" {
            kind = ErrorKind::NotFound;
        }
        let why = between(&text, "<Message>", "</Message>").unwrap_or("no further reason");
        text = format!("the server answered {code}: {why}");
    } else {
        // The client's own words stop before the system's: "error sending request".
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause.and_then(std::error::Error::source) {
            cause = Some(inner);
        }
        let cause = cause.map(ToString::to_string).unwrap_or_default();
        if let Some(why) = without_tls(&format!("{text}: {cause}")) {
            return io::Error::other(why);
        }
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        if text.contains("169.254.169.254") {
            // Asked where the environment names no key: a machine of Amazon's has one of its own.
            text = format!(
                "no key in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and this machine provides none: {text}"
            );
        }
    }
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    io::Error::new(kind, takt_files::shortened(&text))
}

/// Turns a missing object into `None`.
fn there<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Ok(value) => Ok(Some(value)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn meta(found: &ObjectMeta) -> Meta {
    Meta { size: found.size, modified: SystemTime::from(found.last_modified) }
}

/// Certificates are checked by this one in the whole program.
fn provide_tls() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        // Another may have been there before, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// Checks what the environment has for the client, which takes its values into addresses and
/// headers as they are and ends the thread that asks where they cannot be there. Values are not
/// repeated: they are keys.
pub(crate) fn check(environment: impl Iterator<Item = (OsString, OsString)>) -> Result<(), String> {
    for (name, value) in environment {
        if name == AUTHORITIES {
            takt_files::environment::check_file(AUTHORITIES, value.as_ref(), AUTHORITIES_BYTES)
                .map_err(|error| error.to_string())?;
        }
        let Some(name) = name.to_str().filter(|name| name.starts_with("AWS_")) else { continue };
        let is_address = name.starts_with("AWS_ENDPOINT");
        if !is_address
            && !["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"].contains(&name)
            && !name.ends_with("REGION")
        {
            continue;
        }
        let plain = value.to_str().filter(|value| value.bytes().all(|byte| (0x21..0x7f).contains(&byte)));
        let Some(value) = plain else {
            return Err(format!("{name} contains a space or a character that is not allowed in a request"));
        };
        if is_address && !value.is_empty() {
            let parsed = reqwest::Url::parse(value).ok();
            let there = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
            if !parsed.as_ref().is_some_and(there)
                || value.contains(['"', '<', '>', '\\', '^', '`', '{', '|', '}'])
            {
                return Err(format!("{name}: expected https://HOST:PORT"));
            }
        }
    }
    Ok(())
}

/// In words, what kept both sides from speaking TLS, as the client's library names it.
fn without_tls(cause: &str) -> Option<&'static str> {
    let authorities = std::env::var_os(AUTHORITIES);
    Some(match cause {
        _ if cause.contains("UnknownIssuer") => match authorities {
            Some(file) if takt_files::read(file.as_ref(), AUTHORITIES_BYTES).is_err() => {
                "the authority that signed the server's certificate is unknown here, and the file in SSL_CERT_FILE cannot be read"
            }
            Some(_) => {
                "the authority that signed the server's certificate is not in the file in SSL_CERT_FILE, which must contain it as PEM"
            }
            None => {
                "the authority that signed the server's certificate is unknown here: set SSL_CERT_FILE to a PEM file that contains it"
            }
        },
        _ if cause.contains("CaUsedAsEndEntity") => {
            "the server presents an authority's certificate: it needs one that an authority signed, with basicConstraints=CA:FALSE"
        }
        _ if cause.contains("InvalidContentType") => {
            "the server does not use TLS there: to connect without it, use http:// in AWS_ENDPOINT_URL and set AWS_ALLOW_HTTP=true"
        }
        _ => return None,
    })
}

/// Whether an object's e-tag is that of a file: S3's is the MD5 of what was sent in one request, or
/// of the MD5s of the parts, with their number. Servers may have others, which say nothing.
fn e_tag_agrees(tag: &str, file: &mut impl Read) -> io::Result<Option<bool>> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let tag = tag.trim_matches('"');
    let (sum, parts) = tag.split_once('-').map_or((tag, None), |(sum, parts)| (sum, Some(parts)));
    if sum.len() != 32 || !sum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(None);
    }
    let Some(parts) = parts else {
        let mut whole = Md5::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(Some(hex(&whole.finalize()) == sum)),
                length => whole.update(&buffer[..length]),
            }
        }
    };
    let (mut all, mut count) = (Md5::new(), 0u64);
    loop {
        let mut part = Vec::new();
        file.by_ref().take(PART as u64).read_to_end(&mut part)?;
        if part.is_empty() {
            break;
        }
        all.update(Md5::digest(&part));
        count += 1;
    }
    Ok(Some(parts == count.to_string() && hex(&all.finalize()) == sum))
}

impl Bucket {
    /// Opens it, and looks whether it is there.
    pub fn open(bucket: &str, prefix: &str) -> io::Result<Self> {
        provide_tls();
        let mut builder = AmazonS3Builder::from_env();
        if std::env::var_os("AWS_TIMEOUT").is_none() {
            // Of a whole object otherwise, however large: whoever asks has a limit for each part.
            builder = builder.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), "1h");
        }
        let retry = RetryConfig { max_retries: 4, retry_timeout: AGAIN, ..RetryConfig::default() };
        let builder = builder.with_bucket_name(bucket).with_retry(retry);
        let prefix = Path::parse(prefix).map_err(|error| io::Error::other(error.to_string()))?;
        let opened = Self {
            store: Arc::new(builder.build().map_err(failed)?),
            prefix: prefix.to_string(),
            runtime: Arc::new(Threads::start()?),
        };
        match opened.is_empty() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(io::Error::new(ErrorKind::NotFound, "the bucket does not exist"))
            }
            looked => looked.map(|_| opened),
        }
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }
}

impl Backend for Bucket {
    fn head(&self, name: &str) -> io::Result<Option<Meta>> {
        let path = self.path(name);
        let found = self.runtime.ask(async { there(self.store.head(&path).await) })?;
        Ok(found.as_ref().map(meta))
    }

    fn agrees(&self, name: &str, file: &mut File) -> io::Result<Option<bool>> {
        let path = self.path(name);
        let found = self.runtime.ask(async { there(self.store.head(&path).await) })?;
        let Some(tag) = found.and_then(|found| found.e_tag) else { return Ok(None) };
        e_tag_agrees(&tag, file)
    }

    fn read(&self, name: &str) -> io::Result<Option<Box<dyn Read + Send>>> {
        let path = self.path(name);
        let found = self.runtime.ask(async { there(self.store.get(&path).await) })?;
        Ok(found.map(|found| {
            let stream = found.into_stream();
            Box::new(Body { runtime: Arc::clone(&self.runtime), stream, rest: Bytes::new() })
                as Box<dyn Read + Send>
        }))
    }

    fn write(&self, name: &str) -> io::Result<Box<dyn Draft>> {
        Ok(Box::new(Upload {
            runtime: Arc::clone(&self.runtime),
            store: Arc::clone(&self.store),
            path: self.path(name),
            pending: Vec::new(),
            parts: None,
        }))
    }

    fn delete(&self, name: &str) -> io::Result<()> {
        let path = self.path(name);
        self.runtime.ask(async { there(self.store.delete(&path).await).map(drop) })
    }

    fn is_empty(&self) -> io::Result<bool> {
        let mut all = self.store.list(Some(&self.path("")));
        match self.runtime.wait(all.next())? {
            None => Ok(true),
            Some(first) => first.map(|_| false).map_err(failed),
        }
    }

    fn list(&self, folder: &str) -> io::Result<Vec<(String, Meta)>> {
        let at = self.path(folder);
        let start = format!("{at}/");
        let mut all = self.store.list(Some(&at));
        self.runtime.ask(async {
            let mut found = Vec::new();
            while let Some(object) = all.next().await {
                let object = object?;
                if let Some(name) = object.location.as_ref().strip_prefix(&start) {
                    found.push((name.to_owned(), meta(&object)));
                }
            }
            Ok(found)
        })
    }

    /// Objects are there whole or not at all. Parts of an upload that was killed are no objects:
    /// the bucket's own rule for them (`AbortIncompleteMultipartUpload`) takes them away.
    fn tidy(&self, _: &[&str], _: SystemTime, _: bool) -> io::Result<(usize, u64)> {
        Ok((0, 0))
    }
}

/// An object as it comes.
struct Body {
    runtime: Arc<Threads>,
    stream: BoxStream<'static, Result<Bytes, Error>>,
    rest: Bytes,
}

impl Read for Body {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() {
            match self.runtime.wait(self.stream.next())? {
                Some(part) => self.rest = part.map_err(failed)?,
                None => return Ok(0),
            }
        }
        let count = to.len().min(self.rest.len());
        to[..count].copy_from_slice(&self.rest.split_to(count));
        Ok(count)
    }
}

/// An object on its way: in one request where it is small, else in parts.
struct Upload {
    runtime: Arc<Threads>,
    store: Arc<AmazonS3>,
    path: Path,
    pending: Vec<u8>,
    /// Once a part was sent.
    parts: Option<Box<dyn MultipartUpload>>,
}

impl Draft for Upload {
    fn write(&mut self, part: &[u8]) -> io::Result<()> {
        self.pending.extend_from_slice(part);
        // More than a part, so that something is left for the end: an object of exactly one part
        // is sent in one request.
        while self.pending.len() > PART {
            let rest = self.pending.split_off(PART);
            let part = std::mem::replace(&mut self.pending, rest);
            let (store, path, parts) = (&self.store, &self.path, &mut self.parts);
            self.runtime.ask(async move {
                let upload = match parts {
                    Some(upload) => upload,
                    None => parts.insert(store.put_multipart(path).await?),
                };
                upload.put_part(part.into()).await
            })?;
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> io::Result<()> {
        let rest = std::mem::take(&mut self.pending);
        let Self { runtime, store, path, parts, .. } = &mut *self;
        runtime.ask(async {
            match parts {
                None => store.put(path, rest.into()).await?,
                Some(upload) => {
                    upload.put_part(rest.into()).await?;
                    upload.complete().await?
                }
            };
            Ok(())
        })?;
        self.parts = None;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(mut upload) = self.parts.take() else { return };
        // The bucket's rule removes uploads that the server does not forget now.
        let _ = self.runtime.wait(async { tokio::time::timeout(FORGET, upload.abort()).await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_tags_of_one_request_and_of_parts_agree_with_their_file_alone() {
        let agrees = |tag: &str, mut bytes: &[u8]| e_tag_agrees(tag, &mut bytes).unwrap();
        // RFC 1321's own; sums of 17 MiB of zeros by another program, in parts of 8 MiB.
        assert_eq!(agrees("\"900150983cd24fb0d6963f7d28e17f72\"", b"abc"), Some(true));
        assert_eq!(agrees("900150983cd24fb0d6963f7d28e17f72", b"abd"), Some(false));
        let zeros = vec![0; 17 << 20];
        let tag = "\"e6000a567fdaa0162ceedec6b60fcd68-3\"";
        assert_eq!(agrees(tag, &zeros), Some(true));
        assert_eq!(agrees(tag, &zeros[1..]), Some(false));
        assert_eq!(agrees(&tag.replace("-3", "-2"), &zeros), Some(false));
        for other in
            ["", "\"0x8D\"", "W/\"900150983cd24fb0d6963f7d28e17f72\"", "z00150983cd24fb0d6963f7d28e17f72"]
        {
            assert_eq!(agrees(other, b"abc"), None, "{other}");
        }
    }
}
